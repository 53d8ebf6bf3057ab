/*
 * List: an intrusive doubly linked list. The head is a link of its own; a link that is in no
 * list points to itself. Nothing is allocated; the owner's lock or thread guards it.
 */
#ifndef TUTTI_BASE_DATA_LIST_H
#define TUTTI_BASE_DATA_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/data/bytes.h"

typedef struct tutti_list_node tutti_list_node;
struct tutti_list_node {
    tutti_list_node *next;
    tutti_list_node *before;
};

static inline void
tutti_list_init(tutti_list_node *link)
{
    link->next = link;
    link->before = link;
}

static inline bool
tutti_list_empty(const tutti_list_node *head)
{
    return head->next == head;
}

/* Put `link` last. */
static inline void
tutti_list_add(tutti_list_node *head, tutti_list_node *link)
{
    link->before = head->before;
    link->next = head;
    head->before->next = link;
    head->before = link;
}

/* Take `link` out of whatever list it is in; in none is fine once it was initialised. */
static inline void
tutti_list_remove(tutti_list_node *link)
{
    link->before->next = link->next;
    link->next->before = link->before;
    tutti_list_init(link);
}

/* Take the first link out; NULL when the list is empty. */
static inline tutti_list_node *
tutti_list_pop(tutti_list_node *head)
{
    tutti_list_node *link = head->next;

    if (link == head) {
        return NULL;
    }
    tutti_list_remove(link);
    return link;
}

/* Move everything in `from` to the end of `to`. */
static inline void
tutti_list_splice(tutti_list_node *to, tutti_list_node *from)
{
    if (tutti_list_empty(from)) {
        return;
    }
    from->next->before = to->before;
    to->before->next = from->next;
    from->before->next = to;
    to->before = from->before;
    tutti_list_init(from);
}

/* Walk; `link` may be removed inside the body, other links may not. */
#define tutti_list_each(link, spare, head)                                                         \
    for ((link) = (head)->next, (spare) = (link)->next; (link) != (head);                          \
         (link) = (spare), (spare) = (link)->next)

#endif
