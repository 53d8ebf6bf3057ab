/*
 * Check: what protobuf-c does not look at. It unpacks text that is not UTF-8, cuts text at a NUL,
 * takes enum numbers nobody knows and descends as deep as a recursive message goes. Any thread.
 */
#ifndef TUTTI_RPC_MESSAGE_CHECK_H
#define TUTTI_RPC_MESSAGE_CHECK_H

#include <stdbool.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

struct ProtobufCMessageDescriptor;

#define TUTTI_RPC_DEPTH_MAX 32 /* messages inside messages */

/*
 * Look through the bytes of a message before it is unpacked.
 *
 * [in] strict  enum numbers must be known: for requests. A response may come from a newer server
 *
 * TUTTI_INVALID_ARGUMENT  malformed; text that is not UTF-8 or holds a NUL; an unknown enum number;
 *                         nested too deep. The text names the field
 */
tutti_code rpc_check(const struct ProtobufCMessageDescriptor *type, tutti_bytes wire, bool strict,
                     tutti_error *err);

/* Is it valid UTF-8 (no surrogates, nothing overlong) without a NUL? */
bool rpc_check_text(tutti_bytes text);

#endif
