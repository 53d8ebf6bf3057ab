// Types of CUDA's headers are stated here, since the package is built without them: they are part of the runtime's ABI.
#include "cuda.hpp"

#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>

#include <c10/util/Exception.h>

namespace tutti_torch {

namespace {

constexpr const char* kNames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};
constexpr size_t kUuidAt = 256, kUuidBytes = 16;  // in a cudaDeviceProp, since CUDA 10
constexpr size_t kPropertiesBytes = 8192;         // more than any runtime writes
constexpr unsigned kLazyPeerAccess = 1;
constexpr unsigned kNonBlocking = 1;
constexpr int kByAddresses = 4;  // cudaMemcpyDefault

struct IpcHandle {  // cudaIpcMemHandle_t, and cudaIpcEventHandle_t
  char reserved[64];
};

[[noreturn]] void fail(const std::string& text) {
  C10_THROW_ERROR(DistBackendError, "tutti: FAILED_PRECONDITION CANNOT_SHARE: " + text);
}

// One that is loaded comes first: torch has its own.
void* load(std::string* ret_name) {
  const char* stated = std::getenv("TUTTI_CUDART");
  std::string tried;

  if (stated != nullptr && stated[0] != '\0') {
    *ret_name = stated;
    return dlopen(stated, RTLD_NOW | RTLD_LOCAL);
  }
  for (const int loaded : {RTLD_NOLOAD, 0}) {
    for (const char* name : kNames) {
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | loaded)) {
        *ret_name = name;
        return library;
      }
    }
  }
  *ret_name = "libcudart.so.13, .12 or .11.0";
  return nullptr;
}

std::string digits_of(const unsigned char* uuid) {
  std::string text;
  char two[3];

  for (size_t i = 0; i < kUuidBytes; i++) {
    std::snprintf(two, sizeof(two), "%02x", uuid[i]);
    text += two;
  }
  return text;
}

std::string digits_of(const std::string& uuid) {
  std::string text;

  for (const char letter : uuid.substr(uuid.compare(0, 4, "GPU-") == 0 ? 4 : 0)) {
    if (letter != '-') {
      text += letter;
    }
  }
  return text;
}

}  // namespace

Cuda::Cuda() : library_(load(&name_)) {
  if (library_ == nullptr) {
    fail("there is no CUDA runtime here (" + name_ + "): set TUTTI_CUDART to its file");
  }
}

// The library stays: torch may use it.
Cuda::~Cuda() {
  end();
}

void Cuda::end() {
  std::lock_guard<std::shared_mutex> alone(copying_);
  auto* destroy = reinterpret_cast<int (*)(void*)>(find("cudaStreamDestroy"));

  for (const auto& stream : streams_) {
    if (destroy != nullptr) {
      (void)destroy(stream.second);
    }
  }
  streams_.clear();
}

void* Cuda::find(const char* name) const {
  return dlsym(library_, name);
}

template <class... Args>
void Cuda::call(const char* name, Args... args) {
  auto* function = reinterpret_cast<int (*)(Args...)>(find(name));

  if (function == nullptr) {
    fail(name_ + " has no " + name);
  }
  const int code = function(args...);
  if (code != 0) {
    auto* text = reinterpret_cast<const char* (*)(int)>(find("cudaGetErrorString"));
    fail(std::string(name) + ": " + (text == nullptr ? std::to_string(code) : text(code)));
  }
}

namespace {

// The thread's device is `device` as long as this lives.
template <class Call>
class OnDevice {
 public:
  OnDevice(Call call, bool can_ask, int device) : call_(call), can_ask_(can_ask) {
    if (can_ask_) {
      call_("cudaGetDevice", &before_);
    }
    call_("cudaSetDevice", device);
  }
  ~OnDevice() {
    try {
      if (can_ask_) {
        call_("cudaSetDevice", before_);
      }
    } catch (const std::exception&) {  // the call that came before tells
    }
  }

 private:
  Call call_;
  bool can_ask_;
  int before_ = 0;
};

}  // namespace

