// Where the bytes of a call are. Up to kInline they travel in the call itself. Above that each of the two arrays is in one
// of three places: in a block of mapped memory already; copied to a staging block; or, if the agent lends no memory, in a
// tensor that is uploaded before and downloaded afterwards.
#include "call.hpp"

#include <cstring>

#include "error.hpp"

#include <tutti/op_data.h>
#include <tutti/tensor.h>

namespace tutti_torch {

namespace {

constexpr uint64_t kInline = 8u << 10;      // above, two copies through mapped memory are faster than messages
constexpr uint64_t kInlineMost = 3u << 20;  // what one message takes
constexpr uint64_t kAlign = 64;
constexpr uint64_t kLater = 256u << 10;     // larger results are copied on a thread of their own

char nothing[1];  // an array without elements has no address of its own in torch

// A tensor of the agent's, for one call.
struct Remote {
  tutti_client* client;
  tutti_handle handle;

  Remote(tutti_client* client, const tutti_spec& spec) : client(client) {
    tutti_error err;

    check(tutti_tensor_create(client, &spec, nullptr, &handle, &err), err);
  }
  ~Remote() {
    tutti_tensor_delete(client, handle.text, nullptr);
  }
};

struct Place {
  std::string text;
  std::shared_ptr<Block> block;  // of staging, or of memory that is the agent's already
  uint64_t offset = 0;           // in the block
  std::shared_ptr<Remote> remote;
  bool staged = false;
};

tutti_spec spec_of(tutti_dtype dtype, int64_t count) {
  return tutti_spec{dtype, 1, {count}};
}

// A block that the arrays of one list share. Empty: each array gets a block of its own.
struct Staging {
  std::shared_ptr<Block> block;
  uint64_t used = 0;
};

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

Place stage_place(Runtime& runtime, Staging& staging, uint64_t bytes, tutti_dtype dtype, int64_t count) {
  Place place;

  if (runtime.memory().is_shared()) {
    place.block = staging.block ? staging.block : runtime.memory().stage(bytes);
    place.offset = staging.used;
    staging.used += staging.block ? aligned(bytes) : 0;
    place.staged = true;
    place.text = place.block->range(place.offset, dtype, count);
    return place;
  }
  place.remote = std::make_shared<Remote>(runtime.client(), spec_of(dtype, count));
  place.text = place.remote->handle.text;
  return place;
}

Place find_place(Runtime& runtime, Staging& staging, const void* data, uint64_t bytes, tutti_dtype dtype, int64_t count) {
  Place place;

  place.block = runtime.memory().find(data, bytes, &place.offset);
  if (!place.block) {
    return stage_place(runtime, staging, bytes, dtype, count);
  }
  place.text = place.block->range(place.offset, dtype, count);
  return place;
}

void copy_in(Runtime& runtime, const Place& place, const Call& call) {
  if (place.staged) {
    std::memcpy(place.block->data() + place.offset, call.give, call.give_bytes());
    runtime.memory().count_copy(call.give_bytes());
  } else if (place.remote) {
    const tutti_spec spec = spec_of(call.dtype, call.give_count);
    tutti_error err;

    check(tutti_tensor_write(runtime.client(), place.remote->handle.text, &spec, call.give, nullptr, &err), err);
  }
}

void copy_out(Runtime& runtime, const Place& place, const Call& call) {
  if (place.staged) {
    std::memcpy(call.take, place.block->data() + place.offset, call.take_bytes());
    runtime.memory().count_copy(call.take_bytes());
  } else if (place.remote) {
    tutti_error err;

    check(tutti_tensor_read(runtime.client(), place.remote->handle.text, call.take, call.take_bytes(), nullptr, &err), err);
  }
}

// Both places of a call; one if it works in place.
struct Places {
  Place give;
  Place take;
  bool in_place = false;

