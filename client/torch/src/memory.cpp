#include "memory.hpp"

#include "error.hpp"

namespace tutti_torch {

namespace {

constexpr uint64_t kLeast = 64u << 10;
constexpr uint64_t kKept = 512u << 20;  // of free blocks, together

// Powers of two up to 1 MiB, then multiples of 1 MiB: staging of one training step hits the same classes each time.
uint64_t class_of(uint64_t bytes) {
  uint64_t size = kLeast;

  while (size < bytes && size < (1u << 20)) {
    size *= 2;
  }
  return size >= bytes ? size : (bytes + (1u << 20) - 1) >> 20 << 20;
}

}  // namespace

Block::Block(tutti_client* client, uint64_t bytes) : client_(client), bytes_(bytes) {
  const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {static_cast<int64_t>(bytes)}};
  tutti_error err;

  check(tutti_tensor_create(client, &spec, nullptr, &handle_, &err), err);
  const tutti_code code = tutti_tensor_map(client, handle_.text, TUTTI_MAP_WRITE, &view_, &err);
  if (code != TUTTI_OK) {
    tutti_tensor_delete(client, handle_.text, nullptr);
    check(code, err);
  }
}

Block::~Block() {
  tutti_tensor_unmap(view_);
  tutti_tensor_delete(client_, handle_.text, nullptr);
}

std::string Block::range(uint64_t offset, tutti_dtype dtype, int64_t count) const {
  return std::string(handle_.text) + "@" + std::to_string(offset) + ":" + tutti_dtype_name(dtype) + "[" +
         std::to_string(count) + "]";
}

// The first block tells whether the agent lends memory at all.
Memory::Memory(tutti_client* client) : client_(client) {
  try {
    free_[kLeast].push_back(std::make_unique<Block>(client, kLeast));
    free_bytes_ = kLeast;
  } catch (const std::exception& error) {
    shared_ = false;
    why_ = error.what();
  }
}

std::shared_ptr<Block> Memory::stage(uint64_t bytes) {
  const uint64_t size = class_of(bytes);
  std::unique_ptr<Block> block;

  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& blocks = free_[size];
    if (!blocks.empty()) {
      block = std::move(blocks.back());
      blocks.pop_back();
      free_bytes_ -= size;
    }
  }
  if (!block) {
    block = std::make_unique<Block>(client_, size);
  }
  return std::shared_ptr<Block>(block.release(), [this](Block* back) {
    std::unique_ptr<Block> owned(back);
    std::lock_guard<std::mutex> lock(mutex_);

    if (free_bytes_ + owned->bytes() <= kKept) {
      free_bytes_ += owned->bytes();
      free_[owned->bytes()].push_back(std::move(owned));
    }
  });
}

std::shared_ptr<Block> Memory::allocate(uint64_t bytes) {
  std::shared_ptr<Block> block = stage(bytes);
  std::lock_guard<std::mutex> lock(mutex_);

  allocated_[block->data()] = block;
  return block;
}

std::shared_ptr<Block> Memory::find(const void* data, uint64_t bytes, uint64_t* ret_offset) {
  const char* at = static_cast<const char*>(data);
  std::shared_ptr<Block> block;  // released behind the lock: its end takes the lock, too

  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = allocated_.upper_bound(at);

    if (next == allocated_.begin()) {
      return nullptr;
    }
    --next;
    block = next->second.lock();
    if (!block) {
      allocated_.erase(next);
      return nullptr;
    }
  }
  const uint64_t offset = static_cast<uint64_t>(at - block->data());
  if (offset > block->bytes() || bytes > block->bytes() - offset) {
    return nullptr;
  }
  *ret_offset = offset;
  return block;
}

}  // namespace tutti_torch
