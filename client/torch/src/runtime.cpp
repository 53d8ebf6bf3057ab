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

std::shared_ptr<Runtime> Runtime::open(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  std::lock_guard<std::mutex> lock(one_mutex);

  if (one && one->owner_ != getpid()) {
    TORCH_CHECK(false, "tutti: FORKED: this process is a fork of one that has process groups: start workers by spawn");
  }
  if (!one) {
    one = std::shared_ptr<Runtime>(new Runtime(store, rank, size));
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

Runtime::Runtime(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) : owner_(getpid()) {
  tutti_queue_options options;
  tutti_error err;

  try {
    connect(store, rank, size);
    exchange_ranks(store, rank, size);
    memory_ = std::make_unique<Memory>(client_);
    tutti_queue_options_init(&options);
    options.on_done = &Runtime::on_done;
    options.context = this;
    check(tutti_queue_open(client_, &options, &queue_, &err), err);
  } catch (...) {
    memory_.reset();
    tutti_close(client_);
    tutti_launched_stop(launched_);
    throw;
  }
  server_ = std::thread([this] { serve(); });
}

// A child of fork has neither the threads nor the connection: it leaves all to its parent.
Runtime::~Runtime() {
  if (owner_ != getpid()) {
    server_.detach();
    (void)memory_.release();
    return;
  }
  tutti_queue_close(queue_, nullptr);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  tasks_.notify_all();
  server_.join();
  memory_.reset();
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
  std::string coordinator;
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
  if (rank != 0) {
    coordinator = get_text(store, key);
    options.coordinator = coordinator.c_str();
  }
  check(tutti_launch(&options, &launched_, &err), err);
  if (rank == 0) {
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
}

void Runtime::exchange_ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const std::string prefix = attempt_prefix() + "rank/";

  set_text(store, prefix + std::to_string(rank), std::to_string(tutti_whoami(client_)->rank));
  for (int i = 0; i < size; i++) {
    ranks_.push_back(static_cast<uint32_t>(std::stoul(get_text(store, prefix + std::to_string(i)))));
  }
}

// ------------------------------------------------------------------ ops

void Runtime::on_done(void* self, const tutti_queue_completion* done) {
  std::unique_ptr<OnDone> call(static_cast<OnDone*>(done->user));

  (*call)(*done);
  static_cast<Runtime*>(self)->room_.notify_all();
}

void Runtime::submit(tutti_op_kind kind, const tutti_op& op, const tutti_queue_data* data, OnDone on_done) {
  auto call = std::make_unique<OnDone>(std::move(on_done));
  tutti_error err;

  for (;;) {
    const tutti_code code = data != nullptr
                                ? tutti_queue_submit_data(queue_, kind, &op, data, call.get(), nullptr, &err)
                                : tutti_queue_submit(queue_, kind, &op, call.get(), nullptr, &err);
    if (code == TUTTI_OK) {
      (void)call.release();
      return;
    }
    if (code != TUTTI_RESOURCE_EXHAUSTED || std::string(err.reason) != "QUEUE_FULL") {
      check(code, err);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    room_.wait_for(lock, std::chrono::milliseconds(5));  // a completion may have come in between
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

}  // namespace tutti_torch
