/*
 * Collectives on handles. The public functions are made from CLIENT_OP_MAP (collectives.h), one
 * for each row; all do the same: take the caller's struct, which may be of another version,
 * complete it, and call client_wire_<op>, which writes the request.
 */
#include "client/op/op.h"

#include <stdio.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/options.h"
#include "client/op/collectives.h"
#include "tutti/list.h"

void
tutti_op_init(tutti_op *op)
{
    *op = (tutti_op){
        .size = sizeof(*op), .reduce = TUTTI_REDUCE_SUM, .factor = 1.0, .peer = TUTTI_ANY_SOURCE};
}

static const struct op_kind {
    const char *name;
    client_op_fn fn;
} kinds[TUTTI_OP_KINDS + 1] = {
#define OP_KIND(op, wire, NAME) [TUTTI_OP_##NAME] = {#op, client_wire_##wire},
    CLIENT_OP_MAP(OP_KIND)
#undef OP_KIND
};

#define PLUS_ONE(op, wire, NAME) +1
_Static_assert(0 CLIENT_OP_MAP(PLUS_ONE) == TUTTI_OP_KINDS, "a row for each kind of tutti/op.h");
#undef PLUS_ONE

client_op_fn
client_op_of(tutti_op_kind kind)
{
    return kind > 0 && kind <= TUTTI_OP_KINDS ? kinds[kind].fn : NULL;
}

const char *
tutti_op_kind_name(tutti_op_kind kind)
{
    return client_op_of(kind) == NULL ? NULL : kinds[kind].name;
}

static bool
same_words(const char *name, const char *given)
{
    for (; *name != '\0' && (*given == *name || (*given == '-' && *name == '_')); name++) {
        given++;
    }
    return *name == '\0' && *given == '\0';
}

bool
tutti_op_kind_parse(const char *name, tutti_op_kind *ret_kind)
{
    int kind;

    for (kind = 1; kind <= TUTTI_OP_KINDS; kind++) {
        if (same_words(kinds[kind].name, name)) {
            *ret_kind = (tutti_op_kind)kind;
            return true;
        }
    }
    return false;
}

tutti_code
client_take_op(const tutti_op *given, tutti_op *ret_op, tutti_error *err)
{
    tutti_op own;

    tutti_op_init(&own);
    if (given != NULL) {
        TUTTI_TRY(client_take_struct(&own, sizeof(own), given, given->size, "op", err));
    }
    *ret_op = own;
    if (own.more != NULL) {
        *own.more = (tutti_op_more){0};
    }
    return TUTTI_OK;
}

void
client_draw_name(char ret_name[CLIENT_DRAWN_NAME_SIZE])
{
    char id[TUTTI_ID_TEXT_SIZE];

    tutti_id_format(tutti_id_draw(), id);
    (void)snprintf(ret_name, CLIENT_DRAWN_NAME_SIZE, "tutti.tmp/%s", id);
}

tutti_code
client_take_memory(client_inline *memory, tutti_error *err)
{
    memory->gives = memory->data != NULL;
    memory->takes = memory->result != NULL;
    if (memory->gives) {
        TUTTI_TRY(tutti_spec_size(memory->spec, NULL, &memory->bytes, err));
    }
    memory->expects = memory->takes && tutti_dtype_bytes(memory->spec->dtype) > 0 &&
                      !(memory->gives && memory->bytes == memory->result_bytes);
    return TUTTI_OK;
}

static tutti_code
run_op(client_op_fn wire, tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
       tutti_error *err)
{
    tutti_op_result result;
    tutti_op own;

    TUTTI_NEED(client, err);
    TUTTI_TRY(client_take_op(op, &own, err));
    TUTTI_TRY(wire(client, &own, NULL, &result, err));
    if (ret_result != NULL) {
        *ret_result = result;
    }
    return TUTTI_OK;
}

#define OP_FUNCTION(op_name, wire, NAME)                                                           \
    tutti_code tutti_##op_name(tutti_client *client, const tutti_op *op,                           \
                               tutti_op_result *ret_result, tutti_error *err)                      \
    {                                                                                              \
        return run_op(client_wire_##wire, client, op, ret_result, err);                            \
    }
CLIENT_OP_MAP(OP_FUNCTION)
#undef OP_FUNCTION
