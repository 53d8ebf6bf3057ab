// Errors of libtutti as errors of torch.distributed: DistBackendError with libtutti's sentence.
#pragma once

#include <exception>
#include <string>

#include <tutti/error.h>

namespace tutti_torch {

// What a program sees: "tutti: UNAVAILABLE RANK_LOST: ...". An op whose time was up also says "Timed out", which is what
// programs for other backends look for.
std::string error_text(const tutti_error& err);

// Throws DistBackendError, unless the code is TUTTI_OK.
void check(tutti_code code, const tutti_error& err);

// The same as a value, for works that end later; nullptr for TUTTI_OK.
std::exception_ptr error_of(const tutti_error& err);

}  // namespace tutti_torch
