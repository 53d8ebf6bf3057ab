#include "backend.hpp"

#include <algorithm>
#include <random>
#include <sstream>

#include <tutti/group.h>

#include "call.hpp"
#include "compat.hpp"
#include "dtype.hpp"
#include "error.hpp"
#include "recorder.hpp"

namespace tutti_torch {

namespace {

using Tensors = TuttiBackend::Tensors;

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_sparse(), "tutti: sparse tensors are not supported: make them dense");
  TORCH_CHECK(tensor.device().is_cpu() || tensor.is_cuda(), "tutti: a tensor is on ", tensor.device(),
              ", this backend takes those of the CPU and of CUDA");
}

void check_same_dtype(const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "tutti: output tensor must have the same type as input tensor: ", output.scalar_type(), " and ",
              input.scalar_type());
}

void check_one(const Tensors& tensors, const char* op) {
  TORCH_CHECK(tensors.size() == 1, "tutti: ", op, " takes a single tensor, not ", tensors.size());
  check_tensor(tensors[0]);
}

// Where an op may write: the tensor itself, or an array whose elements `copy_back` brings there.
at::Tensor writable(const at::Tensor& tensor, std::function<void()>& copy_back) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  at::Tensor dense = tensor.contiguous();
  copy_back = [tensor, dense] {
    at::NoGradGuard guard;
    at::Tensor(tensor).copy_(dense);
  };
  return dense;
}

// Do they lie one behind the other, without gaps? Then they are one array.
bool is_run(const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); i++) {
    if (!tensors[i].is_contiguous() || tensors[i].scalar_type() != tensors[0].scalar_type() ||
        (i > 0 && (tensors[i].storage().data() != tensors[0].storage().data() ||
                   tensors[i].const_data_ptr() !=
                       static_cast<const char*>(tensors[i - 1].const_data_ptr()) + tensors[i - 1].nbytes()))) {
      return false;
    }
  }
  return true;
}

int64_t elements_of(const Tensors& tensors) {
  int64_t count = 0;

  for (const at::Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  return count;
}

// All of them as one array, to be read.
at::Tensor flat_of(const Tensors& tensors) {
  if (is_run(tensors)) {
    return tensors[0].as_strided({elements_of(tensors)}, {1}, tensors[0].storage_offset());
  }
  Tensors flat;
  for (const at::Tensor& tensor : tensors) {
    flat.push_back(tensor.contiguous().view(-1));
  }
  return at::cat(flat);
}

// An array for results that belong into these tensors.
at::Tensor flat_for(const Tensors& tensors, std::function<void()>& copy_back) {
  if (is_run(tensors)) {
    return tensors[0].as_strided({elements_of(tensors)}, {1}, tensors[0].storage_offset());
  }
  at::Tensor flat = at::empty({elements_of(tensors)}, tensors[0].options());
  copy_back = [tensors, flat] {
    at::NoGradGuard guard;
    int64_t at = 0;

    for (const at::Tensor& tensor : tensors) {
      at::Tensor(tensor).copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  };
  return flat;
}

void check_equal_sizes(const Tensors& tensors, const at::Tensor& like, const char* op) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    check_same_dtype(tensor, like);
    TORCH_CHECK(tensor.numel() == like.numel(), "tutti: invalid tensor size in ", op, ": ", tensor.sizes(), " and ",
                like.sizes());
  }
}

std::string draw_nonce() {
  std::random_device device;
  std::ostringstream text;

  text << std::hex << device() << device();
  return text.str();
}

// Group names have letters, digits and . _ / - only.
std::string name_letters(const std::string& name) {
  std::string text = name.substr(0, 60);

  for (char& letter : text) {
    if (!std::isalnum(static_cast<unsigned char>(letter)) && letter != '_' && letter != '-') {
      letter = '_';
    }
  }
  return text;
}

class TuttiOptions : public c10d::Backend::Options {
 public:
  explicit TuttiOptions(std::chrono::milliseconds timeout) : Options("tutti", timeout) {}
};

}  // namespace

// ------------------------------------------------------------------ the group

