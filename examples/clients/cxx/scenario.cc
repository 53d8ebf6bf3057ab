// Collectives from C++ with grpc++ and generated stubs: one program that speaks to all ranks of a job.
//
// usage: scenario ADDRESS; of the agent of rank 0. Prints TAP.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tutti/v1/collectives_service.grpc.pb.h"
#include "tutti/v1/coordinator_service.grpc.pb.h"
#include "tutti/v1/diagnostics_service.grpc.pb.h"
#include "tutti/v1/tensors_service.grpc.pb.h"

using namespace tutti::v1;

static const size_t kCount = (1 << 20) + 3;     // floats: several chunks, and a part of one
static const size_t kChunkBytes = 2 << 20;      // of a message of a stream
static const std::chrono::seconds kTimeout{60}; // of a call

// ------------------------------------------------------------------------------ connecting

static std::string Environment(const char *name)
{
    const char *value = std::getenv(name);
    return value == nullptr ? "" : value;
}

static std::string ReadFile(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

static std::shared_ptr<grpc::Channel> Dial(const std::string &address)
{
    const std::string ca = Environment("TUTTI_TLS_CA");
    if (ca.empty()) {
        return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    }
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ReadFile(ca);
    if (!Environment("TUTTI_TLS_CERT").empty()) {
        options.pem_cert_chain = ReadFile(Environment("TUTTI_TLS_CERT"));
        options.pem_private_key = ReadFile(Environment("TUTTI_TLS_KEY"));
    }
    return grpc::CreateChannel(address, grpc::SslCredentials(options));
}

// A call's deadline, and its token when there is one.
static std::unique_ptr<grpc::ClientContext> Context()
{
    auto context = std::make_unique<grpc::ClientContext>();
    const std::string token_file = Environment("TUTTI_TOKEN_FILE");

    context->set_deadline(std::chrono::system_clock::now() + kTimeout);
    context->set_wait_for_ready(true);
    if (!token_file.empty()) {
        std::string token = ReadFile(token_file);
        token.erase(token.find_last_not_of(" \r\n") + 1);
        context->AddMetadata("authorization", "Bearer " + token);
    }
    return context;
}

struct Agent {
    explicit Agent(const std::string &address)
    {
        auto channel = Dial(address);
        tensors = TensorsService::NewStub(channel);
        collectives = CollectivesService::NewStub(channel);
        diagnostics = DiagnosticsService::NewStub(channel);
    }

    std::unique_ptr<TensorsService::Stub> tensors;
    std::unique_ptr<CollectivesService::Stub> collectives;
    std::unique_ptr<DiagnosticsService::Stub> diagnostics;
    DescribeAgentResponse info;
    std::string mine; // handles
    std::string sum;
};

// ------------------------------------------------------------------------------ errors

// The google.rpc.ErrorInfo in the details of a status.
static google::rpc::ErrorInfo InfoOf(const grpc::Status &status)
{
    google::rpc::Status details;
    google::rpc::ErrorInfo info;

    if (details.ParseFromString(status.error_details())) {
        for (const auto &detail : details.details()) {
            if (detail.UnpackTo(&info)) {
                break;
            }
        }
    }
    return info;
}

static bool Good(const grpc::Status &status)
{
    if (!status.ok()) {
        std::printf("# %d %s: %s\n", status.error_code(), InfoOf(status).reason().c_str(),
                    status.error_message().c_str());
    }
    return status.ok();
}

// ------------------------------------------------------------------------------ the scenario

static bool WaitJoined(Agent *agent)
{
    do {
        if (!Good(agent->diagnostics->DescribeAgent(Context().get(), {}, &agent->info))) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(agent->info.joined() ? 0 : 20));
    } while (!agent->info.joined());
    return true;
}

// Connections to all ranks, as the coordinator knows them.
static bool Discover(const std::string &first, std::vector<std::unique_ptr<Agent>> *agents)
{
    Agent agent(first);
    LookupRanksRequest request;
    LookupRanksResponse found;

    if (!WaitJoined(&agent)) {
        return false;
    }
    request.set_job(agent.info.job());
    auto coordinator = CoordinatorService::NewStub(Dial(agent.info.coordinator()));
    if (!Good(coordinator->LookupRanks(Context().get(), request, &found))) {
        return false;
    }
    for (const auto &rank : found.ranks()) {
        agents->push_back(std::make_unique<Agent>(rank.agent().addresses(0)));
        if (!WaitJoined(agents->back().get()) || agents->back()->info.rank() != rank.rank()) {
            return false;
        }
    }
    return agents->size() == agent.info.world_size();
}

static bool Upload(Agent *agent)
{
    const std::vector<float> values(kCount, float(agent->info.rank() + 1)); // little-endian, as all we run on
    const char *bytes = reinterpret_cast<const char *>(values.data());
    const size_t size = values.size() * sizeof(float);
    UploadResponse response;
    auto context = Context();
    auto stream = agent->tensors->Upload(context.get(), &response);
    UploadRequest request;

    request.mutable_start()->mutable_spec()->set_dtype(DTYPE_FP32);
    request.mutable_start()->mutable_spec()->add_shape(kCount);
    for (size_t offset = 0; offset < size; offset += kChunkBytes) {
        request.set_offset(offset);
        request.set_payload(bytes + offset, std::min(kChunkBytes, size - offset));
        if (!stream->Write(request)) {
            break; // Finish says why
        }
        request.clear_start();
    }
    stream->WritesDone();
    if (!Good(stream->Finish())) {
        return false;
    }
    agent->mine = response.tensor().handle();
    return response.byte_count() == size;
}

