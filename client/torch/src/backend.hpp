// The backend "tutti" of torch.distributed: c10d's collectives on a group of Tutti's agents.
//
// Each process group is a group of the job. Ops are given to libtutti in the order in which they are called; small arrays
// travel in the call, larger ones through memory that is mapped from the agent. Any thread, as c10d allows it: collectives
// of one process group are called by one thread at a time.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tutti/op.h>

#include "runtime.hpp"
#include "work.hpp"

namespace tutti_torch {

struct Call;

class TuttiBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // store: where the members of this group meet, with a prefix of its own. global_ranks: of the first process group. torch: its
  // version here.
  TuttiBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
               std::vector<int64_t> global_ranks, std::string name, const std::string& torch);

  const std::string getBackendName() const override { return "tutti"; }
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  // Without `override`: torch 2.4 does not ask.
  bool supportsCoalescing() const { return true; }
  bool supportsSplitting() const { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void setTimeout(std::chrono::milliseconds timeout);
  // Of collectives, so it is the same on all ranks; sends and receives do not count.
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // A backend for some ranks of this group; nullptr if this rank is none of them.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts);

  // A tensor whose memory is the agent's, so that ops on it copy nothing; ordinary memory where the agent lends none.
  at::Tensor allocateTensor(long size, at::TensorOptions options);
  bool supportsTensorAlloc(c10::DeviceIndex index);

  // Ends this group's ops on every rank; no op of the group works afterwards.
  void abort();
  // The program destroys the process group: later ops fail here, what is under way goes on.
  void shutdown() { closed_ = true; }

  // Which ranks of a group are left.
  struct Shrunk {
    std::vector<int64_t> ranks;  // group ranks that they had
    std::string name;            // of no other group of the job: for keys of a store
    std::string coordinator;     // its address
  };
  // Ends this group, and says who is left of it; all who are call it.
  Shrunk shrink_to(std::chrono::milliseconds timeout);

  const std::string& group() const { return group_; }

 private:
  void meet(const std::string& name);
  std::chrono::milliseconds limit_of(std::chrono::milliseconds timeout) const;
  std::string missing_ranks(bool all);
  void fail_monitored(const tutti_error& err, std::chrono::milliseconds limit, bool all);
  Call make_call(tutti_op_kind kind, std::chrono::milliseconds timeout) const;
  Call reduce_call(tutti_op_kind kind, std::chrono::milliseconds timeout, const c10d::ReduceOp& reduce,
                   const at::Tensor& tensor) const;
  Call gather_call(at::Tensor output, const at::Tensor& input, std::chrono::milliseconds timeout) const;
  Call scatter_call(at::Tensor output, const at::Tensor& input, const c10d::ReduceOp& reduce,
                    std::chrono::milliseconds timeout) const;
  WorkPtr exchange(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts, c10d::OpType type);
  WorkPtr receive(Tensors& tensors, int from, int tag, c10d::OpType type);
  uint64_t record(const char* title, const Tensors& inputs, const Tensors& outputs, const Call* call, uint64_t sequence);
  WorkPtr run(c10d::OpType type, const char* title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls,
              bool async);

  std::shared_ptr<Runtime> runtime_;
  std::string torch_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<Options> options_;
  std::chrono::milliseconds timeout_;
  std::vector<int64_t> global_ranks_;
  std::string group_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint64_t> ops_{0};
  std::atomic<uint64_t> pairs_{0};
  size_t recorded_;  // this group's number in the flight record
  bool is_named_ = false;
  int64_t monitored_ = 0;  // monitored barriers
  std::atomic<bool> closed_{false};
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace tutti_torch