TuttiBackend::TuttiBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           std::chrono::milliseconds timeout, std::vector<int64_t> global_ranks, std::string name,
                           const std::string& torch)
    : Backend(rank, size),
      runtime_(Runtime::open(store, rank, size, global_ranks.empty(), torch)),
      torch_(torch),
      store_(store),
      options_(c10::make_intrusive<TuttiOptions>(timeout)),
      timeout_(timeout),
      global_ranks_(std::move(global_ranks)) {
  const bool is_default = global_ranks_.empty();

  if (is_default) {
    for (int i = 0; i < size; i++) {
      global_ranks_.push_back(i);
    }
  }
  meet(name);
  recorded_ = Recorder::get().add_group(name, is_default ? "default_pg" : "", global_ranks_);
  init();
}

// torch uses the name of a process group again after it was destroyed, so rank 0 draws what makes it unique.
void TuttiBackend::meet(const std::string& name) {
  const std::string prefix = attempt_prefix() + "group/";
  const int64_t turn = store_->add(prefix + "turn/" + std::to_string(rank_), 1);
  const std::string key = prefix + std::to_string(turn);
  std::vector<uint32_t> members;
  tutti_group_options options;
  tutti_error err;

  if (rank_ == 0) {
    const std::string nonce = draw_nonce();
    store_->set(key, std::vector<uint8_t>(nonce.begin(), nonce.end()));
  }
  const std::vector<uint8_t> nonce = store_->get(key);
  group_ = "torch/" + name_letters(name) + "/" + std::string(nonce.begin(), nonce.end());
  for (const int64_t rank : global_ranks_) {
    TORCH_CHECK(rank >= 0 && rank < static_cast<int64_t>(runtime_->ranks().size()), "tutti: rank ", rank, " is none of the ",
                runtime_->ranks().size(), " ranks of the first process group");
    members.push_back(runtime_->ranks()[static_cast<size_t>(rank)]);
  }
  tutti_group_options_init(&options);
  options.name = group_.c_str();
  options.ephemeral = true;  // nobody else knows its name, so it is of no use once these programs are gone
  check(tutti_group_create_with(runtime_->client(), &options, members.data(), members.size(), nullptr, &err), err);
}

void TuttiBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  options_->timeout = timeout;
}

void TuttiBackend::abort() {
  tutti_error err;

  check(tutti_group_abort(runtime_->client(), group_.c_str(), "abort() of the process group", &err), err);
}

TuttiBackend::Shrunk TuttiBackend::shrink_to(std::chrono::milliseconds timeout) {
  tutti_group_info info;
  tutti_error err;
  Shrunk shrunk;

  check(tutti_group_shrink(runtime_->client(), group_.c_str(), static_cast<uint32_t>(limit_of(timeout).count()), &info, &err),
        err);
  for (uint32_t i = 0; i < info.rank_count; i++) {
    for (size_t rank = 0; rank < global_ranks_.size(); rank++) {
      if (runtime_->ranks()[static_cast<size_t>(global_ranks_[rank])] == info.ranks[i]) {
        shrunk.ranks.push_back(static_cast<int64_t>(rank));
      }
    }
  }
  shrunk.name = info.name;
  shrunk.coordinator = tutti_whoami(runtime_->client())->coordinator;
  tutti_group_info_free(&info);
  return shrunk;
}

// ------------------------------------------------------------------ running

std::chrono::milliseconds TuttiBackend::limit_of(std::chrono::milliseconds timeout) const {
  return timeout.count() > 0 ? timeout : timeout_;
}

Call TuttiBackend::make_call(tutti_op_kind kind, std::chrono::milliseconds timeout) const {
  const auto limit = limit_of(timeout);
  Call call;

  TORCH_CHECK(!closed_, "tutti: the process group was destroyed: its ops cannot be called any more");
  call.kind = kind;
  tutti_op_init(&call.op);
  call.op.group = group_.c_str();
  call.op.timeout_ms = static_cast<uint32_t>(std::min<int64_t>(std::max<int64_t>(limit.count(), 1), UINT32_MAX));
  return call;
}

namespace {

// In the words of torchfrtrace, which knows those of torch's own backends.
std::string recorded_name(const std::string& title, const Call* call, int rank) {
  const std::string here = std::to_string(rank);

  if (title == "tutti:send") {
    return title + " " + here + "->" + std::to_string(call->op.peer);
  }
  if (title == "tutti:recv") {
    return title + " " + here + "<-" + std::to_string(call->op.peer);
  }
  if (title == "tutti:recvAnySource") {
    return "tutti:recv " + here + "<-?";
  }
  if (title == "tutti:gather_into_tensor") {
    return "tutti:gather";
  }
  return title == "tutti:all_gather_coalesced" ? "tutti:allgather_coalesced" : title;
}

}  // namespace

