/*
 * Table: the tensors of an agent by handle and by name, and who may touch which of them when.
 *
 * A lock is one call's wish to read (shared) or write (exclusive) one tensor, or a range of it; a
 * lock set is all wishes of one call, made at once. Two locks conflict if they have bytes in common
 * and one of them writes. A lock is granted when no lock of an earlier lock set that conflicts with it
 * is left. So an op may name the result of an op that still runs, calls on different ranges of a
 * tensor run side by side, and two calls can never wait for each other.
 *
 * Any thread; one mutex inside, under which nothing is called. A lock set itself belongs to the
 * thread that made it, and is in one of three states: being filled, in line (from
 * tutti_table_acquire until all is granted), granted. tutti_table_release brings it back to the
 * first.
 */
#ifndef TUTTI_SERVER_AGENT_TENSOR_TABLE_H
#define TUTTI_SERVER_AGENT_TENSOR_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/data/list.h"
#include "rpc/loop.h"
#include "tensor/tensor.h"
#include "tutti/error.h"

#define TUTTI_TABLE_HANDLE_SIZE (TUTTI_HANDLE_MAX + 1)

/*
 * Names of registers: "reg:SESSION/NUMBER", with 1 to 32 digits and lower-case letters as SESSION. A
 * register is a name that a controller's session gives to values on each of its agents
 * (proto/tutti/v1/session_service.proto). It differs from other names of tensors in two ways: an entry
 * that is made under it takes the name from the entry that had it, and an entry whose writer
 * failed keeps name and error instead of being dropped, so that what depends on it fails with the
 * cause.
 */
#define TUTTI_REGISTER_PREFIX "reg:"

typedef struct tutti_table tutti_table;
typedef struct tutti_entry tutti_entry; /* a tensor with its handle */
typedef struct tutti_lock_set tutti_lock_set;

/*
 * A range of a tensor as a request names it: "NAME@OFFSET:DTYPE[DIM,DIM]", with a handle or a name,
 * the bytes before the range, and what the range is seen as; "@128:FP32[]" is one element. The
 * tensor's own dtype and shape do not matter.
 */
typedef struct tutti_tensor_range {
    uint64_t offset;    /* bytes */
    tutti_spec spec;    /* checked */
    tutti_tensor *view; /* [owned] made when it is first asked for; NULL = not yet */
} tutti_tensor_range;

/* A wish. Filled by tutti_table_lock_by_name and tutti_table_create_locked. */
typedef struct tutti_lock {
    tutti_list_node link;
    tutti_entry *entry; /* counted: stays until release, also when it is deleted */
    tutti_lock_set *lock_set;
    tutti_tensor_range *range; /* [owned] NULL = the whole tensor */
    bool exclusive;
    bool granted;
} tutti_lock;

#define TUTTI_LOCK_SET_FEW 2
#define TUTTI_OWNER_SIZE 64 /* longer ones are cut */

/*
 * All locks of a call. No two locks of a set conflict (tutti_lock_meets: two names may mean the same
 * tensor). Zero it, reserve when it will have more than a few,
 * add its locks (lock_by_name, create_locked), then acquire it.
 */
struct tutti_lock_set {
    tutti_lock *locks; /* stay where they are until the release */
    tutti_lock few[TUTTI_LOCK_SET_FEW];
    uint32_t room;
    uint32_t count;
    uint32_t waiting;     /* locks not granted yet */
    tutti_rpc_loop *loop; /* where on_ready runs */
    tutti_rpc_task task;
    void (*on_ready)(tutti_lock_set *lock_set);
    char owner[TUTTI_OWNER_SIZE]; /* of the entries that it makes: who calls; "" = nobody */
    uint64_t lease;               /* with which those end; 0 = with none */
};

/*
 * [in] incarnation  of this process: part of every handle
 * [in] handles_max  tensors at once
 */
tutti_code tutti_table_new(uint64_t incarnation, uint32_t handles_max, tutti_table **ret_table,
                           tutti_error *err);
void tutti_table_free(tutti_table *table); /* with all tensors; NULL is fine */

/* on_leave hears when a tensor leaves: it is deleted, and no call uses it any more. It runs on any
 * thread, without the mutex, just before the tensor is freed. Set it before the first tensor. */
void tutti_table_on_leave(tutti_table *table, void (*on_leave)(void *arg, tutti_tensor *tensor),
                          void *arg);

/* The rank that stands in handles; 0 before. */
void tutti_table_set_rank(tutti_table *table, uint32_t rank);

