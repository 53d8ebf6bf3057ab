// The door for Python: tutti_torch._C.
#include <torch/extension.h>
#include <torch/version.h>

#include "allocator.hpp"
#include "backend.hpp"
#include "recorder.hpp"
#include "store.hpp"

#include <tutti/client.h>

namespace py = pybind11;
using namespace tutti_torch;

namespace {

std::shared_ptr<Runtime> current_runtime() {
  std::shared_ptr<Runtime> runtime = Runtime::current();

  TORCH_CHECK(runtime != nullptr, "tutti: there is no process group of the backend tutti yet: call init_process_group first");
  return runtime;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.attr("built_for") = TORCH_VERSION;
  m.def("version", [] { return std::string(tutti_version()); });
  m.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_s, std::vector<int64_t> ranks,
         std::string name, const std::string& torch) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<TuttiBackend>(store, rank, size,
                                                 std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)),
                                                 std::move(ranks), std::move(name), torch);
      },
      py::call_guard<py::gil_scoped_release>());
  m.def("close", &Runtime::close, py::call_guard<py::gil_scoped_release>(), "Ends the client, and agents that were launched");
  m.def(
      "copied_bytes", [] { return Runtime::current() ? Runtime::current()->copied_bytes() : 0; },
      "Bytes that were copied to memory of the agent's and back");
  m.def(
      "ordered_ops", [] { return Runtime::current() ? Runtime::current()->ordered_ops() : 0; },
      "Ops whose data went to the agent's GPU without waiting for it");
  m.def(
      "why_not_shared",
      [] { return Runtime::current() ? Runtime::current()->why_not() : std::string("there is no process group"); },
      "Why the agent lends no memory; empty = it does");
  m.def(
      "why_no_gpu", [] { return Runtime::current() ? Runtime::current()->why_no_gpu() : std::string("there is no process group"); },
      "Why the GPU of the agent cannot be opened here; empty = it is, or it has none");
  m.def(
      "empty",
      [](int64_t count, py::object dtype) {
        return Runtime::empty(current_runtime(), count, at::TensorOptions().dtype(torch::python::detail::py_object_to_dtype(dtype)));
      },
      "A tensor in memory of the agent's");
  m.def(
      "lend_from",
      [](size_t at_least) {
        if (at_least != 0) {
          current_runtime();
        }
        return lend_from(at_least);
      },
      "New tensors of this thread of so many bytes and more are in memory of the agent's; 0: no longer");
  m.def(
      "shrink",
      [](const c10::intrusive_ptr<c10d::Backend>& backend, double timeout_s) {
        auto* ours = dynamic_cast<TuttiBackend*>(backend.get());
        TORCH_CHECK(ours != nullptr, "tutti: the process group is one of ", backend->getBackendName(),
                    ", not of tutti: with TORCH_DISTRIBUTED_DEBUG=DETAIL groups cannot be shrunk");
        TuttiBackend::Shrunk shrunk = ours->shrink_to(std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)));
        return std::make_tuple(shrunk.ranks, shrunk.name, shrunk.coordinator);
      },
      py::call_guard<py::gil_scoped_release>(), "Who is left of a group: (group ranks, a name for keys, the coordinator)");
  m.def("flight_record", [] { return py::bytes(Recorder::get().dump()); }, "A pickle of what was called lately");
  m.def(
      "store",
      [](const std::string& coordinator, std::string prefix, double timeout_s, int rank,
         int size) -> c10::intrusive_ptr<c10d::Store> {
        auto store = c10::make_intrusive<TuttiStore>(coordinator, std::move(prefix),
                                                     std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)));

        if (size > 0) {
          store->meet(rank, size);
        }
        return store;
      },
      py::arg("coordinator"), py::arg("prefix"), py::arg("timeout_s"), py::arg("rank") = 0, py::arg("size") = 0,
      py::call_guard<py::gil_scoped_release>());
}
