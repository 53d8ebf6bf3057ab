// Dtypes and reduce ops of torch in libtutti's words. Any thread.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <tutti/op.h>
#include <tutti/types.h>

namespace tutti_torch {

// Of a tensor that is moved: dtypes that libtutti does not know are moved as bytes, `*ret_factor` of them for each element.
tutti_dtype moved_dtype(at::ScalarType type, int64_t* ret_factor);

// Of a tensor that is reduced. Throws if libtutti does not reduce it.
tutti_dtype reduced_dtype(at::ScalarType type);

// Sets op.reduce and op.factor. Throws for what c10d refuses: bit ops on floating-point numbers, factors that are no
// numbers.
void set_reduce(tutti_op& op, const c10d::ReduceOp& reduce, at::ScalarType type);

}  // namespace tutti_torch
