#include "kernel.h"

#include <assert.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/data/list.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES (256U << 10)
#define LOCALS_MAX 4096U
#define TAIL_LINES 60
#define LINE_BYTES 200
#define SPAN_NS 1500 /* of a turn, on average the half */
#define LOOK_NS 20

struct sim_task {
    tutti_list_node link;
    ucontext_t context;
    char *stack;
    int process;
    void *(*run)(void *arg);
    void *arg;
    bool (*is_ready)(void *arg);
    void *ready_arg;
    uint64_t until_ns;
    bool in_time; /* what the wait returns */
    bool over;
    bool detached;
    unsigned char locals[LOCALS_MAX]; /* its thread-local variables */
    void *shadow;                     /* ASan's */
};

typedef struct event {
    tutti_list_node link;
    uint64_t at_ns;
    void (*run)(void *arg, uint64_t number);
    void *arg;
    uint64_t number;
} event;

static struct {
    uint64_t random;
    uint64_t now_ns;
    uint64_t hash;
    bool print;
    tutti_list_node tasks;
    size_t task_count;
    tutti_list_node events; /* sorted */
    sim_task *running;
    int outside; /* the process of what runs in no task */
    ucontext_t scheduler;
    void *shadow;
    const void *bottom; /* of the scheduler's stack */
    size_t bottom_size;
    bool frozen[SIM_PROCESSES_MAX];
    uint64_t ahead_ns[SIM_PROCESSES_MAX];
    volatile bool own; /* the compiler knows that calloc does not look at it */
    char tail[TAIL_LINES][LINE_BYTES];
    size_t lines;
    unsigned char *locals; /* of the thread that runs all this */
    size_t locals_size;
    unsigned char first_locals[LOCALS_MAX]; /* those of a new task */
} sim;

/* ------------------------------------------------------------------------------ chance and time */

/* splitmix64 (Steele, Lea, Flood 2014): any seed is a good one. */
static uint64_t
draw_64(void)
{
    uint64_t z = sim.random += 0x9e3779b97f4a7c15ULL;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

uint64_t
sim_draw(uint64_t below)
{
    return below <= 1 ? 0 : draw_64() % below;
}

bool
sim_chance(unsigned one_in)
{
    return one_in > 0 && sim_draw(one_in) == 0;
}

uint64_t
sim_now_ns(void)
{
    return sim.now_ns;
}

uint64_t
sim_look_at_clock(void)
{
    sim.now_ns += LOOK_NS;
    return sim.now_ns;
}

uint64_t
sim_hash(void)
{
    return sim.hash;
}

static void
count_in(uint64_t number)
{
    sim.hash = (sim.hash ^ number) * 0x100000001b3ULL; /* FNV-1a, by words */
}

/* ------------------------------------------------------------------------------ history */

static void
note(const char *format, va_list words)
{
    char *line = sim.tail[sim.lines++ % TAIL_LINES];
    int used = snprintf(line, LINE_BYTES, "%12.6f ms  ", (double)sim.now_ns / 1e6);
    size_t i;

    (void)vsnprintf(line + used, LINE_BYTES - (size_t)used, format, words);
    for (i = 0; line[i] != '\0'; i++) {
        count_in((unsigned char)line[i]);
    }
    if (sim.print) {
        (void)printf("%s\n", line);
    }
}

void
sim_note(const char *format, ...)
{
    va_list words;

    va_start(words, format);
    note(format, words);
    va_end(words);
}

void
sim_fail(const char *format, ...)
{
    size_t i = sim.lines > TAIL_LINES ? sim.lines - TAIL_LINES : 0;
    va_list words;

    for (; i < sim.lines && !sim.print; i++) {
        (void)printf("%s\n", sim.tail[i % TAIL_LINES]);
    }
    va_start(words, format);
    (void)printf("BROKEN at %.6f ms: ", (double)sim.now_ns / 1e6);
    (void)vprintf(format, words);
    (void)printf("\n");
    va_end(words);
    (void)fflush(stdout);
    _exit(1);
}

/* ------------------------------------------------------------------------------ switching */

/* Thread-local variables of the product are those of a task: the block of the program itself,
 * where all rooms are linked, is changed with the stack. */
static int
find_locals(struct dl_phdr_info *info, size_t size, void *arg)
{
    ElfW(Half) i;

    (void)size;
    (void)arg;
    for (i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != NULL) {
            sim.locals = info->dlpi_tls_data;
            sim.locals_size = info->dlpi_phdr[i].p_memsz;
        }
    }
    return 1; /* the first one is the program */
}

