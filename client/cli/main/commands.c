/* The commands: one row each. Help, completion and man pages are made from here. */
#include "client/cli/main/commands.h"

#include "client/cli/bench/commands.h"
#include "client/cli/cli.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/collective/commands.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/options.h"
#include "client/cli/security/commands.h"
#include "client/cli/session/commands.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/store_options.h"
#include "client/cli/tensor/commands.h"
#include "client/cli/util/typed.h"

#define WORDS_DTYPE "BF16 FP8_E4M3 FP8_E5M2"

const cli_option cli_global_options[] = {
    {"agent", 'a', "ADDRESS", "the agent to speak to: host:port, [v6]:port, unix:/path", NULL},
    {"cluster", 'c', "NAME", "the local cluster to use instead of $TUTTI_AGENT", "@clusters"},
    {"coordinator", 0, "ADDRESS",
     "coordinator address, if the one the agent reports is not reachable from here", NULL},
    {"job", 0, "NAME", "job name, when connecting through --coordinator alone", NULL},
    {"timeout", 't', "TIME", "how long the command may take: 250ms, 10s, 5m", NULL},
    {"tls-ca", 0, "FILE",
     "authority that signs the servers' certificates, instead of $TUTTI_TLS_CA", "FILE"},
    {"tls-cert", 0, "FILE", "the certificate to show, instead of $TUTTI_TLS_CERT", "FILE"},
    {"tls-key", 0, "FILE", "its private key, instead of $TUTTI_TLS_KEY", "FILE"},
    {"tls-name", 0, "NAME",
     "name in the servers' certificates, when it is not the name in their addresses", NULL},
    {"token-file", 0, "FILE", "the token to show, instead of $TUTTI_TOKEN_FILE", "FILE"},
    {"json", 'j', NULL, "one JSON document on standard output", NULL},
    {"quiet", 'q', NULL, "print only results and errors, and of tensors only their handles", NULL},
    {"no-progress", 0, NULL, "draw no progress bars", NULL},
    {"help", 'h', NULL, "show this", NULL},
    {"version", 'V', NULL, "show the version", NULL},
    OPTION_END,
};

/* ------------------------------------------------------------------------------ options */

static const cli_option rank_options[] = {OPTION_RANK, OPTION_END};

static const cli_option backward_options[] = {
    OPTION_RANK,
    {"keep", 'k', NULL, "keep the tape as it is, for another backward", NULL},
    OPTION_END,
};

static const cli_option put_options[] = {
    OPTION_RANK,
    {"name", 0, "NAME", "name of the tensor, by which it is found as by its handle", NULL},
    OPTION_INTO,
    {"dtype", 'd', "DTYPE", "dtype of a file of NumPy's voids", WORDS_DTYPE},
    {"device", 0, "DEVICE", "where it goes: cpu, cuda, cuda:1 (default: the agent's first)", NULL},
    OPTION_END,
};

static const cli_option get_options[] = {
    OPTION_RANK,
    {"output", 'o', "FILE", "file to write, %d being the rank; - is standard output", "FILE"},
    OPTION_END,
};

static const cli_option copy_options[] = {
    OPTION_RANK,
    {"name", 0, "NAME", "name of the copy", NULL},
    OPTION_INTO,
    {"device", 0, "DEVICE", "where it goes: cpu, cuda, cuda:1 (default: where the original is)",
     NULL},
    OPTION_END,
};

/* ------------------------------------------------------------------------------ commands */

#define CLUSTER "local clusters"
#define TENSORS "tensors"
#define COLLECTIVES "collectives"
#define EACH                                                                                       \
    " Every rank has a result of its own: the name after -o has %d where the group rank is to "    \
    "stand."
#define TRACERS "gradients"
#define SESSIONS "sessions and functions"
#define GROUPS "groups and keys"
#define SECURITY "certificates and tokens"
#define OTHERS "others"

