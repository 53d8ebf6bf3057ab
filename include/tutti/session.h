/*
 * Session: one program drives all agents of a group, as if they were one machine.
 *
 *     const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {4}};
 *     float data[4] = {1, 2, 3, 4};
 *     tutti_session_move move;
 *     tutti_session *session;
 *     uint32_t x = 0;
 *     uint32_t sum = 0;
 *
 *     code = tutti_session_open(client, NULL, &session, &err);          // the group "world"
 *     if (code != TUTTI_OK) {
 *         return code;
 *     }
 *     code = tutti_session_register(session, &x, &err);
 *     if (code == TUTTI_OK) {
 *         code = tutti_session_register(session, &sum, &err);
 *     }
 *     if (code == TUTTI_OK) {                              // a tensor on worker 0, then on all
 *         code = tutti_session_put(session, 0, x, &spec, data, NULL, &err);
 *     }
 *     if (code == TUTTI_OK) {
 *         tutti_session_move_init(&move);
 *         move.src = move.into = x;
 *         code = tutti_session_broadcast_from_worker0(session, &move, NULL, &err);
 *     }
 *     if (code == TUTTI_OK) {
 *         tutti_session_move_init(&move);
 *         move.src = x;
 *         move.into = sum;
 *         code = tutti_session_all_reduce(session, &move, TUTTI_REDUCE_SUM, NULL, &err);
 *     }
 *     if (code == TUTTI_OK) {
 *         code = tutti_session_sync(session, NULL, &err);  // how they went: the first error
 *     }
 *     if (code == TUTTI_OK) {
 *         code = tutti_session_read(session, 0, sum, data, sizeof(data), NULL, &err);
 *     }
 *     tutti_session_close(session, NULL);
 *
 * The program that opens a session is its controller. The agents of the group are the workers,
 * numbered by their group ranks from 0. The agent that the client is connected to leads: it sends
 * each command to all workers, and answers when all have. No other program takes part, and the
 * workers need none beside them.
 *
 * Registers. What a session holds is in registers, numbered from 1, which exist on every worker: a
 * tensor of the same register is another tensor on each worker. A register holds a tensor, a plain
 * value (tutti/value.h) or a function; what has been given nothing is null. Register 0 is no
 * register: as a target it means that the result is not wanted. tutti_session_register gives the
 * lowest free number, or the one that was dropped last; a program may also choose numbers itself.
 * The register N of the session S is called "reg:S/N" on each worker, and this name serves wherever
 * a handle is wanted. Registers end with the session.
 *
 * Commands. Every worker begins the commands in the order in which the program gave them, and each
 * command waits for what writes its registers. So nothing has to be waited for in between: a
 * function here that takes `ret_ticket` returns when its command is on its way. How the command
 * ended is told
 *
 *   with a ticket      by tutti_session_wait, poll or next
 *   without (NULL)     by the next tutti_session_sync: the first error since the one before
 *
 * A command that fails on one worker does not end the session: the result names the workers, and
 * commands that need what it should have made fail with the same error.
 *
 * Bytes. The bytes of tensors go between this program and the worker's agent directly, not through
 * the leader: libtutti connects to the agents of other workers when they are first needed, with the
 * certificate and token of the client.
 *
 * Threads. One thread at a time may use a session. No thread runs in the background: answers are
 * read when a function here waits. A client may have several sessions.
 *
 * Time. The stream has no deadline; what commands come to on the workers has the time of --op-timeout
 * there. So functions that wait return when the leader lives or its connection breaks.
 *
 * Rights. The leader shows the client's token to every worker, and each decides by itself.
 *
 * Statuses common to the functions of this header
 *
 *   TUTTI_UNAVAILABLE, ...     the session's stream has ended, and how: every function says so from
 *                              then on. CONNECTION_LOST: the leader is gone, and with it what the
 *                              workers held for the session, unless it was to linger
 *   TUTTI_ABORTED              SESSION_TAKEN: another stream has resumed the session
 *   TUTTI_CANCELLED            tutti_session_cancel was called before
 *   TUTTI_RESOURCE_EXHAUSTED   NO_MEMORY: this process has none
 *   TUTTI_DATA_LOSS            what answers is no agent; the stream is ended
 *
 * How a command can end (tutti_session_result.error), besides what its own comment says:
 *
 *   TUTTI_INVALID_ARGUMENT     BAD_REGISTER: 0 where a register is needed. BAD_WORKER: there is no
 *                              worker of that number
 *   TUTTI_NOT_FOUND            NO_TENSOR, NO_VALUE: the register is null on that worker
 *   TUTTI_RESOURCE_EXHAUSTED   REGISTER_LIMIT: a number above tutti_session_info.registers_max
 *   TUTTI_UNAVAILABLE          RANK_LOST: a worker is gone. Later commands fail at once: open a
 *                              session on a group of the workers that are left
 *   any other                  what the ops and calls that it comes to on the workers fail with
 *                              (tutti/op.h, tutti/function.h), the first worker's
 *
 * Caveats
 *
 * - The last commands may wait in this process until something is waited for. How it looks: the
 *   workers do nothing while the program does something else. What to do: tutti_session_flush.
 * - A register that is dropped is free at once, and its number is given to the next who asks. The
 *   trap: a number that is kept somewhere else. How it looks: another tensor than was meant. What to
 *   do: forget the number with the drop.
 * - At most tutti_session_options.in_flight_max commands, and 16 MiB of their values, are
 *   unanswered: beyond that a command waits for answers first. Results with a ticket that nobody
 *   takes stay in memory until the session is closed.
 */
