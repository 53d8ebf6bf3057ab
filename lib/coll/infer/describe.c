/* A call in words, as errors say it. */
#include <inttypes.h>
#include <string.h>

#include "coll/infer/signature.h"

static const char *const kind_names[TUTTI_COLL_KIND_COUNT] = {
#define KIND_NAME(name, number, word) [number] = word,
    TUTTI_COLL_KIND_MAP(KIND_NAME)
#undef KIND_NAME
};

const char *
tutti_coll_kind_name(tutti_coll_kind kind)
{
    return kind > 0 && kind < TUTTI_COLL_KIND_COUNT ? kind_names[kind] : "op_<?>";
}

static void
describe_axes(const tutti_coll_args *args, tutti_text *text)
{
    if (args->form == TUTTI_FORM_FLAT || args->form == TUTTI_FORM_LIST || args->has_splits) {
        tutti_text_add(text, args->has_splits                ? "splits"
                             : args->form == TUTTI_FORM_LIST ? "list"
                                                             : "flat");
        return;
    }
    tutti_text_add(text, "%s %" PRId32, args->form == TUTTI_FORM_STACK ? "stack" : "axis",
                   (int32_t)args->axis);
    if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        tutti_text_add(text, " to %" PRIu32, args->concat_axis);
    }
}

static void
describe_peer(const tutti_coll_args *args, tutti_text *text)
{
    if (args->peer == TUTTI_COLL_ANY_SOURCE) {
        tutti_text_add(text, "from any rank");
    } else {
        tutti_text_add(text, "%s group rank %" PRIu32,
                       args->kind == TUTTI_COLL_SEND ? "to" : "from", args->peer);
    }
    tutti_text_add(text, ", tag %" PRIu32, args->tag);
}

static void
describe_spec(const tutti_coll_args *args, const char *separator, tutti_text *text)
{
    if (!args->has_spec) {
        return;
    }
    tutti_text_add(text, "%s", separator);
    if (args->list_count > 0) {
        tutti_text_add(text, "%" PRIu32 " tensor%s beginning with ", args->list_count,
                       args->list_count == 1 ? "" : "s");
    }
    if (tutti_signature_is_open(args)) {
        tutti_text_add(text, "%s", tutti_dtype_name(args->spec.dtype));
    } else if (args->count_only) {
        tutti_text_add(text, "into %" PRIu64 " %s", tutti_spec_count(&args->spec),
                       tutti_dtype_name(args->spec.dtype));
    } else if (args->has_splits && args->spec.dim_count > 0) {
        tutti_spec row = args->spec;

        row.dim_count--;
        memmove(row.dims, row.dims + 1, row.dim_count * sizeof(row.dims[0]));
        tutti_text_add(text, "rows of ");
        tutti_spec_describe(&row, text);
    } else {
        tutti_spec_describe(&args->spec, text);
    }
}

void
tutti_coll_describe(const tutti_coll_args *args, tutti_text *text)
{
    tutti_text_add(text, "%s(", tutti_coll_kind_name(args->kind));
    switch (args->kind) {
    case TUTTI_COLL_ALL_REDUCE:
        tutti_text_add(text, "%s", tutti_reduce_name(args->reduce));
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_REDUCE:
        tutti_text_add(text, "%s, root %" PRIu32, tutti_reduce_name(args->reduce), args->root);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_REDUCE_SCATTER:
        tutti_text_add(text, "%s, ", tutti_reduce_name(args->reduce));
        describe_axes(args, text);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_BROADCAST:
        tutti_text_add(text, "root %" PRIu32, args->root);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_GATHER:
    case TUTTI_COLL_SCATTER:
        tutti_text_add(text, "root %" PRIu32 ", ", args->root);
        describe_axes(args, text);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_ALL_TO_ALL:
        describe_axes(args, text);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_SEND:
    case TUTTI_COLL_RECV:
        describe_peer(args, text);
        describe_spec(args, ", ", text);
        break;
    case TUTTI_COLL_BARRIER:
        break;
    default:
        describe_spec(args, "", text);
        break;
    }
    tutti_text_add(text, args->on_device ? ") on cuda" : ")");
    if (args->step != 0) {
        tutti_text_add(text, " at step %" PRIu64, args->step);
    }
}
