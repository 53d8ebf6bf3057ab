/*
 * Who runs where. Left alone, the scheduler puts client and server on one CPU or on two and keeps
 * them there for seconds; a call takes three times as long in one case as in the other, whoever
 * makes it. So the place is part of what is measured.
 */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench_rpc.h"

/* The first CPU this program may use, or the last. */
static int
find_cpu(int last)
{
    static cpu_set_t mine; /* as it was when the program began */
    static int known;
    int found = -1;
    size_t i;

    if (!known) {
        known = sched_getaffinity(0, sizeof(mine), &mine) == 0;
    }
    for (i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &mine) && (last || found < 0)) {
            found = (int)i;
        }
    }
    return found;
}

/* All threads that the process has now; later ones inherit it. */
static void
pin(pid_t process, int cpu)
{
    char path[64];
    cpu_set_t one;
    DIR *folder;
    const struct dirent *entry;

    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (atoi(entry->d_name) > 0) {
            (void)sched_setaffinity(atoi(entry->d_name), sizeof(one), &one);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

void
bench_place(const bench_child *servers, size_t count, int apart)
{
    const int client = find_cpu(0);
    const int server = find_cpu(apart);
    size_t i;

    if (client < 0 || server < 0) {
        return;
    }
    pin(getpid(), client);
    for (i = 0; i < count; i++) {
        pin(servers[i].pid, server);
    }
}
