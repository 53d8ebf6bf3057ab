#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/id.h"
#include "base/text.h"
#include "server/agent/table_private.h"

typedef struct handle_parts {
    uint32_t rank;
    uint64_t incarnation;
    uint64_t number;
} handle_parts;

static void
format_parts(const handle_parts *parts, char ret[TUTTI_TABLE_HANDLE_SIZE])
{
    (void)snprintf(ret, TUTTI_TABLE_HANDLE_SIZE, "tensor:%" PRIu32 ".%016" PRIx64 ".%" PRIu64,
                   parts->rank, parts->incarnation, parts->number);
}

/* "tensor:3.8f3a9c12e4b07d55.17", and no other way to write it: scanf takes signs and blanks. */
static tutti_code
parse_handle(const char *text, handle_parts *ret, tutti_error *err)
{
    char id[TUTTI_ID_TEXT_SIZE];
    char again[TUTTI_TABLE_HANDLE_SIZE] = "";

    if (sscanf(text, "tensor:%" SCNu32 ".%16[0-9a-f].%" SCNu64, &ret->rank, id, &ret->number) ==
            3 &&
        tutti_id_parse(id, &ret->incarnation, NULL) == TUTTI_OK) {
        format_parts(ret, again);
    }
    if (strcmp(text, again) != 0) {
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
    handle_parts parts;
    tutti_code code = parse_handle(text, &parts, err);

    if (code != TUTTI_OK) {
        return code;
    }
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
    tutti_code code;

    if (strncmp(text, "tensor:", 7) == 0) {
        return find_handle(table, text, ret, err);
    }
    if (text[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "an empty handle, need tensor:... or a name");
    }
    code = tutti_check_name(text, "tensor", err);
    if (code != TUTTI_OK) {
        return code;
    }
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
    const handle_parts parts = {entry->rank, entry->incarnation, entry->number};

    format_parts(&parts, ret);
}
