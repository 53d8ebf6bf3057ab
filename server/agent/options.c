#include "server/agent/agent.h"

#include <stddef.h>

#include "base/os/clock.h"
#include "coll/coll.h"
#include "tutti/types.h"

#define AT(member) offsetof(tutti_agent_options, member)

static const tutti_option table[] = {
    {"coordinator", TUTTI_OPTION_ADDRESS, AT(coordinator), "127.0.0.1:29600", 0, 0, NULL,
     "address of the coordinator, a list of several, or env://, tcp:// or file:// with rank and "
     "world_size; when it is not given, that of MASTER_ADDR and MASTER_PORT"},
    {"job", TUTTI_OPTION_NAME, AT(job), "default", 0, 0, NULL, "the job to join"},
    {"rank", TUTTI_OPTION_WORD, AT(rank), "", 0, 0,
     "RANK PET_RANK JOB_COMPLETION_INDEX SLURM_PROCID OMPI_COMM_WORLD_RANK",
     "the seat to take; empty = one is assigned, in the order of host names"},
    {"world-size", TUTTI_OPTION_UINT, AT(world_size), "1", 1, TUTTI_RANKS_MAX,
     "WORLD_SIZE PET_WORLD_SIZE SLURM_NTASKS OMPI_COMM_WORLD_SIZE", "ranks of the job"},
    {"local-rank", TUTTI_OPTION_UINT, AT(local_rank), "0", 0, UINT32_MAX,
     "LOCAL_RANK PET_LOCAL_RANK SLURM_LOCALID OMPI_COMM_WORLD_LOCAL_RANK",
     "number of this agent among the agents of its host"},
    {"min-world", TUTTI_OPTION_UINT, AT(min_world), "0", 0, TUTTI_RANKS_MAX, NULL,
     "smallest number of ranks with which the job may begin and go on; 0 = all of them"},
    {"max-world", TUTTI_OPTION_UINT, AT(max_world), "0", 0, TUTTI_RANKS_MAX, NULL,
     "seats of a job with --min-world; 0 = --world-size"},
    {"device", TUTTI_OPTION_LIST, AT(device), "cpu", 0, 0, NULL,
     "devices for tensors: cpu, cuda:N, or several with commas; a tensor whose caller names no "
     "device goes to the first"},
    {"device-memory-limit", TUTTI_OPTION_BYTES, AT(device_memory_limit), "0", 0, 1ULL << 46, NULL,
     "bytes of tensors on each GPU; 0 = three quarters of what is free at the start"},
    {"allow-shared-gpu", TUTTI_OPTION_BOOL, AT(allow_shared_gpu), "false", 0, 0, NULL,
     "join although another agent of the job has the same GPU"},
    {"memory-limit", TUTTI_OPTION_BYTES, AT(memory_limit), "0", 0, 1ULL << 46, NULL,
     "bytes of tensors in host memory; 0 = half of the memory this process may use"},
    {"memory-keep", TUTTI_OPTION_NS, AT(memory_keep_ns), "1m", 0, 24 * 3600 * TUTTI_NS_PER_S, NULL,
     "how long memory of deleted tensors is kept for new ones before the system gets it back, at "
     "most twice that; 0 = for ever"},
    {"handles-max", TUTTI_OPTION_UINT, AT(handles_max), "100000", 1, 10000000, NULL,
     "how many tensors the agent may hold at a time"},
    {"retry-window", TUTTI_OPTION_NS, AT(retry_window_ns), "30s", 0, 3600 * TUTTI_NS_PER_S, NULL,
     "how long answers of ops with tokens are kept for calls that come again"},
    {"retry-bytes-limit", TUTTI_OPTION_BYTES, AT(retry_bytes_limit), "64MiB", 0, INT64_MAX, NULL,
     "memory for the answers of ops with tokens; the oldest are forgotten"},
    {"leases-max", TUTTI_OPTION_UINT, AT(leases_max), "4096", 1, 1000000, NULL,
     "how many leases may be open: clients whose tensors are deleted when they end"},
    {"session-linger", TUTTI_OPTION_NS, AT(session_linger_ns), "5m", 0, 24 * 3600 * TUTTI_NS_PER_S,
     NULL,
     "how long a session or a lease may ask to be kept after its client has gone, to be resumed; 0 "
     "= not at all"},
    {"works-max", TUTTI_OPTION_UINT, AT(works_max), "4096", 1, 1000000, NULL,
     "finished async ops that are remembered"},
    {"ops-max", TUTTI_OPTION_UINT, AT(ops_max), "8192", 1, TUTTI_COLL_OPS_MAX, NULL,
     "ops in flight"},
    {"client-ops-max", TUTTI_OPTION_UINT, AT(client_ops_max), "4096", 1, TUTTI_COLL_OPS_MAX, NULL,
     "ops of one client in flight, fewer than --ops-max so that other clients can always begin "
     "ops"},
    {"commands-max", TUTTI_OPTION_UINT, AT(commands_max), "256", 1, 8192, NULL,
     "commands of one stream that may be without an answer at a time"},
    {"plugin", TUTTI_OPTION_LIST, AT(plugin), "", 0, 0, NULL,
     "files with functions that clients may call, as tutti/plugin.h has it: they run inside of the "
     "agent"},
    {"module-path", TUTTI_OPTION_FOLDER, AT(module_path), "", 0, 0, NULL,
     "folder with such files that clients may have loaded by name; empty = none"},
    {"functions", TUTTI_OPTION_LIST, AT(functions), "", 0, 0, NULL,
     "first parts of names (\"demo\" is demo and demo.x) that the functions and modules of hosts "
     "may "
     "have; * = any; empty = no process may be a host"},
    {"python", TUTTI_OPTION_LIST, AT(python), "", 0, 0, NULL,
     "Python modules whose functions clients may call: the agent starts python3 -m tutti.host with "
     "them, and starts it again when it ends"},
    {"python-token", TUTTI_OPTION_FILE, AT(python_token), "", 0, 0, NULL,
     "file with the bearer token that the host of --python shows this agent, of role client; empty "
     "= that of --token-file"},
    {"function-threads", TUTTI_OPTION_UINT, AT(function_threads), "8", 1, 512, NULL,
     "functions that run at once; those that wait for a collective are not counted"},
    {"calls-max", TUTTI_OPTION_UINT, AT(calls_max), "1024", 1, 100000, NULL,
     "calls of functions that run or wait"},
    {"hosts-max", TUTTI_OPTION_UINT, AT(hosts_max), "16", 1, 1000, NULL,
     "processes at once that offer functions"},
    {"sessions-max", TUTTI_OPTION_UINT, AT(sessions_max), "64", 1, 10000, NULL,
     "how many sessions of controllers the agent may lead at a time"},
    {"registers-max", TUTTI_OPTION_UINT, AT(registers_max), "65536", 1, 100000000, NULL,
     "the greatest number of a register in a session that the agent leads"},
    {"tracers-max", TUTTI_OPTION_UINT, AT(tracers_max), "1024", 1, 1000000, NULL,
     "how many tracers the agent may hold at a time"},
    {"tape-max", TUTTI_OPTION_UINT, AT(tape_max), "100000", 1, 100000000, NULL,
     "recorded ops and attached tensors of all tracers"},
    {"op-timeout", TUTTI_OPTION_NS, AT(op_timeout_ns), "5m", TUTTI_NS_PER_MS, 0, NULL,
     "deadline of an op whose caller gives none"},
    {"silence-timeout", TUTTI_OPTION_NS, AT(partition_timeout_ns), "0", 0, 0, NULL,
     "let ops fail when the coordinator has been silent for this time, because it may have "
     "declared this rank lost; not while its host refuses connections; 0 = its heartbeat timeout"},
    {"join-timeout", TUTTI_OPTION_NS, AT(join_timeout_ns), "0", 0, 0, NULL,
     "end with an error when the job, with all its ranks, is not complete after this time; 0 = "
     "wait for ever"},
    {"leave-timeout", TUTTI_OPTION_NS, AT(leave_timeout_ns), "3s", 0, 0, NULL,
     "how long ops under way may take to end when the agent is told to stop; 0 = they fail at "
     "once"},
    {"advertise", TUTTI_OPTION_LIST, AT(advertise), "", 0, 0, NULL,
     "addresses at which clients reach this agent; empty = those of --listen"},
    {"host", TUTTI_OPTION_NAME, AT(host), "", 0, 0, NULL, "name of this host; empty = its own"},
    {"host-id", TUTTI_OPTION_NAME, AT(host_id), "", 0, 0, NULL,
     "id of this host, equal for agents that share memory; empty = boot id and IPC namespace"},
    {"transports", TUTTI_OPTION_LIST, AT(transports), "", 0, 0, NULL,
     "how data goes between hosts: tcp, ucx, or what UCX may use, as UCX_TLS takes it; empty = ucx "
     "where there is RDMA that --net-devices or --listen allow, else tcp. All agents of a job need "
     "the same"},
    {"no-shm", TUTTI_OPTION_BOOL, AT(no_shm), "false", 0, 0, NULL,
     "do not share memory with the agents of this host: all data goes by the network"},
    {"no-share", TUTTI_OPTION_BOOL, AT(no_share), "false", 0, 0, NULL,
     "do not let clients of this host map tensors"},
    {"shares-max", TUTTI_OPTION_UINT, AT(shares_max), "1024", 1, 100000, NULL,
     "how many mappings of tensors clients may have at a time; also how many tensors that were "
     "mapped may be there until they are deleted"},
    {"share-any-user", TUTTI_OPTION_BOOL, AT(share_any_user), "false", 0, 0, NULL,
     "let clients of other users map tensors too, if they may call this agent"},
    {"no-lane", TUTTI_OPTION_BOOL, AT(no_lane), "false", 0, 0, NULL,
     "clients of this host send all their calls by gRPC, none through shared memory"},
    {"lanes-max", TUTTI_OPTION_UINT, AT(lanes_max), "1024", 1, 100000, NULL,
     "how many lanes clients may have at a time: shared memory of 132 KiB through which a stream "
     "of calls goes; calls of others go by gRPC"},
    {"busy-poll", TUTTI_OPTION_NS, AT(busy_poll_ns), "0", 0, 10 * TUTTI_NS_PER_MS, NULL,
     "how long the thread of the lanes looks for the next call before it sleeps; for machines with "
     "a core to spare for each agent; 0 = it sleeps at once"},
    {"net-devices", TUTTI_OPTION_LIST, AT(net_devices), "", 0, 0, NULL,
     "interfaces of the data plane: eth0,eth1, or mlx5_0:1 for UCX; empty = all, but loopback "
     "alone "
     "where --listen serves this machine alone"},
    {"congestion", TUTTI_OPTION_NAME, AT(congestion), "", 0, 0, NULL,
     "congestion control of the data plane's TCP: cubic, bbr ...; empty = the system's, but "
     "cubic or reno instead of bbr, whose pacing is slow on a fast network"},
    {"data-port", TUTTI_OPTION_UINT, AT(data_port), "0", 0, 65535, NULL,
     "port to which the agents of other hosts connect, with tcp; 0 = any port that is free"},
    {"tune-table", TUTTI_OPTION_FILE, AT(tune_table), "", 0, 0, NULL,
     "file that says which algorithm is taken when, as tutti tune writes it; empty = shipped. All "
     "agents of a job need the same"},
    {"algorithm", TUTTI_OPTION_LIST, AT(algorithm), "", 0, 0, NULL,
     "algorithms to take whatever the table says: all_reduce=ring,broadcast=chain. All agents of a "
     "job need the same"},
    {"flight-dir", TUTTI_OPTION_FOLDER, AT(flight_dir), "", 0, 0, NULL,
     "folder for the record of the last 4096 ops, written when an op fails; empty = none"},
    {"coordinator-ca", TUTTI_OPTION_FILE, AT(tls_ca), "", 0, 0, NULL,
     "PEM file of the authority that signs the coordinator's certificate; empty = plaintext"},
    {"coordinator-name", TUTTI_OPTION_NAME, AT(tls_name), "", 0, 0, NULL,
     "name in the coordinator's certificate, when it is not the name in its address"},
    {"coordinator-cert", TUTTI_OPTION_FILE, AT(tls_cert), "", 0, 0, NULL,
     "PEM file of the certificate to show the coordinator; empty = that of --tls-cert"},
    {"coordinator-key", TUTTI_OPTION_FILE, AT(tls_key), "", 0, 0, NULL,
     "PEM file of its private key; empty = that of --tls-key"},
    {"coordinator-token", TUTTI_OPTION_FILE, AT(token_file), "", 0, 0, NULL,
     "file with the bearer token for the coordinator; read again when it changes"},
};

tutti_option_set
tutti_agent_option_set(tutti_agent_options *target)
{
    return (tutti_option_set){"agent", table, sizeof(table) / sizeof(table[0]), target};
}
