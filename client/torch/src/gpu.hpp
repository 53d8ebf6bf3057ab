// Memory of the agent's GPU that is opened here: tensors of CUDA are copied there for an op and back.
//
// A block is a tensor of bytes in the agent, opened by a handle of CUDA's; ops name ranges of it. Blocks that are given back are
// kept for the next op of their size. The CUDA runtime is loaded when a GPU is opened, so that neither libtutti nor this package
// is linked with it. Any thread. All calls wait for what they do on the GPU, but for those of a GpuEvent.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tutti/client.h>
#include <tutti/share.h>
#include <tutti/tensor.h>

namespace tutti_torch {

class Cuda;
class Gpu;

class GpuBlock {
 public:
  GpuBlock(Gpu& gpu, uint64_t bytes);  // throws DistBackendError
  ~GpuBlock();
  GpuBlock(const GpuBlock&) = delete;
  GpuBlock& operator=(const GpuBlock&) = delete;

  char* data() const { return data_; }  // an address of the GPU's
  uint64_t bytes() const { return bytes_; }
  int device() const { return device_; }  // its number in this process
  // Between addresses of a GPU's and of the program's. Throws DistBackendError.
  void copy(void* to, const void* from, uint64_t bytes) const;
  // "HANDLE@0:DTYPE[COUNT]"
  std::string range(tutti_dtype dtype, int64_t count) const;
  // An op on it has failed, and may write there still: it is not used again, and the agent keeps the memory until that is over.
  void spoil() { spoiled_ = true; }
  bool is_spoiled() const { return spoiled_; }

 private:
  Gpu& gpu_;
  uint64_t bytes_;
  tutti_handle handle_;
  tutti_gpu_share* share_ = nullptr;
  int device_ = 0;
  char* data_ = nullptr;
  std::atomic<bool> spoiled_{false};
};

// An event that the agent has lent: ops of which it is the after_event begin on the GPU when the copies before its record are
// done, and nobody waits for them here. Of one op at a time.
class GpuEvent {
 public:
  uint64_t id() const { return id_; }
  // What goes in from now on comes behind `event` (a cudaEvent_t of this process).
  void wait_in(void* event) const;
  // As GpuBlock::copy; the memory must stay until the op has ended, or finish_in has returned.
  void copy_in(void* to, const void* from, uint64_t bytes) const;
  void record() const;
  // Wait for all that goes in; for an op that has failed, whose memory somebody may use again.
  void finish_in() const;

 private:
  friend class Gpu;
  Gpu* gpu_ = nullptr;
  int device_ = 0;
  uint64_t id_ = 0;
  void* event_ = nullptr;
};

class Gpu {
 public:
  // options: of the client whose ops name blocks. nullptr and ret_why: the agent's memory cannot be opened here.
  static std::unique_ptr<Gpu> open(const tutti_client_options& options, std::string* ret_why);
  ~Gpu();

  // The program ends: close what is open, though somebody has this object still, as torch's static objects may. Blocks are
  // closed from then on when they are given back.
  void end();

  std::shared_ptr<GpuBlock> stage(uint64_t bytes);
  void copy(int device, void* to, const void* from, uint64_t bytes);
  uint64_t copied_bytes() const { return copied_; }

  // Have the agent lend events, if it knows them. Else take_event finds none.
  void open_events();
  // nullptr: there are none, or all are in use. Given back when the last owner lets go.
  std::shared_ptr<GpuEvent> take_event();
  uint64_t ordered_ops() const { return ordered_; }  // by events

  tutti_client* client() { return client_; }
  Cuda& cuda() { return *cuda_; }

 private:
  Gpu() = default;
  void give_back(std::unique_ptr<GpuBlock> block);
  void give_event_back(GpuEvent* event);
  void close_events();
  friend class GpuEvent;

  tutti_client* client_ = nullptr;  // of its own, as the tensors that it makes are on the GPU
  tutti_lease* lease_ = nullptr;
  std::unique_ptr<Cuda> cuda_;
  std::atomic<uint64_t> copied_{0};
  std::atomic<uint64_t> ordered_{0};
  tutti_gpu_events* lent_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GpuEvent>> free_events_;
  std::map<uint64_t, std::vector<std::unique_ptr<GpuBlock>>> free_;  // by size class
  uint64_t free_bytes_ = 0;
  bool ended_ = false;
};

}  // namespace tutti_torch