static void
start_switch(void **ret_shadow, const void *stack, size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(ret_shadow, stack, size);
#else
    (void)ret_shadow;
    (void)stack;
    (void)size;
#endif
}

static void
finish_switch(void *shadow, const void **ret_bottom, size_t *ret_size)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(shadow, ret_bottom, ret_size);
#else
    (void)shadow;
    (void)ret_bottom;
    (void)ret_size;
#endif
}

static void
leave_task(sim_task *self)
{
    start_switch(self->over ? NULL : &self->shadow, sim.bottom, sim.bottom_size);
    (void)swapcontext(&self->context, &sim.scheduler);
    finish_switch(self->shadow, &sim.bottom, &sim.bottom_size);
}

/* A program may have no such variables. */
static void
copy_locals(unsigned char *to, const unsigned char *from)
{
    if (sim.locals_size > 0) {
        memcpy(to, from, sim.locals_size);
    }
}

static void
resume(sim_task *task)
{
    sim.running = task;
    copy_locals(sim.locals, task->locals);
    start_switch(&sim.shadow, task->stack, STACK_BYTES);
    (void)swapcontext(&sim.scheduler, &task->context);
    finish_switch(sim.shadow, NULL, NULL);
    copy_locals(task->locals, sim.locals);
    sim.running = NULL;
}

static void
begin_task(void)
{
    sim_task *self = sim.running;

    finish_switch(NULL, &sim.bottom, &sim.bottom_size);
    (void)self->run(self->arg);
    self->over = true;
    leave_task(self);
}

/* ------------------------------------------------------------------------------ tasks */

sim_task *
sim_task_new(int process, void *(*run)(void *arg), void *arg)
{
    sim_task *self = sim_new(1, sizeof(*self));

    assert(process < SIM_PROCESSES_MAX);
    self->stack = sim_new(1, STACK_BYTES);
    self->process = process;
    self->run = run;
    self->arg = arg;
    self->until_ns = sim.now_ns;
    memcpy(self->locals, sim.first_locals, sim.locals_size);
    (void)getcontext(&self->context);
    self->context.uc_stack.ss_sp = self->stack;
    self->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&self->context, begin_task, 0);
    tutti_list_add(&sim.tasks, &self->link);
    sim.task_count++;
    return self;
}

static void
free_task(sim_task *task)
{
    tutti_list_remove(&task->link);
    sim.task_count--;
    free(task->stack);
    free(task);
}

static bool
is_over(void *arg)
{
    const sim_task *task = arg;

    return task->over;
}

void
sim_task_join(sim_task *task)
{
    (void)sim_wait(is_over, task, SIM_NEVER);
    free_task(task);
}

void
sim_task_detach(sim_task *task)
{
    task->detached = true;
}

void
sim_enter(int process)
{
    *(sim.running != NULL ? &sim.running->process : &sim.outside) = process;
}

int
sim_process(void)
{
    return sim.running != NULL ? sim.running->process : sim.outside;
}

bool
sim_in_task(void)
{
    return sim.running != NULL;
}

bool
sim_wait(bool (*is_ready)(void *arg), void *arg, uint64_t until_ns)
{
    sim_task *self = sim.running;

    assert(self != NULL);
    self->is_ready = is_ready;
    self->ready_arg = arg;
    self->until_ns = until_ns;
    leave_task(self);
    return self->in_time;
}

void
sim_sleep(uint64_t ns)
{
    (void)sim_wait(NULL, NULL, tutti_clock_add(sim.now_ns, ns));
}

void
sim_yield(void)
{
    sim_sleep(0);
}

void
sim_freeze(int process, bool frozen)
{
    sim.frozen[process] = frozen;
}

bool
sim_frozen(int process)
{
    return process >= 0 && sim.frozen[process];
}

void
sim_skew(int process, uint64_t ahead_ns)
{
    sim.ahead_ns[process] += ahead_ns;
}

