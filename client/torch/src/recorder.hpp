// What the process groups of this process have called lately, in the format of torch's flight recorder: `torchfrtrace` finds the
// op that one rank has called and another has not. Any thread.
//
// $TORCH_FR_BUFFER_SIZE (or $TORCH_NCCL_TRACE_BUFFER_SIZE) is how many ops are kept: 2000; 0 = none. If
// $TORCH_FR_DUMP_TEMP_FILE (or $TORCH_NCCL_DEBUG_INFO_TEMP_FILE) is set, the first op that fails writes what is kept into the file
// of this name with the rank behind it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace tutti_torch {

// A tensor, as the record has it.
struct Recorded {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<at::ScalarType> types;

  void add(const std::vector<at::Tensor>& tensors, bool as_one);
};

struct Entry {
  uint64_t id = 0;
  size_t group = 0;  // of `Recorder::add_group`
  uint64_t sequence = 0;
  uint64_t pair_sequence = 0;
  uint64_t op = 0;
  std::string name;  // "tutti:all_reduce"
  Recorded inputs;
  Recorded outputs;
  int64_t created_ns = 0;
  int64_t completed_ns = 0;  // 0: it has not
  int64_t timeout_ms = 0;
  bool pair = false;
  bool retired = false;  // it has ended; without completed_ns by an error
};

class Recorder {
 public:
  static Recorder& get();

  bool is_on() const { return most_ > 0; }
  // ranks: those of the default process group. Without a description the group is in no dump before `name_group`.
  size_t add_group(std::string name, std::string description, std::vector<int64_t> ranks);
  // Torch tells the name and the description after a group was made.
  void name_group(size_t group, const std::string& name, const std::string& description);
  // Gives the number by which `end` knows it.
  uint64_t begin(Entry entry);
  void end(uint64_t id, bool good);
  // The first error of this process: writes the file, if the environment names one.
  void failed(int rank);

  // A pickle of a dict, with torch's keys.
  std::string dump();

 private:
  struct Group {
    std::string name;
    std::string description;
    std::vector<int64_t> ranks;
    uint64_t last_begun = 0;
    uint64_t last_completed = 0;
  };

  Recorder();

  uint64_t most_;
  std::string prefix_;
  std::mutex mutex_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;  // a ring: the entry with the number id is at id % most_
  uint64_t next_ = 0;
  bool written_ = false;
};

}  // namespace tutti_torch
