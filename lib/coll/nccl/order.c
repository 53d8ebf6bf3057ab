/* The line of ops by tickets; order.h says how it works, docs/decisions/0020-nccl.md why it cannot
 * deadlock. Pure. */
#include "coll/nccl/order.h"

#include "base/data/bytes.h"

void
tutti_nccl_line_init(nccl_line *line)
{
    line->clock = 0;
    tutti_list_init(&line->places);
}

void
tutti_nccl_line_propose(nccl_line *line, nccl_place *place)
{
    place->ticket = ++line->clock;
    place->final = false;
    tutti_list_add(&line->places, &place->link);
}

/* Never lower than the own proposal, since that is among those of which the ticket is the largest.
 * So the head of the line can only move back. */
void
tutti_nccl_line_settle(nccl_line *line, nccl_place *place, uint64_t ticket)
{
    place->ticket = ticket;
    place->final = true;
    if (ticket > line->clock) {
        line->clock = ticket;
    }
}

static bool
is_before(const nccl_place *left, const nccl_place *right)
{
    if (left->ticket != right->ticket) {
        return left->ticket < right->ticket;
    }
    return left->group != right->group ? left->group < right->group
                                       : left->sequence < right->sequence;
}

/* The smallest ticket of all, if it is final. If a proposal is smaller, its final ticket may still
 * come out before the others: nobody's turn yet. The line is short, so it is searched. */
nccl_place *
tutti_nccl_line_head(const nccl_line *line)
{
    nccl_place *head = NULL;
    const tutti_list_node *link;

    for (link = line->places.next; link != &line->places; link = link->next) {
        nccl_place *place = tutti_container_of(link, nccl_place, link);

        if (head == NULL || is_before(place, head)) {
            head = place;
        }
    }
    return head != NULL && head->final ? head : NULL;
}

void
tutti_nccl_line_leave(nccl_place *place)
{
    tutti_list_remove(&place->link);
}