const cli_command cli_commands[] = {
    {"cluster start", CLUSTER, "[-n N] [options] [-- AGENT-OPTIONS]",
     "start a coordinator and agents on this machine",
     "They go on when this command ends, until tutti cluster stop. When one of them cannot start, "
     "its last log lines are shown and nothing is left running. They serve on Unix sockets in a "
     "folder of yours alone; --tcp adds ports of loopback, for clients that know no such sockets. "
     "What agents do not share in memory goes over loopback: say --net-devices behind -- for "
     "another interface.",
     "  tutti cluster start -n 4\n  tutti cluster start -n 2 --name test -- --op-timeout 10s",
     cli_start_options, 0, CLI_ANY_COUNT, false, cli_cluster_start},
    {"cluster stop", CLUSTER, "[--name NAME]", "stop a local cluster",
     "Agents say goodbye to the coordinator first; what does not end within --timeout is killed. "
     "Tensors, keys and logs are gone afterwards.",
     "  tutti cluster stop\n"
     "  tutti cluster stop --name test",
     cli_name_options, 0, 0, false, cli_cluster_stop},
    {"cluster status", CLUSTER, "[--name NAME]", "show the processes of a local cluster",
     "Exits with 1 when one of them is gone.", "  tutti cluster status --name test",
     cli_name_options, 0, 0, false, cli_cluster_status},
    {"cluster list", CLUSTER, "", "list the local clusters of this user", NULL,
     "  tutti cluster list\n"
     "  tutti cluster list --json",
     NULL, 0, 0, false, cli_cluster_list},
    {"cluster restart", CLUSTER, "[RANKS] [--name NAME]", "start agents of a local cluster again",
     "Those of the ranks, written 1, 0-3 or 1,5, else all that are gone; one that runs is ended "
     "first. A fresh process takes the seat, with the options that cluster start had. Its tensors "
     "are lost.",
     "  tutti cluster restart\n  tutti cluster restart 1 --name test", cli_name_options, 0, 1,
     false, cli_cluster_restart},
    {"logs", CLUSTER, "[RANK | coordinator] [-f] [-n LINES] [--name NAME]",
     "show what processes of a local cluster have logged",
     "Of one process, or of all with [rank] or [coordinator] in front of each line, in the order "
     "of the times they begin with. -f shows what comes, until the cluster is stopped, --timeout "
     "or Ctrl-C.",
     "  tutti logs\n  tutti logs 1 -f\n  tutti logs coordinator -n 20", cli_logs_options, 0, 1,
     false, cli_logs},
    {"run", CLUSTER, "[-n N] [options] -- PROGRAM [ARGUMENTS]",
     "run a program once per rank, beside agents",
     "Starts a private cluster, or uses the one of --cluster, and a process for each rank with "
     "TUTTI_AGENT, TUTTI_COORDINATOR, TUTTI_JOB and the variables of torchrun (RANK, WORLD_SIZE, "
     "LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, ROLE_RANK, TORCHELASTIC_RUN_ID, MASTER_ADDR, "
     "MASTER_PORT: a free port, ...) in its environment. Lines they print get [rank] in "
     "front. When one fails, the others are ended, and its exit code is ours; 127: the program was "
     "not found, 126: it could not be executed. SIGINT, SIGTERM and SIGHUP are passed on. Standard "
     "input goes to the first rank here. With --timeout all are ended then, and 124 is the exit "
     "code. With --json the programs' output goes to standard error.\n"
     "On several hosts the same command is given on each, with its own --node-rank. The nodes meet "
     "at --coordinator, which node 0 starts if nobody listens there; node 0 has the first ranks, "
     "and each may have another -n. Agents join the job of --job and end with this command. "
     "Servers take their options from the environment (TUTTI_TLS_CERT, ...), or --insecure. When a "
     "rank fails or a node is gone, all nodes end, and each names the rank and the node. With "
     "--rank-start and --world-size nodes do not meet: others may start the other ranks in another "
     "way.",
     "  tutti run -n 4 -- python3 train.py --epochs 3\n"
     "  tutti run --nnodes 2 --node-rank 1 --coordinator node-0:29600 -n 4 -- \\\n"
     "      python3 train.py",
     cli_run_options, 1, CLI_ANY_COUNT, true, cli_run},
    {"status", CLUSTER, "", "show the job: ranks, devices, tensors, last op, health",
     "Asks the coordinator who takes part, and each agent how it is. A star before the last op of "
     "the world: ops are running. CALLS says whether calls from here to that agent go through a "
     "lane (shared memory), or by "
     "gRPC and why. Exits with 1 when a rank is lost or does not answer.",
     "  tutti status\n"
     "  tutti status --coordinator node-0:29600 --job train",
     NULL, 0, 0, false, cli_status},
    {"jobs", CLUSTER, "", "list the jobs that the coordinator serves", NULL,
     "  tutti jobs --coordinator node-0:29600", NULL, 0, 0, false, cli_jobs},
    {"capabilities", CLUSTER, "[--rank R]", "show which dtypes and reduce ops an agent takes", NULL,
     "  tutti capabilities --rank 1", rank_options, 0, 0, false, cli_capabilities},
    {"doctor", CLUSTER, "[--wait TIME]", "look for what is wrong, and say what to do",
     "Do all ranks answer where they say, reach each other on the data plane, have one version, "
     "one time and high enough limits? Of several coordinators: which leads, which stand by and "
     "for "
     "whom? Exits with 1 when something is broken; warnings do not "
     "count.",
     "  tutti doctor\n"
     "  tutti doctor --coordinator node-0:29600 --wait 30s",
     cli_doctor_options, 0, 0, false, cli_doctor},
    {"stall", CLUSTER, "[--group NAME] [--older TIME]", "show which ops wait, and for which ranks",
     "Asks all agents where they stand. A rank that is missing is absent (alive, its program has "
     "not called the op), slow (in an earlier op, or just out of one), queued (its call waits for "
     "tensors), silent (its process does not answer: stopped, starved or cut off) or lost. Exits "
     "with 1 when an op waits, or a rank is silent or lost.",
     "  tutti stall\n  tutti stall --group tp/0 --older 10s", cli_stall_options, 0, 0, false,
     cli_stall},
    {"watch", CLUSTER, "[-n N] [--after EPOCH]", "show which ranks join the job and which leave it",
     "A line for each change of members: a rank joined, is leaving (its ops under way still end), "
     "or is lost, and why. Goes on when the coordinator has been away. Ends with --timeout or "
     "--count; exits with 1 when the job has ended.",
     "  tutti watch\n  tutti watch --after 0 --json", cli_watch_options, 0, 0, false, cli_watch},
    {"top", CLUSTER, "[--once] [--interval TIME]", "show what goes on in the job, again and again",
     "Ranks with their state, host, device and epoch, ops and bytes per second, groups, ops that "
     "wait "
     "for more than 3 s, and who has joined or is lost: what the status page of the coordinator "
     "shows. "
     "Rates come with heartbeats. Arrows and space move through the ranks, s sorts them; q, Ctrl-C "
     "or --timeout "
     "ends "
     "it. Goes on while the coordinator is away. Of more than 1024 ranks --once shows the first "
     "1024.",
     "  tutti top\n  tutti top --once --interval 5s --sort ops/s\n  tutti top --json",
     cli_top_options, 0, 0, false, cli_top},
    {"explain", CLUSTER, "OP [-b SIZE] [--dtype DTYPE] [--op OP] [--group NAME]",
     "show which algorithm an op would take, and why",
     "Asks an agent what an op of that size would do in a group: the rule of the table that holds, "
     "and the other algorithms with the times that a model of a network predicts for them. Says "
     "also whether calls from "
     "here go to that agent through a lane (shared memory), or by gRPC and why.",
     "  tutti explain all_reduce -b 1M\n  tutti explain broadcast -b 64K --json",
     cli_explain_options, 1, 1, false, cli_explain},
    {"tune", CLUSTER, "[-o FILE] [--time TIME] [--ops LIST] [-b SIZE] [-e SIZE]",
     "measure algorithms on the running cluster, and write a table of the best",
     "Runs every algorithm that keeps the bits of float sums, for sizes from -b to -e, on all "
     "ranks "
     "of the job, and writes which was fastest. Load the table with tutti-agent --tune-table FILE "
     "on "
     "every agent. Other work of the job makes the figures wrong, and is slowed down meanwhile.",
     "  tutti tune -o tutti.table\n  tutti tune --ops all_reduce,broadcast --time 2m --load",
     cli_tune_options, 0, 0, false, cli_tune},
    {"trace", CLUSTER, "[-o FILE] [--around GROUP:SEQ]",
     "write what all ranks did last as one timeline",
     "Merges the flight recorders of all agents, the last 4096 ops of each, into a file for "
     "ui.perfetto.dev or chrome://tracing. Clocks of other machines are compared with ours and "
     "corrected. Every op shows who came last and how long the others waited for it; the latest "
     "ones are listed.",
     "  tutti trace -o trace.json\n  tutti trace --from /var/log/tutti\n  tutti trace --around "
     "world:41 --window 100ms",
     cli_trace_options, 0, 0, false, cli_trace},

    {"put", TENSORS, "FILE.npy | FILE.safetensors [options]", "copy a file into an agent",
     "Prints the tensor's handle. Files in Fortran order and big-endian ones are converted. NumPy "
     "has no BF16 and no FP8: voids of two bytes are taken as BF16, for voids of one byte --dtype "
     "has to say which FP8 they are.\n\n"
     "Of a .safetensors file each tensor gets the name that it has there, with --name NAME/ in "
     "front; if one cannot be put, none of them stays. Files of torch.save: python3 -m "
     "tutti.torch.",
     "  tutti put weights.npy --rank 1 --name weights\n"
     "  tutti put model.safetensors --name model",
     put_options, 1, 1, false, cli_put},
    {"get", TENSORS, "HANDLE -o FILE.npy | NAME... -o FILE.safetensors", "copy tensors into a file",
     "Waits for the op that makes the tensor. The file appears as a whole or not at all. BF16 is "
     "written as voids of two bytes ('<V2'), FP8 as voids of one ('|V1'). A .safetensors file "
     "takes several tensors of one agent, under the names that are given here.",
     "  tutti get weights --rank 1 -o weights.npy\n"
     "  tutti get model/embed model/head -o model.safetensors\n"
     "  tutti get weights -o - | sha256sum",
     get_options, 1, CLI_ANY_COUNT, false, cli_get},
    {"list", TENSORS, "[--rank R]", "list the tensors of an agent", NULL, "  tutti list --rank 1",
     rank_options, 0, 0, false, cli_list},
    {"stat", TENSORS, "HANDLE", "show one tensor, without waiting for it", NULL,
     "  tutti stat weights --rank 1", rank_options, 1, 1, false, cli_stat},
    {"copy", TENSORS, "HANDLE [options]", "copy a tensor inside its agent", NULL,
     "  tutti copy weights --name before\n"
     "  tutti copy weights --name w1 --device cuda:1",
     copy_options, 1, 1, false, cli_copy},
    {"delete", TENSORS, "HANDLE...", "delete tensors", NULL,
     "  tutti delete weights before --rank 1", rank_options, 1, CLI_ANY_COUNT, false, cli_delete},

    {"all-reduce", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "combine the tensors of all ranks, element by element",
     "With files, one for each rank in order; with a name, the tensors of that name; on all ranks "
     "at once. With -o the result is saved and deleted in the agents, else it stays there. With "
     "--rank, the call of one rank alone.\n\n"
     "Where an op takes a NAME or HANDLE, also in --into, it takes a part of that tensor, too: "
     "NAME@OFFSET:DTYPE[DIM,DIM], with the offset in bytes.",
     "  tutti all-reduce grad.rank*.npy --op avg -o mean.npy\n  tutti all-reduce grad --op max\n"
     "  tutti all-reduce 'grad@256:FP32[2,8]' -o part.npy",
     cli_all_reduce_options, 1, CLI_ANY_COUNT, false, cli_all_reduce},
    {"reduce", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "combine the tensors of all ranks, on one of them",
     "As all-reduce; the result is the root's alone.",
     "  tutti reduce grad.rank*.npy --root 1 -o sum.npy", cli_reduce_options, 1, CLI_ANY_COUNT,
     false, cli_reduce},
    {"reduce-scatter", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "combine the tensors of all ranks, and give each rank a part",
     "As all-reduce; then group rank i gets part i." EACH,
     "  tutti reduce-scatter grad.rank*.npy -o part.%d.npy", cli_reduce_scatter_options, 1,
     CLI_ANY_COUNT, false, cli_reduce_scatter},
    {"broadcast", COLLECTIVES, "FILE.npy | NAME | [HANDLE] --rank R",
     "give one rank's tensor to all",
     "A tensor with a name has it on all ranks afterwards; what is called so already is written "
     "into.",
     "  tutti broadcast weights.npy --name weights\n  tutti broadcast weights --root 2",
     cli_broadcast_options, 0, 1, false, cli_broadcast},
    {"all-gather", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "join the tensors of all ranks", NULL, "  tutti all-gather part.*.npy --axis 0 -o whole.npy",
     cli_all_gather_options, 1, CLI_ANY_COUNT, false, cli_all_gather},
    {"gather", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "join the tensors of all ranks, on one of them", NULL,
     "  tutti gather part.*.npy --root 1 --form stack -o whole.npy", cli_gather_options, 1,
     CLI_ANY_COUNT, false, cli_gather},
    {"scatter", COLLECTIVES, "FILE.npy | NAME | [HANDLE] --rank R",
     "give each rank a part of one rank's tensor",
     "Group rank i gets part i; the root gets its own." EACH,
     "  tutti scatter whole.npy --axis 1 -o part.%d.npy", cli_scatter_options, 0, 1, false,
     cli_scatter},
    {"all-to-all", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "give each rank a part of every rank's tensor",
     "Group rank i gets part i of each, joined in the order of ranks." EACH,
     "  tutti all-to-all rows.*.npy --split-axis 1 --concat-axis 0 -o columns.%d.npy",
     cli_all_to_all_options, 1, CLI_ANY_COUNT, false, cli_all_to_all},
    {"permute", COLLECTIVES, "FILE.npy... | NAME | HANDLE --rank R",
     "move whole tensors from rank to rank",
     "Group rank i gives its tensor to the i-th rank of --to, which names each once." EACH,
     "  tutti permute x --to 1,2,3,0", cli_permute_options, 1, CLI_ANY_COUNT, false, cli_permute},
    {"barrier", COLLECTIVES, "[options]", "wait until all ranks are there",
     "On all ranks at once, which tells whether all of them answer; with --rank, the call of one.",
     "  tutti barrier\n"
     "  tutti barrier --group tp/0 --timeout 5s",
     cli_barrier_options, 0, 0, false, cli_barrier},
    {"send", COLLECTIVES, "HANDLE --to R [options]", "give a tensor to another rank",
     "Ends when that rank has taken it.", "  tutti send x --rank 0 --to 1 --tag 7",
     cli_send_options, 1, 1, false, cli_send},
    {"recv", COLLECTIVES, "--rank R [options]", "take a tensor from another rank", NULL,
     "  tutti recv --rank 1 --from 0 --tag 7", cli_recv_options, 0, 0, false, cli_recv},
    {"bench", COLLECTIVES, "OP [options]", "measure an op on all ranks, size after size",
     "The columns are those of nccl-tests: size is the largest tensor of a rank, count the "
     "elements of one rank's part of it; time is one call of the slowest rank. Sizes are rounded "
     "to whole elements. #wrong counts elements with --check, which exits with 1 when there are "
     "any. send is measured "
     "with recv: each rank sends to the next. With --json an object on each line.",
     "  tutti bench all_reduce -b 8 -e 256M -f 4 --check\n  tutti bench broadcast -b 1M --inline",
     cli_bench_options, 1, 1, false, cli_bench},
    {"wait", COLLECTIVES, "WORK...", "wait for ops that were started with --async",
     "Exits with 1 when one of them failed.",
     "  work=$(tutti recv --rank 1 --from 0 --async)\n"
     "  tutti send x --rank 0 --to 1 && tutti wait $work --rank 1",
     rank_options, 1, 1024, false, cli_wait},
    {"cancel", COLLECTIVES, "WORK...", "end ops that were started with --async",
     "On all ranks: they fail there with CALLER_GONE. What has ended stays as it is.",
     "  work=$(tutti recv --rank 1 --from 0 --async)\n"
     "  tutti cancel $work --rank 1",
     rank_options, 1, 1024, false, cli_cancel},
    {"sync", COLLECTIVES, "[GROUP] [--rank R]", "wait until an agent has ended all its ops",
     "Those that it was given before, of one group or of all. Exits with 1 when one of them "
     "failed.",
     "  tutti sync\n"
     "  tutti sync tp/0 --rank 1",
     rank_options, 0, 1, false, cli_sync},
    {"infer", COLLECTIVES, "OP DTYPE[DIMS] | OP HANDLE",
     "show what an op would make on each rank, without running it",
     "Give the input's dtype and shape, such as FP32[4,8], or a handle; for broadcast and scatter "
     "it "
     "is the root's.",
     "  tutti infer all-gather FP32[2,3] --axis 1 -n 4\n  tutti infer scatter weights --root 2",
     cli_infer_options, 2, 2, false, cli_infer},
    {"batch", COLLECTIVES, "FILE | -", "run many calls of one rank through one stream",
     "Each line is a JSON object: \"call\" is an op, put, delete or sync, the other members are "
     "what its options are called: input, output, group, op, root, axis, ..., of lists inputs, "
     "outputs, axes; of put file and name, of delete handle. The agent begins them in this order "
     "and answers as they end, a line each: line, and handle or error. Exits with 1 when one "
     "failed.",
     "  echo '{\"call\": \"barrier\"}' | tutti batch - --rank 0", cli_batch_options, 1, 1, false,
     cli_batch},

    {"tracer create", TRACERS, "NAME", "begin a tape of ops, for gradients",
     "On all ranks; with --rank, on one. Ops on attached tensors are recorded, what they make is "
     "attached too.",
     "  tutti tracer create step && tutti tracer attach step x", rank_options, 1, 1, false,
     cli_tracer_create},
    {"tracer attach", TRACERS, "NAME TENSOR...", "record ops on these tensors", NULL,
     "  tutti tracer attach step x weights", rank_options, 2, 1025, false, cli_tracer_attach},
    {"tracer clear", TRACERS, "NAME", "forget what is recorded", NULL, "  tutti tracer clear step",
     rank_options, 1, 1, false, cli_tracer_clear},
    {"tracer delete", TRACERS, "NAME", "delete a tape", NULL, "  tutti tracer delete step",
     rank_options, 1, 1, false, cli_tracer_delete},
    {"tracer list", TRACERS, "[--rank R]", "list the tapes of an agent", NULL,
     "  tutti tracer list --rank 1", rank_options, 0, 0, false, cli_tracer_list},
    {"backward", TRACERS, "NAME [TENSOR=GRADIENT...]", "find gradients of attached tensors",
     "From gradients of results, by names that all ranks have; on all ranks at once, with --rank "
     "the call of one. Runs the dual of each recorded op, from the last to the first.",
     "  tutti backward step y=dy", backward_options, 1, 1025, false, cli_backward},

    {"session", SESSIONS, "[FILE | -] [-e LINES] [--group NAME] [--num-groups N] [--linger TIME]",
     "drive all agents of a group, line by line",
     "Opens a session that the agent leads (--rank: the agent of that rank), with all ranks of the "
     "group as workers. At a terminal a prompt reads lines, with history and completion; else they "
     "come from a file, standard input or -e, and the first that fails ends them: exits with 1. "
     "A line is NAME = COMMAND WORD... KEY=VALUE...; the line help lists the commands. NAME is a "
     "register, which every worker has, and which ends with the session. With --linger the session "
     "and its registers stay for a time when this command ends, is killed or loses its connection. "
     "--resume goes on with them and their names by the ticket, a file for you alone; without "
     "--linger it ends the session. With --json each command prints an object on a "
     "line. " CLI_TYPED_HELP,
     "  tutti session\n"
     "  tutti session -e 'x = empty FP32[4]; y = all_reduce x op=sum; show y'\n"
     "  tutti session train.tutti --num-groups 2 --json\n"
     "  tutti session load.tutti --linger 5m --ticket weights.ticket\n"
     "  tutti session --resume weights.ticket",
     cli_session_options, 0, 1, false, cli_session},
    {"functions", SESSIONS, "[--rank R]", "list the functions that can be called on an agent", NULL,
     "  tutti functions --rank 1", rank_options, 0, 0, false, cli_functions},
    {"call", SESSIONS, "FUNCTION [VALUE...]", "call a function of an agent",
     "Prints what it returns. " CLI_TYPED_HELP " Functions that call collectives need the call on "
     "every rank: tutti session.",
     "  tutti call demo.scale name:weights 0.5 --result half --rank 1", cli_call_options, 1,
     CLI_ANY_COUNT, false, cli_call_function},

    {"group create", GROUPS, "NAME RANKS", "name an ordered list of ranks",
     "RANKS is one word, a list of ranks and of ranges: 0-3,7. The position in the list is the "
     "group "
     "rank. The same name and list again is the same group. "
     "With - as name the coordinator finds one: the same for the same --tag and list, another one "
     "each time without.",
     "  tutti group create tp/0 0-3\n  tutti group create odd 1,3,5,7", cli_group_create_options, 2,
     CLI_ANY_COUNT, false, cli_group_create},
    {"group split", GROUPS, "[GROUP] --size N | --count N | --lists LISTS", "split a group",
     "Into blocks of consecutive ranks, or lists of group ranks, which are written 0-3/4-7. Parts "
     "are called NAME/0, NAME/1 and so on.",
     "  tutti group split --size 2 --name tp\n  tutti group split tp/0 --lists 0/1 --name one",
     cli_group_split_options, 0, 1, false, cli_group_split},
    {"group translate", GROUPS, "RANKS [--from GROUP] [--to GROUP]",
     "show ranks of one group as those of another", NULL, "  tutti group translate 0-3 --from tp/1",
     cli_group_translate_options, 1, 1, false, cli_group_translate},
    {"group get", GROUPS, "NAME", "show a group", "Of mesh:NAME/DIM that of --rank.",
     "  tutti group get tp/0\n"
     "  tutti group get mesh:m/tp --rank 3",
     rank_options, 1, 1, false, cli_group_get},
    {"group list", GROUPS, "", "list all groups of the job", NULL, "  tutti group list", NULL, 0, 0,
     false, cli_group_list},
    {"group abort", GROUPS, "NAME [--reason TEXT]", "end all ops of a group",
     "The ops of all ranks on the group end with GROUP_ABORTED and the reason, and later ones are "
     "refused, until the group is deleted and created again, or shrunk.",
     "  tutti group abort tp/0 --reason 'rank 3 has no memory left'", cli_group_abort_options, 1, 1,
     false, cli_group_abort},
    {"group shrink", GROUPS, "NAME --rank R", "make a group of the ranks that are left",
     "The call of one rank: make it for each rank that is alive, at once. All of them get the same "
     "group, NAME.2; who has not called within --timeout is left out.",
     "  for r in 0 1 3; do tutti group shrink tp/0 --rank $r --timeout 5s & done; wait",
     rank_options, 1, 1, false, cli_group_shrink},
    {"group delete", GROUPS, "NAME", "delete a group", NULL, "  tutti group delete tp/0",
     rank_options, 1, 1, false, cli_group_delete},
    {"mesh create", GROUPS, "NAME SHAPE", "put ranks into an array of named dimensions",
     "Along each dimension lie groups: mesh:NAME/DIM serves wherever a group is named, "
     "mesh:NAME/DIM+DIM is that along several dimensions. Without --dims they are called 0, 1, ...",
     "  tutti mesh create m 2x4 --dims dp,tp\n  tutti barrier --rank 3 --group mesh:m/tp",
     cli_mesh_create_options, 2, 2, false, cli_mesh_create},
    {"mesh get", GROUPS, "NAME [--rank R]", "show a mesh, and where a rank is in it", NULL,
     "  tutti mesh get m --rank 3", rank_options, 1, 1, false, cli_mesh_get},
    {"mesh list", GROUPS, "", "list all meshes of the job", NULL, "  tutti mesh list", NULL, 0, 0,
     false, cli_mesh_list},
    {"mesh groups", GROUPS, "NAME [DIM]", "list the groups along a dimension", NULL,
     "  tutti mesh groups m\n"
     "  tutti mesh groups m tp",
     NULL, 1, 2, false, cli_mesh_groups},
    {"mesh slice", GROUPS, "NAME DIMS --rank R", "show the part of a mesh that a rank is in", NULL,
     "  tutti mesh slice m tp --rank 6", cli_mesh_slice_options, 2, 2, false, cli_mesh_slice},
    {"mesh delete", GROUPS, "NAME", "delete a mesh and its groups", NULL, "  tutti mesh delete m",
     rank_options, 1, 1, false, cli_mesh_delete},
    {"metadata broadcast", GROUPS, "[VALUE] [--root R]", "give one member's value to all",
     "The call of one rank: that of the agent beside it, or of --rank. Every member of the group "
     "calls it, at most --timeout later; the value is the root's.",
     "  tutti run -n 2 -- sh -c 'tutti metadata broadcast $(hostname)-$RANK'",
     cli_metadata_broadcast_options, 0, 1, false, cli_metadata_broadcast},
    {"metadata all-gather", GROUPS, "VALUE", "show the values of all members to all",
     "The call of one rank, as metadata broadcast; a line for each member, in the order of group "
     "ranks.",
     "  tutti run -n 2 -- sh -c 'tutti metadata all-gather $(hostname)'", cli_metadata_options, 1,
     1, false, cli_metadata_all_gather},
    {"store get", GROUPS, "KEY", "show the value of a key", NULL, "  tutti store get lr",
     store_get_options, 1, 1, false, cli_store_get},
    {"store set", GROUPS, "KEY VALUE [--lease TIME]",
     "store a value; - takes it from standard input",
     "With --lease the command goes on, and keeps the key until --timeout or Ctrl-C. If it is "
     "killed, the key is deleted when TIME is over.",
     "  tutti store set alive/$(hostname) yes --lease 10s", store_set_options, 2, 2, false,
     cli_store_set},
    {"store append", GROUPS, "KEY VALUE", "put bytes behind a value", NULL,
     "  tutti store append log 'rank 3 is here; '", store_options, 2, 2, false, cli_store_append},
    {"store multi-get", GROUPS, "KEY...", "show the values of keys, all at one moment",
     "Waits for all of them, at most --timeout.", "  tutti store multi-get lr epoch --timeout 10s",
     store_multi_get_options, 1, 1024, false, cli_store_multi_get},
    {"store multi-set", GROUPS, "KEY VALUE [KEY VALUE...]", "store values, all or none", NULL,
     "  tutti store multi-set lr 0.1 epoch 3", store_options, 2, 2048, false, cli_store_multi_set},
    {"store cas", GROUPS, "KEY VALUE [--expect VALUE]", "store a value if another one is there",
     "Exits with 1 when it is not, and shows what is.",
     "  tutti store cas leader node-1 --expect node-0", store_cas_options, 2, 2, false,
     cli_store_cas},
    {"store add", GROUPS, "KEY [--by N]", "count: add to a number, which begins at 0", NULL,
     "  tutti store add epoch\n"
     "  tutti store add samples --by 512",
     store_add_options, 1, 1, false, cli_store_add},
    {"store delete", GROUPS, "KEY", "delete a key", "Exits with 1 when there was none.",
     "  tutti store delete lr", store_options, 1, 1, false, cli_store_delete},
    {"store take", GROUPS, "KEY", "get a value and delete its key: nobody else gets it",
     "Waits until it is there, at most --timeout.", "  tutti store take result/3 --timeout 1m",
     store_take_options, 1, 1, false, cli_store_take},
    {"store push", GROUPS, "QUEUE VALUE", "put a value at the end of a queue",
     "Prints how many it holds; - takes the value from standard input.",
     "  tutti store push shards 17", store_options, 2, 2, false, cli_store_push},
    {"store pop", GROUPS, "QUEUE", "take the first value of a queue",
     "Waits until there is one, at most --timeout.", "  tutti store pop shards --timeout 1m",
     store_take_options, 1, 1, false, cli_store_pop},
    {"store len", GROUPS, "QUEUE", "show how many values a queue holds", NULL,
     "  tutti store len shards", store_options, 1, 1, false, cli_store_len},
    {"store check", GROUPS, "KEY...", "are they there? Queues that are not empty count",
     "Exits with 1 when one is missing.", "  tutti store check lr epoch && echo both",
     store_options, 1, 1024, false, cli_store_check},
    {"store count", GROUPS, "[PREFIX]", "count keys", NULL, "  tutti store count alive/",
     store_options, 0, 1, false, cli_store_count},
    {"store meet", GROUPS, "KEY [-n N]", "wait for others at a key, and get a number",
     "All callers state how many they are; at most --timeout.",
     "  tutti store meet start -n 4 --name $(hostname)", store_meet_options, 1, 1, false,
     cli_store_meet},
    {"store lease grant", GROUPS, "TIME", "grant a lease for keys, and print its number",
     "Keys that are set with it are deleted when it was not kept for TIME.",
     "  tutti store set a 1 --lease-id $(tutti store lease grant 1m)", NULL, 1, 1, false,
     cli_store_lease_grant},
    {"store lease keep", GROUPS, "LEASE [--hold]", "begin the time of a lease again", NULL,
     "  tutti store lease keep 7", store_lease_keep_options, 1, 1, false, cli_store_lease_keep},
    {"store lease revoke", GROUPS, "LEASE", "end a lease, and delete its keys",
     "Exits with 1 when there was none.", "  tutti store lease revoke 7", NULL, 1, 1, false,
     cli_store_lease_revoke},
    {"store lease list", GROUPS, "", "list leases", NULL, "  tutti store lease list", NULL, 0, 0,
     false, cli_store_lease_list},
    {"store list", GROUPS, "[PREFIX]", "list keys and values", NULL, "  tutti store list alive/",
     store_options, 0, 1, false, cli_store_list},
    {"store wait", GROUPS, "KEY...", "wait until all keys are there",
     "At most --timeout, 30 s by default.", "  tutti store wait lr epoch --timeout 1m",
     store_options, 1, 1024, false, cli_store_wait},
    {"store watch", GROUPS, "[PREFIX]", "show every change from now on",
     "One line each, in JSON too; until --timeout, --count or Ctrl-C.",
     "  tutti store watch alive/ --count 3", store_watch_options, 0, 1, false, cli_store_watch},
    {"store move", GROUPS, "FROM TO [-- COORDINATOR-OPTIONS]",
     "move all that a coordinator has kept to another store",
     "From lmdb:FOLDER to etcd:HOST:PORT,.../PREFIX, or back: all jobs, groups and keys, with "
     "their "
     "versions. Refused while a coordinator uses one of the two, and when the second one is not "
     "empty. All of it arrives, or nothing. Runs tutti-coordinator --move-from on this machine; "
     "options for etcd stand behind --.",
     "  tutti store move lmdb:/var/lib/tutti etcd:10.0.1.1,10.0.1.2,10.0.1.3/tutti\n"
     "  tutti store move lmdb:a etcd:node-1/tutti -- --etcd-ca ca.pem \\\n"
     "      --etcd-user root --etcd-password-file secret",
     NULL, 2, CLI_ANY_COUNT, false, cli_store_move},
    {"backup", GROUPS, "FILE | -", "copy the store of a coordinator into a file, while it runs",
     "All jobs, groups and keys, as they are at one moment, whatever --store the coordinator has. "
     "It "
     "needs the role admin, and the file is for you alone: it has the keys of all jobs. The file "
     "appears as a whole or not at all; what is piped is complete when the exit code is 0.",
     "  tutti backup tutti.backup --coordinator node-0:29600\n"
     "  tutti backup - | ssh elsewhere 'cat > tutti.backup'",
     NULL, 1, 1, false, cli_backup},
    {"restore", GROUPS, "FILE | - STORE [-- COORDINATOR-OPTIONS]",
     "make a store of a backup, for a coordinator to be started on",
     "STORE is lmdb:FOLDER or etcd:HOST:PORT,.../PREFIX; it must be empty, and no coordinator may "
     "use "
     "it. A backup that is cut or damaged is refused. All of it arrives, or nothing. Runs "
     "tutti-coordinator --restore on this machine; options for etcd stand behind --.",
     "  tutti restore tutti.backup lmdb:/var/lib/tutti\n"
     "  tutti-coordinator --store lmdb:/var/lib/tutti",
     NULL, 2, CLI_ANY_COUNT, false, cli_restore},

    {"certs make", SECURITY, "FOLDER [options]", "make an authority and certificates",
     "The folder gets ca.pem and ca.key, unless it has them, and server.pem and client.pem with "
     "their keys; with --name one certificate alone, for a server when --address is given. What is "
     "there is not written over.",
     "  tutti certs make certs --address localhost,node-1.example,10.0.0.1\n"
     "  tutti certs make certs --name agent-3 --address node-3.example \\\n"
     "      --grant agent@train#3",
     cli_certs_options, 1, 1, false, cli_certs_make},
    {"certs show", SECURITY, "FILE", "show a certificate", "Exits with 1 when it has expired.",
     "  tutti certs show certs/server.pem", NULL, 1, 1, false, cli_certs_show},
    {"token key", SECURITY, "FILE [--algorithm NAME]", "make a key for tokens",
     "A secret, which signs and checks; or a pair of a private key and FILE.pub. Servers take what "
     "checks as --token-keys.",
     "  tutti token key secret\n  tutti-coordinator --token-keys secret", cli_token_key_options, 1,
     1, false, cli_token_key},
    {"token make", SECURITY, "KEY-FILE [options]", "make a token",
     "A JSON web token, signed with a secret or a private key. --job binds it to a job.",
     "  tutti token make secret --role agent --job train --ranks 3 -o agent-3.token",
     cli_token_options, 1, 1, false, cli_token_make},
    {"token show", SECURITY, "FILE", "show what a token says",
     "- is standard input. Nothing is checked.", "  tutti token show agent-3.token", NULL, 1, 1,
     false, cli_token_show},

    {"health", OTHERS, "ADDRESS", "ask any gRPC server whether it serves",
     "grpc.health.v1. Exits with 1 when it does not.", "  tutti health 127.0.0.1:29600",
     cli_health_options, 1, 1, false, cli_health},
    {"init", OTHERS, "URL", "show what an init address means",
     "env://, tcp://HOST:PORT?rank=R&world_size=N or file:///PATH?rank=R&world_size=N; --agent "
     "takes one too.",
     "  tutti init 'tcp://127.0.0.1:29600?rank=0&world_size=4'", NULL, 1, 1, false, cli_init},
    {"version", OTHERS, "", "show the version", NULL,
     "  tutti version\n"
     "  tutti version --json",
     NULL, 0, 0, false, cli_version},
    {"help", OTHERS, "[COMMAND]", "show what there is, or more about one command", NULL,
     "  tutti help\n"
     "  tutti help store set",
     NULL, 0, 2, false, cli_help},
    {"completion", OTHERS, "bash | zsh | fish", "print the completion for a shell",
     "Completion of names asks this command: with tensors, groups, clusters or ops it prints those "
     "that there are.",
     "  source <(tutti completion bash)", NULL, 1, 1, false, cli_completion},
    {"man", OTHERS, "FOLDER", "write the man pages into a folder", NULL,
     "  tutti man ~/.local/share/man/man1", NULL, 1, 1, false, cli_man},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, false, NULL},
};

const cli_syntax cli_all_syntax = {.commands = cli_commands, .options = cli_global_options};