uint64_t
sim_clock(int process)
{
    return sim.now_ns + (process >= 0 ? sim.ahead_ns[process] : 0);
}

void *
sim_new(size_t count, size_t size)
{
    void *memory;

    sim.own = true;
    memory = calloc(count, size);
    sim.own = false;
    assert(memory != NULL);
    return memory;
}

bool
sim_is_own(void)
{
    return sim.own;
}

/* ------------------------------------------------------------------------------ events */

void
sim_at(uint64_t at_ns, void (*run)(void *arg, uint64_t number), void *arg, uint64_t number)
{
    event *self = sim_new(1, sizeof(*self));
    tutti_list_node *before = sim.events.before;

    *self = (event){.at_ns = at_ns, .run = run, .arg = arg, .number = number};
    while (before != &sim.events && tutti_container_of(before, event, link)->at_ns > at_ns) {
        before = before->before;
    }
    tutti_list_add(before->next, &self->link);
}

static uint64_t
next_event(void)
{
    return tutti_list_empty(&sim.events) ? SIM_NEVER
                                         : tutti_container_of(sim.events.next, event, link)->at_ns;
}

static void
run_events(void)
{
    while (next_event() <= sim.now_ns) {
        event *self = tutti_container_of(tutti_list_pop(&sim.events), event, link);

        self->run(self->arg, self->number);
        free(self);
    }
}

/* ------------------------------------------------------------------------------ the scheduler */

static bool
can_go_on(sim_task *task)
{
    if (task->over || sim_frozen(task->process)) {
        return false;
    }
    task->in_time = task->is_ready != NULL && task->is_ready(task->ready_arg);
    return task->in_time || task->until_ns <= sim.now_ns;
}

/* From a drawn one on, so that each may be the first. */
static sim_task *
pick_task(void)
{
    size_t skipped = (size_t)sim_draw(sim.task_count);
    tutti_list_node *at = sim.tasks.next;
    size_t i;

    while (skipped-- > 0) {
        at = at->next;
    }
    for (i = 0; i < sim.task_count; i++, at = at->next) {
        if (at == &sim.tasks) {
            at = at->next;
        }
        if (can_go_on(tutti_container_of(at, sim_task, link))) {
            return tutti_container_of(at, sim_task, link);
        }
    }
    return NULL;
}

static uint64_t
next_time(void)
{
    uint64_t next = next_event();
    tutti_list_node *at;

    for (at = sim.tasks.next; at != &sim.tasks; at = at->next) {
        const sim_task *task = tutti_container_of(at, sim_task, link);

        if (!task->over && !sim_frozen(task->process) && task->until_ns < next) {
            next = task->until_ns;
        }
    }
    return next;
}

void
sim_run(sim_task *last)
{
    while (!last->over) {
        sim_task *task;

        run_events();
        task = pick_task();
        if (task != NULL) {
            count_in((uint64_t)task->process << 32 ^ sim.now_ns);
            resume(task);
            if (task->over && task->detached) {
                free_task(task);
            }
            sim.now_ns += 100 + sim_draw(SPAN_NS);
        } else if (next_time() == SIM_NEVER) {
            sim_fail("nobody can go on, and nothing is to come");
        } else if (next_time() > sim.now_ns) {
            sim.now_ns = next_time();
        }
    }
    free_task(last);
}

void
sim_open(uint64_t seed, bool print)
{
    memset(&sim, 0, sizeof(sim));
    sim.random = seed;
    sim.now_ns = TUTTI_NS_PER_S;
    sim.hash = 0xcbf29ce484222325ULL;
    sim.print = print;
    sim.outside = SIM_DRIVER;
    tutti_list_init(&sim.tasks);
    tutti_list_init(&sim.events);
    (void)dl_iterate_phdr(find_locals, NULL);
    assert(sim.locals_size <= LOCALS_MAX);
    copy_locals(sim.first_locals, sim.locals);
}

void
sim_close(void)
{
    tutti_list_node *node;

    while ((node = tutti_list_pop(&sim.events)) != NULL) {
        free(tutti_container_of(node, event, link));
    }
    if (sim.task_count > 0) {
        sim_fail("%zu threads are left", sim.task_count);
    }
    copy_locals(sim.locals, sim.first_locals);
}
