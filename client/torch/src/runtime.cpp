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

void Runtime::close() {
  std::shared_ptr<Runtime> last;
  std::lock_guard<std::mutex> lock(one_mutex);

  last.swap(one);
}

Runtime::Runtime(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& torch)
    : owner_(getpid()), torch_(torch) {
  tutti_error err;

  try {
    connect(store, rank, size);
    exchange_ranks(store, rank, size);
    memory_ = std::make_unique<Memory>(client_);
    check(tutti_queue_open(client_, nullptr, &queue_, &err), err);
  } catch (...) {
    memory_.reset();
    tutti_lease_close(lease_);
    tutti_close(client_);
    tutti_launched_stop(launched_);
    throw;
  }
  server_ = std::thread([this] { serve(); });
  for (const bool spare : {false, true, true}) {
    pollers_.emplace_back([this, spare] { poll(spare); });
  }
}

// A child of fork has neither the threads nor the connection: it leaves all to its parent.
Runtime::~Runtime() {
  if (owner_ != getpid()) {
    server_.detach();
    for (std::thread& poller : pollers_) {
      poller.detach();
    }
    (void)memory_.release();
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
  tasks_.notify_all();
  server_.join();
  memory_.reset();
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

void Runtime::connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const char* named = std::getenv("TUTTI_AGENT");
  const std::string agent = named != nullptr && named[0] != '\0' ? named : launch(store, rank, size);
  tutti_client_options options;
  tutti_error err;

  tutti_client_options_init(&options);
  options.agent = agent.c_str();
  options.coordinator = launched_ == nullptr ? nullptr : tutti_launched_coordinator(launched_);
  options.wait = true;
  options.timeout_ms = 60000;
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

// Of each default process group: a program may destroy it and make one of other ranks, as shrink() does.
void Runtime::exchange_ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const std::string keys = attempt_prefix() + "rank/";
  const std::string prefix = keys + std::to_string(store->add(keys + "turn/" + std::to_string(rank), 1)) + "/";
  std::vector<uint32_t> ranks;

  set_text(store, prefix + std::to_string(rank), std::to_string(tutti_whoami(client_)->rank) + " " + torch_);
  for (int i = 0; i < size; i++) {
    const std::string said = get_text(store, prefix + std::to_string(i));
    const size_t space = said.find(' ');
    check_torch(i, space == std::string::npos ? "" : said.substr(space + 1), rank, torch_);
    ranks.push_back(static_cast<uint32_t>(std::stoul(said)));
  }
  ranks_.swap(ranks);
  rank_ = rank;
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

void Runtime::later(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    later_.push_back(std::move(task));
  }
  tasks_.notify_one();
}

void Runtime::serve() {
  std::unique_lock<std::mutex> lock(mutex_);

  for (;;) {
    tasks_.wait(lock, [this] { return stop_ || !later_.empty(); });
    if (later_.empty()) {
      return;
    }
    std::function<void()> task = std::move(later_.front());
    later_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds may take locks of ours
    lock.lock();
  }
}

// ------------------------------------------------------------------ memory

at::Tensor Runtime::empty(const std::shared_ptr<Runtime>& runtime, int64_t count, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "tutti: memory on ", options.device(), ", this backend gives that of the CPU");
  TORCH_CHECK(count >= 0, "tutti: ", count, " elements: give 0 or more");
  const uint64_t bytes = static_cast<uint64_t>(count) * c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  if (!runtime->memory().is_shared() || bytes == 0) {
    return at::empty({count}, options);
  }
  std::shared_ptr<Block> block = runtime->memory().allocate(bytes);
  std::shared_ptr<Runtime> kept = runtime;  // its client outlives the block
  return at::from_blob(block->data(), {count}, [block, kept](void*) mutable {
    block.reset();
    kept.reset();
  }, options);
}

}  // namespace tutti_torch
