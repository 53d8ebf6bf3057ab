#include "h2.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_HEAD 9
#define MESSAGE_HEAD 5
#define FRAME_DATA_MAX 16384
#define READ_BYTES (1 << 16)
#define EVENTS_MAX 512
#define CONNS_OF_AN_ADDRESS 20000
#define HEADER_BYTES 512
#define WINDOW 0x3fffffff

enum {
    DATA = 0,
    HEADERS = 1,
    RESET = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    WINDOW_UPDATE = 8
};
enum {
    END_STREAM = 1,
    ACK = 1,
    END_HEADERS = 4
};

typedef struct bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
} bytes;

typedef struct stream {
    uint32_t id; /* 0 = none */
    void *arg;
    bytes message;
} stream;

struct h2_conn {
    h2_net *net;
    int fd;
    const h2_events *events;
    void *arg;
    bool open;
    bool wants_out;
    bool closed;
    uint32_t next_id;
    bytes in;
    bytes out;
    stream streams[H2_STREAMS_MAX];
    h2_conn *next_closed;
};

static void
bytes_add(bytes *self, const void *data, size_t size)
{
    if (self->size + size > self->capacity) {
        self->capacity = 2 * (self->size + size);
        self->data = realloc(self->data, self->capacity);
        if (self->data == NULL) {
            abort();
        }
    }
    if (size > 0) {
        memcpy(self->data + self->size, data, size);
        self->size += size;
    }
}

/* The first `size` are done. An empty one has no memory: there are thousands. */
static void
bytes_drop(bytes *self, size_t size)
{
    self->size -= size;
    if (self->size == 0) {
        free(self->data);
        *self = (bytes){0};
    } else {
        memmove(self->data, self->data + size, self->size);
    }
}

/* ------------------------------------------------------------------------------ sending */

static void
put_number(uint8_t *at, uint32_t number, int size)
{
    while (size-- > 0) {
        at[size] = (uint8_t)number;
        number >>= 8;
    }
}

static uint32_t
get_number(const uint8_t *at, int size)
{
    uint32_t number = 0;

    while (size-- > 0) {
        number = number << 8 | *at++;
    }
    return number;
}

static void
put_frame(h2_conn *conn, int type, int flags, uint32_t id, const void *data, size_t size)
{
    uint8_t head[FRAME_HEAD];

    put_number(head, (uint32_t)size, 3);
    head[3] = (uint8_t)type;
    head[4] = (uint8_t)flags;
    put_number(head + 5, id, 4);
    bytes_add(&conn->out, head, sizeof(head));
    bytes_add(&conn->out, data, size);
}

static void
watch(h2_conn *conn, bool out, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = conn};

    conn->wants_out = out;
    (void)epoll_ctl(conn->net->epoll, operation, conn->fd, &event);
}

void
h2_close(h2_conn *conn)
{
    size_t i;

    if (conn->closed) {
        return;
    }
    conn->closed = true;
    (void)close(conn->fd);
    bytes_drop(&conn->in, conn->in.size);
    bytes_drop(&conn->out, conn->out.size);
    for (i = 0; i < H2_STREAMS_MAX; i++) {
        bytes_drop(&conn->streams[i].message, conn->streams[i].message.size);
    }
    conn->next_closed = conn->net->closed;
    conn->net->closed = conn;
}

static void
fail(h2_conn *conn, const char *why)
{
    const h2_events *events = conn->events;
    void *arg = conn->arg;

    if (!conn->closed) {
        h2_close(conn);
        events->on_close(arg, why);
    }
}

static void
flush_out(h2_conn *conn)
{
    size_t done = 0;
    ssize_t sent = 0;

    while (done < conn->out.size) {
        sent = send(conn->fd, conn->out.data + done, conn->out.size - done, MSG_NOSIGNAL);
        if (sent < 0) {
            break;
        }
        done += (size_t)sent;
    }
    conn->net->sent_bytes += done;
    if (sent < 0 && errno != EAGAIN) {
        fail(conn, strerror(errno));
        return;
    }
    bytes_drop(&conn->out, done);
    if (conn->wants_out != (conn->out.size > 0)) {
        watch(conn, conn->out.size > 0, EPOLL_CTL_MOD);
    }
}

/* A header field that is neither indexed nor compressed; names and values are below 127 bytes. */
static size_t
put_header(uint8_t *at, const char *name, const char *value)
{
    const size_t name_size = strlen(name);
    const size_t value_size = strlen(value);

    at[0] = 0;
    at[1] = (uint8_t)name_size;
    memcpy(at + 2, name, name_size);
    at[2 + name_size] = (uint8_t)value_size;
    memcpy(at + 3 + name_size, value, value_size);
    return 3 + name_size + value_size;
}

