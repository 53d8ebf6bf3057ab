#include "work.hpp"

#include <c10/util/Exception.h>

#include "recorder.hpp"

namespace tutti_torch {

TuttiWork::TuttiWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                     std::vector<at::Tensor> outputs, uint64_t sequence, int parts)
    : Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      parts_(parts),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
  if (parts == 0) {
    parts_ = 1;
    end_part(nullptr);
  }
}

void TuttiWork::set_record(uint64_t id, int rank) {
  recorded_ = true;
  record_ = id;
  record_rank_ = rank;
}

// The future comes last: its callbacks may ask the work. So who waits, waits for the future too: it may ask that at once.
void TuttiWork::end_part(std::exception_ptr error, int source) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error && !first_) {
      first_ = error;
    }
    if (source >= 0) {
      source_ = source;
    }
    if (--parts_ > 0) {
      return;
    }
    error = first_;
  }
  if (recorded_) {
    Recorder::get().end(record_, !error);
  }
  finish(error);
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  if (error && recorded_) {
    Recorder::get().failed(record_rank_);
  }
}

bool TuttiWork::isCompleted() {
  return Work::isCompleted() && future_->completed();
}

int TuttiWork::sourceRank() const {
  std::lock_guard<std::mutex> lock(mutex_);

  return source_;
}

std::vector<at::Tensor> TuttiWork::result() {
  TORCH_CHECK(isCompleted(), "tutti: result() of a work that has not completed: wait for it first");
  return outputs_;
}

bool TuttiWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);

  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    C10_THROW_ERROR(DistBackendError,
                    "tutti: Timed out waiting " + std::to_string(timeout.count()) +
                        "ms for an operation to complete; it goes on: its own timeout is that of the group");
  }
  lock.unlock();
  future_->wait();
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void TuttiWork::abort() {
  TORCH_CHECK(false, "tutti: one work cannot be aborted: abort() of the process group ends all of its ops");
}

c10::intrusive_ptr<c10::ivalue::Future> TuttiWork::getFuture() {
  return future_;
}

}  // namespace tutti_torch
