/* Reading the options of `tutti run`. Each that makes no sense is refused before anything starts. */
#include "client/cli/cluster/run_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cluster/nodes.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/state.h"
#include "client/cli/util/values.h"

#define DEVICE_MAX 64

void
run_options_free(run_options *options)
{
    uint32_t i;

    for (i = 0; options->devices != NULL && options->devices[i] != NULL; i++) {
        free(options->devices[i]);
    }
    free(options->devices);
    options->devices = NULL;
}

/* ------------------------------------------------------------------------------ devices */

static uint32_t
count_words(const char *list)
{
    uint32_t count = 1;

    for (; *list != '\0'; list++) {
        count += *list == ',' ? 1 : 0;
    }
    return count;
}

/* "cuda" is the GPU of the rank's place on this host. */
static char *
make_device(const char *word, size_t size, uint32_t place)
{
    char device[DEVICE_MAX];

    (void)snprintf(device, sizeof(device),
                   size == 4 && strncmp(word, "cuda", 4) == 0 ? "%.*s:%" PRIu32 : "%.*s", (int)size,
                   word, place);
    return strdup(device);
}

/* One word stands for all when it names no single GPU. */
static bool
read_devices(cli *self, run_options *ret)
{
    const char *list = cli_value(self, "devices");
    const char *at = list;
    const uint32_t words = list != NULL ? count_words(list) : 0;
    uint32_t i;

    if (list == NULL) {
        return true;
    }
    if (cli_value(self, "cluster") != NULL) {
        (void)cli_usage(self, "--devices is of agents that are started, those of --cluster run");
        return false;
    }
    ret->count = ret->count > 0 ? ret->count : words;
    if (words != ret->count && (words > 1 || strchr(list, ':') != NULL)) {
        (void)cli_usage(self,
                        "--devices %s: %" PRIu32 " for %" PRIu32
                        " ranks here, need one for each, or \"cuda\" or \"cpu\" for all",
                        list, words, ret->count);
        return false;
    }
    ret->devices = calloc((size_t)ret->count + 1, sizeof(*ret->devices));
    if (ret->devices == NULL) {
        abort();
    }
    for (i = 0; i < ret->count; i++) {
        const size_t size = strcspn(at, ",");

        if (size == 0 || size + 8 >= DEVICE_MAX) {
            (void)cli_usage(self, "--devices \"%s\": write cuda:0,cuda:1, cuda or cpu", list);
            return false;
        }
        ret->devices[i] = make_device(at, size, i);
        at += words > 1 && at[size] == ',' ? size + 1 : 0;
    }
    return true;
}

/* ------------------------------------------------------------------------------ several hosts */

static bool
refuse_run(cli *self, const char *words)
{
    (void)cli_usage(self, "%s", words);
    return false;
}

static bool
read_node_options(cli *self, run_options *ret)
{
    int64_t count = 0;
    int64_t rank = -1;

    if (strchr(cli_value(self, "nnodes"), ':') != NULL) {
        return refuse_run(self, "--nnodes: need one number; for a world that shrinks and grows "
                                "start agents with --min-world");
    }
    if (!cli_number(self, "nnodes", 1, NODES_MAX, &count) ||
        !cli_number(self, "node-rank", 0, NODES_MAX - 1, &rank)) {
        return false;
    }
    if (rank < 0 && count > 1) {
        return refuse_run(self, "--nnodes needs --node-rank: which of the nodes this is, from 0");
    }
    if (rank >= count) {
        (void)cli_usage(self,
                        "--node-rank %" PRId64 " of --nnodes %" PRId64
                        ": need a number from 0 to %" PRId64,
                        rank, count, count - 1);
        return false;
    }
    ret->node_count = (uint32_t)count;
    ret->node_rank = rank < 0 ? 0 : (uint32_t)rank;
    return true;
}

static bool
read_place(cli *self, run_options *ret)
{
    int64_t start = 0;
    int64_t world = 0;

    if (!cli_number(self, "rank-start", 0, TUTTI_RANKS_MAX - 1, &start) ||
        !cli_number(self, "world-size", 1, TUTTI_RANKS_MAX, &world)) {
        return false;
    }
    if (world == 0) {
        return refuse_run(self, "--rank-start needs --world-size: the ranks of the whole job");
    }
    if (start + ret->count > world) {
        (void)cli_usage(self,
                        "ranks %" PRId64 " to %" PRId64 " here, but the job has %" PRId64
                        " (--world-size): need ranks from 0 to %" PRId64,
                        start, start + ret->count - 1, world, world - 1);
        return false;
    }
    ret->rank_start = (uint32_t)start;
    ret->world_size = (uint32_t)world;
    return true;
}