  const Place& taken() const { return in_place ? give : take; }
};

Places place_call(Runtime& runtime, Staging& staging, const Call& call) {
  Places places;

  places.in_place = call.give != nullptr && call.give == call.take && call.give_count == call.take_count;
  if (call.give != nullptr) {
    places.give = !places.in_place && call.overlaps()
                      ? stage_place(runtime, staging, call.give_bytes(), call.dtype, call.give_count)
                      : find_place(runtime, staging, call.give, call.give_bytes(), call.dtype, call.give_count);
    copy_in(runtime, places.give, call);
  }
  if (call.take != nullptr && !places.in_place) {
    places.take = find_place(runtime, staging, call.take, call.take_bytes(), call.dtype, call.take_count);
  }
  return places;
}

// Points into `call` and `places`, which outlive the submission.
tutti_op op_of(const Call& call) {
  tutti_op op = call.op;

  op.input_splits = call.input_splits.empty() ? nullptr : call.input_splits.data();
  op.input_split_count = call.input_splits.size();
  op.output_splits = call.output_splits.empty() ? nullptr : call.output_splits.data();
  op.output_split_count = call.output_splits.size();
  return op;
}

tutti_op op_at(const Call& call, const Places& places) {
  tutti_op op = op_of(call);

  op.input = call.give != nullptr ? places.give.text.c_str() : nullptr;
  op.output = call.take != nullptr ? places.taken().text.c_str() : nullptr;
  return op;
}

bool is_inline(Runtime& runtime, const Call& call) {
  const uint64_t bytes = std::max(call.give_bytes(), call.take_bytes());

  return bytes <= (runtime.memory().is_shared() ? kInline : kInlineMost);
}

void end_call(const Call& call, const OnEnd& on_end, int source) {
  try {
    if (call.finish) {
      call.finish();
    }
  } catch (...) {
    on_end(std::current_exception(), -1);
    return;
  }
  on_end(nullptr, source);
}

int source_of(const tutti_queue_completion& done, const Call& call) {
  return call.kind == TUTTI_OP_RECV ? static_cast<int>(done.op.source) : -1;
}

void submit_inline(const std::shared_ptr<Runtime>& runtime, std::shared_ptr<Call> call, OnEnd on_end) {
  const tutti_op op = op_of(*call);
  tutti_queue_data data = {};

  data.spec = spec_of(call->dtype, call->give != nullptr ? call->give_count : call->take_count);
  data.data = call->give;
  data.result = call->take;
  data.result_bytes = call->take_bytes();
  runtime->submit(call->kind, op, &data, call->driven, [call, on_end](const tutti_queue_completion& done) {
    if (done.error.code != TUTTI_OK) {
      on_end(error_of(done.error), -1);
    } else {
      end_call(*call, on_end, source_of(done, *call));
    }
  });
}

void submit_placed(const std::shared_ptr<Runtime>& runtime, std::shared_ptr<Call> call, OnEnd on_end) {
  Staging own;
  auto places = std::make_shared<Places>(place_call(*runtime, own, *call));
  const tutti_op op = op_at(*call, *places);

  runtime->submit(call->kind, op, nullptr, call->driven, [runtime, call, places, on_end](const tutti_queue_completion& done) {
    if (done.error.code != TUTTI_OK) {
      on_end(error_of(done.error), -1);
      return;
    }
    const int source = source_of(done, *call);
    auto end = [runtime, call, places, on_end, source] {
      try {
        if (call->take != nullptr) {
          copy_out(*runtime, places->taken(), *call);
        }
      } catch (...) {
        on_end(std::current_exception(), -1);
        return;
      }
      end_call(*call, on_end, source);
    };
    const bool large = call->take != nullptr && call->take_bytes() > kLater;
    if (!call->driven && (large || places->give.remote || places->take.remote)) {  // their deletion waits for the agent
      runtime->later(end);
    } else {
      end();
    }
  });
}

// ------------------------------------------------------------------ lists

struct List {
  std::vector<Call> calls;
  std::vector<Places> places;  // empty: the arrays are in the program's own memory
  OnEnd on_end;
};

uint64_t bytes_of(const std::vector<Call>& calls) {
  uint64_t sum = 0;

  for (const Call& call : calls) {
    sum += aligned(call.give_bytes()) + aligned(call.take_bytes());
  }
  return sum;
}

void end_list(Runtime& runtime, const List& list) {
  try {
    for (size_t i = 0; i < list.calls.size(); i++) {
      if (!list.places.empty()) {
        copy_out(runtime, list.places[i].taken(), list.calls[i]);
      }
      if (list.calls[i].finish) {
        list.calls[i].finish();
      }
    }
  } catch (...) {
    list.on_end(std::current_exception(), -1);
    return;
  }
  list.on_end(nullptr, -1);
}

OnDone list_done(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<List>& list) {
  return [runtime, list](const tutti_queue_completion& done) {
    if (done.error.code != TUTTI_OK) {
      list->on_end(error_of(done.error), -1);
    } else if (!list->calls[0].driven && !list->places.empty() && bytes_of(list->calls) > kLater) {
      runtime->later([runtime, list] { end_list(*runtime, *list); });
    } else {
      end_list(*runtime, *list);
    }
  };
}

// libtutti packs them: into the call itself, up to kInlineMost.
void submit_packed(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<List>& list) {
  const Call& first = list->calls[0];
  std::vector<tutti_op_data> arrays;

  for (const Call& call : list->calls) {
    tutti_op_data data = {};
    data.spec = spec_of(call.dtype, call.give_count);
    data.data = call.give;
    data.result = call.take;
    data.result_bytes = call.take_bytes();
    arrays.push_back(data);
  }
  runtime->submit_list(first.kind, op_of(first), arrays, first.driven, list_done(runtime, list));
}

void submit_ranges(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<List>& list) {
  const Call& first = list->calls[0];
  std::vector<const char*> inputs, outputs;
  Staging staging;
  tutti_op op = op_of(first);

  staging.block = runtime->memory().stage(bytes_of(list->calls));
  for (const Call& call : list->calls) {
    list->places.push_back(place_call(*runtime, staging, call));
  }
  for (const Places& places : list->places) {
    inputs.push_back(places.give.text.c_str());
    outputs.push_back(places.taken().text.c_str());
  }
  op.inputs = inputs.data();
  op.outputs = outputs.data();
  op.input_count = op.output_count = inputs.size();
  runtime->submit(first.kind, op, nullptr, first.driven, list_done(runtime, list));
}

}  // namespace

void submit_list(const std::shared_ptr<Runtime>& runtime, std::vector<Call> calls, OnEnd on_end) {
  auto list = std::make_shared<List>();

  list->calls = std::move(calls);
  list->on_end = std::move(on_end);
  if (runtime->memory().is_shared() && bytes_of(list->calls) > 2 * kInline) {
    submit_ranges(runtime, list);
  } else {
    submit_packed(runtime, list);
  }
}

void Call::set_give(const at::Tensor& tensor, int64_t factor) {
  keep.push_back(tensor);
  give_count = tensor.numel() * factor;
  give = tensor.numel() == 0 ? nothing : tensor.const_data_ptr();
}

void Call::set_take(const at::Tensor& tensor, int64_t factor) {
  keep.push_back(tensor);
  take_count = tensor.numel() * factor;
  take = tensor.numel() == 0 ? nothing : tensor.mutable_data_ptr();
}

uint64_t Call::give_bytes() const {
  return give == nullptr ? 0 : static_cast<uint64_t>(give_count) * tutti_dtype_bytes(dtype);
}

uint64_t Call::take_bytes() const {
  return take == nullptr ? 0 : static_cast<uint64_t>(take_count) * tutti_dtype_bytes(dtype);
}

// As FSDP2 has it, whose input of an all-gather is this rank's part of the output: the agent refuses such ranges.
bool Call::overlaps() const {
  const char* from = static_cast<const char*>(give);
  const char* to = static_cast<const char*>(take);

  return from != nullptr && to != nullptr && from < to + take_bytes() && to < from + give_bytes();
}

void submit_call(const std::shared_ptr<Runtime>& runtime, Call call, OnEnd on_end) {
  auto kept = std::make_shared<Call>(std::move(call));

  if (is_inline(*runtime, *kept)) {
    submit_inline(runtime, std::move(kept), std::move(on_end));
  } else {
    submit_placed(runtime, std::move(kept), std::move(on_end));
  }
}

}  // namespace tutti_torch
