// What all process groups of this process share: a client of the agent, a completion queue, and memory that the agent lends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/client.h>
#include <tutti/launch.h>
#include <tutti/queue.h>
#include <tutti/tensor.h>

#include "gpu.hpp"

namespace tutti_torch {

// Called once when an op has ended, on a thread of the runtime or one that drives. It must not wait for other ops.
using OnDone = std::function<void(const tutti_queue_completion&)>;

class Runtime {
 public:
  // The one of this process; made by the first process group, which tells how the ranks find each other. Without
  // $TUTTI_AGENT each rank launches an agent, and rank 0 the coordinator, if $TUTTI_COORDINATOR names none. is_default: it
  // is the group of all ranks, which says what their numbers are from now on. torch: its version, which must be that of the
  // other ranks, but for what follows the second number.
  static std::shared_ptr<Runtime> open(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool is_default,
                                       const std::string& torch);
  static std::shared_ptr<Runtime> current();  // nullptr: there is none
  static void close();                        // when the interpreter ends; fine if there is none

  ~Runtime();

  tutti_client* client() { return client_; }
  // Does the agent lend memory to this process? Else data travels in messages, and why_not() says why.
  bool is_shared() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  // Memory of the agent's GPU; nullptr: it has none, or why_no_gpu() says why it cannot be opened on all ranks.
  Gpu* gpu() { return use_gpu_ ? gpu_.get() : nullptr; }
  const std::string& why_no_gpu() const { return why_no_gpu_; }
  // For tests over the stand-in, which torch does not have: tensors of the CPU are treated as those of CUDA.
  bool is_all_on_gpu() const { return all_on_gpu_; }
  // How many bytes were copied to memory of the agent's and back, for tests and bench.
  uint64_t copied_bytes() const;
  // How many ops the GPU has ordered by events, for tests.
  uint64_t ordered_ops() const { return gpu_ ? gpu_->ordered_ops() : 0; }
  // The rank of the job that each rank of the default process group has.
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  // This process's, in the default process group.
  int rank() const { return rank_; }

  // Throws DistBackendError if the op cannot be submitted; waits while the queue is full. driven: the caller calls `drive`
  // next.
  void submit(tutti_op_kind kind, const tutti_op& op, const tutti_queue_data* data, bool driven, OnDone on_done);

  // As submit, of several arrays in one op (tutti_queue_submit_list).
  void submit_list(tutti_op_kind kind, const tutti_op& op, const std::vector<tutti_op_data>& arrays, bool driven, OnDone on_done);

  // Waits until is_done(), which a completion brings about; this thread takes completions itself if no other one does, which
  // saves a change of threads.
  void drive(const std::function<bool()>& is_done);

  // A tensor of one dimension whose memory is the agent's; ordinary memory where the agent lends none.
  static at::Tensor empty(const std::shared_ptr<Runtime>& runtime, int64_t count, at::TensorOptions options);

 private:
  Runtime(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& torch);
  void connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  std::string launch(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  void exchange_ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  void give(bool driven, OnDone on_done, const std::function<tutti_code(void* user, tutti_error* err)>& submit_to);
  void open_memory(const tutti_client_options& options);
  tutti_client_options client_options() const;
  bool wants_events() const;
  void poll(bool spare);
  bool take_one(std::unique_lock<std::mutex>& lock);

  pid_t owner_;
  std::string torch_;
  tutti_launched* launched_ = nullptr;
  tutti_client* client_ = nullptr;
  tutti_lease* lease_ = nullptr;  // groups and tensors of this process go with it, though the agent stays
  tutti_queue* queue_ = nullptr;
  std::string agent_;  // its address
  std::string why_not_;
  std::string why_no_gpu_;
  bool all_on_gpu_ = false;
  std::unique_ptr<Gpu> gpu_;
  std::atomic<bool> use_gpu_{false};
  std::vector<uint32_t> ranks_;
  int rank_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;  // an op has: the queue has room again, and another thread may take completions
  std::condition_variable begun_;  // the poller is wanted
  std::condition_variable spare_;  // a spare poller is
  bool stop_ = false;
  bool taking_ = false;  // a thread takes completions
  int telling_ = 0;      // completions that threads tell of
  int driving_ = 0;      // threads in `drive`
  int outstanding_ = 0;  // ops whose completion has not been taken
  std::vector<std::thread> pollers_;  // take completions of ops that nobody drives
};

// "attempt 2/": torchrun keeps the keys of an attempt that failed, so keys of each attempt have names of their own.
std::string attempt_prefix();

}  // namespace tutti_torch
