#include "runtime.hpp"

#include <cstdlib>
#include <iterator>
#include <sstream>

#include <unistd.h>

#include <c10/util/Exception.h>

#include "error.hpp"

namespace tutti_torch {

namespace {

std::mutex one_mutex;
std::shared_ptr<Runtime> one;

std::string get_text(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key) {
  const std::vector<uint8_t> value = store->get(key);

  return std::string(value.begin(), value.end());
}

void set_text(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key, const std::string& value) {
  store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

}  // namespace

std::string attempt_prefix() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");

  return std::string("tutti/attempt ") + (count == nullptr ? "0" : count) + "/";
}

std::shared_ptr<Runtime> Runtime::open(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool is_default,
                                       const std::string& torch) {
  std::lock_guard<std::mutex> lock(one_mutex);

  if (one && one->owner_ != getpid()) {
    TORCH_CHECK(false, "tutti: FORKED: this process is a fork of one that has process groups: start workers by spawn");
  }
  if (!one) {
    one = std::shared_ptr<Runtime>(new Runtime(store, rank, size, torch));
  } else if (is_default) {
    one->exchange_ranks(store, rank, size);
  }
  return one;
}

std::shared_ptr<Runtime> Runtime::current() {
  std::lock_guard<std::mutex> lock(one_mutex);

  return one;
}

// torch may keep a process group to the end of the process, DDP does, and with it the runtime.
void Runtime::close() {
  std::shared_ptr<Runtime> last;
  std::lock_guard<std::mutex> lock(one_mutex);

  last.swap(one);
  if (last && last->gpu_ && last->owner_ == getpid()) {
    last->gpu_->end();
  }
}

Runtime::Runtime(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& torch)
    : owner_(getpid()), torch_(torch) {
  tutti_error err;

  try {
    connect(store, rank, size);
    open_memory(client_options());
    exchange_ranks(store, rank, size);
    check(tutti_queue_open(client_, nullptr, &queue_, &err), err);
  } catch (...) {
    gpu_.reset();
    tutti_lease_close(lease_);
    tutti_close(client_);
    tutti_launched_stop(launched_);
    throw;
  }
  for (const bool spare : {false, true, true}) {
    pollers_.emplace_back([this, spare] { poll(spare); });
  }
}

// A child of fork has neither the threads nor the connection: it leaves all to its parent.
Runtime::~Runtime() {
  if (owner_ != getpid()) {
    for (std::thread& poller : pollers_) {
      poller.detach();
    }
    (void)gpu_.release();
    return;
  }
  tutti_queue_shutdown(queue_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  begun_.notify_all();
  spare_.notify_all();
  for (std::thread& poller : pollers_) {
    poller.join();
  }
  tutti_queue_close(queue_, nullptr);
  gpu_.reset();
  tutti_lease_close(lease_);
  tutti_close(client_);
  tutti_launched_stop(launched_);
}

namespace {

// $TUTTI_LAUNCH_OPTIONS: words between spaces, "--insecure" say, for the coordinator and the agents that are launched.
std::vector<std::string> launch_words() {
  const char* text = std::getenv("TUTTI_LAUNCH_OPTIONS");
  std::istringstream stream(text == nullptr ? "" : text);

  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

}  // namespace

std::string Runtime::launch(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const std::string key = attempt_prefix() + "coordinator";
  const char* named = std::getenv("TUTTI_COORDINATOR");
  const bool is_named = named != nullptr && named[0] != '\0';
  std::string coordinator = is_named ? named : "";
  tutti_launch_options options;
  tutti_error err;

  tutti_launch_options_init(&options);
  options.world_size = static_cast<uint32_t>(size);
  options.rank = rank;
  options.listen = std::getenv("TUTTI_LISTEN");
  const std::vector<std::string> words = launch_words();
  std::vector<const char*> more;
  for (const std::string& word : words) {
    more.push_back(word.c_str());
  }
  more.push_back(nullptr);
  options.agent_options = more.data();
  options.coordinator_options = more.data();
  if (rank != 0 && !is_named) {
    coordinator = get_text(store, key);
  }
  if (!coordinator.empty()) {
    options.coordinator = coordinator.c_str();
  }
  check(tutti_launch(&options, &launched_, &err), err);
  if (rank == 0 && !is_named) {
    set_text(store, key, tutti_launched_coordinator(launched_));
  }
  return tutti_launched_agent(launched_);
}

// Borrowed from this runtime.
tutti_client_options Runtime::client_options() const {
  tutti_client_options options;

  tutti_client_options_init(&options);
  options.agent = agent_.c_str();
  options.coordinator = launched_ == nullptr ? nullptr : tutti_launched_coordinator(launched_);
  options.wait = true;
  options.timeout_ms = 60000;
  return options;
}

void Runtime::connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const char* named = std::getenv("TUTTI_AGENT");
  tutti_error err;

  agent_ = named != nullptr && named[0] != '\0' ? named : launch(store, rank, size);
  const tutti_client_options options = client_options();
  check(tutti_connect_with(&options, &client_, &err), err);
  check(tutti_lease_open(client_, &lease_, &err), err);
}

namespace {

// "2.15.0+cpu" -> "2.15": which ops DDP and FSDP call, and in which order, changes with these two numbers.
std::string minor_of(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

void check_torch(int other, const std::string& theirs, int rank, const std::string& ours) {
  TORCH_CHECK(minor_of(theirs) == minor_of(ours), "tutti: TORCH_MISMATCH: rank ", other, " has torch ",
              theirs.empty() ? "of an older tutti_torch" : theirs, ", and rank ", rank, " has torch ", ours,
              ": ranks of one job need the same torch, and tutti_torch built for it");
}

}  // namespace

// Of each default process group: a program may destroy it and make one of other ranks, as shrink() does. Tensors of CUDA are in
// memory of a GPU on all of them, or on none, because an op cannot have both.
void Runtime::exchange_ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const std::string keys = attempt_prefix() + "rank/";
  const std::string prefix = keys + std::to_string(store->add(keys + "turn/" + std::to_string(rank), 1)) + "/";
  std::vector<uint32_t> ranks;
  int without = -1;

  set_text(store, prefix + std::to_string(rank),
           std::to_string(tutti_whoami(client_)->rank) + " " + torch_ + (gpu_ ? " gpu" : " host"));
  for (int i = 0; i < size; i++) {
    std::istringstream said(get_text(store, prefix + std::to_string(i)));
    std::string number, torch, memory;
    said >> number >> torch >> memory;
    check_torch(i, torch, rank, torch_);
    ranks.push_back(static_cast<uint32_t>(std::stoul(number)));
    without = memory == "gpu" || without >= 0 ? without : i;
  }
  ranks_.swap(ranks);
  rank_ = rank;
  use_gpu_ = gpu_ != nullptr && without < 0;
  if (gpu_) {
    why_no_gpu_ = use_gpu_ ? "" : "rank " + std::to_string(without) + " has no memory of a GPU, and an op is in one kind of memory";
  }
}

// ------------------------------------------------------------------ ops

namespace {

thread_local int telling;  // completions that this thread tells of right now: what it tells may wait for another op

constexpr auto kLook = std::chrono::milliseconds(500);
constexpr auto kBroken = std::chrono::milliseconds(5);  // the connection is broken, and a submission is under way

}  // namespace

// Gives the lock back while it waits and while it tells; the caller has seen that no other thread takes.
bool Runtime::take_one(std::unique_lock<std::mutex>& lock) {
  tutti_queue_completion done;
  tutti_error err;

  taking_ = true;
  lock.unlock();
  const tutti_code code = tutti_queue_next(queue_, TUTTI_QUEUE_FOREVER, &done, &err);
  lock.lock();
  taking_ = false;
  if (code == TUTTI_OK) {
    outstanding_--;
    telling_++;
    telling++;
    lock.unlock();
    {
      std::unique_ptr<OnDone> call(static_cast<OnDone*>(done.user));
      (*call)(done);
      tutti_op_more_free(&done.more);
    }
    lock.lock();
    telling--;
    telling_--;
  }
  ended_.notify_all();
  return code == TUTTI_OK;
}

// A spare one takes only while others tell: what they tell may wait for an op, as comm hooks of DDP do. An op that is submitted
// there wakes a spare one; else it looks now and then.
void Runtime::poll(bool spare) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_wanted = [this, spare] {
    return stop_ || (!taking_ && outstanding_ > 0 && (spare ? telling_ > 0 : driving_ == 0));
  };

  for (;;) {
    if (spare) {
      (void)spare_.wait_for(lock, kLook, is_wanted);
    } else {
      begun_.wait(lock, is_wanted);
    }
    if (stop_ && (spare || outstanding_ == 0)) {
      return;
    }
    if (is_wanted() && !take_one(lock)) {
      if (stop_) {
        return;
      }
      ended_.wait_for(lock, kBroken);
    }
    if (spare) {
      begun_.notify_one();  // the first one may have looked while this one took: what is left is its task again
    }
  }
}

// The last one that drives leaves what others have submitted to the poller. While another thread tells, that may be of the op
// that is waited for.
void Runtime::drive(const std::function<bool()>& is_done) {
  std::unique_lock<std::mutex> lock(mutex_);

  driving_++;
  while (!is_done()) {
    if (taking_ || telling_ > telling) {
      ended_.wait(lock);
    } else if (!take_one(lock)) {
      ended_.wait_for(lock, kBroken);
    }
  }
  if (--driving_ == 0 && outstanding_ > 0) {
    begun_.notify_one();
  }
}

void Runtime::submit(tutti_op_kind kind, const tutti_op& op, const tutti_queue_data* data, bool driven, OnDone on_done) {
  give(driven, std::move(on_done), [&](void* user, tutti_error* err) {
    return data != nullptr ? tutti_queue_submit_data(queue_, kind, &op, data, user, nullptr, err)
                           : tutti_queue_submit(queue_, kind, &op, user, nullptr, err);
  });
}

void Runtime::submit_list(tutti_op_kind kind, const tutti_op& op, const std::vector<tutti_op_data>& arrays, bool driven,
                          OnDone on_done) {
  give(driven, std::move(on_done), [&](void* user, tutti_error* err) {
    return tutti_queue_submit_list(queue_, kind, &op, arrays.data(), arrays.size(), user, nullptr, err);
  });
}

void Runtime::give(bool driven, OnDone on_done, const std::function<tutti_code(void* user, tutti_error* err)>& submit_to) {
  auto call = std::make_unique<OnDone>(std::move(on_done));
  std::unique_lock<std::mutex> lock(mutex_);
  tutti_error err;

  outstanding_++;
  for (;;) {
    lock.unlock();
    const tutti_code code = submit_to(call.get(), &err);
    if (code == TUTTI_OK) {
      (void)call.release();
      break;
    }
    lock.lock();
    if (code != TUTTI_RESOURCE_EXHAUSTED || std::string(err.reason) != "QUEUE_FULL") {
      outstanding_--;
      check(code, err);
    }
    begun_.notify_all();
    ended_.wait_for(lock, std::chrono::milliseconds(5));  // a completion may have come in between
  }
  if (telling > 0) {
    spare_.notify_one();
  } else if (!driven) {
    begun_.notify_one();
  }
}

// ------------------------------------------------------------------ memory

// If this process dies while its GPU has not come to an event, the agent may lose its GPU (docs/gpu.md). An agent that was
// launched here ends with it anyway; of another one the user has to say so.
bool Runtime::wants_events() const {
  const char* said = std::getenv("TUTTI_TORCH_EVENTS");

  return said == nullptr || said[0] == '\0' ? launched_ != nullptr : std::string(said) != "0";
}

// The first part of the arena tells whether the agent lends memory at all.
void Runtime::open_memory(const tutti_client_options& options) {
  const std::string device = tutti_whoami(client_)->device;
  void* memory = nullptr;
  tutti_error err;

  check(tutti_set_device(client_, "cpu", &err), err);  // tensors of the CPU are in memory of the host, on any agent
  if (tutti_alloc(client_, 1, &memory, &err) != TUTTI_OK) {
    why_not_ = error_text(err);
  }
  tutti_free_memory(client_, memory);
  all_on_gpu_ = std::getenv("TUTTI_TEST_TORCH_ON_GPU") != nullptr;
  if (device.find("cuda") != std::string::npos) {
    gpu_ = Gpu::open(options, &why_no_gpu_);
    if (gpu_ && wants_events()) {
      gpu_->open_events();
    }
  }
}

uint64_t Runtime::copied_bytes() const {
  tutti_arena_stats stats;

  tutti_arena_stat(client_, &stats);
  return stats.copied_bytes + (gpu_ ? gpu_->copied_bytes() : 0);
}

at::Tensor Runtime::empty(const std::shared_ptr<Runtime>& runtime, int64_t count, at::TensorOptions options) {
  TORCH_CHECK(count >= 0, "tutti: ", count, " elements: give 0 or more");
  const uint64_t bytes = static_cast<uint64_t>(count) * c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  void* memory = nullptr;
  tutti_error err;

  if (!options.device().is_cpu() || !runtime->is_shared() || bytes == 0) {
    return at::empty({count}, options);
  }
  check(tutti_alloc(runtime->client(), bytes, &memory, &err), err);
  std::shared_ptr<Runtime> kept = runtime;  // its client outlives the memory
  return at::from_blob(memory, {count}, [memory, kept](void*) mutable {
    tutti_free_memory(kept->client(), memory);
    kept.reset();
  }, options);
}

}  // namespace tutti_torch
