/* Private to client: the whole of a list that a server gives page by page. */
#ifndef TUTTI_CLIENT_CONN_PAGER_H
#define TUTTI_CLIENT_CONN_PAGER_H

#include <stddef.h>

#include "rpc/message.h"
#include "tutti/client.h"

#define CLIENT_PAGE_SIZE 1000 /* what is asked for at once; a server may give fewer */

/* One page. All of it is borrowed from the response. */
typedef struct client_page {
    void *const *items; /* messages of protobuf-c */
    size_t count;
    const char *next_token; /* of the next page; "" = this is the last */
} client_page;

typedef struct client_pager {
    const char *what; /* "groups", for errors */
    size_t item_size; /* of the public struct that an item becomes */

    /* Ask for the page that `token` names ("" = the first). [out, owned] ret_response */
    tutti_code (*ask)(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
                      client_page *ret_page, tutti_error *err);

    /* Read an item. When it fails, `ret_item` owns nothing. */
    tutti_code (*read)(const void *item, void *ret_item, tutti_error *err);
    void (*free)(void *item); /* what an item owns; NULL: nothing */
} client_pager;

/*
 * All pages, one after the other; blocks the caller's thread. A page without items ends the list,
 * whatever its token says, so a server cannot keep the caller here.
 * [out, owned] ret_items  free each with `free`, then the array with tutti_free; untouched when it
 * fails
 *
 * TUTTI_DATA_LOSS           a token is longer than any, or an item is not what it has to be
 * TUTTI_RESOURCE_EXHAUSTED  there is no memory for the list
 * and whatever `ask` fails with
 */
tutti_code client_list_pages(tutti_client *client, const client_pager *pager, void **ret_items,
                             size_t *ret_count, tutti_error *err);

#endif
