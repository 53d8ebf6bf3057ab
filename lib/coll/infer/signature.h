/*
 * Signature: what a rank called, in the form that ranks compare. Plain data, no threads.
 */
#ifndef TUTTI_COLL_INFER_SIGNATURE_H
#define TUTTI_COLL_INFER_SIGNATURE_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

/* kind, flags, reduce; root; axis; concat axis or permutation; spec; count and sums of a list; step
 */
#define TUTTI_SIGNATURE_BYTES (16 + TUTTI_PACKET_SPEC_BYTES + 12 + 8)

/* Writes the arguments that must fit between ranks; returns the bytes used. */
size_t tutti_signature_write(const tutti_coll_args *args, unsigned char *ret_bytes);

/* Has each rank shapes of its own, that no signature has to fit? */
bool tutti_signature_is_open(const tutti_coll_args *args);

/* Does the root announce more than a signature holds? See engine/announce.h. */
bool tutti_signature_has_root_info(const tutti_coll_args *args);

/*
 * False: malformed. Fields that do not travel (factor, peer, tag, flat, to, list) are 0; of a
 * permutation a checksum does, in concat_axis; of a list its count and sums. `meta` has a size when
 * the root has something to tell.
 */
bool tutti_signature_read(const void *bytes, size_t size, tutti_coll_args *ret_args);

/* The first field in which two calls differ so that they cannot be one op. */
typedef enum tutti_signature_field {
    TUTTI_FIELD_NONE,
    TUTTI_FIELD_STEP,
    TUTTI_FIELD_OP,
    TUTTI_FIELD_DEVICE,
    TUTTI_FIELD_REDUCE,
    TUTTI_FIELD_ROOT,
    TUTTI_FIELD_AXIS,
    TUTTI_FIELD_FORM,
    TUTTI_FIELD_PERMUTATION,
    TUTTI_FIELD_LIST,
    TUTTI_FIELD_DTYPE,
    TUTTI_FIELD_SHAPE,
} tutti_signature_field;

/*
 * Receivers of a broadcast give no spec, or dtype and count of their destination: both fit a root's
 * spec of that dtype and count.
 */
tutti_signature_field tutti_signature_compare(const tutti_coll_args *left,
                                              const tutti_coll_args *right);

const char *tutti_signature_field_name(tutti_signature_field field);

/* OP_MISMATCH, LIST_SIZE, DTYPE_MISMATCH or SHAPE_MISMATCH, and the code that goes with it. */
const char *tutti_signature_reason(tutti_signature_field field, tutti_code *ret_code);

#endif