#ifndef TUTTI_SESSION_H
#define TUTTI_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/function.h"
#include "tutti/tensor.h"
#include "tutti/types.h"
#include "tutti/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the id of a session, without the NUL, and of a secret. */
#define TUTTI_SESSION_ID_MAX 31
#define TUTTI_SESSION_SECRET_BYTES 16
/* Bytes of a register's name, "reg:7f3a9c12e4b07d55/12", with the NUL. */
#define TUTTI_REGISTER_NAME_MAX 48

typedef struct tutti_session tutti_session;

/* ------------------------------------------------------------------ opening and closing */

/* Begin with tutti_session_options_init. */
typedef struct tutti_session_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* The group whose ranks are the workers, the client's agent among them. NULL = "world". */
    const char *group;
    /*
     * Groups of consecutive workers, for commands with `in_group`: with 2 groups of 4 workers, 0
     * and 1 are one, 2 and 3 the other. 0 (default) = 1. It divides the number of workers.
     */
    uint32_t num_groups;
    /*
     * The session stays on the agents for --session-linger when its stream ends, and can be resumed
     * with its secret, unless that option is 0. false (default) = it ends with its stream, and frees
     * what it holds.
     */
    bool linger;
    /*
     * Most commands that are unanswered at one time. 0, the default, and more than the agent's
     * --commands-max (256) mean that number.
     */
    uint32_t in_flight_max;
    /*
     * With `linger`: for so many milliseconds, at most --session-linger. 0 (default) =
     * --session-linger.
     */
    uint32_t linger_ms;
} tutti_session_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_session_options_init(tutti_session_options *options);

