#include "recorder.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <torch/csrc/jit/serialization/pickler.h>

namespace tutti_torch {

namespace {

constexpr uint64_t kMost = 2000;
constexpr uint64_t kMostEver = 1u << 20;
// Of the format: torch 2.15's. Older torchfrtrace read it, as fields were only added.
constexpr const char* kVersion = "2.10";

using Dict = c10::Dict<c10::IValue, c10::IValue>;
using List = c10::List<c10::IValue>;

Dict make_dict() {
  return Dict(c10::AnyType::get(), c10::AnyType::get());
}

List make_list() {
  return List(c10::AnyType::get());
}

const char* first_of(const char* name, const char* older) {
  const char* value = std::getenv(name);

  return value != nullptr && value[0] != '\0' ? value : std::getenv(older);
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

List sizes_of(const Recorded& recorded) {
  List all = make_list();

  for (const std::vector<int64_t>& sizes : recorded.sizes) {
    List one = make_list();
    for (const int64_t size : sizes) {
      one.push_back(size);
    }
    all.push_back(one);
  }
  return all;
}

List types_of(const Recorded& recorded) {
  List all = make_list();

  for (const at::ScalarType type : recorded.types) {
    all.push_back(std::string(c10::toString(type)));
  }
  return all;
}

// "[0, 1]", which torchfrtrace evaluates.
std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string text;

  for (const int64_t rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return "[" + text + "]";
}

Dict dict_of(const Entry& entry, const std::string& name, const std::string& description) {
  const bool good = entry.completed_ns != 0;
  Dict dict = make_dict();

  dict.insert("record_id", static_cast<int64_t>(entry.id));
  dict.insert("pg_id", static_cast<int64_t>(entry.group));
  dict.insert("process_group", c10::ivalue::Tuple::create({c10::IValue(name), c10::IValue(description)}));
  dict.insert("collective_seq_id", static_cast<int64_t>(entry.sequence));
  dict.insert("p2p_seq_id", static_cast<int64_t>(entry.pair_sequence));
  dict.insert("op_id", static_cast<int64_t>(entry.op));
  dict.insert("profiling_name", entry.name);
  dict.insert("time_created_ns", entry.created_ns);
  dict.insert("input_sizes", sizes_of(entry.inputs));
  dict.insert("input_dtypes", types_of(entry.inputs));
  dict.insert("output_sizes", sizes_of(entry.outputs));
  dict.insert("output_dtypes", types_of(entry.outputs));
  dict.insert("state", good ? "completed" : "started");
  dict.insert("time_discovered_started_ns", entry.created_ns);
  dict.insert("time_discovered_completed_ns", good ? c10::IValue(entry.completed_ns) : c10::IValue());
  if (good) {
    dict.insert("duration_ms", static_cast<double>(entry.completed_ns - entry.created_ns) / 1e6);
  }
  dict.insert("retired", entry.retired);
  dict.insert("timeout_ms", entry.timeout_ms);
  dict.insert("is_p2p", entry.pair);
  dict.insert("frames", make_list());  // to take the stack of Python costs more than a small op
  dict.insert("thread_id", "");
  dict.insert("thread_name", "");
  return dict;
}

std::string pickle_of(const c10::IValue& value) {
  std::string bytes;
  torch::jit::Pickler pickler([&bytes](const char* data, size_t size) { bytes.append(data, size); }, nullptr, nullptr, nullptr,
                              nullptr, false);

  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return bytes;
}

// Under another name first: who reads a file that is there finds all of it.
void write_file(const std::string& path, const std::string& bytes) {
  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "wb");

  if (file == nullptr) {
    std::fprintf(stderr, "tutti: the flight record cannot be written to %s: %s\n", part.c_str(), std::strerror(errno));
    return;
  }
  const bool good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !good || std::rename(part.c_str(), path.c_str()) != 0) {
    std::fprintf(stderr, "tutti: the flight record cannot be written to %s: %s\n", path.c_str(), std::strerror(errno));
    std::remove(part.c_str());
  }
}

}  // namespace

