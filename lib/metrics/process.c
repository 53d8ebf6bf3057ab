/* What every process shows: the names are those of Prometheus' own client libraries. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/file.h"
#include "metrics/metrics_private.h"
#include "tutti/version.h"

#define STAT_BYTES_MAX 4096

static void
write_process_gauge(tutti_page *page, const char *name, const char *help, uint64_t value)
{
    tutti_page_family(page, name, "gauge", help);
    tutti_page_number(page, name, "", value);
}

static uint64_t
count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;

    if (folder == NULL) {
        return 0;
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count < 3 ? 0 : count - 3; /* ".", ".." and the folder itself */
}

static uint64_t
resident_bytes(void)
{
    char *text = NULL;
    unsigned long pages = 0;

    if (tutti_file_read("/proc/self/statm", STAT_BYTES_MAX, &text, NULL, NULL) == TUTTI_OK &&
        sscanf(text, "%*u %lu", &pages) != 1) {
        pages = 0;
    }
    free(text);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t
cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/*
 * When the process began, as time since 1970. The kernel only tells how long after the machine's
 * start that was, in ticks, so the machine's start is computed first: now, less how long it has
 * been up.
 */
static uint64_t
start_ns(void)
{
    char *text = NULL;
    const char *rest = NULL;
    unsigned long long ticks = 0;
    struct timespec up;

    if (tutti_file_read("/proc/self/stat", STAT_BYTES_MAX, &text, NULL, NULL) == TUTTI_OK) {
        rest = strrchr(text, ')'); /* the name before it may hold anything */
    }
    if (rest == NULL ||
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
               "%*d %*d %llu",
               &ticks) != 1) {
        ticks = 0;
    }
    free(text);
    (void)clock_gettime(CLOCK_BOOTTIME, &up);
    return tutti_clock_wall_ns() - ((uint64_t)up.tv_sec * TUTTI_NS_PER_S + (uint64_t)up.tv_nsec) +
           ticks * (TUTTI_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t
files_limit(void)
{
    struct rlimit limit = {0};

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return (uint64_t)limit.rlim_cur;
}

void
metrics_add_process(tutti_page *page, const char *program)
{
    const char *const about[] = {"program", program, "version", TUTTI_VERSION, NULL};
    char labels[TUTTI_PAGE_LABELS_MAX];

    tutti_page_labels(labels, about);
    tutti_page_family(page, "tutti_build_info", "gauge", "Which program this is; always 1.");
    tutti_page_number(page, "tutti_build_info", labels, 1);
    tutti_page_family(page, "process_cpu_seconds_total", "counter",
                      "Processor time used, user and system.");
    tutti_page_seconds(page, "process_cpu_seconds_total", "", cpu_ns());
    tutti_page_family(page, "process_start_time_seconds", "gauge",
                      "When the process started, since 1970.");
    tutti_page_seconds(page, "process_start_time_seconds", "", start_ns());
    write_process_gauge(page, "process_resident_memory_bytes", "Memory in use.", resident_bytes());
    write_process_gauge(page, "process_open_fds", "Open file descriptors.", count_files());
    write_process_gauge(page, "process_max_fds", "Limit on open file descriptors.", files_limit());
}
