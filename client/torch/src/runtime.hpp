// What all process groups of this process share: a client of the agent, a completion queue, and mapped memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
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

#include "memory.hpp"

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
  Memory& memory() { return *memory_; }
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

  // On a thread of its own, behind what was given before: copies of large results, that must not delay other ops.
  void later(std::function<void()> task);

 private:
  Runtime(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& torch);
  void connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  std::string launch(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  void exchange_ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);
  void give(bool driven, OnDone on_done, const std::function<tutti_code(void* user, tutti_error* err)>& submit_to);
  void serve();
  void poll(bool spare);
  bool take_one(std::unique_lock<std::mutex>& lock);

  pid_t owner_;
  std::string torch_;
  tutti_launched* launched_ = nullptr;
  tutti_client* client_ = nullptr;
  tutti_lease* lease_ = nullptr;  // groups and tensors of this process go with it, though the agent stays
  tutti_queue* queue_ = nullptr;
  std::unique_ptr<Memory> memory_;
  std::vector<uint32_t> ranks_;
  int rank_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;  // an op has: the queue has room again, and another thread may take completions
  std::condition_variable begun_;  // the poller is wanted
  std::condition_variable spare_;  // a spare poller is
  std::condition_variable tasks_;  // something is in `later_`
  std::deque<std::function<void()>> later_;
  bool stop_ = false;
  bool taking_ = false;  // a thread takes completions
  int telling_ = 0;      // completions that threads tell of
  int driving_ = 0;      // threads in `drive`
  int outstanding_ = 0;  // ops whose completion has not been taken
  std::thread server_;   // of `later_`
  std::vector<std::thread> pollers_;  // take completions of ops that nobody drives
};

// "attempt 2/": torchrun keeps the keys of an attempt that failed, so keys of each attempt have names of their own.
std::string attempt_prefix();

}  // namespace tutti_torch
