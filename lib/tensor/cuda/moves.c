/*
 * Moves through slots: begun here, on the caller's thread; ended by the lanes. Slots are lent from
 * the ring under its lock; the callbacks of wishes run outside of it, as they take and give slots
 * themselves.
 */
#include "tensor/cuda/cuda_private.h"

static tutti_slot *
take_slot(tutti_space *space)
{
    cuda_ring *ring = &cuda_space_from(space)->ring;
    tutti_list_node *link;

    (void)pthread_mutex_lock(&ring->lock);
    link = tutti_list_pop(&ring->idle);
    ring->idle_count -= link == NULL ? 0 : 1;
    (void)pthread_mutex_unlock(&ring->lock);
    return link == NULL ? NULL : tutti_container_of(link, tutti_slot, link);
}

/* A slot goes straight to the oldest wish, past the idle list: otherwise a thread that asks at this
 * moment would overtake those that wait. */
static void
give_slot(tutti_space *space, tutti_slot *slot)
{
    cuda_ring *ring = &cuda_space_from(space)->ring;
    tutti_slot_wish *wish;
    tutti_list_node *link;

    (void)pthread_mutex_lock(&ring->lock);
    link = tutti_list_pop(&ring->wishes);
    if (link == NULL) {
        tutti_list_add(&ring->idle, &slot->link);
        ring->idle_count++;
    }
    (void)pthread_mutex_unlock(&ring->lock);
    if (link != NULL) {
        wish = tutti_container_of(link, tutti_slot_wish, link);
        wish->on_slot(wish, slot);
    }
}

/* One may have come back between the caller's look and this: then the wish is granted here, inside.
 * Looking and queueing under one lock means that no slot can come back in between unseen. */
static void
wait_slot(tutti_space *space, tutti_slot_wish *wish)
{
    cuda_ring *ring = &cuda_space_from(space)->ring;
    tutti_list_node *link;

    (void)pthread_mutex_lock(&ring->lock);
    link = tutti_list_pop(&ring->idle); /* one came back since it was asked for */
    if (link == NULL) {
        tutti_list_add(&ring->wishes, &wish->link);
    } else {
        ring->idle_count--;
    }
    (void)pthread_mutex_unlock(&ring->lock);
    if (link != NULL) {
        wish->on_slot(wish, tutti_container_of(link, tutti_slot, link));
    }
}

static bool
is_scarce(tutti_space *space)
{
    cuda_ring *ring = &cuda_space_from(space)->ring;
    bool scarce;

    (void)pthread_mutex_lock(&ring->lock);
    scarce = ring->idle_count * 2 < ring->count;
    (void)pthread_mutex_unlock(&ring->lock);
    return scarce;
}

/* Begin it on the lane's stream. The order there is that of the queue: both under the lock. If
 * anything fails, the lane's thread tells, as for a copy that fails later. */
static void
begin_moves(cuda_lane *lane, tutti_move *move, void *to, const void *from, size_t size)
{
    cuda_slot *slot = tutti_container_of(move->slot, cuda_slot, base);

    (void)pthread_mutex_lock(&lane->lock);
    move->code = cuda_enter(lane->space, &move->err);
    if (move->code == TUTTI_OK) {
        move->code = cuda_follow(lane->space, lane->stream, &move->err);
    }
    if (move->code == TUTTI_OK) {
        move->code = cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, lane->stream),
                                "cudaMemcpyAsync", &move->err);
    }
    if (move->code == TUTTI_OK) {
        move->code =
            cuda_check(cudaEventRecord(slot->over, lane->stream), "cudaEventRecord", &move->err);
    }
    cuda_lane_put(lane, move);
    (void)pthread_mutex_unlock(&lane->lock);
}

static void
move_in(tutti_space *space, tutti_move *move, uint64_t offset, size_t size)
{
    space_cuda *self = cuda_space_from(space);

    begin_moves(&self->in, move, (unsigned char *)move->to->data + offset, move->slot->data, size);
}

static void
move_out(tutti_space *space, tutti_move *move, uint64_t offset, size_t size)
{
    space_cuda *self = cuda_space_from(space);

    begin_moves(&self->out, move, move->slot->data, (unsigned char *)move->from->data + offset,
                size);
}

static void
move_copy(tutti_space *space, tutti_move *move)
{
    cuda_lane *lane = &cuda_space_from(space)->between;

    move->code = TUTTI_OK;
    (void)pthread_mutex_lock(&lane->lock);
    cuda_lane_put(lane, move);
    (void)pthread_mutex_unlock(&lane->lock);
}

const tutti_space_moves cuda_moves = {
    .take_slot = take_slot,
    .wait_slot = wait_slot,
    .give_slot = give_slot,
    .is_scarce = is_scarce,
    .in = move_in,
    .out = move_out,
    .copy = move_copy,
};
