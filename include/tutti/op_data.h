/* Ops on memory. */
#ifndef TUTTI_OP_DATA_H
#define TUTTI_OP_DATA_H

#include <stdint.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The same on memory of the caller's: small data travels with the call, larger data is uploaded,
 * run and downloaded. op->input, output and async must be unset (assert). Whatever happens, no
 * tensor stays in the agent as long as it can be reached; while they run, they are named
 * "tutti.tmp/...".
 *
 * all_reduce  [in] data, [out] result: both as `spec`; may be the same memory
 * broadcast   [in, out] data: as `spec` on every rank; the root's is sent, and not changed. In a
 *             group other than the world, with a root that is not global, this asks the coordinator
 *             who is who
 * all_gather  [in] data: as `spec`; [out] result: group size times as much
 * all_to_all  [in] data: as `spec`; [out] result: as many bytes; may be the same memory
 * permute     likewise
 *
 * reduce_scatter  [in] data: as `spec`; [out] result: this rank's part
 * reduce_to_root  [in] data: as `spec`; [out] result: as `spec` too, on the root; elsewhere not
 *                 looked at. May be the same memory
 * gather          [in] data: as `spec`; [out] result: group size times as much, on the root;
 *                 elsewhere not looked at
 * scatter         [in] data: as `spec`, on the root; elsewhere neither is looked at, but for the
 *                 dtype; [out] result: this rank's part, on the root too
 *
 * Those with a root find out who it is as broadcast does.
 */
TUTTI_API tutti_code tutti_all_reduce_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);
TUTTI_API tutti_code tutti_broadcast_data(tutti_client *client, const tutti_op *op,
                                          const tutti_spec *spec, void *data, tutti_error *err);
TUTTI_API tutti_code tutti_all_gather_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_to_root_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_scatter_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, uint64_t result_bytes,
                                               tutti_error *err);
TUTTI_API tutti_code tutti_gather_data(tutti_client *client, const tutti_op *op,
                                       const tutti_spec *spec, const void *data, void *result,
                                       uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_scatter_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_all_to_all_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);
TUTTI_API tutti_code tutti_permute_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
