#include "dtype.hpp"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "compat.hpp"

namespace tutti_torch {

namespace {

tutti_dtype find_dtype(at::ScalarType type) {
  switch (type) {
    case at::kBool: return TUTTI_DTYPE_BOOL;
    case at::kByte: return TUTTI_DTYPE_UINT8;
    case at::kUInt16: return TUTTI_DTYPE_UINT16;
    case at::kUInt32: return TUTTI_DTYPE_UINT32;
    case at::kUInt64: return TUTTI_DTYPE_UINT64;
    case at::kChar: return TUTTI_DTYPE_INT8;
    case at::kShort: return TUTTI_DTYPE_INT16;
    case at::kInt: return TUTTI_DTYPE_INT32;
    case at::kLong: return TUTTI_DTYPE_INT64;
    case at::kHalf: return TUTTI_DTYPE_FP16;
    case at::kBFloat16: return TUTTI_DTYPE_BF16;
    case at::kFloat: return TUTTI_DTYPE_FP32;
    case at::kDouble: return TUTTI_DTYPE_FP64;
    case at::kComplexFloat: return TUTTI_DTYPE_COMPLEX64;
    case at::kComplexDouble: return TUTTI_DTYPE_COMPLEX128;
    case at::kFloat8_e4m3fn: return TUTTI_DTYPE_FP8_E4M3;
    case at::kFloat8_e5m2: return TUTTI_DTYPE_FP8_E5M2;
    default: return TUTTI_DTYPE_NONE;
  }
}

tutti_reduce find_reduce(const c10d::ReduceOp& reduce) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(reduce)) {
    case c10d::ReduceOp::SUM: return TUTTI_REDUCE_SUM;
    case c10d::ReduceOp::AVG: return TUTTI_REDUCE_AVG;
    case c10d::ReduceOp::PRODUCT: return TUTTI_REDUCE_PROD;
    case c10d::ReduceOp::MIN: return TUTTI_REDUCE_MIN;
    case c10d::ReduceOp::MAX: return TUTTI_REDUCE_MAX;
    case c10d::ReduceOp::BAND: return TUTTI_REDUCE_BAND;
    case c10d::ReduceOp::BOR: return TUTTI_REDUCE_BOR;
    case c10d::ReduceOp::BXOR: return TUTTI_REDUCE_BXOR;
    case c10d::ReduceOp::PREMUL_SUM: return TUTTI_REDUCE_PREMUL_SUM;
    default: TORCH_CHECK(false, "tutti: unknown reduce op");
  }
}

double factor_of(const c10d::ReduceOp& reduce) {
  const auto* more = dynamic_cast<const PremulFactor*>(reduce.supplement_.get());

  TORCH_CHECK(more != nullptr, "tutti: PREMUL_SUM without a factor: use torch.distributed._make_nccl_premul_sum");
  return more->tensor_factor.defined() ? more->tensor_factor.item<double>() : more->double_factor;
}

}  // namespace

tutti_dtype moved_dtype(at::ScalarType type, int64_t* ret_factor) {
  const tutti_dtype dtype = find_dtype(type);

  *ret_factor = dtype != TUTTI_DTYPE_NONE ? 1 : static_cast<int64_t>(c10::elementSize(type));
  return dtype != TUTTI_DTYPE_NONE ? dtype : TUTTI_DTYPE_UINT8;
}

tutti_dtype reduced_dtype(at::ScalarType type) {
  const tutti_dtype dtype = find_dtype(type);

  TORCH_CHECK(dtype != TUTTI_DTYPE_NONE, "tutti: Invalid scalar type: ", type, " can be moved, and cannot be reduced");
  return dtype;
}

void set_reduce(tutti_op& op, const c10d::ReduceOp& reduce, at::ScalarType type) {
  op.reduce = find_reduce(reduce);
  if (op.reduce == TUTTI_REDUCE_BAND || op.reduce == TUTTI_REDUCE_BOR || op.reduce == TUTTI_REDUCE_BXOR) {
    TORCH_CHECK(!c10::isFloatingType(type) && !c10::isComplexType(type),
                "tutti: Cannot use ReduceOp.BAND, BOR or BXOR with non-integral dtype");
  }
  if (op.reduce == TUTTI_REDUCE_PREMUL_SUM) {
    op.factor = factor_of(reduce);
  }
}

}  // namespace tutti_torch
