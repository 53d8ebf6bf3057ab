/*
 * The peer without RPC: the same bytes over one TCP connection, by blocking reads and writes. What
 * a machine can do at best.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "bench_rpc.h"

enum order_kind {
    ORDER_ECHO,
    ORDER_UPLOAD,
    ORDER_DOWNLOAD,
};

/* What a client says first. */
typedef struct order {
    uint64_t kind;
    uint64_t bytes; /* in all */
    uint64_t chunk_bytes;
} order;

static void
send_all(int descriptor, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        const ssize_t put = send(descriptor, at, size, MSG_NOSIGNAL);

        if (put <= 0) {
            bench_die("send", strerror(errno));
        }
        at += put;
        size -= (size_t)put;
    }
}

/* At least one byte; 0 at the end. */
static size_t
receive_some(int descriptor, void *data, size_t size)
{
    const ssize_t got = recv(descriptor, data, size, 0);

    if (got < 0) {
        bench_die("recv", strerror(errno));
    }
    return (size_t)got;
}

static void
receive_all(int descriptor, void *data, size_t size)
{
    char *at = data;

    while (size > 0) {
        const size_t got = receive_some(descriptor, at, size);

        if (got == 0) {
            bench_die("recv", "the connection was closed");
        }
        at += got;
        size -= got;
    }
}

static void
echo(int descriptor, uint64_t bytes)
{
    char data[BENCH_SMALL_BYTES * BENCH_IN_FLIGHT_MAX];

    while (bytes > 0) {
        const size_t got = receive_some(descriptor, data, sizeof(data));

        send_all(descriptor, data, got);
        bytes -= got;
    }
}

static void
send_chunks(int descriptor, const order *wanted)
{
    uint64_t sent;

    for (sent = 0; sent < wanted->bytes; sent += wanted->chunk_bytes) {
        send_all(descriptor, bench_source, wanted->chunk_bytes);
    }
}

static void
receive_chunks(int descriptor, const order *wanted)
{
    uint64_t got;

    for (got = 0; got < wanted->bytes; got += wanted->chunk_bytes) {
        receive_all(descriptor, bench_sink, wanted->chunk_bytes);
    }
}

static void
serve_orders(int descriptor)
{
    order wanted;

    while (receive_some(descriptor, &wanted, 1) == 1) {
        receive_all(descriptor, (char *)&wanted + 1, sizeof(wanted) - 1);
        if (wanted.kind == ORDER_ECHO) {
            echo(descriptor, wanted.bytes);
        } else if (wanted.kind == ORDER_UPLOAD) {
            receive_chunks(descriptor, &wanted);
            send_all(descriptor, "", 1);
        } else {
            send_chunks(descriptor, &wanted);
        }
    }
}

static void
do_not_delay(int descriptor)
{
    const int one = 1;

    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void
bench_raw_serve(FILE *report, int stop, const char *folder)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int descriptor;

    (void)folder;
    (void)stop; /* it ends with its only connection */
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        bench_die("listen", strerror(errno));
    }
    (void)fprintf(report, "%d\n", (int)ntohs(address.sin_port));
    (void)fclose(report);
    descriptor = accept(listener, NULL, NULL);
    do_not_delay(descriptor);
    serve_orders(descriptor);
    (void)close(descriptor);
    (void)close(listener);
}

/* ------------------------------------------------------------------------------ client */

static int
place(void *self, enum order_kind kind, uint64_t chunk_bytes, uint64_t count)
{
    const order wanted = {.kind = kind, .bytes = chunk_bytes * count, .chunk_bytes = chunk_bytes};
    const int descriptor = *(int *)self;

    send_all(descriptor, &wanted, sizeof(wanted));
    return descriptor;
}

static void
raw_call(void *self, size_t count, uint64_t *ret_ns)
{
    const int descriptor = place(self, ORDER_ECHO, BENCH_SMALL_BYTES, count);
    size_t i;

    for (i = 0; i < count; i++) {
        const uint64_t before = tutti_clock_ns();

        send_all(descriptor, bench_source, BENCH_SMALL_BYTES);
        receive_all(descriptor, bench_sink, BENCH_SMALL_BYTES);
        ret_ns[i] = tutti_clock_ns() - before;
    }
}

static void
raw_burst(void *self, size_t count, size_t in_flight)
{
    const int descriptor = place(self, ORDER_ECHO, BENCH_SMALL_BYTES, count);
    const uint64_t bytes = (uint64_t)count * BENCH_SMALL_BYTES;
    uint64_t sent = (in_flight < count ? in_flight : count) * BENCH_SMALL_BYTES;
    uint64_t got = 0;

    send_all(descriptor, bench_source, sent);
    while (got < bytes) {
        const size_t part = receive_some(descriptor, bench_sink, in_flight * BENCH_SMALL_BYTES);
        const uint64_t next = part < bytes - sent ? part : bytes - sent;

        send_all(descriptor, bench_source, next);
        sent += next;
        got += part;
    }
}

static void
raw_upload(void *self, size_t chunk_bytes, size_t count)
{
    const int descriptor = place(self, ORDER_UPLOAD, chunk_bytes, count);
    const order wanted = {.bytes = (uint64_t)chunk_bytes * count, .chunk_bytes = chunk_bytes};
    char done;

    send_chunks(descriptor, &wanted);
    receive_all(descriptor, &done, 1);
}

static void
raw_download(void *self, size_t chunk_bytes, size_t count)
{
    const int descriptor = place(self, ORDER_DOWNLOAD, chunk_bytes, count);
    const order wanted = {.bytes = (uint64_t)chunk_bytes * count, .chunk_bytes = chunk_bytes};

    receive_chunks(descriptor, &wanted);
}

static void
raw_close(void *self)
{
    (void)close(*(int *)self);
    free(self);
}

bench_peer
bench_raw_open(const char *name, const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(address)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int *self = malloc(sizeof(*self));

    if (self == NULL) {
        bench_die(name, "no memory");
    }
    *self = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(*self, (struct sockaddr *)&to, sizeof(to)) != 0) {
        bench_die(name, strerror(errno));
    }
    do_not_delay(*self);
    return (bench_peer){name, raw_call, raw_burst, raw_upload, raw_download, raw_close, self};
}
