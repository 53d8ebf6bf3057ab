/*
 * Lanes: a stream, and a thread that ends the moves put on it, in their order. A host thread that
 * sleeps on an event hears of a device's failure too, which a function that the stream would call
 * (cudaLaunchHostFunc) does not: after an error it is never called.
 *
 * The mutex guards the queue; the lane's own thread takes from it, any thread puts. on_done runs on
 * the lane's thread, without the lock, and may free the move. Close lets the queue run empty, then
 * the thread ends.
 */
#include <assert.h>

#include "base/error/fail.h"
#include "tensor/cuda/cuda_private.h"

static tutti_move *
next_move(cuda_lane *lane)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&lane->lock);
    while (tutti_list_empty(&lane->queue) && !lane->stopping) {
        (void)pthread_cond_wait(&lane->filled, &lane->lock);
    }
    link = tutti_list_pop(&lane->queue);
    (void)pthread_mutex_unlock(&lane->lock);
    return link == NULL ? NULL : tutti_container_of(link, tutti_move, link);
}

/* A move that could not be begun (its code is set) goes through the queue all the same: on_done
 * always comes on this thread, in order. */
static void *
run_lane(void *arg)
{
    cuda_lane *lane = arg;
    tutti_move *move;

    (void)cuda_enter(lane->space, NULL); /* when it fails, so does what follows */
    while ((move = next_move(lane)) != NULL) {
        if (move->code == TUTTI_OK) {
            lane->work(lane, move);
        }
        move->on_done(move, move->code == TUTTI_OK ? NULL : &move->err);
    }
    return NULL;
}

void
cuda_work_wait(cuda_lane *lane, tutti_move *move)
{
    cuda_slot *slot = tutti_container_of(move->slot, cuda_slot, base);

    (void)lane;
    move->code = cuda_check(cudaEventSynchronize(slot->over), "copying", &move->err);
}

/* The caller holds lane->lock, and has put the copy on the stream under it: so events of the stream
 * are waited for in their order. */
void
cuda_lane_put(cuda_lane *lane, tutti_move *move)
{
    tutti_list_add(&lane->queue, &move->link);
    (void)pthread_cond_signal(&lane->filled);
}

tutti_code
cuda_lane_open(cuda_lane *lane, space_cuda *space, void (*work)(cuda_lane *lane, tutti_move *move),
               tutti_error *err)
{
    int number;

    TUTTI_TRY(cuda_check(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking),
                         "cudaStreamCreateWithFlags", err));
    lane->space = space;
    lane->work = work;
    tutti_list_init(&lane->queue);
    (void)pthread_mutex_init(&lane->lock, NULL); /* neither can fail on Linux */
    (void)pthread_cond_init(&lane->filled, NULL);
    number = pthread_create(&lane->thread, NULL, run_lane, lane);
    if (number != 0) {
        return TUTTI_FAIL_ERRNO(err, number, "could not start a thread for copies");
    }
    lane->started = true;
    return TUTTI_OK;
}

void
cuda_lane_close(cuda_lane *lane)
{
    if (lane->started) {
        (void)pthread_mutex_lock(&lane->lock);
        lane->stopping = true;
        (void)pthread_cond_signal(&lane->filled);
        (void)pthread_mutex_unlock(&lane->lock);
        (void)pthread_join(lane->thread, NULL);
        assert(tutti_list_empty(&lane->queue));
        (void)pthread_cond_destroy(&lane->filled);
        (void)pthread_mutex_destroy(&lane->lock);
    }
    if (lane->stream != NULL) {
        (void)cudaStreamDestroy(lane->stream);
    }
}