/*
 * Open a session that the client's agent leads, and wait until all workers have it.
 *
 * [in]          client       with an agent; outlives the session
 * [in]          options      NULL = defaults; copied
 * [out, owned]  ret_session  tutti_session_close it
 *
 * TUTTI_INVALID_ARGUMENT     GROUP_SIZE: num_groups does not divide the number of workers, or these
 *                            are more than 1024; BAD_NAME: of the group; BAD_STRUCT: options that
 *                            were not initialised
 * TUTTI_NOT_FOUND            NO_GROUP
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the client's agent is not in the group; NOT_JOINED;
 *                            NO_AUTHORITY: the agent knows no authority for the certificates of the
 *                            others; NO_AGENT: the client was connected without an agent
 * TUTTI_PERMISSION_DENIED    FOREIGN_RANK: the caller may not act for one of the ranks; WRONG_ROLE
 * TUTTI_RESOURCE_EXHAUSTED   SESSION_LIMIT: --sessions-max of the agent; LEASE_LIMIT: of a worker
 * TUTTI_UNAVAILABLE          RANK_LOST, UNREACHABLE: of a worker
 * TUTTI_UNIMPLEMENTED        the agent is older than sessions
 * TUTTI_DEADLINE_EXCEEDED    it has not been opened within the client's timeout_ms
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_session_open(tutti_client *client, const tutti_session_options *options,
                                        tutti_session **ret_session, tutti_error *err);

/*
 * Go on with a session that lingers, in this process or another one. Any of its workers can lead it
 * from now on. Registers are as they were. A stream that still has the session is ended
 * (SESSION_TAKEN).
 *
 * [in]          client       as above
 * [in]          id           tutti_session_info.id
 * [in]          secret       TUTTI_SESSION_SECRET_BYTES bytes: tutti_session_info.secret
 * [in]          options      its in_flight_max, linger and linger_ms count; NULL = defaults, but lingering
 * [out, owned]  ret_session  tutti_session_close it
 *
 * TUTTI_NOT_FOUND         NO_SESSION: it is over or never was, this is not its secret, or the client's
 *                         agent is none of its workers
 * TUTTI_INVALID_ARGUMENT  BAD_NAME: that is no id of a session
 * and what tutti_session_open says
 */
TUTTI_API tutti_code tutti_session_resume(tutti_client *client, const char *id, const void *secret,
                                          const tutti_session_options *options,
                                          tutti_session **ret_session, tutti_error *err);

/*
 * Wait until all commands have ended, forget the results that were not taken, and end the stream.
 * The session is freed in any case; unless it lingers, its registers are freed on all workers.
 *
 * [in, moved] session  NULL is fine
 *
 * TUTTI_OK                the stream has ended well. Errors of commands are not told here:
 *                         tutti_session_sync before
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_session_close(tutti_session *session, tutti_error *err);

/*
 * Give up: commands that have not begun never will, those that run are cancelled. It returns at
 * once; functions that wait for an answer then return TUTTI_CANCELLED. Close the session still. Any
 * thread.
 */
TUTTI_API void tutti_session_cancel(tutti_session *session);

/* A worker of a session. Texts are the session's. */
typedef struct tutti_worker_info {
    /* Its number: the group rank. */
    uint32_t worker;
    /* Its rank in the job. */
    uint32_t rank;
    /* The name of its machine. */
    const char *host;
    /* Of its agent: "cpu", "cuda:0". */
    const char *device;
    /* Where libtutti reaches its agent. */
    const char *address;
} tutti_worker_info;

/* What a session is. It does not change. */
typedef struct tutti_session_info {
    /* Part of the names of its registers. */
    char id[TUTTI_SESSION_ID_MAX + 1];
    /* With it the session can be resumed; 0 bytes when it does not linger. */
    unsigned char secret[TUTTI_SESSION_SECRET_BYTES];
    size_t secret_bytes;
    uint32_t worker_count;
    /* `worker_count` of them. */
    const tutti_worker_info *workers;
    uint32_t num_groups;
    /* The worker whose agent leads. */
    uint32_t leader;
    /* The greatest number of a register. */
    uint32_t registers_max;
} tutti_session_info;

/* Returns [borrowed] what the session is; it asks nobody. */
TUTTI_API const tutti_session_info *tutti_session_describe(const tutti_session *session);

/*
 * A client of a worker's agent, for calls that the session does not have. It is the session's own,
 * connected when it is first asked for. Call tutti_session_flush before: then a call on it comes
 * behind all commands so far.
 *
 * [out, borrowed] ret_client  until the session is closed
 *
 * TUTTI_INVALID_ARGUMENT  BAD_WORKER
 * and the statuses of tutti_connect
 */
TUTTI_API tutti_code tutti_session_client(tutti_session *session, uint32_t worker,
                                          tutti_client **ret_client, tutti_error *err);

/* ------------------------------------------------------------------ registers */