/* Room for `count` locks, in a lock set that has none. TUTTI_RESOURCE_EXHAUSTED */
tutti_code tutti_table_reserve(tutti_lock_set *lock_set, uint32_t count, tutti_error *err);

/*
 * Add a wish for a tensor that is there.
 *
 * TUTTI_NOT_FOUND            NO_TENSOR
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE, STALE_HANDLE
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE
 */
tutti_code tutti_table_lock_by_name(tutti_table *table, tutti_lock_set *lock_set,
                                    const char *handle, bool exclusive, tutti_error *err);

/*
 * The same for a tensor or a range of one (tutti_tensor_range). Whether the range is in the tensor is known when
 * the lock is granted: tutti_table_check says so.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_RANGE: what stands behind "@" is no offset, dtype and shape; and as
 *                           tutti_spec_check
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_table_lock_range(tutti_table *table, tutti_lock_set *lock_set, const char *text,
                                  bool exclusive, tutti_error *err);

/* Have they bytes in common? Whole tensors have, if they are the same. */
bool tutti_lock_meets(const tutti_lock *left, const tutti_lock *right);

/* Are they the same bytes of the same tensor, seen as the same dtype? */
bool tutti_lock_equals(const tutti_lock *left, const tutti_lock *right);

/*
 * Add an exclusive wish for a new entry, which has no tensor yet (tutti_table_fill gives it one).
 *
 * [in] name  "" = none
 *
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_RESOURCE_EXHAUSTED  HANDLE_LIMIT, or no memory
 * TUTTI_FAILED_PRECONDITION LEASE_OVER: the lock set's lease
 */
tutti_code tutti_table_create_locked(tutti_table *table, tutti_lock_set *lock_set, const char *name,
                                     tutti_error *err);

/*
 * The same for a name that may be taken: what has it loses its handle and name at once, and goes
 * with its last use. Codes but NAME_TAKEN.
 */
tutti_code tutti_table_create_instead(tutti_table *table, tutti_lock_set *lock_set,
                                      const char *name, tutti_error *err);

/* Take back the last lock of a lock set that is not in line yet. */
void tutti_table_unwant(tutti_table *table, tutti_lock_set *lock_set);

/* Get in line. True: everything is granted, on_ready will not run. False: on_ready follows. */
bool tutti_table_acquire(tutti_table *table, tutti_lock_set *lock_set);

/*
 * Leave the line: others may go on. The lock set is empty again. A lock set that is in line and not
 * ready has to wait for its on_ready first; one that was never claimed is fine.
 */
void tutti_table_release(tutti_table *table, tutti_lock_set *lock_set);

/*
 * The tensor of a granted lock (or of any, when the caller does not touch its bytes); NULL: none
 * yet. Of a lock on a range: a view of the range, which lives as long as the lock; NULL also if
 * tutti_table_check fails, or the lock is not granted.
 */
tutti_tensor *tutti_table_tensor(tutti_table *table, const tutti_lock *lock);

/* Give the entry of an exclusive lock, which has none yet, its tensor [moved]. The lock need not be
 * granted: nobody stands before the one that made the entry. */
void tutti_table_fill(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor);

/* Give the entry of a granted exclusive lock another tensor [moved] instead of the one it has. */
void tutti_table_replace(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor);

/*
 * The op that wrote it failed (err), or succeeded (NULL). What reads it next gets that error, or
 * RESOURCE_EXHAUSTED when there is no memory to keep it.
 */
void tutti_table_mark(tutti_table *table, const tutti_lock *lock, const tutti_error *err);

/*
 * TUTTI_OK, or the error of the op that was to write it.
 *
 * TUTTI_FAILED_PRECONDITION  NOT_A_TENSOR: it holds a plain value
 * of a range                 as tutti_tensor_view
 */
tutti_code tutti_table_check(tutti_table *table, const tutti_lock *lock, tutti_error *err);

/* ------------------------------------------------------------------------------ plain values */

/*
 * What an entry may hold instead of a tensor: an int, a text ... Counted; a room above embeds it
 * and knows what is in it.
 */
typedef struct tutti_table_value tutti_table_value;
struct tutti_table_value {
    _Atomic uint32_t refs;
    const char *noun; /* "an int"; static */
    void (*on_free)(tutti_table_value *value);
};

void tutti_table_value_ref(tutti_table_value *value);
void tutti_table_value_unref(tutti_table_value *value); /* the last one frees it; NULL is fine */