uint64_t TuttiBackend::record(const char* title, const Tensors& inputs, const Tensors& outputs, const Call* call,
                              uint64_t sequence) {
  const bool pair = call != nullptr && (call->kind == TUTTI_OP_SEND || call->kind == TUTTI_OP_RECV);
  const bool parted = call != nullptr && (call->kind == TUTTI_OP_ALL_GATHER || call->kind == TUTTI_OP_GATHER ||
                                          call->kind == TUTTI_OP_SCATTER || call->kind == TUTTI_OP_REDUCE_SCATTER);
  Entry entry;

  const std::string uid = is_named_ ? "" : uid_of(*this, 0);
  if (!uid.empty()) {
    Recorder::get().name_group(recorded_, uid, getGroupDesc());
    is_named_ = true;
  }
  entry.group = recorded_;
  entry.sequence = sequence;
  entry.pair_sequence = pair ? ++pairs_ : pairs_.load();
  entry.op = ++ops_;
  entry.name = recorded_name(title, call, rank_);
  entry.timeout_ms = call == nullptr ? timeout_.count() : call->op.timeout_ms;
  entry.pair = pair;
  entry.inputs.add(call != nullptr && call->kind == TUTTI_OP_RECV ? Tensors{} : inputs, parted);
  entry.outputs.add(call != nullptr && call->kind == TUTTI_OP_SEND ? Tensors{} : outputs, parted);
  return Recorder::get().begin(std::move(entry));
}

namespace {

// Several calls are of one kind, and become lists, of as many as one op takes; the same on all ranks.
std::vector<std::vector<Call>> lists_of(std::vector<Call> calls) {
  std::vector<std::vector<Call>> lists;

  for (size_t i = 0; i < calls.size(); i++) {
    if (i % kListMost == 0) {
      lists.emplace_back();
    }
    lists.back().push_back(std::move(calls[i]));
  }
  return lists;
}

}  // namespace

// Where the caller waits at once, its thread takes the completions: that saves a change of threads.
TuttiBackend::WorkPtr TuttiBackend::run(c10d::OpType type, const char* title, const Tensors& inputs, Tensors outputs,
                                        std::vector<Call> calls, bool async) {
  const bool pair = type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
  const uint64_t sequence = pair ? sequence_.load() : ++sequence_;
  const bool driven = !async && !coalescing_;
  std::vector<std::vector<Call>> lists = lists_of(std::move(calls));
  auto work = c10::make_intrusive<TuttiWork>(rank_, type, title, inputs, std::move(outputs), sequence,
                                             static_cast<int>(lists.size()));

  if (Recorder::get().is_on() && !lists.empty()) {
    work->set_record(record(title, inputs, work->outputs(), &lists[0][0], sequence), runtime_->rank());
  }
  for (std::vector<Call>& list : lists) {
    auto end = [work](std::exception_ptr error, int source) { work->end_part(error, source); };
    list[0].driven = driven;
    if (list.size() == 1) {
      submit_call(runtime_, std::move(list[0]), end);
    } else {
      submit_list(runtime_, std::move(list), end);
    }
  }
  if (driven) {
    runtime_->drive([&work] { return work->isCompleted(); });
  }
  if (coalescing_) {
    coalesced_.push_back(work);
  }
  return work;
}

void TuttiBackend::startCoalescing() {
  TORCH_CHECK(!coalescing_, "tutti: startCoalescing() twice");
  coalescing_ = true;
}

TuttiBackend::WorkPtr TuttiBackend::endCoalescing() {
  std::vector<WorkPtr> parts;

  coalescing_ = false;
  parts.swap(coalesced_);
  auto all = c10::make_intrusive<TuttiWork>(rank_, c10d::OpType::COALESCED, "tutti:coalesced", Tensors{}, Tensors{},
                                            sequence_, static_cast<int>(parts.size()));
  for (const WorkPtr& part : parts) {
    part->getFuture()->addCallback(
        [all](c10::ivalue::Future& future) { all->end_part(future.hasError() ? future.exception_ptr() : nullptr); });
  }
  return all;
}

