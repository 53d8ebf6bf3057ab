// One op on arrays of torch, and how it is given to libtutti.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <tutti/op.h>

#include "runtime.hpp"

namespace tutti_torch {

struct Call {
  tutti_op_kind kind = TUTTI_OP_BARRIER;
  tutti_op op;
  tutti_dtype dtype = TUTTI_DTYPE_UINT8;
  const void* give = nullptr;  // nullptr: this rank gives nothing
  int64_t give_count = 0;      // elements
  void* take = nullptr;        // nullptr: it takes nothing. May be `give`
  int64_t take_count = 0;
  bool driven = false;  // the caller waits for it by Runtime::drive
  std::vector<int64_t> input_splits;
  std::vector<int64_t> output_splits;
  at::Tensor given;              // whose memory it is
  at::Tensor taken;
  std::function<void()> fetch;   // when it has succeeded, before `finish`: from the host to a GPU; nullptr = nothing
  std::function<void()> finish;  // what is left to be copied then; nullptr = nothing

  void set_give(const at::Tensor& tensor, int64_t factor = 1);
  void set_take(const at::Tensor& tensor, int64_t factor = 1);
  uint64_t give_bytes() const;
  uint64_t take_bytes() const;
  bool is_in_place() const;
  // The GPU that its tensors are on; nullopt: they are in the memory of the program.
  std::optional<at::Device> gpu() const;
};

// Told once: why the op failed (nullptr = it succeeded), and of a recv its source, as a group rank.
using OnEnd = std::function<void(std::exception_ptr error, int source)>;

// Gives the call to the queue. Throws if that fails; on_end is not called then.
void submit_call(const std::shared_ptr<Runtime>& runtime, Call call, OnEnd on_end);

// Several calls of one kind that give and take, as one op with one agreement of the ranks: 1 to kListMost. All ranks make lists
// of the same calls.
constexpr size_t kListMost = 1024;
void submit_list(const std::shared_ptr<Runtime>& runtime, std::vector<Call> calls, OnEnd on_end);

}  // namespace tutti_torch
