// One op, or several, as torch waits for it. Any thread; completed on a thread of the runtime, or before it is returned.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch {

class TuttiWork : public c10d::Work {
 public:
  // outputs: what result() and the future give. parts: how many ops it waits for. title: for the profiler.
  TuttiWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
            std::vector<at::Tensor> outputs, uint64_t sequence, int parts);

  // The entry of the flight record that ends with this work. rank: whose file it is written to if the work fails.
  void set_record(uint64_t id, int rank);

  // A part has ended; the last one completes the work with the first error. source: of a recv; -1 = none.
  void end_part(std::exception_ptr error, int source = -1);

  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  bool isCompleted() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override {}
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_;
  bool recorded_ = false;
  uint64_t record_ = 0;
  int record_rank_ = 0;
  int parts_;  // under mutex_, as what follows
  int source_ = -1;
  std::exception_ptr first_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti_torch