static void
put_message(h2_conn *conn, uint32_t id, const uint8_t *data, size_t size, bool end)
{
    uint8_t head[MESSAGE_HEAD] = {0};
    bytes whole = {0};
    size_t at = 0;

    put_number(head + 1, (uint32_t)size, 4);
    bytes_add(&whole, head, sizeof(head));
    bytes_add(&whole, data, size);
    while (at < whole.size) {
        const size_t part = whole.size - at < FRAME_DATA_MAX ? whole.size - at : FRAME_DATA_MAX;
        const bool last = at + part == whole.size;

        put_frame(conn, DATA, end && last ? END_STREAM : 0, id, whole.data + at, part);
        at += part;
    }
    free(whole.data);
}

static stream *
find_stream(h2_conn *conn, uint32_t id)
{
    size_t i;

    for (i = 0; i < H2_STREAMS_MAX; i++) {
        if (conn->streams[i].id == id) {
            return &conn->streams[i];
        }
    }
    return NULL;
}

uint32_t
h2_call(h2_conn *conn, const char *path, const uint8_t *data, size_t size, bool end, void *arg)
{
    uint8_t headers[HEADER_BYTES] = {0x83, 0x86}; /* :method POST, :scheme http */
    stream *one = find_stream(conn, 0);
    size_t at = 2;

    if (one == NULL || conn->closed) {
        return 0;
    }
    one->id = conn->next_id;
    one->arg = arg;
    conn->next_id += 2;
    at += put_header(headers + at, ":path", path);
    at += put_header(headers + at, ":authority", conn->net->authority);
    at += put_header(headers + at, "te", "trailers");
    at += put_header(headers + at, "content-type", "application/grpc");
    put_frame(conn, HEADERS, END_HEADERS, one->id, headers, at);
    put_message(conn, one->id, data, size, end);
    flush_out(conn);
    return conn->next_id - 2;
}

void
h2_send(h2_conn *conn, uint32_t id, const uint8_t *data, size_t size, bool end)
{
    if (!conn->closed) {
        put_message(conn, id, data, size, end);
        flush_out(conn);
    }
}

/* ------------------------------------------------------------------------------ receiving */

static void
take_messages(h2_conn *conn, stream *one)
{
    size_t at = 0;

    while (one->message.size - at >= MESSAGE_HEAD) {
        const uint8_t *head = one->message.data + at;
        const size_t size = get_number(head + 1, 4);

        if (one->message.size - at - MESSAGE_HEAD < size) {
            break;
        }
        at += MESSAGE_HEAD + size;
        conn->events->on_message(one->arg, one->id, head + MESSAGE_HEAD, size);
        if (conn->closed) {
            return;
        }
    }
    bytes_drop(&one->message, at);
}

/* The status in trailers: gRPC compresses neither names nor values. */
static void
read_status(const uint8_t *headers, size_t size, char *ret_text, size_t text_size)
{
    static const char *const names[] = {"grpc-status", "grpc-message"};
    size_t used = 0;
    size_t i;

    ret_text[0] = '\0';
    for (i = 0; i < 2; i++) {
        const uint8_t *at = memmem(headers, size, names[i], strlen(names[i]));
        const uint8_t *value = at == NULL ? NULL : at + strlen(names[i]) + 1;

        if (value != NULL && value <= headers + size && value + value[-1] <= headers + size) {
            used += (size_t)snprintf(ret_text + used, text_size - used, "%s%.*s", i == 0 ? "" : " ",
                                     value[-1] & 0x7f, (const char *)value);
            used = used < text_size ? used : text_size - 1;
        }
    }
}

static void
end_stream(h2_conn *conn, uint32_t id, const char *status)
{
    stream *one = find_stream(conn, id);

    if (one != NULL) {
        one->id = 0;
        bytes_drop(&one->message, one->message.size);
        conn->events->on_end(one->arg, id, status);
    }
}

void
h2_cancel(h2_conn *conn, uint32_t id)
{
    static const uint8_t cancelled[] = {0, 0, 0, 8};
    stream *one = id == 0 ? NULL : find_stream(conn, id);

    if (one != NULL && !conn->closed) {
        one->id = 0;
        bytes_drop(&one->message, one->message.size);
        put_frame(conn, RESET, 0, id, cancelled, sizeof(cancelled));
        flush_out(conn);
    }
}

static void
take_frame(h2_conn *conn, const uint8_t *head, const uint8_t *data, size_t size)
{
    const uint32_t id = get_number(head + 5, 4);
    const int type = head[3];
    const int flags = head[4];
    stream *one = id == 0 ? NULL : find_stream(conn, id);
    char status[256];

    if (type == DATA && one != NULL) {
        bytes_add(&one->message, data, size);
        take_messages(conn, one);
    } else if (type == HEADERS && (flags & END_STREAM) != 0) {
        read_status(data, size, status, sizeof(status));
        end_stream(conn, id, status);
    } else if (type == RESET) {
        end_stream(conn, id, "the stream was reset");
    } else if (type == SETTINGS && (flags & ACK) == 0) {
        put_frame(conn, SETTINGS, ACK, 0, NULL, 0);
    } else if (type == PING && (flags & ACK) == 0) {
        put_frame(conn, PING, ACK, 0, data, size);
    } else if (type == GOAWAY) {
        (void)snprintf(status, sizeof(status), "GOAWAY %.*s", size > 8 ? (int)size - 8 : 0,
                       (const char *)data + 8);
        fail(conn, status);
    }
}