/*
 * A free number for a register: the one that was dropped last, else the lowest that was never
 * given. Nobody is asked.
 *
 * [out] ret_register  it is taken until it is dropped
 *
 * TUTTI_RESOURCE_EXHAUSTED  REGISTER_LIMIT: all of tutti_session_info.registers_max are taken
 */
TUTTI_API tutti_code tutti_session_register(tutti_session *session, uint32_t *ret_register,
                                            tutti_error *err);

/*
 * Returns the name of a register on each worker, for functions that take a handle.
 *
 * [out] ret_name  of TUTTI_REGISTER_NAME_MAX bytes
 */
TUTTI_API const char *tutti_session_name(const tutti_session *session, uint32_t reg,
                                         char *ret_name);

/* ------------------------------------------------------------------ commands
 *
 * These functions return when the command is on its way. What they are given is copied.
 *
 * [out] ret_ticket  a number that rises with each command, for tutti_session_wait; NULL = its error
 *                   is told by the next tutti_session_sync, and its values are forgotten
 *
 * If one of them fails, there was no command: the session has ended, there is no memory, or
 * TUTTI_INVALID_ARGUMENT says what is wrong with the arguments.
 */

/* Some of the workers. */
typedef struct tutti_workers {
    /* `count` numbers, each once; borrowed. NULL or a count of 0 = all. */
    const uint32_t *workers;
    size_t count;
} tutti_workers;

/* Begin with tutti_session_empty_init. */
typedef struct tutti_session_empty_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* "cpu", "cuda:0"; NULL (default) = what tutti_set_device of the session's client has set, else
     * each agent's first device. */
    const char *device;
    /* On worker 0 alone, with in_group on the first worker of each group; null on the others. */
    bool worker0_only;
    bool in_group;
    /* On these alone; on the others the register stays as it is. Default: all. */
    tutti_workers on;
} tutti_session_empty_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_session_empty_init(tutti_session_empty_options *options);

/*
 * A new tensor, filled with zeros, on each worker.
 *
 * [in] into     the register that gets it, instead of what it held
 * [in] spec     of the tensor
 * [in] options  NULL = defaults
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE: of the spec; told at once. DEVICE: of the command
 */
TUTTI_API tutti_code tutti_session_empty(tutti_session *session, uint32_t into,
                                         const tutti_spec *spec,
                                         const tutti_session_empty_options *options,
                                         uint64_t *ret_ticket, tutti_error *err);

/*
 * Registers become null on all workers, and their numbers are free for tutti_session_register.
 *
 * [in] registers  `count` of them
 */
TUTTI_API tutti_code tutti_session_drop(tutti_session *session, const uint32_t *registers,
                                        size_t count, uint64_t *ret_ticket, tutti_error *err);

/*
 * A plain value for a register, instead of what it held.
 *
 * [in] value  no tensor and no name: those are each agent's own
 * [in] on     NULL = all workers; on the others the register stays as it is
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: a kind that a register does not hold, or above
 *                         TUTTI_VALUE_BYTES_MAX; told at once
 */
TUTTI_API tutti_code tutti_session_set(tutti_session *session, uint32_t into,
                                       const tutti_value *value, const tutti_workers *on,
                                       uint64_t *ret_ticket, tutti_error *err);

/*
 * What a register holds on each worker: tutti_session_result.values. Of a tensor its handle there,
 * and its spec.
 *
 * [in] on  NULL = all workers
 */
TUTTI_API tutti_code tutti_session_get(tutti_session *session, uint32_t src,
                                       const tutti_workers *on, uint64_t *ret_ticket,
                                       tutti_error *err);

/*
 * Which registers a command moves between. Begin with tutti_session_move_init. One of `dst` and
 * `into` is stated, but for tutti_session_send_to_next_group, which has neither.
 */
