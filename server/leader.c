/*
 * The election has a thread, since tutti_etcd_lead and the load block. What it has loaded goes to the
 * loop's thread by a task, which begins the core.
 */
#include "server/leader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "base/os/thread.h"

#define EXIT_LOST 1
#define AT(member) offsetof(server_leader_options, member)
#define MS ((uint64_t)1000000)

static const tutti_option table[] = {
    {"advertise", TUTTI_OPTION_ADDRESS, AT(advertise), "", 0, 0, NULL,
     "with --store etcd: where clients find this coordinator, told by the others while it leads; "
     "empty "
     "= where it listens"},
    {"leader-lease", TUTTI_OPTION_NS, AT(etcd.lease_ns), "5s", 2000 * MS, 3600 * 1000 * MS, NULL,
     "with --store etcd: how long after the death of a coordinator another one leads, in whole "
     "seconds"},
    {"etcd-user", TUTTI_OPTION_NAME, AT(etcd.user), "", 0, 0, NULL,
     "user of etcd; empty = none, or the name in the client certificate"},
    {"etcd-password-file", TUTTI_OPTION_FILE, AT(etcd.password_file), "", 0, 0, NULL,
     "file with the password of --etcd-user in its first line"},
    {"etcd-ca", TUTTI_OPTION_FILE, AT(etcd.tls_ca), "", 0, 0, NULL,
     "PEM file of the authority that signs the certificates of etcd; empty = plaintext"},
    {"etcd-cert", TUTTI_OPTION_FILE, AT(etcd.tls_cert), "", 0, 0, NULL,
     "PEM file of the certificate to show etcd"},
    {"etcd-key", TUTTI_OPTION_FILE, AT(etcd.tls_key), "", 0, 0, NULL,
     "PEM file of the key of --etcd-cert"},
    {"etcd-name", TUTTI_OPTION_NAME, AT(etcd.tls_name), "", 0, 0, NULL,
     "name in the certificates of etcd, when it is not the one in its address"},
};

struct server_leader {
    server_leader_parts parts;
    tutti_etcd *etcd;
    tutti_store *store; /* once it is loaded */
    pthread_t thread;
    bool started;
    atomic_bool leads; /* elected */
    atomic_bool stopping;
    pthread_mutex_t
        beginning; /* held while the core begins, so that a stop comes before or behind */
    tutti_rpc_task begin;
};

tutti_option_set
server_leader_option_set(server_leader_options *target)
{
    return (tutti_option_set){"etcd", table, sizeof(table) / sizeof(table[0]), target};
}

/* The rest of what this process could say is not true any more, or cannot be known to be. */
static void
end_process(const char *what, const tutti_error *why)
{
    TUTTI_LOG("coordinator", ERROR, "%s, so this process ends; another one leads, or will: %s%s%s",
              what, why->reason, why->reason[0] == '\0' ? "" : ": ", why->text);
    _exit(EXIT_LOST);
}

static void
on_lost(void *arg, const tutti_error *why)
{
    const server_leader *self = arg;

    if (!atomic_load(&self->stopping)) {
        end_process("this coordinator leads no more", why);
    }
}

static void
on_follow(void *arg, const char *address)
{
    const server_leader *self = arg;

    TUTTI_LOG("coordinator", INFO, "%s leads, this coordinator stands by", address);
    tutti_service_loop_follow(self->parts.service_loop, address);
}

static void
on_trouble(void *arg, const tutti_error *why)
{
    (void)arg;
    TUTTI_LOG("coordinator", WARN, "no election: %s", why->text);
}

/* Nobody else will say so: the leader that wrote what is missing has ended when it could not reach etcd. */
static void
on_gone_back(void *arg, const tutti_error *why)
{
    (void)arg;
    TUTTI_LOG("coordinator", ERROR, "%s: %s Going on with what is there", why->reason, why->text);
}

static uint64_t
leads_until(void *arg)
{
    return tutti_etcd_leads_until(arg);
}

