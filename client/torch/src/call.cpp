// Arrays in the memory of the program are libtutti's to bring to the agent: its arena, messages or temporary tensors. Those of a
// GPU are copied to blocks of the agent's GPU (gpu.hpp); where an agent of the group has none, they go through the memory of the
// program.
#include "call.hpp"

#include <sstream>

#include "compat.hpp"
#include "error.hpp"
#include "gpu.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <tutti/op_data.h>
#include <tutti/tensor.h>

namespace tutti_torch {

namespace {

constexpr const char* kMissing = "tutti.tmp/0000000000000000";  // a tensor that is not there

char nothing[1];  // an array without elements has no address of its own in torch

tutti_spec spec_of(tutti_dtype dtype, int64_t count) {
  return tutti_spec{dtype, 1, {count}};
}

tutti_op_data data_of(const Call& call) {
  tutti_op_data data = {};

  data.spec = spec_of(call.dtype, call.give != nullptr ? call.give_count : call.take_count);
  data.data = call.give;
  data.result = call.take;
  data.result_bytes = call.take_bytes();
  return data;
}

// Points into `call`, which outlives the submission.
tutti_op op_of(const Call& call) {
  tutti_op op = call.op;

  op.input_splits = call.input_splits.empty() ? nullptr : call.input_splits.data();
  op.input_split_count = call.input_splits.size();
  op.output_splits = call.output_splits.empty() ? nullptr : call.output_splits.data();
  op.output_split_count = call.output_splits.size();
  return op;
}

// What torch has put on the current stream is done: ops wait for the GPU on the host.
void wait_for_gpu(const at::Device& device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());

  gpu.getStream(device).synchronize();
}

int source_of(const tutti_queue_completion& done, const Call& call) {
  return call.kind == TUTTI_OP_RECV ? static_cast<int>(done.op.source) : -1;
}

void end_call(const Call& call) {
  const std::optional<at::Device> gpu = call.gpu();

  if (call.fetch) {
    call.fetch();
  }
  if (call.finish) {
    call.finish();
  }
  if (gpu && (call.fetch || call.finish)) {
    wait_for_gpu(*gpu);
  }
}

// The calls of one op, and where their bytes are on the agent's GPU.
struct Batch {
  struct Places {
    std::shared_ptr<GpuBlock> give;
    std::shared_ptr<GpuBlock> take;  // `give`, if the op works in place
  };
  std::vector<Call> calls;
  std::vector<Places> places;  // empty: they are in the memory of the program
  std::shared_ptr<GpuEvent> event;  // the op waits for what is copied to them; nullptr: it was waited for here
  std::exception_ptr failed;   // why this rank has nothing to give
  OnEnd on_end;
};

// Between a tensor and its block. event: whoever waits for that one waits for the copy; nullptr: it is waited for.
void copy(const at::Tensor& tensor, const GpuBlock& block, const GpuEvent* event, void* to, const void* from, uint64_t bytes) {
  try {
    if (event != nullptr) {
      event->copy_in(to, from, bytes);
    } else {
      block.copy(to, from, bytes);
    }
  } catch (const c10::Error& error) {
    std::ostringstream text;
    text << "tutti: a tensor on " << tensor.device() << " and the memory of this rank's agent, on cuda:" << block.device()
         << " as this process counts: it cannot be copied: " << error.what_without_backtrace();
    C10_THROW_ERROR(DistBackendError, text.str());
  }
}

// The op did not wait for the copies to its blocks, or nobody knows: what they read must stay till then.
void end_copies(const Batch& batch) {
  if (batch.event) {
    try {
      batch.event->finish_in();
    } catch (const std::exception&) {  // the GPU has failed, and does nothing any more
    }
  }
}

void end_batch(const Batch& batch, const tutti_queue_completion& done) {
  if (batch.failed || done.error.code != TUTTI_OK) {
    end_copies(batch);
  }
  try {
    if (batch.failed) {
      std::rethrow_exception(batch.failed);
    }
    if (done.error.code != TUTTI_OK) {
      for (const Batch::Places& places : batch.places) {
        for (const std::shared_ptr<GpuBlock>& block : {places.give, places.take}) {
          if (block) {
            block->spoil();
          }
        }
      }
      std::rethrow_exception(error_of(done.error));
    }
    for (size_t i = 0; i < batch.calls.size(); i++) {
      const Call& call = batch.calls[i];
      if (!batch.places.empty() && call.take != nullptr) {
        const GpuBlock& from = *batch.places[i].take;
        copy(call.taken, from, nullptr, call.take, from.data(), call.take_bytes());
      }
      end_call(call);
    }
  } catch (...) {
    batch.on_end(std::current_exception(), -1);
    return;
  }
  batch.on_end(nullptr, source_of(done, batch.calls[0]));
}

// Keeps the runtime, whose blocks the batch may have.
OnDone batch_done(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<Batch>& batch) {
  return [runtime, batch](const tutti_queue_completion& done) { end_batch(*batch, done); };
}

// ------------------------------------------------------------------ memory of a GPU

// What is on the current stream comes before what is copied with this event. false: torch does not tell the event that it records.
bool follow_stream(const GpuEvent& event, const at::Device& device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());
  c10::Event ready(device.type());

