// What torch 2.4 and newer have under different names, or not at all. Each is found by whether it is there, so no version of
// torch has to be known here: call NAME(..., 0), and the form with `int` is taken where torch has the member.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti_torch {

// Does the caller of an op wait for it at once? Torch before 2.7 does not say so of every op.
template <class Options>
auto async_of(const Options& opts, int) -> decltype(opts.asyncOp) {
  return opts.asyncOp;
}
template <class Options>
bool async_of(const Options&, long) {
  return true;
}

// The name that torch gives a process group, the same on all ranks.
template <class Backend>
auto uid_of(const Backend& backend, int) -> decltype(std::string(backend.getGroupUid())) {
  return backend.getGroupUid();
}
template <class Backend>
std::string uid_of(const Backend& backend, long) {
  return backend.getGroupName();
}

template <class Options>
auto name_of(const Options& opts, int) -> decltype(std::string(opts.group_name)) {
  return opts.group_name;
}
template <class Options>
std::string name_of(const Options&, long) {
  return "split";
}

// A store for another group, which may need a connection of its own.
template <class Store>
auto clone_of(const c10::intrusive_ptr<Store>& store, int) -> decltype(c10::intrusive_ptr<Store>(store->clone())) {
  return store->clone();
}
template <class Store>
c10::intrusive_ptr<Store> clone_of(const c10::intrusive_ptr<Store>& store, long) {
  return store;
}

// Kinds of works, as the profiler shows them.
template <class Type>
constexpr auto gather_coalesced_type(int) -> decltype(Type::ALLGATHER_INTO_TENSOR_COALESCED) {
  return Type::ALLGATHER_INTO_TENSOR_COALESCED;
}
template <class Type>
constexpr Type gather_coalesced_type(long) {
  return Type::ALLGATHER_COALESCED;
}
template <class Type>
constexpr auto scatter_coalesced_type(int) -> decltype(Type::REDUCE_SCATTER_TENSOR_COALESCED) {
  return Type::REDUCE_SCATTER_TENSOR_COALESCED;
}
template <class Type>
constexpr Type scatter_coalesced_type(long) {
  return Type::COALESCED;
}

// The cudaEvent_t of a c10::Event that has been recorded; nullptr: torch does not tell.
template <class Event>
auto id_of(const Event& event, int) -> decltype(event.eventId()) {
  return event.eventId();
}
template <class Event>
void* id_of(const Event&, long) {
  return nullptr;
}

// Newer torch calls it PreMulSumSupplement, and keeps this name.
using PremulFactor = c10d::NCCLPreMulSumSupplement;

}  // namespace tutti_torch