static const char *
own_address(const server_leader *self)
{
    size_t count = 0;
    const tutti_address *addresses = tutti_rpc_server_addresses(self->parts.server, &count);
    const char *given = self->parts.options->advertise;

    return given[0] != '\0' ? given : count > 0 ? addresses[0].text : "";
}

static void
begin_core(server_leader *self)
{
    tutti_error err = {0};

    tutti_service_loop_follow(self->parts.service_loop, own_address(self));
    if (tutti_service_loop_begin(self->parts.service_loop, self->store, leads_until, self->etcd,
                                 &err) != TUTTI_OK) {
        end_process("what is stored cannot be taken up", &err);
    }
    tutti_service_loop_set_health(self->parts.server, true);
    TUTTI_LOG("coordinator", INFO, "this coordinator leads");
}

/* Loop's thread. The server is there as long as nobody has stopped us. */
static void
on_begin(tutti_rpc_task *task)
{
    server_leader *self = tutti_container_of(task, server_leader, begin);

    (void)pthread_mutex_lock(&self->beginning);
    if (!atomic_load(&self->stopping)) {
        begin_core(self);
    }
    (void)pthread_mutex_unlock(&self->beginning);
}

/* Elected, and loaded: *ret_store. */
static tutti_code
lead_and_load(server_leader *self, tutti_error *err)
{
    const tutti_etcd_events events = {.on_follow = on_follow,
                                      .on_trouble = on_trouble,
                                      .on_gone_back = on_gone_back,
                                      .arg = self};
    const tutti_store_etcd_options options = {
        .etcd = self->etcd,
        .bytes_max = self->parts.coordinating->store_bytes_limit,
        .keys_max = self->parts.coordinating->store_keys_limit};

    TUTTI_TRY(tutti_etcd_lead(self->etcd, own_address(self), &events, err));
    atomic_store(&self->leads, true);
    return tutti_store_etcd_open(&options, &self->store, err);
}

static void *
run_leader(void *arg)
{
    server_leader *self = arg;
    tutti_error err = {0};
    const tutti_code code = lead_and_load(self, &err);

    if (code == TUTTI_OK) {
        tutti_rpc_loop_post(self->parts.loop, &self->begin);
    } else if (!atomic_load(&self->stopping)) {
        end_process("the store in etcd cannot be used", &err);
    }
    return NULL;
}

tutti_code
server_leader_start(const server_leader_parts *parts, server_leader **ret_leader, tutti_error *err)
{
    server_leader *self = calloc(1, sizeof(*self));
    tutti_code code;
    int failed;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a leader");
    }
    self->parts = *parts;
    self->begin.on_run = on_begin;
    (void)pthread_mutex_init(&self->beginning, NULL);
    code = tutti_etcd_open(&parts->options->etcd, &self->etcd, err);
    if (code != TUTTI_OK) {
        (void)pthread_mutex_destroy(&self->beginning);
        free(self);
        return code;
    }
    tutti_etcd_on_lost(self->etcd, on_lost, self);
    failed = tutti_thread_start(&self->thread, run_leader, self);
    self->started = failed == 0;
    if (failed != 0) {
        server_leader_free(self);
        return TUTTI_FAIL_ERRNO(err, failed, "could not start the thread of the election");
    }
    *ret_leader = self;
    return TUTTI_OK;
}

/* One that leads keeps its lease until all that waits is written and answered. */
void
server_leader_stop(server_leader *leader)
{
    if (leader == NULL || !leader->started) {
        return;
    }
    (void)pthread_mutex_lock(&leader->beginning);
    atomic_store(&leader->stopping, true);
    (void)pthread_mutex_unlock(&leader->beginning);
    if (!atomic_load(&leader->leads)) {
        tutti_etcd_stop(leader->etcd);
    }
    (void)pthread_join(leader->thread, NULL);
    leader->started = false;
}

void
server_leader_free(server_leader *leader)
{
    if (leader == NULL) {
        return;
    }
    server_leader_stop(leader);
    tutti_store_close(leader->store);
    tutti_etcd_close(leader->etcd);
    (void)pthread_mutex_destroy(&leader->beginning);
    free(leader);
}
