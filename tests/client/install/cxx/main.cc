/* A user's program in C++: one rank of an all-reduce and of an all-gather. */
#include <tutti/tutti.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace
{

struct Close {
    void
    operator()(tutti_client *client) const
    {
        tutti_close(client);
    }
};

void
check(tutti_code code, const tutti_error &err)
{
    if (code != TUTTI_OK) {
        throw std::runtime_error(err.text);
    }
}

void
run()
{
    tutti_error err;
    tutti_client *raw = nullptr;
    check(tutti_connect(nullptr, &raw, &err), err);
    const std::unique_ptr<tutti_client, Close> client(raw);
    const tutti_agent_info *info = tutti_whoami(client.get());

    tutti_op op;
    tutti_op_init(&op);
    op.reduce = TUTTI_REDUCE_MAX;
    const tutti_spec spec = {TUTTI_DTYPE_INT32, 1, {1}};
    std::int32_t most = static_cast<std::int32_t>(info->rank);
    check(tutti_all_reduce_data(client.get(), &op, &spec, &most, &most, &err), err);

    tutti_op_init(&op);
    const std::int32_t mine = static_cast<std::int32_t>(info->rank) * 10;
    std::vector<std::int32_t> all(info->world_size);
    check(tutti_all_gather_data(client.get(), &op, &spec, &mine, all.data(),
                                all.size() * sizeof(all[0]), &err),
          err);
    std::printf("c++: rank %u of %u: most %d, last %d\n", info->rank, info->world_size, most,
                all.back());
}

} // namespace

int
main()
{
    try {
        run();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