/* Give the entry of an exclusive, granted use a value [moved] instead of what it holds. */
void tutti_table_set_value(tutti_table *table, const tutti_lock *lock, tutti_table_value *value);

/* Of a granted use; borrowed as long as the use. NULL: it holds a tensor, or nothing. */
tutti_table_value *tutti_table_value_of(tutti_table *table, const tutti_lock *lock);

/* As tutti_table_check, where a plain value is as good as a tensor. */
tutti_code tutti_table_check_any(tutti_table *table, const tutti_lock *lock, tutti_error *err);

/*
 * Take an entry that tutti_table_create_locked made out of the table again: its handle and name are
 * gone, the rest goes with its last use. Who waits for it finds a tensor that was never written.
 */
void tutti_table_drop_new(tutti_table *table, const tutti_lock *lock);

/*
 * Of a granted lock: how many writers have had their turn, so that readers see whether the bytes
 * are new.
 */
uint64_t tutti_table_version(tutti_table *table, const tutti_lock *lock);

/* Are its handle and name gone, and is this the only use of it? Then nobody can get at it. */
bool tutti_table_is_last(tutti_table *table, const tutti_lock *lock);

void tutti_table_handle(const tutti_lock *lock, char ret_handle[TUTTI_TABLE_HANDLE_SIZE]);

/* The number in the handle, from 1: never given to another tensor of this process. */
uint64_t tutti_table_number(const tutti_lock *lock);

/* The handle of a tensor with that number, whether it is still there or not. */
void tutti_table_handle_of(tutti_table *table, uint64_t number,
                           char ret_handle[TUTTI_TABLE_HANDLE_SIZE]);

/*
 * For an entry that tutti_table_create_locked made and whose writer failed: it is dropped, or, if
 * its name is a register's, marked with the error.
 */
void tutti_table_fail_new(tutti_table *table, const tutti_lock *lock, const tutti_error *err);

/*
 * Leave an error under the name of a register, for a call that failed before it made the entry.
 * Nothing happens if the name is no register's, or there is no memory or no handle for it.
 *
 * [in] owner, lease  as in a lock set
 */
void tutti_table_fail_register(tutti_table *table, const char *name, const char *owner,
                               uint64_t lease, const tutti_error *err);

/*
 * Forget handles and names; tensors go when their last use is released. All or none.
 * Codes as tutti_table_lock_by_name.
 *
 * [in] missing_ok  names that nothing has are passed over
 */
tutti_code tutti_table_delete(tutti_table *table, char *const *handles, size_t count,
                              bool missing_ok, tutti_error *err);

/*
 * A lease: entries of lock sets that name it are deleted with it.
 *
 * [in] leases_max  at once
 *
 * TUTTI_RESOURCE_EXHAUSTED  LEASE_LIMIT, or no memory
 */
tutti_code tutti_table_open_lease(tutti_table *table, uint64_t leases_max, uint64_t *ret_lease,
                                  tutti_error *err);

/* Returns how many tensors were deleted. */
size_t tutti_table_close_lease(tutti_table *table, uint64_t lease);

/* A tensor as List and Stat show it: a copy of one moment. */
typedef struct tutti_table_info {
    uint64_t number;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    char name[TUTTI_NAME_MAX + 1];
    bool has_spec;
    tutti_spec spec;
    uint64_t bytes;
    char device[TUTTI_DEVICE_MAX + 1]; /* "" = no tensor yet */
    const char *holds;                 /* "an int", static: a plain value; NULL = none */
    char owner[TUTTI_OWNER_SIZE];      /* the caller that made it */
    bool ephemeral;                    /* ends with a lease */
    uint64_t made_ns;                  /* on tutti_clock_ns() */
    bool pending;                      /* somebody writes it, or waits to */
    bool failed;
    tutti_error err;
} tutti_table_info;

/* Without waiting. Codes as tutti_table_lock_by_name. */
tutti_code tutti_table_stat(tutti_table *table, const char *handle, tutti_table_info *ret_info,
                            tutti_error *err);

/*
 * The first tensor made after the one numbered `after` (0 = from the beginning).
 * Returns its number; 0 at the end.
 */
uint64_t tutti_table_next(tutti_table *table, uint64_t after, tutti_table_info *ret_info);

uint64_t tutti_table_count(tutti_table *table);

/* Registers of sessions that hold something: a part of what tutti_table_count gives. */
uint64_t tutti_table_register_count(tutti_table *table);

#endif
