// The few functions of the CUDA runtime that opened memory needs, of the library that torch has loaded, or of $TUTTI_CUDART.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

namespace tutti_torch {

// Any thread; each call leaves the thread's device as it was. All throw DistBackendError.
class Cuda {
 public:
  Cuda();
  ~Cuda();

  // The number that a GPU has in this process.
  int number_of(const char* uuid);
  char* open(int device, const unsigned char handle[64]);
  void close(int device, char* data);
  // Copy, between any two addresses, and wait for it.
  void copy(int device, void* to, const void* from, size_t bytes);

  // The stream of what goes in, which nobody waits for: copies, and events (cudaEvent_t) between it and other streams.
  void copy_in(int device, void* to, const void* from, size_t bytes);
  void wait_in(int device, void* event);
  void record_in(int device, void* event);
  void synchronize_in(int device);
  void* open_event(int device, const unsigned char handle[64]);
  void close_event(int device, void* event);
  // Give the streams back; a later copy makes one again.
  void end();

 private:
  template <class... Args>
  void call(const char* name, Args... args);
  void* find(const char* name) const;  // nullptr: it has no such function
  enum Way { kIn, kOut };
  void* stream_of(int device, Way way);

  std::string name_;  // before `library_`, whose loading writes it
  void* library_;
  std::shared_mutex copying_;  // held alone where streams go
  std::mutex mutex_;
  std::map<std::pair<int, Way>, void*> streams_;
};

}  // namespace tutti_torch