static void
take_frames(h2_conn *conn)
{
    size_t at = 0;

    while (!conn->closed && conn->in.size - at >= FRAME_HEAD) {
        const uint8_t *head = conn->in.data + at;
        const size_t size = get_number(head, 3);

        if (conn->in.size - at - FRAME_HEAD < size) {
            break;
        }
        at += FRAME_HEAD + size;
        take_frame(conn, head, head + FRAME_HEAD, size);
    }
    if (!conn->closed) {
        bytes_drop(&conn->in, at);
        flush_out(conn);
    }
}

static void
read_in(h2_conn *conn)
{
    static uint8_t buffer[READ_BYTES];
    const ssize_t size = recv(conn->fd, buffer, sizeof(buffer), 0);

    if (size > 0) {
        conn->net->received_bytes += (uint64_t)size;
        bytes_add(&conn->in, buffer, (size_t)size);
        take_frames(conn);
    } else if (size == 0 || errno != EAGAIN) {
        fail(conn, size == 0 ? "the coordinator closed the connection" : strerror(errno));
    }
}

/* ------------------------------------------------------------------------------ connections */

bool
h2_net_init(h2_net *net, const char *address)
{
    const char *colon = strrchr(address, ':');
    char host[64];

    *net = (h2_net){.epoll = epoll_create1(EPOLL_CLOEXEC), .server.sin_family = AF_INET};
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host)) {
        return false;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    (void)snprintf(net->authority, sizeof(net->authority), "%s", address);
    net->server.sin_port = htons((uint16_t)atoi(colon + 1));
    return inet_pton(AF_INET, host, &net->server.sin_addr) == 1;
}

/* A loopback address of its own for each 20 000, which have the ports of one address. */
static void
bind_source(int fd, uint32_t number)
{
    const struct sockaddr_in source = {.sin_family = AF_INET,
                                       .sin_addr.s_addr =
                                           htonl(INADDR_LOOPBACK + number / CONNS_OF_AN_ADDRESS)};

    if (number >= CONNS_OF_AN_ADDRESS) {
        (void)bind(fd, (const struct sockaddr *)&source, sizeof(source));
    }
}

h2_conn *
h2_open(h2_net *net, uint32_t number, const h2_events *events, void *arg)
{
    static const uint8_t settings[] = {0, 1, 0, 0, 0, 0,    0,    2,    0,
                                       0, 0, 0, 0, 4, 0x3f, 0xff, 0xff, 0xff};
    h2_conn *conn = calloc(1, sizeof(*conn));
    uint8_t window[4];
    const int on = 1;

    if (conn == NULL) {
        abort();
    }
    *conn = (h2_conn){.net = net, .events = events, .arg = arg, .next_id = 1};
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) {
        free(conn);
        return NULL;
    }
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    bind_source(conn->fd, number);
    (void)connect(conn->fd, (const struct sockaddr *)&net->server, sizeof(net->server));
    bytes_add(&conn->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    put_frame(conn, SETTINGS, 0, 0, settings, sizeof(settings));
    put_number(window, WINDOW - 65535, sizeof(window));
    put_frame(conn, WINDOW_UPDATE, 0, 0, window, sizeof(window));
    watch(conn, true, EPOLL_CTL_ADD);
    return conn;
}

static void
serve(h2_conn *conn, uint32_t ready)
{
    int error = 0;
    socklen_t size = sizeof(error);

    if (!conn->open && (ready & (EPOLLOUT | EPOLLERR)) != 0) {
        (void)getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) {
            fail(conn, strerror(error));
            return;
        }
        conn->open = true;
        conn->events->on_open(conn->arg);
    }
    if (!conn->closed && (ready & EPOLLOUT) != 0) {
        flush_out(conn);
    }
    if (!conn->closed && (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        read_in(conn);
    }
}

void
h2_turn(h2_net *net, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    const int count = epoll_wait(net->epoll, events, EVENTS_MAX, wait_ms);
    int i;

    for (i = 0; i < count; i++) {
        h2_conn *conn = events[i].data.ptr;

        if (!conn->closed) {
            serve(conn, events[i].events);
        }
    }
    while (net->closed != NULL) {
        h2_conn *conn = net->closed;

        net->closed = conn->next_closed;
        free(conn);
    }
}
