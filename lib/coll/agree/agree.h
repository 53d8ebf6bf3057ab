/*
 * Agree: how the ranks of a group learn what all of them called, in ceil(log2 n) rounds.
 *
 * Dissemination (Hensgen, Finkel, Manber 1988): in round r, group rank i sends all it knows to
 * i + 2^r and hears from i - 2^r, modulo n. What it knows is a signature for each rank heard of so
 * far, written as runs of equal ones: normally a single run, whatever n. In the end every rank
 * knows everything, so every rank finds the same verdict and writes the same words.
 *
 * Pure: no packets, no threads.
 */
#ifndef TUTTI_COLL_AGREE_AGREE_H
#define TUTTI_COLL_AGREE_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

typedef struct tutti_coll_agree tutti_coll_agree;

/* Different signatures a rank keeps; with more, the verdict is the same but names only these. */
#define TUTTI_AGREE_KINDS_MAX 16

/* Rounds needed for a group of `size`: 0 for one. */
uint32_t tutti_agree_rounds(uint32_t size);

/* The group ranks that this one sends to, and hears from, in a round. */
uint32_t tutti_agree_to(uint32_t size, uint32_t group_rank, uint32_t round);
uint32_t tutti_agree_from(uint32_t size, uint32_t group_rank, uint32_t round);

/* Knowing only our own call. NULL: no memory. */
tutti_coll_agree *tutti_agree_new(uint32_t size, uint32_t group_rank, const tutti_coll_args *own);
void tutti_agree_free(tutti_coll_agree *agree); /* NULL is fine */

/*
 * A rider: a few bytes of our own that travel with our signature, so that every rank has those of
 * all when the rounds are over, and a small op needs no rounds of its own. Before the first write.
 * Ranks whose calls fit may still differ in whether they have one: then no rank gets them all.
 */
#define TUTTI_AGREE_PIGGYBACK_MAX 128
#define TUTTI_AGREE_RIDING_RANKS_MAX 32
void tutti_agree_piggyback(tutti_coll_agree *agree, const void *bytes, size_t size);

/* After the last round: all riders, by group rank; NULL when one is missing. [out, borrowed] */
const unsigned char *tutti_agree_riders(const tutti_coll_agree *agree, size_t *ret_size);

/* What we know, for the next rank. [out, borrowed] good until the next write or the end. */
tutti_code tutti_agree_write(tutti_coll_agree *agree, tutti_bytes *ret_bytes, tutti_error *err);

/* TUTTI_INTERNAL  malformed */
tutti_code tutti_agree_read(tutti_coll_agree *agree, const void *bytes, size_t size,
                            tutti_error *err);

/*
 * After the last round: do all calls fit?
 *
 * [in]  ranks          of the group: for the words
 * [out] ret_reference  what was called, as it travels; of a broadcast or scatter, by the root
 * [out] ret_open       a receiver stated no destination: it learns the spec only now, and may yet
 *                      refuse it
 *
 * TUTTI_FAILED_PRECONDITION, TUTTI_INVALID_ARGUMENT  as tutti_signature_reason, with the words that
 *                                                    every rank writes alike
 */
tutti_code tutti_agree_verdict(const tutti_coll_agree *agree, const char *group, uint64_t sequence,
                               const uint32_t *ranks, tutti_coll_args *ret_reference,
                               bool *ret_open, tutti_error *err);

#endif