typedef struct tutti_session_move {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* What is given. */
    uint32_t src;
    /* A tensor that is there and is overwritten: of the same dtype, and as many elements as arrive,
     * of any shape. May be `src` where the size stays. 0 (default) = none. */
    uint32_t dst;
    /* A register that gets a new tensor, instead of what it held; may be `src`. 0 (default) = none. */
    uint32_t into;
    /* In each group of workers by itself. false (default) = over all workers. */
    bool in_group;
} tutti_session_move;

/* [out] move  every field 0: state at least `src` and one of `dst` and `into` */
TUTTI_API void tutti_session_move_init(tutti_session_move *move);

/*
 * A copy of a register, on each worker: of a tensor its bytes. `in_group` is not looked at.
 *
 * [in] on  NULL = all workers; on the others nothing happens
 *
 * TUTTI_INVALID_ARGUMENT  DTYPE_MISMATCH, SHAPE_MISMATCH: of `dst` (tutti_tensor_copy)
 */
TUTTI_API tutti_code tutti_session_copy(tutti_session *session, const tutti_session_move *move,
                                        const tutti_workers *on, uint64_t *ret_ticket,
                                        tutti_error *err);

/*
 * Combine the tensors of all workers, element by element; all get the result.
 *
 * [in] reduce  SUM, PROD, MIN, MAX or AVG
 *
 * TUTTI_INVALID_ARGUMENT  BAD_REDUCE_OP: another one
 * and what tutti_all_reduce says
 */
TUTTI_API tutti_code tutti_session_all_reduce(tutti_session *session,
                                              const tutti_session_move *move, tutti_reduce reduce,
                                              uint64_t *ret_ticket, tutti_error *err);

/*
 * Join the tensors of all workers, in their order; all get the result. `into` gets the shape of
 * `src` with its first dimension multiplied by their number.
 */
TUTTI_API tutti_code tutti_session_all_gather(tutti_session *session,
                                              const tutti_session_move *move, uint64_t *ret_ticket,
                                              tutti_error *err);

/* Give the tensor of worker 0 to all; with in_group, of the first worker of each group. `src` is
 * not looked at on the others. */
TUTTI_API tutti_code tutti_session_broadcast_from_worker0(tutti_session *session,
                                                          const tutti_session_move *move,
                                                          uint64_t *ret_ticket, tutti_error *err);

/*
 * Give each worker an equal part of worker 0's tensor, in memory order; with in_group, of the
 * group's first worker. `into` gets the shape of `src` with its first dimension divided by the
 * number of workers, or without it if it equals that number.
 *
 * TUTTI_INVALID_ARGUMENT  INDIVISIBLE: the elements are no multiple of the number of workers
 */
TUTTI_API tutti_code tutti_session_scatter_from_worker0(tutti_session *session,
                                                        const tutti_session_move *move,
                                                        uint64_t *ret_ticket, tutti_error *err);

/* Join the tensors of all workers on worker 0, as tutti_session_all_gather; `dst` or `into` is that
 * of worker 0, with in_group of each group's first worker. */
TUTTI_API tutti_code tutti_session_gather_to_worker0(tutti_session *session,
                                                     const tutti_session_move *move,
                                                     uint64_t *ret_ticket, tutti_error *err);

/*
 * Give `src` of each worker to the worker in the same place of the next group, which takes it by
 * tutti_session_recv_from_prev_group. The workers of the last group do nothing.
 *
 * TUTTI_INVALID_ARGUMENT  LAST_GROUP: the session has one group
 */
TUTTI_API tutti_code tutti_session_send_to_next_group(tutti_session *session,
                                                      const tutti_session_move *move,
                                                      uint64_t *ret_ticket, tutti_error *err);

/* Take what the worker in the same place of the group before has given, into `dst` or `into`. The
 * workers of the first group do nothing. */
TUTTI_API tutti_code tutti_session_recv_from_prev_group(tutti_session *session,
                                                        const tutti_session_move *move,
                                                        uint64_t *ret_ticket, tutti_error *err);

/*
 * Give a tensor from one worker to another; the rest do nothing.
 *
 * [in] move  `src` is that of `from`; `dst` or `into` is that of `to`
 * [in] from  worker
 * [in] to    another worker
 */