// ------------------------------------------------------------------ collectives

Call TuttiBackend::reduce_call(tutti_op_kind kind, std::chrono::milliseconds timeout, const c10d::ReduceOp& reduce,
                               const at::Tensor& tensor) const {
  Call call = make_call(kind, timeout);

  call.dtype = reduced_dtype(tensor.scalar_type());
  set_reduce(call.op, reduce, tensor.scalar_type());
  return call;
}

TuttiBackend::WorkPtr TuttiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  std::vector<Call> calls;

  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    Call call = reduce_call(TUTTI_OP_ALL_REDUCE, opts.timeout, opts.reduceOp, tensor);
    const at::Tensor dense = writable(tensor, call.finish);
    call.set_give(dense);
    call.set_take(dense);
    calls.push_back(std::move(call));
  }
  return run(c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  TORCH_CHECK(false, "tutti: sparse tensors are not supported: make them dense");
}

TuttiBackend::WorkPtr TuttiBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

TuttiBackend::WorkPtr TuttiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_one(tensors, "broadcast");
  Call call = make_call(TUTTI_OP_BROADCAST, opts.timeout);
  int64_t factor;

  call.op.root = static_cast<int32_t>(opts.rootRank);
  call.dtype = moved_dtype(tensors[0].scalar_type(), &factor);
  if (rank_ == opts.rootRank) {
    call.set_give(tensors[0].contiguous(), factor);
  } else {
    call.set_take(writable(tensors[0], call.finish), factor);
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::BROADCAST, "tutti:broadcast", tensors, tensors, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one(tensors, "reduce");
  Call call = reduce_call(TUTTI_OP_REDUCE_TO_ROOT, opts.timeout, opts.reduceOp, tensors[0]);

  call.op.root = static_cast<int32_t>(opts.rootRank);
  if (rank_ == opts.rootRank) {
    const at::Tensor dense = writable(tensors[0], call.finish);
    call.set_give(dense);
    call.set_take(dense);
  } else {
    call.set_give(tensors[0].contiguous());
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::REDUCE, "tutti:reduce", tensors, tensors, std::move(calls), async_of(opts, 0));
}

Call TuttiBackend::gather_call(at::Tensor output, const at::Tensor& input, std::chrono::milliseconds timeout) const {
  Call call = make_call(TUTTI_OP_ALL_GATHER, timeout);
  int64_t factor;

  check_tensor(output);
  check_tensor(input);
  check_same_dtype(output, input);
  TORCH_CHECK(output.numel() == input.numel() * size_,
              "tutti: output tensor size must be equal to world_size times input tensor size: ", output.numel(), " and ",
              size_, " times ", input.numel());
  call.dtype = moved_dtype(input.scalar_type(), &factor);
  call.set_give(input.contiguous(), factor);
  call.set_take(writable(output, call.finish), factor);
  return call;
}

