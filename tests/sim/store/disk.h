/*
 * Disk: a durable store whose disk is the simulation's. It is store/memory with a copy of each batch, which store/commit's
 * real writer hands over, as store/lmdb has it; what is replaced is the writing of a batch (tutti_store_writer_ops). So a
 * batch is on the disk as a whole or not at all: torn pages are store/lmdb's (tests/store/test_store_cut.c).
 *
 * A disk outlives the processes that have it open, one at a time. It keeps what docs/operating.md promises, and no more:
 * a process that is killed loses what was not written; a machine that dies what was not synced, by mode.
 */
#ifndef TUTTI_TESTS_SIM_STORE_DISK_H
#define TUTTI_TESTS_SIM_STORE_DISK_H

#include "store/store.h"

typedef enum disk_mode {
    DISK_MEMORY, /* no disk: gone with the process */
    DISK_NONE,   /* a change is written at once, and synced some time */
    DISK_ORDER,  /* the last batch may be lost with the machine, though it was answered */
    DISK_FULL,
    DISK_MODES,
} disk_mode;

typedef struct sim_disk sim_disk;

/* Told of all changes that a store has made, before the call that made them returns. */
typedef void (*disk_on_change)(const tutti_store_change *changes, size_t count, uint64_t version);

sim_disk *disk_new(disk_mode mode, disk_on_change on_change);
void disk_free(sim_disk *self);

/* Open what is there; with FULL that is synced first, as store/lmdb/mark.c does it, which may fail. */
tutti_code disk_open(sim_disk *self, tutti_store **ret_store, tutti_error *err);

/* What is there, as a store in memory. */
tutti_store *disk_look(const sim_disk *self);

/* The process is killed: its store writes nothing any more, and only closes. */
void disk_kill(sim_disk *self);

void disk_cut_power(sim_disk *self); /* ... with the machine */

/* Of the last batch that was synced. */
uint64_t disk_synced(const sim_disk *self);

/* From now on, until disk_repair: each write fails, as a full disk or an error of it; each takes longer. */
void disk_fail(sim_disk *self, bool is_full);
void disk_slow(sim_disk *self, uint64_t ns);
void disk_repair(sim_disk *self);

#endif