  ready.record(gpu.getStream(device));
  void* id = id_of(ready, 0);
  if (id == nullptr) {
    return false;
  }
  event.wait_in(id);
  return true;
}

// The event of an op whose data goes in without waiting for it.
std::shared_ptr<GpuEvent> event_for(Gpu& gpu, const Batch& batch) {
  const Call& first = batch.calls[0];
  const std::optional<at::Device> device = first.gpu();
  const bool is_collective = first.kind != TUTTI_OP_SEND && first.kind != TUTTI_OP_RECV;
  std::shared_ptr<GpuEvent> event = is_collective && first.give != nullptr ? gpu.take_event() : nullptr;

  if (event && device && !follow_stream(*event, *device)) {
    event.reset();
  }
  return event;
}

Batch::Places place_call(Gpu& gpu, const Call& call, const GpuEvent* event) {
  Batch::Places places;

  if (call.give != nullptr) {
    places.give = gpu.stage(call.give_bytes());
    copy(call.given, *places.give, event, places.give->data(), call.give, call.give_bytes());
  }
  if (call.take != nullptr) {
    places.take = call.is_in_place() ? places.give : gpu.stage(call.take_bytes());
  }
  return places;
}

// If it fails the op is called all the same, of a tensor that is not there: its refusal tells the other ranks at once.
void place_batch(Gpu& gpu, Batch& batch) {
  const std::optional<at::Device> device = batch.calls[0].gpu();

  batch.places.resize(batch.calls.size());
  try {
    batch.event = event_for(gpu, batch);
    if (device && !batch.event) {
      wait_for_gpu(*device);
    }
    for (size_t i = 0; i < batch.calls.size(); i++) {
      batch.places[i] = place_call(gpu, batch.calls[i], batch.event.get());
    }
    if (batch.event) {
      batch.event->record();
    }
  } catch (...) {
    batch.failed = std::current_exception();
  }
}

void submit_placed(const std::shared_ptr<Runtime>& runtime, Gpu& gpu, const std::shared_ptr<Batch>& batch) {
  const Call& first = batch->calls[0];
  const size_t count = batch->calls.size();
  std::vector<std::string> texts;
  std::vector<const char*> inputs, outputs;
  tutti_op op = op_of(first);

  place_batch(gpu, *batch);
  texts.reserve(2 * count);
  const auto add = [&](std::vector<const char*>& list, const std::shared_ptr<GpuBlock>& block, tutti_dtype dtype, int64_t elements) {
    texts.push_back(batch->failed ? kMissing : block->range(dtype, elements));
    list.push_back(texts.back().c_str());
  };
  for (size_t i = 0; i < count; i++) {
    const Call& call = batch->calls[i];
    if (call.give != nullptr) {
      add(inputs, batch->places[i].give, call.dtype, call.give_count);
    }
    if (call.take != nullptr) {
      add(outputs, batch->places[i].take, call.dtype, call.take_count);
    }
  }
  if (count > 1) {
    op.inputs = inputs.data();
    op.outputs = outputs.data();
    op.input_count = op.output_count = count;
  } else {
    op.input = inputs.empty() ? nullptr : inputs[0];
    op.output = outputs.empty() ? nullptr : outputs[0];
  }
  op.after_event = batch->event && !batch->failed ? batch->event->id() : 0;
  try {
    runtime->submit(first.kind, op, nullptr, first.driven, batch_done(runtime, batch));
  } catch (...) {
    end_copies(*batch);
    throw;
  }
}

