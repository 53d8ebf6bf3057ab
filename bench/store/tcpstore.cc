// PyTorch's TCPStore, as bench_store measures the others: built by beside.py, with the libraries of an installed
// PyTorch.
//
//     tcpstore serve PORT
//     tcpstore ADDRESS:PORT set|get|add CLIENTS SECONDS
//
// TCPStore::set sends and does not wait for an answer, so a set here is a compareSet, which is answered.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

using Clock = std::chrono::steady_clock;

static std::vector<uint8_t>
bytes(const std::string &text)
{
    return std::vector<uint8_t>(text.begin(), text.end());
}

static c10::intrusive_ptr<c10d::TCPStore>
connect(const std::string &host, int port, bool server)
{
    c10d::TCPStoreOptions options;

    options.port = static_cast<uint16_t>(port);
    options.isServer = server;
    options.waitWorkers = false;
    options.multiTenant = false;
    return c10::make_intrusive<c10d::TCPStore>(host, options);
}

static int
serve(int port)
{
    auto store = connect("127.0.0.1", port, true);

    std::printf("ready\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) { // until who started us closes the pipe
    }
    return 0;
}

static void
run(c10d::TCPStore &store, int number, const std::string &op, std::atomic<bool> &ending,
    std::vector<double> &times)
{
    const std::string key = "bench/" + std::to_string(number);
    const std::string counter = key + ".n";
    const auto value = bytes("sixteen bytes ok");

    store.set(key, value);
    while (!ending) {
        const auto begun = Clock::now();

        if (op == "set") {
            store.compareSet(key, value, value);
        } else if (op == "get") {
            store.get(key);
        } else {
            store.add(counter, 1);
        }
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
    }
}

int
main(int argc, char **argv)
{
    if (argc == 3 && std::strcmp(argv[1], "serve") == 0) {
        return serve(std::atoi(argv[2]));
    }
    if (argc != 5) {
        std::fprintf(stderr, "usage: tcpstore serve PORT | ADDRESS:PORT set|get|add CLIENTS SECONDS\n");
        return 2;
    }
    const std::string where = argv[1];
    const std::string host = where.substr(0, where.find(':'));
    const int port = std::atoi(where.substr(where.find(':') + 1).c_str());
    const size_t count = std::strtoul(argv[3], nullptr, 10);
    std::vector<c10::intrusive_ptr<c10d::TCPStore>> stores;
    std::vector<std::vector<double>> times(count);
    std::vector<std::thread> threads;
    std::atomic<bool> ending{false};
    std::vector<double> all;

    for (size_t i = 0; i < count; i++) {
        stores.push_back(connect(host, port, false));
    }
    const auto begun = Clock::now();
    for (size_t i = 0; i < count; i++) {
        threads.emplace_back([&, i] { run(*stores[i], static_cast<int>(i), argv[2], ending, times[i]); });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(std::strtod(argv[4], nullptr)));
    ending = true;
    for (auto &thread : threads) {
        thread.join();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    for (auto &one : times) {
        all.insert(all.end(), one.begin(), one.end());
    }
    std::sort(all.begin(), all.end());
    std::printf("%zu clients: %.0f %ss/s, one takes %.0f us (p50), %.0f us (p99)\n", count,
                static_cast<double>(all.size()) / seconds, argv[2], all.empty() ? 0 : all[all.size() / 2],
                all.empty() ? 0 : all[all.size() * 99 / 100]);
    std::fflush(stdout);
    _exit(0); // not through the destructors of PyTorch's libraries
}
