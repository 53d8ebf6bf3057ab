/* --splits of all-to-all: what each rank sends to each, and so what each gets from each. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/collective/collective.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* "1,2/3,0": a row for each sender, a column for each receiver. False: it is no square. */
static bool
parse_matrix(collective *self, const char *text)
{
    const char *at = text;
    size_t size = 1;
    size_t count = 0;
    size_t i;

    for (i = 0; text[i] != '\0'; i++) {
        size += text[i] == '/' ? 1 : 0;
    }
    self->splits = calloc(2 * size * size, sizeof(*self->splits));
    if (self->splits == NULL) {
        abort();
    }
    self->split_count = size;
    for (;;) {
        const size_t length = strcspn(at, ",/");
        const bool row_ends = (count + 1) % size == 0;
        char number[24];

        if (length >= sizeof(number) || count == size * size) {
            return false;
        }
        memcpy(number, at, length);
        number[length] = '\0';
        if (!cli_parse_number(number, 0, INT64_MAX, &self->splits[count++])) {
            return false;
        }
        at += length;
        if (*at == '\0') {
            return count == size * size;
        }
        if ((*at++ == '/') != row_ends) {
            return false;
        }
    }
}

/*
 * The second half of the memory is the matrix turned round: what each gets is a row there, so
 * both halves can be lent to ops as they are.
 */
bool
collective_read_splits(collective *self)
{
    const char *text =
        cli_has_option(self->self, "splits") ? cli_value(self->self, "splits") : NULL;
    size_t r;
    size_t c;

    if (text == NULL) {
        return true;
    }
    if (!parse_matrix(self, text)) {
        (void)cli_usage(
            self->self,
            "--splits \"%s\": need for each sender what each rank gets, such as 1,2/3,0", text);
        return false;
    }
    for (r = 0; r < self->split_count; r++) {
        for (c = 0; c < self->split_count; c++) {
            self->splits[self->split_count * (self->split_count + c) + r] =
                self->splits[self->split_count * r + c];
        }
    }
    return true;
}

tutti_code
collective_set_splits(const collective *self, uint32_t group_rank, tutti_op *op, tutti_error *err)
{
    const size_t size = self->split_count;

    if (self->splits == NULL) {
        return TUTTI_OK;
    }
    if (group_rank >= size) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "--splits has %zu rows, and group rank %u has none", size, group_rank);
    }
    op->input_splits = self->splits + size * group_rank;
    op->input_split_count = size;
    op->output_splits = self->splits + size * (size + group_rank);
    op->output_split_count = size;
    return TUTTI_OK;
}

/* The row is that of the group rank, which is looked up when the group is not the world. */
tutti_code
collective_own_splits(const collective *self, tutti_client *client, tutti_op *op, tutti_error *err)
{
    const uint32_t rank = tutti_whoami(client)->rank;
    tutti_group_info group;
    uint32_t i = 0;
    tutti_code code;

    if (self->splits == NULL || op->group == NULL) {
        return collective_set_splits(self, rank, op, err);
    }
    code = tutti_group_get(client, op->group, &group, err);
    if (code != TUTTI_OK) {
        return code;
    }
    while (i < group.rank_count && group.ranks[i] != rank) {
        i++;
    }
    tutti_group_info_free(&group);
    return collective_set_splits(self, i, op, err);
}