TuttiBackend::WorkPtr TuttiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1, "tutti: all_gather takes a single input and a single output list");
  TORCH_CHECK(outputs[0].size() == static_cast<size_t>(size_), "tutti: all_gather on ", size_,
              " ranks needs as many outputs, not ", outputs[0].size());
  check_equal_sizes(outputs[0], inputs[0], "all_gather");
  std::function<void()> copy_back;
  Call call = gather_call(flat_for(outputs[0], copy_back), inputs[0], opts.timeout);
  std::vector<Call> calls;

  call.finish = copy_back;
  calls.push_back(std::move(call));
  return run(c10d::OpType::ALLGATHER, "tutti:all_gather", inputs, outputs[0], std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  std::vector<Call> calls;

  calls.push_back(gather_call(output, input, opts.timeout));
  return run(c10d::OpType::_ALLGATHER_BASE, "tutti:_all_gather_base", {input}, {output}, std::move(calls),
             async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  std::vector<Call> calls;
  Tensors all;

  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "tutti: all_gather_coalesced on ", size_,
              " ranks needs as many output lists, not ", outputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    Tensors of_input;  // the i-th of each rank's list

    for (const Tensors& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "tutti: an output list has ", list.size(), " tensors for ", inputs.size(),
                  " inputs");
      of_input.push_back(list[i]);
      all.push_back(list[i]);
    }
    check_equal_sizes(of_input, inputs[i], "all_gather_coalesced");
    std::function<void()> copy_back;
    Call call = gather_call(flat_for(of_input, copy_back), inputs[i], opts.timeout);
    call.finish = copy_back;
    calls.push_back(std::move(call));
  }
  return run(c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", inputs, all, std::move(calls),
             async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& opts) {
  std::vector<Call> calls;

  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); i++) {
    calls.push_back(gather_call(outputs[i], inputs[i], opts.timeout));
  }
  return run(gather_coalesced_type<c10d::OpType>(0), "tutti:all_gather_into_tensor_coalesced", inputs, outputs,
             std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_one(inputs, "gather");
  Call call = make_call(TUTTI_OP_GATHER, opts.timeout);
  Tensors results;
  int64_t factor;

  call.op.root = static_cast<int32_t>(opts.rootRank);
  call.dtype = moved_dtype(inputs[0].scalar_type(), &factor);
  call.set_give(inputs[0].contiguous(), factor);
  if (rank_ == opts.rootRank) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_), "tutti: gather on ", size_,
                " ranks needs a list of as many outputs on the root");
    check_equal_sizes(outputs[0], inputs[0], "gather");
    results = outputs[0];
    call.set_take(flat_for(results, call.finish), factor);
  } else {
    TORCH_CHECK(outputs.empty(), "tutti: gather: only the root gives outputs");
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::GATHER, "tutti:gather", inputs, results, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                       const c10d::GatherOptions& opts) {
  Call call = make_call(TUTTI_OP_GATHER, opts.timeout);
  Tensors results;
  int64_t factor;

  check_tensor(input);
  call.op.root = static_cast<int32_t>(opts.rootRank);
  call.dtype = moved_dtype(input.scalar_type(), &factor);
  call.set_give(input.contiguous(), factor);
  if (rank_ == opts.rootRank) {
    check_tensor(output);
    check_same_dtype(output, input);
    TORCH_CHECK(output.numel() == input.numel() * size_, "tutti: gather: output of ", output.numel(), " elements, not ",
                size_, " times ", input.numel());
    results.push_back(output);
    call.set_take(writable(output, call.finish), factor);
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::GATHER, "tutti:gather_into_tensor", {input}, results, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& opts) {
  check_one(outputs, "scatter");
  Call call = make_call(TUTTI_OP_SCATTER, opts.timeout);
  Tensors given;
  int64_t factor;

  call.op.root = static_cast<int32_t>(opts.rootRank);
  call.dtype = moved_dtype(outputs[0].scalar_type(), &factor);
  if (rank_ == opts.rootRank) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_), "tutti: scatter on ", size_,
                " ranks needs a list of as many inputs on the root");
    check_equal_sizes(inputs[0], outputs[0], "scatter");
    given = inputs[0];
    call.set_give(flat_of(given), factor);
  } else {
    TORCH_CHECK(inputs.empty(), "tutti: scatter: only the root gives inputs");
  }
  call.set_take(writable(outputs[0], call.finish), factor);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::SCATTER, "tutti:scatter", given, outputs, std::move(calls), async_of(opts, 0));
}

Call TuttiBackend::scatter_call(at::Tensor output, const at::Tensor& input, const c10d::ReduceOp& reduce,
                                std::chrono::milliseconds timeout) const {
  Call call = reduce_call(TUTTI_OP_REDUCE_SCATTER, timeout, reduce, input);

  check_tensor(output);
  check_tensor(input);
  check_same_dtype(output, input);
  TORCH_CHECK(input.numel() == output.numel() * size_,
              "tutti: input tensor must be the same size as output size times world size: ", input.numel(), " and ", size_,
              " times ", output.numel());
  call.set_give(input.contiguous());
  call.set_take(writable(output, call.finish));
  return call;
}

TuttiBackend::WorkPtr TuttiBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  check_one(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_), "tutti: reduce_scatter on ", size_,
              " ranks needs a list of as many inputs");
  check_equal_sizes(inputs[0], outputs[0], "reduce_scatter");
  std::vector<Call> calls;

  calls.push_back(scatter_call(outputs[0], flat_of(inputs[0]), opts.reduceOp, opts.timeout));
  return run(c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", inputs[0], outputs, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& opts) {
  std::vector<Call> calls;

  calls.push_back(scatter_call(output, input, opts.reduceOp, opts.timeout));
  return run(c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:_reduce_scatter_base", {input}, {output}, std::move(calls),
             async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  std::vector<Call> calls;

  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); i++) {
    calls.push_back(scatter_call(outputs[i], inputs[i], opts.reduceOp, opts.timeout));
  }
  return run(scatter_coalesced_type<c10d::OpType>(0), "tutti:reduce_scatter_tensor_coalesced", inputs, outputs,
             std::move(calls), async_of(opts, 0));
}

