#include "memory.h"

#include "kernel.h"
#include "support/sweep.h"

static uint32_t starved;
static _Thread_local bool is_spared; /* of a task */

static bool
is_starved(void)
{
    return sim_in_task() && sim_process() == (int)starved && !is_spared && !sim_is_own();
}

void
memory_starve(uint32_t process, bool once, uint64_t number)
{
    starved = process;
    sweep_only(is_starved);
    if (once) {
        sweep_fail_once(number);
    } else {
        sweep_fail_at(0);
    }
}

void
memory_feed(void)
{
    (void)sweep_stop();
}

void
memory_spare(bool spared)
{
    is_spared = spared;
}