/* Where the nodes meet. */
static bool
read_coordinator(cli *self, run_options *ret)
{
    const char *stated = cli_value(self, "coordinator");
    const char *colon;
    size_t size;

    ret->coordinator = stated != NULL ? stated : getenv("TUTTI_COORDINATOR");
    ret->job = cli_value(self, "job") != NULL ? cli_value(self, "job") : "default";
    if (ret->coordinator == NULL || ret->coordinator[0] == '\0') {
        return refuse_run(self, "need --coordinator HOST:PORT, which all nodes reach; node 0 "
                                "starts one there if there is none");
    }
    colon = strrchr(ret->coordinator, ':');
    size = colon == NULL ? 0 : (size_t)(colon - ret->coordinator);
    if (strncmp(ret->coordinator, "unix:", 5) == 0) {
        (void)snprintf(ret->coordinator_host, sizeof(ret->coordinator_host), "127.0.0.1");
    } else if (size > 1 && size < sizeof(ret->coordinator_host)) {
        const bool bracket = ret->coordinator[0] == '[';

        (void)snprintf(ret->coordinator_host, sizeof(ret->coordinator_host), "%.*s",
                       (int)size - (bracket ? 2 : 0), ret->coordinator + (bracket ? 1 : 0));
    }
    return true;
}

/* What --nnodes and --rank-start have in common. */
static bool
read_spread(cli *self, run_options *ret)
{
    const bool by_node = cli_value(self, "nnodes") != NULL;

    if (cli_value(self, "cluster") != NULL || cli_flag(self, "keep")) {
        return refuse_run(self, "--cluster and --keep are for clusters of this host: leave them "
                                "out with --nnodes and --rank-start");
    }
    if (by_node &&
        (cli_value(self, "rank-start") != NULL || cli_value(self, "world-size") != NULL)) {
        return refuse_run(self, "--nnodes gives out the ranks: leave out --rank-start and "
                                "--world-size");
    }
    if (ret->count == 0) {
        return refuse_run(self, "need -n N: how many programs are started here");
    }
    ret->listen = cli_value(self, "listen");
    ret->insecure = cli_flag(self, "insecure");
    return (by_node ? read_node_options(self, ret) : read_place(self, ret)) &&
           read_coordinator(self, ret);
}

/* Options that have a meaning only beside another one. */
static bool
refuse_lonely(cli *self)
{
    static const char *const lonely[][2] = {{"node-rank", "--nnodes"},
                                            {"world-size", "--rank-start"},
                                            {"listen", "--nnodes or --rank-start"}};
    size_t i;

    for (i = 0; i < sizeof(lonely) / sizeof(lonely[0]); i++) {
        if (cli_value(self, lonely[i][0]) != NULL) {
            (void)cli_usage(self, "--%s is for %s", lonely[i][0], lonely[i][1]);
            return false;
        }
    }
    return !cli_flag(self, "insecure") ||
           refuse_run(self, "--insecure is for --nnodes or --rank-start: servers of a private "
                            "cluster are reached by you alone");
}

bool
run_options_read(cli *self, run_options *ret)
{
    const char *memory = cli_value(self, "memory-limit");
    int64_t count = 0;
    uint64_t bytes;

    *ret = (run_options){.memory_limit = memory};
    ret->spread = cli_value(self, "nnodes") != NULL || cli_value(self, "rank-start") != NULL;
    if (!cli_number(self, "count", 1, STATE_RANKS_MAX, &count)) {
        return false;
    }
    if (memory != NULL && !cli_parse_size(memory, &bytes)) {
        (void)cli_usage(self, "--memory-limit \"%s\": write 512MiB, 4GiB ...", memory);
        return false;
    }
    ret->count = (uint32_t)count;
    if (!read_devices(self, ret) || !(ret->spread ? read_spread(self, ret) : refuse_lonely(self))) {
        run_options_free(ret);
        return false;
    }
    if (ret->count == 0 && cli_value(self, "cluster") == NULL) {
        ret->count = 2;
    }
    return true;
}
