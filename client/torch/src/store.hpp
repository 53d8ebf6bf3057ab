// A c10d store on the coordinator's key-value store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/client.h>

namespace tutti_torch {

class TuttiStore : public c10d::Store {
 public:
  // coordinator: an address. prefix: of all keys, so that several programs can share a coordinator. Throws DistStoreError.
  TuttiStore(const std::string& coordinator, std::string prefix, std::chrono::milliseconds timeout);

  // Wait for the other ranks of a run. Keys have a prefix of that run from now on: what earlier runs have left, also those that
  // never had all ranks, does not meet it.
  void meet(int rank, int size);

  c10::intrusive_ptr<c10d::Store> clone();  // without `override`: torch 2.4 does not have it
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  TuttiStore(std::shared_ptr<tutti_client> client, std::string prefix, std::chrono::milliseconds timeout);
  std::string full(const std::string& key) const { return prefix_ + key; }

  std::shared_ptr<tutti_client> client_;
  std::string prefix_;
};

}  // namespace tutti_torch