namespace {

// Rows of dimension 0 as elements; without splits equal parts.
std::vector<int64_t> element_splits(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size, int64_t factor) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row = (rows == 0 ? 0 : tensor.numel() / rows) * factor;
  std::vector<int64_t> counts;
  int64_t sum = 0;

  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "tutti: Tensor's dim 0 does not divide equally across group size: ", rows, " rows, ", size,
                " ranks");
    return std::vector<int64_t>(static_cast<size_t>(size), rows / size * row);
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(size),
              "tutti: Number of tensor splits not equal to group size: ", splits.size(), " and ", size);
  for (const int64_t split : splits) {
    sum += split;
    counts.push_back(split * row);
  }
  TORCH_CHECK(sum == rows, "tutti: Split sizes doesn't match total dim 0 size: ", sum, " and ", rows);
  return counts;
}

}  // namespace

TuttiBackend::WorkPtr TuttiBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_same_dtype(output, input);
  Call call = make_call(TUTTI_OP_ALL_TO_ALL, opts.timeout);
  int64_t factor;

  call.dtype = moved_dtype(input.scalar_type(), &factor);
  call.input_splits = element_splits(input, input_splits, size_, factor);
  call.output_splits = element_splits(output, output_splits, size_, factor);
  call.set_give(input.contiguous(), factor);
  call.set_take(writable(output, call.finish), factor);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", {input}, {output}, std::move(calls), async_of(opts, 0));
}

TuttiBackend::WorkPtr TuttiBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return exchange(outputs, inputs, opts, c10d::OpType::ALLTOALL);
}

TuttiBackend::WorkPtr TuttiBackend::exchange(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts,
                                             c10d::OpType type) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(), "tutti: all_to_all on ",
              size_, " ranks needs as many inputs and outputs, not ", inputs.size(), " and ", outputs.size());
  Call call = make_call(TUTTI_OP_ALL_TO_ALL, opts.timeout);
  int64_t factor;

  call.dtype = moved_dtype(inputs[0].scalar_type(), &factor);
  for (size_t i = 0; i < inputs.size(); i++) {
    check_tensor(inputs[i]);
    check_tensor(outputs[i]);
    check_same_dtype(inputs[i], inputs[0]);
    check_same_dtype(outputs[i], inputs[0]);
    call.input_splits.push_back(inputs[i].numel() * factor);
    call.output_splits.push_back(outputs[i].numel() * factor);
  }
  call.set_give(flat_of(inputs), factor);
  call.set_take(flat_for(outputs, call.finish), factor);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(type, "tutti:all_to_all", inputs, outputs, std::move(calls), async_of(opts, 0));
}

// ------------------------------------------------------------------ pairs

TuttiBackend::WorkPtr TuttiBackend::send(Tensors& tensors, int to, int tag) {
  check_one(tensors, "send");
  Call call = make_call(TUTTI_OP_SEND, timeout_);
  int64_t factor;

  call.op.peer = to;
  call.op.tag = static_cast<uint32_t>(tag);
  call.dtype = moved_dtype(tensors[0].scalar_type(), &factor);
  call.set_give(tensors[0].contiguous(), factor);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(c10d::OpType::SEND, "tutti:send", tensors, tensors, std::move(calls), true);
}

TuttiBackend::WorkPtr TuttiBackend::receive(Tensors& tensors, int from, int tag, c10d::OpType type) {
  check_one(tensors, "recv");
  Call call = make_call(TUTTI_OP_RECV, timeout_);
  int64_t factor;

  call.op.peer = from;
  call.op.tag = static_cast<uint32_t>(tag);
  call.dtype = moved_dtype(tensors[0].scalar_type(), &factor);
  call.set_take(writable(tensors[0], call.finish), factor);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return run(type, type == c10d::OpType::RECV ? "tutti:recv" : "tutti:recvAnySource", tensors, tensors, std::move(calls),
             true);
}

