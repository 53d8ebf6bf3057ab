// Memory that is born in the agent and mapped here: staging for arrays of torch, and tensors that need none.
//
// A block is a tensor of bytes in the agent; ops name ranges of it. Blocks that are given back are kept for the next op of
// their size. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tutti/share.h>
#include <tutti/tensor.h>

namespace tutti_torch {

class Block {
 public:
  Block(tutti_client* client, uint64_t bytes);  // throws DistBackendError
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  char* data() const { return static_cast<char*>(tutti_view_data(view_)); }
  uint64_t bytes() const { return bytes_; }
  // "HANDLE@OFFSET:DTYPE[COUNT]"
  std::string range(uint64_t offset, tutti_dtype dtype, int64_t count) const;

 private:
  tutti_client* client_;
  uint64_t bytes_;
  tutti_handle handle_;
  tutti_view* view_;
};

class Memory {
 public:
  explicit Memory(tutti_client* client);

  // False: the agent does not lend memory to this process (another host, --no-share). Data then travels in messages.
  bool is_shared() const { return shared_; }
  const std::string& why_not() const { return why_; }

  // A block of at least so many bytes; it goes back to the cache with its last reference.
  std::shared_ptr<Block> stage(uint64_t bytes);
  // A block that `find` knows as long as it lives.
  std::shared_ptr<Block> allocate(uint64_t bytes);
  // The block in which these bytes are, and where; nullptr: in none.
  std::shared_ptr<Block> find(const void* data, uint64_t bytes, uint64_t* ret_offset);

  // How many bytes were copied into and out of staging, for tests and bench.
  uint64_t copied_bytes() const { return copied_; }
  void count_copy(uint64_t bytes) { copied_ += bytes; }

 private:

  tutti_client* client_;
  bool shared_ = true;
  std::string why_;
  std::atomic<uint64_t> copied_{0};
  std::mutex mutex_;
  std::map<uint64_t, std::vector<std::unique_ptr<Block>>> free_;  // by size class
  uint64_t free_bytes_ = 0;
  std::map<const char*, std::weak_ptr<Block>> allocated_;  // by first byte
};

}  // namespace tutti_torch
