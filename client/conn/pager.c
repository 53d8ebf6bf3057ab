/*
 * Lists that a server gives by pages, as one array. On the caller's thread. The server is not
 * trusted: the token has a bound, and a page without items ends the list whatever its token says.
 */
#include "client/conn/pager.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

#define TOKEN_SIZE 512

typedef struct item_list {
    const client_pager *pager;
    unsigned char *items;
    size_t count;
} item_list;

static void *
get_item(const item_list *self, size_t index)
{
    return self->items + index * self->pager->item_size;
}

static void
free_items(item_list *self)
{
    size_t i;

    for (i = 0; i < self->count && self->pager->free != NULL; i++) {
        self->pager->free(get_item(self, i));
    }
    free(self->items);
}

static tutti_code
add_items(item_list *self, const client_page *page, tutti_error *err)
{
    const size_t wanted = self->count + page->count;
    /* One more, so that an empty list is no NULL. */
    void *items = reallocarray(self->items, wanted + 1, self->pager->item_size);
    size_t i;

    if (items == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu %s", wanted, self->pager->what);
    }
    self->items = items;
    for (i = 0; i < page->count; i++) {
        TUTTI_TRY(self->pager->read(page->items[i], get_item(self, self->count), err));
        self->count++;
    }
    return TUTTI_OK;
}

/* [in, out] token  of this page, then of the next one */
static tutti_code
list_page(item_list *self, tutti_client *client, char token[TOKEN_SIZE], tutti_error *err)
{
    client_page page = {.next_token = ""};
    tutti_rpc_message *response = NULL;
    tutti_code code;

    TUTTI_TRY(self->pager->ask(client, token, &response, &page, err));
    code = add_items(self, &page, err);
    if (code == TUTTI_OK && strlen(page.next_token) >= TOKEN_SIZE) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "a page token of %zu bytes came with a list of %s, at most %d",
                              strlen(page.next_token), self->pager->what, TOKEN_SIZE - 1);
    } else if (code == TUTTI_OK) {
        (void)strcpy(token, page.count > 0 ? page.next_token : "");
    }
    tutti_rpc_message_free(response);
    return code;
}

tutti_code
client_list_pages(tutti_client *client, const client_pager *pager, void **ret_items,
                  size_t *ret_count, tutti_error *err)
{
    item_list list = {.pager = pager};
    char token[TOKEN_SIZE] = "";
    tutti_code code;

    do {
        code = list_page(&list, client, token, err);
    } while (code == TUTTI_OK && token[0] != '\0');
    if (code != TUTTI_OK) {
        free_items(&list);
        return code;
    }
    *ret_items = list.items;
    *ret_count = list.count;
    return TUTTI_OK;
}
