#include "error.hpp"

#include <cstring>

#include <c10/util/Exception.h>
#include <tutti/code.h>

namespace tutti_torch {

std::string error_text(const tutti_error& err) {
  std::string text = std::string("tutti: ") + tutti_code_name(err.code);

  if (err.reason[0] != '\0') {
    text += std::string(" ") + err.reason;
  }
  if (err.code == TUTTI_DEADLINE_EXCEEDED) {
    text += ": Timed out waiting";
  }
  return text + ": " + err.text;
}

void check(tutti_code code, const tutti_error& err) {
  if (code != TUTTI_OK) {
    C10_THROW_ERROR(DistBackendError, error_text(err));
  }
}

std::exception_ptr error_of(const tutti_error& err) {
  if (err.code == TUTTI_OK) {
    return nullptr;
  }
  try {
    check(err.code, err);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace tutti_torch
