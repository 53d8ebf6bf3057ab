/* Collectives on handles: what an op says, completed; the wire does the rest. */
#include "client/op/op.h"

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
    [TUTTI_OP_ALL_REDUCE] = {"all_reduce", client_wire_all_reduce},
    [TUTTI_OP_REDUCE_TO_ROOT] = {"reduce_to_root", client_wire_reduce},
    [TUTTI_OP_REDUCE_SCATTER] = {"reduce_scatter", client_wire_reduce_scatter},
    [TUTTI_OP_BROADCAST] = {"broadcast", client_wire_broadcast},
    [TUTTI_OP_ALL_GATHER] = {"all_gather", client_wire_all_gather},
    [TUTTI_OP_GATHER] = {"gather", client_wire_gather},
    [TUTTI_OP_SCATTER] = {"scatter", client_wire_scatter},
    [TUTTI_OP_ALL_TO_ALL] = {"all_to_all", client_wire_all_to_all},
    [TUTTI_OP_PERMUTE] = {"permute", client_wire_permute},
    [TUTTI_OP_BARRIER] = {"barrier", client_wire_barrier},
    [TUTTI_OP_SEND] = {"send", client_wire_send},
    [TUTTI_OP_RECV] = {"recv", client_wire_recv},
};

client_op_fn
client_op_of(tutti_op_kind kind)
{
    return kind >= TUTTI_OP_ALL_REDUCE && kind <= TUTTI_OP_RECV ? kinds[kind].fn : NULL;
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

    for (kind = TUTTI_OP_ALL_REDUCE; kind <= TUTTI_OP_RECV; kind++) {
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
    tutti_code code = TUTTI_OK;

    tutti_op_init(&own);
    if (given != NULL) {
        code = client_take_struct(&own, sizeof(own), given, given->size, "op", err);
    }
    if (code == TUTTI_OK) {
        *ret_op = own;
        if (own.more != NULL) {
            *own.more = (tutti_op_more){0};
        }
    }
    return code;
}

static tutti_code
run_op(client_op_fn wire, tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
       tutti_error *err)
{
    tutti_op_result result;
    tutti_op own;
    tutti_code code = client_take_op(op, &own, err);

    if (code == TUTTI_OK) {
        code = wire(client, &own, NULL, &result, err);
    }
    if (code == TUTTI_OK && ret_result != NULL) {
        *ret_result = result;
    }
    return code;
}

tutti_code
tutti_all_reduce(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                 tutti_error *err)
{
    return run_op(client_wire_all_reduce, client, op, ret_result, err);
}

tutti_code
tutti_broadcast(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                tutti_error *err)
{
    return run_op(client_wire_broadcast, client, op, ret_result, err);
}

tutti_code
tutti_all_gather(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                 tutti_error *err)
{
    return run_op(client_wire_all_gather, client, op, ret_result, err);
}

tutti_code
tutti_reduce_to_root(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                     tutti_error *err)
{
    return run_op(client_wire_reduce, client, op, ret_result, err);
}

tutti_code
tutti_reduce_scatter(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                     tutti_error *err)
{
    return run_op(client_wire_reduce_scatter, client, op, ret_result, err);
}

tutti_code
tutti_gather(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
             tutti_error *err)
{
    return run_op(client_wire_gather, client, op, ret_result, err);
}

tutti_code
tutti_scatter(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
              tutti_error *err)
{
    return run_op(client_wire_scatter, client, op, ret_result, err);
}

tutti_code
tutti_all_to_all(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                 tutti_error *err)
{
    return run_op(client_wire_all_to_all, client, op, ret_result, err);
}

tutti_code
tutti_permute(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
              tutti_error *err)
{
    return run_op(client_wire_permute, client, op, ret_result, err);
}

tutti_code
tutti_barrier(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
              tutti_error *err)
{
    return run_op(client_wire_barrier, client, op, ret_result, err);
}

tutti_code
tutti_send(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result, tutti_error *err)
{
    return run_op(client_wire_send, client, op, ret_result, err);
}

tutti_code
tutti_recv(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result, tutti_error *err)
{
    return run_op(client_wire_recv, client, op, ret_result, err);
}
