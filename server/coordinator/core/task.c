/*
 * Work in slices. A task that has more to do than its budget queues itself again at the end, so
 * tasks take turns and other calls get theirs in between.
 */
#include "server/coordinator/core/core.h"

void
coord_task_init(coord_task *work, size_t (*on_run)(coord_task *work, size_t budget))
{
    tutti_list_init(&work->link);
    work->on_run = on_run;
}

void
coord_defer(tutti_coordinator *self, coord_task *work)
{
    if (tutti_list_empty(&work->link)) {
        tutti_list_add(&self->work, &work->link);
    }
}

void
coord_task_stop(coord_task *work)
{
    tutti_list_remove(&work->link);
}