TuttiBackend::WorkPtr TuttiBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag, c10d::OpType::RECV);
}

TuttiBackend::WorkPtr TuttiBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, TUTTI_ANY_SOURCE, tag, c10d::OpType::RECVANYSOURCE);
}

// ------------------------------------------------------------------ barriers, memory

TuttiBackend::WorkPtr TuttiBackend::barrier(const c10d::BarrierOptions& opts) {
  std::vector<Call> calls;

  calls.push_back(make_call(TUTTI_OP_BARRIER, opts.timeout));
  return run(c10d::OpType::BARRIER, "tutti:barrier", {}, {}, std::move(calls), async_of(opts, 0));
}

// "Rank 1", or "Ranks 1, 3" if all are wanted: who has not told the store that it calls this barrier. "" = nobody, or the
// store is gone. It is asked only when a barrier has failed.
std::string TuttiBackend::missing_ranks(bool all) {
  std::string text;

  for (int i = 0; i < size_; i++) {
    const std::string key = attempt_prefix() + "monitored/" + group_ + "/" + std::to_string(i);
    int64_t reached = 0;
    try {
      if (store_->check({key})) {
        const std::vector<uint8_t> value = store_->get(key);
        reached = std::stoll(std::string(value.begin(), value.end()));
      }
    } catch (const std::exception&) {
      return "";
    }
    if (reached < monitored_) {
      text += (text.empty() ? (all ? "Ranks " : "Rank ") : ", ") + std::to_string(i);
      if (!all) {
        break;
      }
    }
  }
  return text;
}

// In torch's words: rank 0 names who is missing, the others refer to it.
void TuttiBackend::fail_monitored(const tutti_error& err, std::chrono::milliseconds limit, bool all) {
  const std::string who = std::to_string(rank_);

  if (rank_ != 0) {
    C10_THROW_ERROR(DistBackendError, "Rank " + who + " successfully reached monitoredBarrier, but received errors while " +
                                          "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. " +
                                          error_text(err));
  }
  const std::string missing = missing_ranks(all);
  if (missing.empty()) {
    C10_THROW_ERROR(DistBackendError, "Rank 0 timed out in monitoredBarrier after " + std::to_string(limit.count()) +
                                          " ms. " + error_text(err));
  }
  C10_THROW_ERROR(DistBackendError, missing + " failed to pass monitoredBarrier in " + std::to_string(limit.count()) +
                                        " ms. " + error_text(err));
}

void TuttiBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const std::string reached = std::to_string(++monitored_);
  tutti_error err;

  if (opts.timeout.count() == 0) {
    C10_THROW_ERROR(DistBackendError, "Rank " + std::to_string(rank_) + " timed out in monitoredBarrier after 0 ms");
  }
  Call call = make_call(TUTTI_OP_BARRIER, opts.timeout);
  store_->set(attempt_prefix() + "monitored/" + group_ + "/" + std::to_string(rank_),
              std::vector<uint8_t>(reached.begin(), reached.end()));
  call.op.monitored = true;
  const tutti_code code = tutti_barrier(runtime_->client(), &call.op, nullptr, &err);
  if (code == TUTTI_DEADLINE_EXCEEDED) {
    fail_monitored(err, limit_of(opts.timeout), wait_all_ranks);
  }
  check(code, err);
}

c10::intrusive_ptr<c10d::Backend> TuttiBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  std::vector<int64_t> global;

  if (self == ranks.end()) {
    return nullptr;
  }
  for (const int rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < size_, "tutti: split with rank ", rank, ": this group has the ranks 0 to ", size_ - 1);
    global.push_back(global_ranks_[static_cast<size_t>(rank)]);
  }
  return c10::make_intrusive<TuttiBackend>(clone_of(store, 0), static_cast<int>(self - ranks.begin()),
                                           static_cast<int>(ranks.size()), opts ? opts->timeout : timeout_,
                                           std::move(global), opts ? name_of(*opts, 0) : "split", torch_);
}

bool TuttiBackend::supportsTensorAlloc(c10::DeviceIndex) {
  return runtime_->is_shared();
}

at::Tensor TuttiBackend::allocateTensor(long size, at::TensorOptions options) {
  return Runtime::empty(runtime_, size, options);
}

}  // namespace tutti_torch
