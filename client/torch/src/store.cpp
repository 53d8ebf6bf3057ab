#include "store.hpp"

#include <random>

#include <c10/util/Exception.h>
#include <tutti/store.h>

#include "error.hpp"

namespace tutti_torch {

namespace {

void check_store(tutti_code code, const tutti_error& err) {
  if (code != TUTTI_OK) {
    C10_THROW_ERROR(DistStoreError, error_text(err));
  }
}

std::vector<uint8_t> take_value(void* value, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(value);
  std::vector<uint8_t> copy(bytes, bytes + size);

  tutti_free(value);
  return copy;
}

uint32_t milliseconds_of(std::chrono::milliseconds timeout) {
  return static_cast<uint32_t>(std::min<int64_t>(std::max<int64_t>(timeout.count(), 1), UINT32_MAX - 1));
}

// Keys with their prefix, and what libtutti takes; neither may be copied apart.
struct Keys {
  std::vector<std::string> texts;
  std::vector<tutti_kv_bytes> bytes;

  Keys(const std::string& prefix, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      texts.push_back(prefix + key);
    }
    for (const std::string& text : texts) {
      bytes.push_back({text.data(), text.size()});
    }
  }
};

}  // namespace

TuttiStore::TuttiStore(const std::string& coordinator, std::string prefix, std::chrono::milliseconds timeout)
    : Store(timeout), prefix_(std::move(prefix)) {
  tutti_client_options options;
  tutti_client* client;
  tutti_error err;

  tutti_client_options_init(&options);
  options.agent = "";
  options.coordinator = coordinator.c_str();
  options.wait = true;
  options.timeout_ms = milliseconds_of(timeout);
  check_store(tutti_connect_with(&options, &client, &err), err);
  client_ = std::shared_ptr<tutti_client>(client, tutti_close);
}

TuttiStore::TuttiStore(std::shared_ptr<tutti_client> client, std::string prefix, std::chrono::milliseconds timeout)
    : Store(timeout), client_(std::move(client)), prefix_(std::move(prefix)) {}

c10::intrusive_ptr<c10d::Store> TuttiStore::clone() {
  return c10::intrusive_ptr<c10d::Store>::unsafe_steal_from_new(new TuttiStore(client_, prefix_, timeout_));
}

void TuttiStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::string name = full(key);
  tutti_error err;

  check_store(tutti_kv_set(client_.get(), name.data(), name.size(), value.data(), value.size(), &err), err);
}

// A name that no other caller has. So the checksum of all names is a number that no other run has had.
void TuttiStore::meet(int rank, int size) {
  std::random_device device;
  const std::string key = full("run");
  const std::string name = "rank " + std::to_string(rank) + " " + std::to_string(device()) + "." + std::to_string(device());
  tutti_meeting meeting;
  tutti_error err;

  tutti_meeting_init(&meeting);
  meeting.count = static_cast<uint32_t>(size);
  meeting.rank = rank;
  meeting.name = name.c_str();
  meeting.timeout_ms = milliseconds_of(timeout_);
  check_store(tutti_meet(client_.get(), key.data(), key.size(), &meeting, &err), err);
  prefix_ += std::to_string(meeting.group_hash) + "/";
}

// As TCPStore: an empty `expected` is that of no key and of an empty value; what is there is returned, `expected` if there is
// no key.
std::vector<uint8_t> TuttiStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                            const std::vector<uint8_t>& desired) {
  const std::string name = full(key);
  const bool either = expected.empty();
  bool none = either;  // the coordinator tells no key from an empty value: one is tried, then the other

  for (;;) {
    const void* wanted = none ? nullptr : either ? static_cast<const void*>("") : expected.data();
    bool swapped = false;
    void* value = nullptr;
    size_t size = 0;
    tutti_error err;

    check_store(tutti_kv_compare_and_set(client_.get(), name.data(), name.size(), wanted, expected.size(), desired.data(),
                                         desired.size(), &swapped, &value, &size, &err),
                err);
    if (value == nullptr && !either) {
      return expected;
    }
    none = value == nullptr;
    if (!none) {
      std::vector<uint8_t> found = take_value(value, size);

      if (swapped || !either || !found.empty()) {
        return found;
      }
    }
  }
}

std::vector<uint8_t> TuttiStore::get(const std::string& key) {
  return multiGet({key})[0];
}

int64_t TuttiStore::add(const std::string& key, int64_t value) {
  const std::string name = full(key);
  int64_t sum = 0;
  tutti_error err;

  check_store(tutti_kv_add(client_.get(), name.data(), name.size(), value, &sum, &err), err);
  return sum;
}

bool TuttiStore::deleteKey(const std::string& key) {
  const std::string name = full(key);
  bool existed = false;
  tutti_error err;

  check_store(tutti_kv_delete(client_.get(), name.data(), name.size(), &existed, &err), err);
  return existed;
}

bool TuttiStore::check(const std::vector<std::string>& keys) {
  const Keys names(prefix_, keys);
  bool all = true;
  tutti_error err;

  if (!keys.empty()) {
    check_store(tutti_kv_check(client_.get(), names.bytes.data(), names.bytes.size(), nullptr, &all, &err), err);
  }
  return all;
}

int64_t TuttiStore::getNumKeys() {
  uint64_t count = 0;
  tutti_error err;

  check_store(tutti_kv_count(client_.get(), prefix_.data(), prefix_.size(), &count, &err), err);
  return static_cast<int64_t>(count);
}

void TuttiStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void TuttiStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Keys names(prefix_, keys);
  std::vector<const void*> pointers;
  std::vector<size_t> sizes;
  tutti_error err;

  for (const std::string& text : names.texts) {
    pointers.push_back(text.data());
    sizes.push_back(text.size());
  }
  if (!keys.empty()) {
    check_store(tutti_kv_wait(client_.get(), pointers.data(), sizes.data(), sizes.size(), milliseconds_of(timeout), &err), err);
  }
}

void TuttiStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  const std::string name = full(key);
  tutti_error err;

  check_store(tutti_kv_append(client_.get(), name.data(), name.size(), value.data(), value.size(), nullptr, &err), err);
}

std::vector<std::vector<uint8_t>> TuttiStore::multiGet(const std::vector<std::string>& keys) {
  const Keys names(prefix_, keys);
  std::vector<void*> values(keys.size());
  std::vector<size_t> sizes(keys.size());
  std::vector<std::vector<uint8_t>> found;
  tutti_error err;

  if (keys.empty()) {
    return found;
  }
  check_store(tutti_kv_multi_get(client_.get(), names.bytes.data(), names.bytes.size(), milliseconds_of(timeout_),
                                 values.data(), sizes.data(), &err),
              err);
  for (size_t i = 0; i < keys.size(); i++) {
    found.push_back(take_value(values[i], sizes[i]));
  }
  return found;
}

void TuttiStore::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) {
  const Keys names(prefix_, keys);
  std::vector<tutti_kv_bytes> bytes;
  tutti_error err;

  TORCH_CHECK(keys.size() == values.size(), "tutti: ", keys.size(), " keys for ", values.size(), " values");
  for (const std::vector<uint8_t>& value : values) {
    bytes.push_back({value.data(), value.size()});
  }
  if (!keys.empty()) {
    check_store(tutti_kv_multi_set(client_.get(), names.bytes.data(), bytes.data(), bytes.size(), &err), err);
  }
}

}  // namespace tutti_torch
