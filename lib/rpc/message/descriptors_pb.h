/*
 * Descriptors: what the .proto files said, from the FileDescriptorSet that is built into the
 * program. protobuf-c forgets which methods stream; reflection wants the files' own bytes.
 * Read only once open; any thread.
 */
#ifndef TUTTI_RPC_MESSAGE_DESCRIPTORS_PB_H
#define TUTTI_RPC_MESSAGE_DESCRIPTORS_PB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

typedef struct rpc_descriptors rpc_descriptors;

#define TUTTI_RPC_FILES_MAX 256 /* .proto files in a set */

/*
 * [in] set  a serialized FileDescriptorSet; borrowed until close
 *
 * TUTTI_INVALID_ARGUMENT    it is none
 * TUTTI_RESOURCE_EXHAUSTED  no memory; more than TUTTI_RPC_FILES_MAX files
 */
tutti_code rpc_descriptors_open(tutti_bytes set, rpc_descriptors **ret_descriptors,
                                tutti_error *err);

void rpc_descriptors_close(rpc_descriptors *descriptors); /* NULL is fine */

/* How a method streams; false when the set does not know it. */
bool rpc_descriptors_method(const rpc_descriptors *descriptors, const char *service,
                            const char *method, bool *ret_client_streams, bool *ret_server_streams);

/* The number of a file, by its name or by something it declares; -1 = none. */
int rpc_descriptors_file(const rpc_descriptors *descriptors, const char *name);
int rpc_descriptors_symbol(const rpc_descriptors *descriptors, const char *symbol);

/* Is there such a message type? */
bool rpc_descriptors_has_type(const rpc_descriptors *descriptors, const char *type);

/* A file and everything it imports: FileDescriptorProtos as they are in the set; the count. */
size_t rpc_descriptors_closure(const rpc_descriptors *descriptors, int file,
                               tutti_bytes ret_files[TUTTI_RPC_FILES_MAX]);

#endif