TUTTI_API tutti_code tutti_session_transfer(tutti_session *session, const tutti_session_move *move,
                                            uint32_t from, uint32_t to, uint64_t *ret_ticket,
                                            tutti_error *err);

/* ------------------------------------------------------------------ functions */

/* Begin with tutti_session_call_init. */
typedef struct tutti_session_call_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* A register that gets the result of each worker. 0 (default) = the result is in
     * tutti_session_result.values alone. */
    uint32_t into;
    /* Milliseconds until the function must have returned; 0 (default) = --op-timeout. */
    uint32_t timeout_ms;
    /* On these workers; on the others `into` becomes null. Default: all. */
    tutti_workers on;
} tutti_session_call_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_session_call_init(tutti_session_call_options *options);

/*
 * Call a function on each worker, with the worker's own registers.
 *
 * [in] function  TUTTI_VALUE_FUNCTION, or TUTTI_VALUE_REGISTER of a register that holds one
 * [in] args      `count`, at most TUTTI_ARGUMENTS_MAX: plain values and registers; no tensors, no
 *                names. Copied
 * [in] options   NULL = defaults
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: a kind that cannot be passed, or no function; ARGUMENT_LIMIT.
 *                         Both are told at once
 * TUTTI_NOT_FOUND         UNKNOWN_FUNC: the text names the workers that lack it
 * TUTTI_ABORTED           FUNCTION_FAILED, or a reason of the function's own
 * and what tutti_call says
 */
TUTTI_API tutti_code tutti_session_call(tutti_session *session, const tutti_value *function,
                                        const tutti_value *args, size_t count,
                                        const tutti_session_call_options *options,
                                        uint64_t *ret_ticket, tutti_error *err);

/*
 * A function by its name, in a register.
 *
 * TUTTI_NOT_FOUND  UNKNOWN_FUNC: the text names the workers that lack it
 */
TUTTI_API tutti_code tutti_session_get_function(tutti_session *session, uint32_t into,
                                                const char *function, uint64_t *ret_ticket,
                                                tutti_error *err);

/*
 * Load a module on each worker, as tutti_function_load: tutti_session_result.functions.
 *
 * [in] path    a file name inside of the agents' --module-path
 * [in] device  NULL = each agent's first
 * [in] into    a register that gets the module; 0 = none
 */
TUTTI_API tutti_code tutti_session_load_module(tutti_session *session, uint32_t into,
                                               const char *path, const char *device,
                                               uint64_t *ret_ticket, tutti_error *err);

/* Have the hosts of each worker import a module, as tutti_function_import:
 * tutti_session_result.functions. */
TUTTI_API tutti_code tutti_session_import_module(tutti_session *session, const char *module,
                                                 uint64_t *ret_ticket, tutti_error *err);

/* ------------------------------------------------------------------ how they ended */

/* How a command has failed on one worker. */
typedef struct tutti_worker_error {
    uint32_t worker;
    /* Its rank in the job. */
    uint32_t rank;
    tutti_error error;
} tutti_worker_error;

/* A value of one worker. */
typedef struct tutti_worker_value {
    uint32_t worker;
    /* [owned] freed with the result. */
    tutti_value value;
} tutti_worker_value;

/* How a command ended. Free it with tutti_session_result_free. */
typedef struct tutti_session_result {
    /* As the function that gave the command wrote it. */
    uint64_t ticket;
    /* TUTTI_OK = well on all workers; else the first error, whose text names the ranks. */
    tutti_error error;
    /* [owned] The workers on which it has failed, in their order; none if the leader refused it. */
    tutti_worker_error *failed;
    size_t failed_count;
    /* [owned] Of tutti_session_get and call, of each worker that it was for and that has one. */
    tutti_worker_value *values;
    size_t value_count;
    /* [owned] Of load_module and import_module, as the first worker has told them. */
    tutti_function_info *functions;
    size_t function_count;
} tutti_session_result;

/* [in, out] result  is zeroed. NULL is fine */
TUTTI_API void tutti_session_result_free(tutti_session_result *result);