// For an agent without a GPU.
void bring_to_host(Call& call) {
  const bool in_place = call.is_in_place();

  if (call.give != nullptr && call.give != nothing && call.given.is_cuda()) {
    const at::Tensor host = call.given.cpu();
    call.give = host.const_data_ptr();
    call.given = host;
  }
  if (call.take != nullptr && call.take != nothing && call.taken.is_cuda()) {
    const at::Tensor there = call.taken;
    const at::Tensor host = in_place ? call.given : at::empty(there.sizes(), there.options().device(at::kCPU));
    call.take = host.mutable_data_ptr();
    call.fetch = [there, host] {
      at::NoGradGuard guard;
      at::Tensor(there).copy_(host);
    };
  }
}

// nullptr: by memory of the host. Asked once for each op, as ranks that go or come may change the answer.
Gpu* gpu_for(Runtime& runtime, const Call& call) {
  const bool moves = call.give != nullptr || call.take != nullptr;

  return moves && (call.gpu() || runtime.is_all_on_gpu()) ? runtime.gpu() : nullptr;
}

}  // namespace

void submit_list(const std::shared_ptr<Runtime>& runtime, std::vector<Call> calls, OnEnd on_end) {
  auto batch = std::make_shared<Batch>();
  std::vector<tutti_op_data> arrays;

  batch->calls = std::move(calls);
  batch->on_end = std::move(on_end);
  if (Gpu* gpu = gpu_for(*runtime, batch->calls[0])) {
    submit_placed(runtime, *gpu, batch);
    return;
  }
  for (Call& call : batch->calls) {
    bring_to_host(call);
    arrays.push_back(data_of(call));
  }
  const Call& first = batch->calls[0];
  runtime->submit_list(first.kind, op_of(first), arrays, first.driven, batch_done(runtime, batch));
}

void submit_call(const std::shared_ptr<Runtime>& runtime, Call call, OnEnd on_end) {
  auto batch = std::make_shared<Batch>();

  batch->calls.push_back(std::move(call));
  batch->on_end = std::move(on_end);
  if (Gpu* gpu = gpu_for(*runtime, batch->calls[0])) {
    submit_placed(runtime, *gpu, batch);
    return;
  }
  Call& only = batch->calls[0];
  bring_to_host(only);
  const tutti_op_data data = data_of(only);
  const bool moves = only.give != nullptr || only.take != nullptr;
  runtime->submit(only.kind, op_of(only), moves ? &data : nullptr, only.driven, batch_done(runtime, batch));
}

void Call::set_give(const at::Tensor& tensor, int64_t factor) {
  given = tensor;
  give_count = tensor.numel() * factor;
  give = tensor.numel() == 0 ? nothing : tensor.const_data_ptr();
}

void Call::set_take(const at::Tensor& tensor, int64_t factor) {
  taken = tensor;
  take_count = tensor.numel() * factor;
  take = tensor.numel() == 0 ? nothing : tensor.mutable_data_ptr();
}

uint64_t Call::give_bytes() const {
  return give == nullptr ? 0 : static_cast<uint64_t>(give_count) * tutti_dtype_bytes(dtype);
}

uint64_t Call::take_bytes() const {
  return take == nullptr ? 0 : static_cast<uint64_t>(take_count) * tutti_dtype_bytes(dtype);
}

bool Call::is_in_place() const {
  return give != nullptr && give == take && give_count == take_count;
}

std::optional<at::Device> Call::gpu() const {
  if (given.defined() && given.is_cuda()) {
    return given.device();
  }
  return taken.defined() && taken.is_cuda() ? std::optional<at::Device>(taken.device()) : std::nullopt;
}

}  // namespace tutti_torch
