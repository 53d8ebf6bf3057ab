/* Private to the fake agent: what the files of its services share. */
#ifndef TUTTI_TESTS_FAKE_PB_H
#define TUTTI_TESTS_FAKE_PB_H

#include "fake_agent.h"

#include "tutti/v1/collectives_service.pb-c.h"

/* A tensor as the script wants it described, with the memory it points to. */
typedef struct wire_tensor {
    Tutti__V1__TensorRef ref;
    Tutti__V1__TensorSpec spec;
    int64_t dims[32];
} wire_tensor;

Tutti__V1__TensorRef *fake_describe(const fake_agent *self, wire_tensor *ret);

/* Was the call dealt with by the script? */
bool fake_scripted(fake_agent *self, tutti_rpc_call *call, const char *method);

/* Keep a message's bytes behind the `offset` that are there. */
void fake_store(fake_agent *self, tutti_rpc_message *message, size_t offset);

/* What all ops have in common: what is asked, and what is said about it. */
void fake_note_op(fake_agent *self, tutti_rpc_call *call, const char *group,
                  const Tutti__V1__TensorArg *input, const char *output,
                  const Tutti__V1__OpOptions *options);
void fake_write_info(fake_agent *self, Tutti__V1__OpInfo *info);

/* fake_parts_pb.c */
#define FAKE_PARTS_COUNT 6
extern const tutti_rpc_method fake_parts[FAKE_PARTS_COUNT];

/* fake_session_pb.c */
#define FAKE_SESSIONS_COUNT 1
#define FAKE_FUNCTIONS_COUNT 7
extern const tutti_rpc_method fake_sessions[FAKE_SESSIONS_COUNT];
extern const tutti_rpc_method fake_functions[FAKE_FUNCTIONS_COUNT];

/* fake_run_pb.c */
extern const tutti_rpc_stream_ops fake_run_ops;

#endif
