#include <inttypes.h>
#include <string.h>

#include "base/data/ref.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

static tutti_code
parse_handle(const char *text, tutti_ref *ret, tutti_error *err)
{
    if (!tutti_ref_parse(text, "tensor", ret)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "\"%.80s\" is no handle of a tensor, they look like "
                              "tensor:0.0123456789abcdef.1",
                              text);
    }
    return TUTTI_OK;
}

static tutti_entry *
find_number(const tutti_table *table, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&table->by_number, tutti_map_key_u64(key, number));

    return node == NULL ? NULL : tutti_container_of(node, tutti_entry, by_number);
}

static tutti_code
find_handle(const tutti_table *table, const char *text, tutti_entry **ret, tutti_error *err)
{
    tutti_ref parts;

    TUTTI_TRY(parse_handle(text, &parts, err));
    if (parts.incarnation != table->incarnation) {
        return parts.rank == table->rank
                   ? TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STALE_HANDLE",
                                    "%s belongs to a former process of rank %" PRIu32
                                    ": its tensors are gone",
                                    text, parts.rank)
                   : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "FOREIGN_HANDLE",
                                    "%s belongs to rank %" PRIu32 ", this is rank %" PRIu32, text,
                                    parts.rank, table->rank);
    }
    *ret = find_number(table, parts.number);
    if (*ret == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR", "%s was deleted, or never was",
                              text);
    }
    return TUTTI_OK;
}

tutti_code
agent_table_find(const tutti_table *table, const char *text, tutti_entry **ret, tutti_error *err)
{
    tutti_map_node *node;

    if (strncmp(text, "tensor:", 7) == 0) {
        return find_handle(table, text, ret, err);
    }
    if (text[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "an empty handle, need tensor:... or a name");
    }
    TUTTI_TRY(tutti_check_name(text, "tensor", err));
    node = tutti_map_find(&table->by_name, tutti_bytes_of(text));
    if (node == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR", "no tensor is named \"%s\"", text);
    }
    *ret = tutti_container_of(node, tutti_entry, by_name);
    return TUTTI_OK;
}

void
agent_table_format_handle(const tutti_entry *entry, char ret[TUTTI_TABLE_HANDLE_SIZE])
{
    const tutti_ref ref = {entry->rank, entry->incarnation, entry->number};

    tutti_ref_format(&ref, "tensor", ret, TUTTI_TABLE_HANDLE_SIZE);
}