static bool AllReduce(Agent *agent)
{
    AllReduceRequest request;
    AllReduceResponse response;

    request.mutable_input()->set_handle(agent->mine);
    request.set_reduce_op(REDUCE_OP_SUM);
    if (!Good(agent->collectives->AllReduce(Context().get(), request, &response))) {
        return false;
    }
    agent->sum = response.output().handle();
    return response.output().spec().shape(0) == int64_t(kCount);
}

// Is every element of a tensor in the agent `want`?
static bool Holds(Agent *agent, const std::string &handle, float want)
{
    DownloadRequest request;
    DownloadResponse part;
    std::vector<float> values(kCount, -1);
    auto context = Context();

    request.set_handle(handle);
    auto stream = agent->tensors->Download(context.get(), request);
    while (stream->Read(&part)) {
        if (part.offset() + part.payload().size() > kCount * sizeof(float)) {
            context->TryCancel();
            break;
        }
        std::memcpy(reinterpret_cast<char *>(values.data()) + part.offset(), part.payload().data(),
                    part.payload().size());
    }
    return Good(stream->Finish()) && values == std::vector<float>(kCount, want);
}

// Rank 1's tensor into everybody's sum: begun, then waited for.
static bool BroadcastAsync(Agent *agent)
{
    BroadcastRequest request;
    BroadcastResponse response;
    WaitRequest wait;
    WaitResponse waited;

    request.set_root(1);
    request.mutable_options()->set_async(true);
    if (agent->info.rank() == 1) {
        request.mutable_input()->set_handle(agent->mine);
    } else {
        request.set_output(agent->sum);
    }
    if (!Good(agent->collectives->Broadcast(Context().get(), request, &response))) {
        return false;
    }
    wait.add_works(response.info().work());
    return Good(agent->collectives->Wait(Context().get(), wait, &waited)) && waited.works(0).done() &&
           waited.works(0).error().code() == 0 && Holds(agent, waited.works(0).output().handle(), 2);
}

static bool MismatchIsExplained(Agent *agent)
{
    const int64_t count = 2 + agent->info.rank() % 2;
    AllReduceRequest request;
    AllReduceResponse response;

    request.set_reduce_op(REDUCE_OP_SUM);
    request.mutable_input()->mutable_inline_tensor()->set_dtype(DTYPE_UINT8);
    request.mutable_input()->mutable_inline_tensor()->add_shape(count);
    request.set_payload(std::string(size_t(count), '\1'));
    const grpc::Status status = agent->collectives->AllReduce(Context().get(), request, &response);
    const google::rpc::ErrorInfo info = InfoOf(status);
    return status.error_code() == grpc::INVALID_ARGUMENT && info.reason() == "SHAPE_MISMATCH" &&
           info.domain() == "tutti" && info.metadata().at("group") == "world";
}

static bool NothingIsLeft(Agent *agent)
{
    DeleteRequest request;
    DeleteResponse response;
    ListResponse left;

    request.add_handles(agent->mine);
    request.add_handles(agent->sum);
    return Good(agent->tensors->Delete(Context().get(), request, &response)) &&
           Good(agent->tensors->List(Context().get(), {}, &left)) && left.tensors_size() == 0;
}

// ------------------------------------------------------------------------------ running it

int main(int argc, char **argv)
{
    std::vector<std::unique_ptr<Agent>> agents;
    int count = 0;

    std::setvbuf(stdout, nullptr, _IOLBF, 0); // what was done is told also when the rest crashes
    bool fine = argc == 2 && Discover(argv[1], &agents);
    std::printf("%s %d - cxx: ranks are found\n", fine ? "ok" : "not ok", ++count);
    const float sum = float(agents.size() * (agents.size() + 1) / 2);

    auto on_all = [&](const char *name, const std::function<bool(Agent *)> &step) {
        std::atomic<bool> good{fine}; // after a failure the others would only wait
        std::vector<std::thread> threads;
        for (auto &agent : agents) {
            threads.emplace_back([&] { good = (fine && step(agent.get())) && good; });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        fine = good;
        std::printf("%s %d - cxx: %s\n", fine ? "ok" : "not ok", ++count, name);
    };
    on_all("tensors are uploaded in chunks", Upload);
    on_all("all_reduce gives the sum", AllReduce);
    on_all("it is downloaded", [&](Agent *agent) { return Holds(agent, agent->sum, sum); });
    on_all("an async broadcast is waited for", BroadcastAsync);
    on_all("an error has its details", MismatchIsExplained);
    on_all("nothing is left", NothingIsLeft);
    std::printf("1..%d\n", count);
    return fine ? 0 : 1;
}