// as_one: a list of equal parts of one array, which torch's own backends record as this array.
void Recorded::add(const std::vector<at::Tensor>& tensors, bool as_one) {
  int64_t count = 0;

  for (const at::Tensor& tensor : tensors) {
    count += tensor.numel();
    if (!as_one) {
      sizes.push_back(tensor.sizes().vec());
      types.push_back(tensor.scalar_type());
    }
  }
  if (as_one && !tensors.empty()) {
    sizes.push_back({count});
    types.push_back(tensors[0].scalar_type());
  }
}

Recorder& Recorder::get() {
  static Recorder* one = new Recorder;  // never freed: threads record until the process ends

  return *one;
}

Recorder::Recorder() {
  const char* most = first_of("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE");
  const char* prefix = first_of("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");

  most_ = most == nullptr ? kMost : std::min<uint64_t>(std::strtoull(most, nullptr, 10), kMostEver);
  prefix_ = prefix == nullptr ? "" : prefix;
}

size_t Recorder::add_group(std::string name, std::string description, std::vector<int64_t> ranks) {
  std::lock_guard<std::mutex> lock(mutex_);

  groups_.push_back({std::move(name), std::move(description), std::move(ranks)});
  return groups_.size() - 1;
}

void Recorder::name_group(size_t group, const std::string& name, const std::string& description) {
  std::lock_guard<std::mutex> lock(mutex_);

  groups_[group].name = name;
  groups_[group].description = description;
}

uint64_t Recorder::begin(Entry entry) {
  entry.created_ns = now_ns();
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t id = entry.id = next_++;

  if (!entry.pair) {
    groups_[entry.group].last_begun = entry.sequence;
  }
  if (entries_.size() < most_) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[id % most_] = std::move(entry);
  }
  return id;
}

void Recorder::end(uint64_t id, bool good) {
  const int64_t now = now_ns();
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[id % most_];

  if (entry.id != id) {
    return;  // newer ones have taken its place
  }
  entry.retired = true;
  if (good) {
    entry.completed_ns = now;
    uint64_t& last = groups_[entry.group].last_completed;
    last = entry.pair ? last : std::max(last, entry.sequence);
  }
}

void Recorder::failed(int rank) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (written_ || prefix_.empty() || !is_on()) {
      return;
    }
    written_ = true;
  }
  write_file(prefix_ + std::to_string(rank), dump());
}

std::string Recorder::dump() {
  Dict all = make_dict(), groups = make_dict(), status = make_dict();
  List entries = make_list();
  std::lock_guard<std::mutex> lock(mutex_);

  for (size_t i = 0; i < groups_.size(); i++) {
    const Group& group = groups_[i];
    if (group.description.empty()) {
      continue;  // torchfrtrace wants the same words of all ranks
    }
    Dict described = make_dict(), counts = make_dict();
    described.insert("name", group.name);
    described.insert("desc", group.description);
    described.insert("ranks", ranks_text(group.ranks));
    groups.insert_or_assign(group.name, described);
    counts.insert("last_enqueued_collective", static_cast<int64_t>(group.last_begun));
    counts.insert("last_started_collective", static_cast<int64_t>(group.last_begun));
    counts.insert("last_completed_collective", static_cast<int64_t>(group.last_completed));
    status.insert(std::to_string(i), counts);
  }
  for (uint64_t id = next_ - entries_.size(); id < next_; id++) {
    const Entry& entry = entries_[id % most_];
    entries.push_back(dict_of(entry, groups_[entry.group].name, groups_[entry.group].description));
  }
  all.insert("version", kVersion);
  all.insert("comm_lib_version", "tutti");
  all.insert("pg_config", groups);
  all.insert("pg_status", status);
  all.insert("entries", entries);
  return pickle_of(all);
}

}  // namespace tutti_torch
