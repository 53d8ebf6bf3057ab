/*
 * A bearer token in a file, for servers that compare with it and for channels that show it.
 *
 * Any thread calls; `lock` guards the token and what is known of the file. The file is looked at
 * by stat() at most once a second, on the thread of a call, under the lock: a token is rotated by
 * replacing the file, without a signal or a restart. A file that is missing, empty or
 * half-written is logged once for each change and the last good token stays, so a mistake in a
 * rotation does not lock everybody out.
 *
 * Copies of a token are overwritten before their memory is freed (OPENSSL_cleanse, which
 * compilers do not remove).
 */
#include "rpc/loop/token.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/log.h"
#include "rpc/util/stamp.h"

#define LOOK_EVERY_NS TUTTI_NS_PER_S

struct rpc_token {
    const char *path;
    pthread_mutex_t lock; /* guards all below */
    rpc_stamp stamp;
    uint64_t look_ns;                   /* when to look at the file again */
    char text[TUTTI_RPC_TOKEN_MAX + 1]; /* zeros after the token: all bytes are compared */
};

static tutti_code
check_text(const char *path, const char *text, size_t size, tutti_error *err)
{
    size_t i;

    if (size == 0 || size > TUTTI_RPC_TOKEN_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: token of %zu bytes, need 1 to %d", path, size,
                              TUTTI_RPC_TOKEN_MAX);
    }
    for (i = 0; i < size; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                                  "%s: byte %zu of the token is no printable ASCII", path, i);
        }
    }
    return TUTTI_OK;
}

static tutti_code
read_token(rpc_token *self, tutti_error *err)
{
    static const char white[] = " \t\r\n";
    char *data = NULL;
    char *text;
    size_t all = 0;
    size_t size;
    tutti_code code;

    /*
     * Before the file is read: if it changes in between, the next look sees another stamp and
     * reads it again. The stamp is kept when the reading fails, too, so a bad file is logged once
     * and not every second.
     */
    self->stamp = rpc_stamp_take(self->path);
    TUTTI_TRY(tutti_file_read(self->path, 2 * TUTTI_RPC_TOKEN_MAX, &data, &all, err));
    size = all;
    text = data + strspn(data, white);
    while (size > (size_t)(text - data) && strchr(white, data[size - 1]) != NULL) {
        size--;
    }
    size -= (size_t)(text - data);
    code = check_text(self->path, text, size, err);
    if (code == TUTTI_OK) {
        memset(self->text, 0, sizeof(self->text));
        memcpy(self->text, text, size);
    }
    OPENSSL_cleanse(data, all);
    free(data);
    return code;
}

tutti_code
rpc_token_open(const char *path, rpc_token **ret_token, tutti_error *err)
{
    rpc_token *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a token");
    }
    self->path = path;
    (void)pthread_mutex_init(&self->lock, NULL);
    code = read_token(self, err);
    if (code != TUTTI_OK) {
        rpc_token_close(self);
        return code;
    }
    *ret_token = self;
    return TUTTI_OK;
}

void
rpc_token_close(rpc_token *token)
{
    if (token != NULL) {
        (void)pthread_mutex_destroy(&token->lock);
        OPENSSL_cleanse(token->text, sizeof(token->text));
        free(token);
    }
}

static void
check_token(rpc_token *self, uint64_t now_ns)
{
    const rpc_stamp stamp = rpc_stamp_take(self->path);
    tutti_error err;

    self->look_ns = tutti_clock_add(now_ns, LOOK_EVERY_NS);
    if (rpc_stamp_equal(&stamp, &self->stamp)) {
        return;
    }
    if (read_token(self, &err) != TUTTI_OK) {
        TUTTI_LOG("rpc/server", WARN,
                  "could not read the token again, the old one stays in use: %s", err.text);
    } else {
        TUTTI_LOG("rpc/server", INFO, "token read again from %s", self->path);
    }
}

bool
rpc_token_matches(rpc_token *token, const char *presented, uint64_t now_ns)
{
    char copy[sizeof(token->text)] = {0};
    const size_t size = strlen(presented);
    bool same;

    /*
     * All TUTTI_RPC_TOKEN_MAX + 1 bytes are compared by CRYPTO_memcmp, whatever the lengths are,
     * so the time taken says nothing about the token. A longer text has a byte where the token
     * has its last zero, so it never matches.
     */
    memcpy(copy, presented, size < sizeof(copy) ? size : sizeof(copy));
    (void)pthread_mutex_lock(&token->lock);
    if (now_ns >= token->look_ns) {
        check_token(token, now_ns);
    }
    same = CRYPTO_memcmp(copy, token->text, sizeof(copy)) == 0;
    (void)pthread_mutex_unlock(&token->lock);
    return same;
}

bool
rpc_token_renew(rpc_token *token, uint64_t now_ns, char ret_text[TUTTI_RPC_TOKEN_MAX + 1])
{
    bool changed;

    (void)pthread_mutex_lock(&token->lock);
    if (now_ns >= token->look_ns) {
        check_token(token, now_ns);
    }
    changed = strcmp(ret_text, token->text) != 0;
    memcpy(ret_text, token->text, sizeof(token->text));
    (void)pthread_mutex_unlock(&token->lock);
    return changed;
}
