#include "support/etcd_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "etcd"

/* In PATH, where execlp() looks. */
bool
etcd_process_exists(void)
{
    const char *at = getenv("PATH");

    while (at != NULL && *at != '\0') {
        const size_t size = strcspn(at, ":");
        char path[4096];

        (void)snprintf(path, sizeof(path), "%.*s/" PROGRAM, (int)size, at);
        if (access(path, X_OK) == 0) {
            return true;
        }
        at += size + (at[size] == ':' ? 1 : 0);
    }
    return false;
}

static void
give_up(const char *what)
{
    perror(what);
    exit(1);
}

/* Bound for a moment, so that it is free now; on a busy machine another program may get it. */
static unsigned short
draw_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        give_up("a port for etcd");
    }
    (void)close(fd);
    return ntohs(address.sin_port);
}

static void
run_etcd(const etcd_process *process, unsigned long quota, pid_t parent)
{
    char clients[64];
    char peers[64];
    char cluster[80];
    char bytes[32];
    const int nowhere = open("/dev/null", O_RDWR);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void)dup2(nowhere, 1);
    (void)dup2(nowhere, 2);
    (void)snprintf(clients, sizeof(clients), "http://127.0.0.1:%u", process->port);
    (void)snprintf(peers, sizeof(peers), "http://127.0.0.1:%u", draw_port());
    (void)snprintf(cluster, sizeof(cluster), "default=%s", peers);
    (void)snprintf(bytes, sizeof(bytes), "%lu", quota);
    (void)execlp(PROGRAM, PROGRAM, "--data-dir", process->folder, "--listen-client-urls", clients,
                 "--advertise-client-urls", clients, "--listen-peer-urls", peers,
                 "--initial-advertise-peer-urls", peers, "--initial-cluster", cluster,
                 "--quota-backend-bytes", bytes, (char *)NULL);
    _exit(1);
}

static bool
listens(unsigned short port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool done = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;

    (void)close(fd);
    return done;
}

static void
spawn_etcd(etcd_process *process, unsigned long quota)
{
    const pid_t parent = getpid();

    process->port = draw_port();
    process->pid = fork();
    if (process->pid < 0) {
        give_up("fork");
    }
    if (process->pid == 0) {
        run_etcd(process, quota, parent);
    }
}

/* One that finds a port taken ends, and begins again with others. */
void
etcd_process_start(etcd_process *process, unsigned long quota)
{
    int starts = 1;

    (void)snprintf(process->folder, sizeof(process->folder), "/tmp/tutti-etcd-XXXXXX");
    if (mkdtemp(process->folder) == NULL) {
        give_up(process->folder);
    }
    spawn_etcd(process, quota);
    while (!listens(process->port)) {
        if (waitpid(process->pid, NULL, WNOHANG) == process->pid) {
            if (starts++ == 5) {
                give_up("etcd does not start");
            }
            spawn_etcd(process, quota);
        }
        (void)usleep(10000);
    }
}

static void
remove_folder(const char *folder)
{
    const pid_t pid = fork();

    if (pid == 0) {
        (void)execl("/bin/rm", "rm", "-rf", folder, (char *)NULL);
        _exit(1);
    }
    (void)waitpid(pid, NULL, 0);
}

void
etcd_process_stop(etcd_process *process)
{
    (void)kill(process->pid, SIGKILL);
    (void)waitpid(process->pid, NULL, 0);
    remove_folder(process->folder);
}