#define TUTTI_ON_DEVICE(device)                                                       \
  auto call_of = [this](const char* name, auto... args) { this->call(name, args...); }; \
  const OnDevice<decltype(call_of)> on_device(call_of, find("cudaGetDevice") != nullptr, device)

int Cuda::number_of(const char* uuid) {
  const char* properties = find("cudaGetDeviceProperties_v2") != nullptr ? "cudaGetDeviceProperties_v2" : "cudaGetDeviceProperties";
  int count = 0;

  try {
    call("cudaGetDeviceCount", &count);
  } catch (const c10::Error& error) {
    fail("the agent's tensors are on " + std::string(uuid) + ", and this process sees no GPU (CUDA_VISIBLE_DEVICES): " +
         error.what_without_backtrace());
  }
  for (int number = 0; number < count; number++) {
    std::vector<unsigned char> found(kPropertiesBytes);
    call(properties, static_cast<void*>(found.data()), number);
    if (digits_of(found.data() + kUuidAt) == digits_of(std::string(uuid))) {
      return number;
    }
  }
  fail("the agent's tensors are on " + std::string(uuid) + ", which is none of the GPUs that this process sees, " + std::to_string(count) +
       " of them (CUDA_VISIBLE_DEVICES)");
}

char* Cuda::open(int device, const unsigned char handle[64]) {
  TUTTI_ON_DEVICE(device);
  IpcHandle words;
  void* data = nullptr;

  std::memcpy(words.reserved, handle, sizeof(words.reserved));
  call("cudaIpcOpenMemHandle", &data, words, kLazyPeerAccess);
  return static_cast<char*>(data);
}

void Cuda::close(int device, char* data) {
  TUTTI_ON_DEVICE(device);

  call("cudaIpcCloseMemHandle", static_cast<void*>(data));
}

void* Cuda::stream_of(int device, Way way) {
  std::lock_guard<std::mutex> lock(mutex_);
  void*& stream = streams_[{device, way}];

  if (stream == nullptr) {
    call("cudaStreamCreateWithFlags", &stream, kNonBlocking);
  }
  return stream;
}

void Cuda::copy(int device, void* to, const void* from, size_t bytes) {
  std::shared_lock<std::shared_mutex> together(copying_);
  TUTTI_ON_DEVICE(device);
  void* stream = stream_of(device, kOut);

  call("cudaMemcpyAsync", to, from, bytes, kByAddresses, stream);
  call("cudaStreamSynchronize", stream);
}

void Cuda::copy_in(int device, void* to, const void* from, size_t bytes) {
  std::shared_lock<std::shared_mutex> together(copying_);
  TUTTI_ON_DEVICE(device);

  call("cudaMemcpyAsync", to, from, bytes, kByAddresses, stream_of(device, kIn));
}

void Cuda::wait_in(int device, void* event) {
  std::shared_lock<std::shared_mutex> together(copying_);
  TUTTI_ON_DEVICE(device);

  call("cudaStreamWaitEvent", stream_of(device, kIn), event, 0u);
}

void Cuda::record_in(int device, void* event) {
  std::shared_lock<std::shared_mutex> together(copying_);
  TUTTI_ON_DEVICE(device);

  call("cudaEventRecord", event, stream_of(device, kIn));
}

void Cuda::synchronize_in(int device) {
  std::shared_lock<std::shared_mutex> together(copying_);
  TUTTI_ON_DEVICE(device);

  call("cudaStreamSynchronize", stream_of(device, kIn));
}

void* Cuda::open_event(int device, const unsigned char handle[64]) {
  TUTTI_ON_DEVICE(device);
  IpcHandle words;
  void* event = nullptr;

  std::memcpy(words.reserved, handle, sizeof(words.reserved));
  call("cudaIpcOpenEventHandle", &event, words);
  return event;
}

void Cuda::close_event(int device, void* event) {
  TUTTI_ON_DEVICE(device);

  call("cudaEventDestroy", event);
}

}  // namespace tutti_torch
