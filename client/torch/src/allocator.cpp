#include "allocator.hpp"

#include <memory>
#include <utility>

#include <c10/core/CPUAllocator.h>

#include "runtime.hpp"

namespace tutti_torch {

namespace {

thread_local size_t least = 0;

void release(void* context) {
  delete static_cast<at::Tensor*>(context);
}

// torch has one allocator for the CPU, for all threads. This one gives what the one before it gives, but for threads that ask.
class LendingAllocator final : public c10::Allocator {
 public:
  explicit LendingAllocator(c10::Allocator* ordinary) : ordinary_(ordinary) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (least == 0 || bytes < least) {
      return ordinary_->allocate(bytes);
    }
    c10::DataPtr lent = lend(bytes);
    return lent ? std::move(lent) : ordinary_->allocate(bytes);
  }

  // None serves both kinds of memory; each DataPtr has its own.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

 private:
  // nullptr: the agent has no memory for it.
  static c10::DataPtr lend(size_t bytes) {
    const std::shared_ptr<Runtime> runtime = Runtime::current();
    const size_t asked = std::exchange(least, 0);  // Runtime::empty may take ordinary memory, by this allocator
    c10::DataPtr lent;

    try {
      if (runtime != nullptr) {
        auto held = std::make_unique<at::Tensor>(Runtime::empty(runtime, static_cast<int64_t>(bytes), at::TensorOptions().dtype(at::kByte)));
        void* const data = held->data_ptr();
        lent = c10::DataPtr(data, held.release(), &release, c10::Device(c10::kCPU));
      }
    } catch (const c10::Error&) {  // the limit of the agent's memory: what a program needs beyond it is ordinary
    }
    least = asked;
    return lent;
  }

  c10::Allocator* ordinary_;
};

// Stays for the life of the process: tensors that it made may outlive everything else.
void install() {
  static const bool once = [] {
    c10::SetCPUAllocator(new LendingAllocator(c10::GetCPUAllocator()), 1);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

size_t lend_from(size_t at_least) {
  if (at_least != 0) {
    install();
  }
  return std::exchange(least, at_least);
}

}  // namespace tutti_torch
