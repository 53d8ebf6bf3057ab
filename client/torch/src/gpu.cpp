#include "gpu.hpp"

#include <c10/util/Exception.h>

#include "cuda.hpp"
#include "error.hpp"

namespace tutti_torch {

namespace {

constexpr uint64_t kLeast = 64u << 10;
constexpr uint64_t kKept = 512u << 20;  // of free blocks, together
constexpr uint32_t kEvents = 64;        // ops under way at one time that are ordered by events

// Powers of two up to 1 MiB, then multiples of 1 MiB: staging of one training step hits the same classes each time.
uint64_t class_of(uint64_t bytes) {
  uint64_t size = kLeast;

  while (size < bytes && size < (1u << 20)) {
    size *= 2;
  }
  return size >= bytes ? size : (bytes + (1u << 20) - 1) >> 20 << 20;
}

}  // namespace

GpuBlock::GpuBlock(Gpu& gpu, uint64_t bytes) : gpu_(gpu), bytes_(bytes) {
  const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {static_cast<int64_t>(bytes)}};
  tutti_error err;

  check(tutti_tensor_create(gpu.client(), &spec, nullptr, &handle_, &err), err);
  try {
    check(tutti_tensor_share_gpu(gpu.client(), handle_.text, &share_, &err), err);
    const tutti_gpu_share_info* info = tutti_gpu_share_describe(share_);
    device_ = gpu.cuda().number_of(info->gpu_uuid);
    data_ = gpu.cuda().open(device_, info->ipc_handle);
  } catch (...) {
    tutti_gpu_share_end(share_);
    tutti_tensor_delete(gpu.client(), handle_.text, nullptr);
    throw;
  }
}

GpuBlock::~GpuBlock() {
  try {
    gpu_.cuda().close(device_, data_);
  } catch (const std::exception&) {  // the GPU is gone, and its memory with it
  }
  tutti_gpu_share_end(share_);
  tutti_tensor_delete(gpu_.client(), handle_.text, nullptr);
}

void GpuBlock::copy(void* to, const void* from, uint64_t bytes) const {
  gpu_.copy(device_, to, from, bytes);
}

std::string GpuBlock::range(tutti_dtype dtype, int64_t count) const {
  return std::string(handle_.text) + "@0:" + tutti_dtype_name(dtype) + "[" + std::to_string(count) + "]";
}

// ------------------------------------------------------------------ events

void GpuEvent::wait_in(void* event) const {
  gpu_->cuda().wait_in(device_, event);
}

void GpuEvent::copy_in(void* to, const void* from, uint64_t bytes) const {
  if (bytes > 0) {
    gpu_->cuda().copy_in(device_, to, from, bytes);
    gpu_->copied_ += bytes;
  }
}

void GpuEvent::record() const {
  gpu_->cuda().record_in(device_, event_);
  gpu_->ordered_++;
}

void GpuEvent::finish_in() const {
  gpu_->cuda().synchronize_in(device_);
}

// What cannot be had is no failure: the calling thread waits for the GPU then.
void Gpu::open_events() {
  std::vector<std::unique_ptr<GpuEvent>> opened;

  if (tutti_gpu_events_open(client_, nullptr, kEvents, &lent_, nullptr) != TUTTI_OK) {
    return;
  }
  try {
    const int device = cuda_->number_of(tutti_gpu_events_uuid(lent_));
    for (uint32_t i = 0; i < kEvents; i++) {
      auto event = std::make_unique<GpuEvent>();
      event->gpu_ = this;
      event->device_ = device;
      event->id_ = tutti_gpu_events_list(lent_)[i].id;
      event->event_ = cuda_->open_event(device, tutti_gpu_events_list(lent_)[i].ipc_handle);
      opened.push_back(std::move(event));
    }
  } catch (const std::exception&) {  // a runtime or a GPU without such events
  }
  std::lock_guard<std::mutex> lock(mutex_);
  free_events_ = std::move(opened);
}

std::shared_ptr<GpuEvent> Gpu::take_event() {
  std::lock_guard<std::mutex> lock(mutex_);

  if (free_events_.empty()) {
    return nullptr;
  }
  std::unique_ptr<GpuEvent> event = std::move(free_events_.back());
  free_events_.pop_back();
  return std::shared_ptr<GpuEvent>(event.release(), [this](GpuEvent* back) { give_event_back(back); });
}

void Gpu::give_event_back(GpuEvent* back) {
  std::unique_ptr<GpuEvent> event(back);
  std::lock_guard<std::mutex> lock(mutex_);

  free_events_.push_back(std::move(event));
  if (ended_) {
    close_events();
  }
}

// With the lock. Those that ops have are closed when they come back.
void Gpu::close_events() {
  for (const std::unique_ptr<GpuEvent>& event : free_events_) {
    try {
      cuda_->close_event(event->device_, event->event_);
    } catch (const std::exception&) {  // the GPU is gone
    }
  }
  free_events_.clear();
}

// The first block tells whether it can be opened at all.
std::unique_ptr<Gpu> Gpu::open(const tutti_client_options& options, std::string* ret_why) {
  std::unique_ptr<Gpu> gpu(new Gpu());
  tutti_error err;

  try {
    gpu->cuda_ = std::make_unique<Cuda>();
    check(tutti_connect_with(&options, &gpu->client_, &err), err);
    check(tutti_set_device(gpu->client_, "cuda", &err), err);
    check(tutti_lease_open(gpu->client_, &gpu->lease_, &err), err);
    gpu->give_back(std::make_unique<GpuBlock>(*gpu, kLeast));
  } catch (const c10::Error& error) {
    *ret_why = error.what_without_backtrace();
    return nullptr;
  }
  return gpu;
}

void Gpu::end() {
  std::lock_guard<std::mutex> lock(mutex_);

  ended_ = true;
  free_bytes_ = 0;
  free_.clear();
  close_events();
  cuda_->end();
}

Gpu::~Gpu() {
  free_.clear();
  if (cuda_) {
    close_events();
  }
  tutti_gpu_events_end(lent_);
  tutti_lease_close(lease_);
  tutti_close(client_);
}

void Gpu::give_back(std::unique_ptr<GpuBlock> block) {
  std::lock_guard<std::mutex> lock(mutex_);

  if (!ended_ && !block->is_spoiled() && free_bytes_ + block->bytes() <= kKept) {
    free_bytes_ += block->bytes();
    free_[block->bytes()].push_back(std::move(block));
  }
}

std::shared_ptr<GpuBlock> Gpu::stage(uint64_t bytes) {
  const uint64_t size = class_of(bytes);
  std::unique_ptr<GpuBlock> block;

  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& blocks = free_[size];
    if (!blocks.empty()) {
      block = std::move(blocks.back());
      blocks.pop_back();
      free_bytes_ -= size;
    }
  }
  if (!block) {
    block = std::make_unique<GpuBlock>(*this, size);
  }
  return std::shared_ptr<GpuBlock>(block.release(), [this](GpuBlock* back) { give_back(std::unique_ptr<GpuBlock>(back)); });
}

void Gpu::copy(int device, void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) {
    cuda_->copy(device, to, from, bytes);
    copied_ += bytes;
  }
}

}  // namespace tutti_torch