/*
 * Wait until a command has ended, and take its result. Results of others that come meanwhile are
 * kept.
 *
 * [in]         ticket
 * [out, owned] ret_result  tutti_session_result_free it; NULL: the command's error is that of this
 *                          function, and the rest is forgotten
 *
 * Returns TUTTI_OK also for a command that failed, unless ret_result is NULL.
 *
 * TUTTI_NOT_FOUND  NOTHING_SUBMITTED: no command has that ticket, or its result was taken
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_session_wait(tutti_session *session, uint64_t ticket,
                                        tutti_session_result *ret_result, tutti_error *err);

/*
 * Look whether a command has ended, and wait for it no longer than a time. Sends what has not been
 * sent.
 *
 * [in]  timeout_ms  milliseconds; 0 = do not wait
 * [out] ret_ended   true: tutti_session_wait will return at once
 *
 * TUTTI_NOT_FOUND  NOTHING_SUBMITTED
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_session_poll(tutti_session *session, uint64_t ticket,
                                        uint32_t timeout_ms, bool *ret_ended, tutti_error *err);

/*
 * Wait for the next command with a ticket that ends, in whichever order they do, and take its
 * result.
 *
 * [out, owned] ret_result  tutti_session_result_free it
 *
 * TUTTI_NOT_FOUND  NOTHING_SUBMITTED: all results have been taken
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_session_next(tutti_session *session, tutti_session_result *ret_result,
                                        tutti_error *err);

/* Returns how many commands with a ticket there are whose results have not been taken. */
TUTTI_API size_t tutti_session_count(const tutti_session *session);

/*
 * Wait until all commands so far have ended on these workers.
 *
 * [in] on  NULL = all workers. Of some workers: commands may go on on the others, and what they
 *          fail with is told by a later sync
 *
 * TUTTI_OK    all commands without a ticket, since the sync before, have ended well
 * any other   the first error among them, in the order of the commands
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_session_sync(tutti_session *session, const tutti_workers *on,
                                        tutti_error *err);

/*
 * Wait until all commands so far have begun on these workers: a call that is made there afterwards
 * (tutti_session_client) comes behind them. The functions below do it by themselves.
 *
 * [in] on  NULL = all workers
 *
 * The statuses are those common to this header.
 */
TUTTI_API tutti_code tutti_session_flush(tutti_session *session, const tutti_workers *on,
                                         tutti_error *err);

/* ------------------------------------------------------------------ bytes
 *
 * These functions go to the worker's agent, behind all commands so far, and return when the bytes
 * have arrived. Their statuses are those of the functions of tutti/tensor.h that they name, of
 * connecting to the worker (tutti_connect), and those common to this header; BAD_WORKER.
 */

/*
 * A new tensor of the caller's bytes on one worker; on the others the register stays as it is.
 *
 * [in] worker    its number
 * [in] into      the register that gets it, instead of what it held
 * [in] spec      what `data` is
 * [in] data      as in tutti_tensor_put
 * [in] transfer  NULL = the defaults
 */
TUTTI_API tutti_code tutti_session_put(tutti_session *session, uint32_t worker, uint32_t into,
                                       const tutti_spec *spec, const void *data,
                                       const tutti_transfer *transfer, tutti_error *err);

/* Overwrite a tensor on one worker, as tutti_tensor_write. [in] dst  its register */
TUTTI_API tutti_code tutti_session_write(tutti_session *session, uint32_t worker, uint32_t dst,
                                         const tutti_spec *spec, const void *data,
                                         const tutti_transfer *transfer, tutti_error *err);

/*
 * Read a tensor of one worker, as tutti_tensor_read. It waits for what writes the tensor.
 *
 * [in]  src    its register
 * [out] data   `bytes` bytes
 * [in]  bytes  exactly the tensor's size; tutti_session_get tells its spec
 */
TUTTI_API tutti_code tutti_session_read(tutti_session *session, uint32_t worker, uint32_t src,
                                        void *data, uint64_t bytes, const tutti_transfer *transfer,
                                        tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
