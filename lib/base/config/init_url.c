/*
 * The addresses of torch.distributed (env://, tcp://, file://) as the address of a coordinator, a
 * rank and a world size. The form follows PyTorch, so a program that has such an address can pass
 * it on.
 */
#include "base/config/init_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/file.h"
#include "tutti/types.h"

#define FILE_BYTES_MAX 4096
#define URL_BYTES_MAX 2048
#define SHOWN "%.120s"

#define BAD(err, ...) TUTTI_FAIL_FOR((err), TUTTI_INVALID_ARGUMENT, "BAD_URL", __VA_ARGS__)

/* The address in its parts; all point into a copy. */
typedef struct parts {
    const char *url; /* as it was given, for words */
    char *place;     /* between "://" and '?' */
    const char *rank;
    const char *world_size;
} parts;

/* unix:// is an address of ours, and the only one of them that has "://" in it. */
bool
tutti_init_url_is(const char *text)
{
    return strstr(text, "://") != NULL && strncmp(text, "unix:", 5) != 0;
}

const char *
tutti_init_kind_name(tutti_init_kind kind)
{
    return kind == TUTTI_INIT_ENV ? "env" : kind == TUTTI_INIT_TCP ? "tcp" : "file";
}

/* ------------------------------------------------------------------------------ the query */

/*
 * Parameters that are not known here are passed over: the address may be meant for another reader
 * as well.
 */
static tutti_code
take_parameter(parts *self, const char *name, const char *value, tutti_error *err)
{
    const char **place = strcmp(name, "rank") == 0         ? &self->rank
                         : strcmp(name, "world_size") == 0 ? &self->world_size
                                                           : NULL;

    if (place == NULL) {
        return TUTTI_OK;
    }
    if (*place != NULL) {
        return BAD(err, "init address " SHOWN ": %s is given twice", self->url, name);
    }
    *place = value;
    return TUTTI_OK;
}

static tutti_code
split_query(parts *self, char *query, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    char *one;

    while (code == TUTTI_OK && (one = strsep(&query, "&")) != NULL) {
        char *equals = strchr(one, '=');

        if (equals != NULL) {
            *equals = '\0';
            code = take_parameter(self, one, equals + 1, err);
        }
    }
    return code;
}

/* Rank or world size: what the address says, else a variable (NULL = no variable will do). */
static tutti_code
find_number(const parts *self, const char *stated, const char *words, const char *variable,
            tutti_init_lookup_fn lookup, uint32_t *ret_number, tutti_error *err)
{
    uint64_t number = 0;

    if (stated == NULL && variable == NULL) {
        return BAD(err, "init address " SHOWN ": %s parameter missing, write ?rank=R&world_size=N",
                   self->url, words);
    }
    if (stated == NULL) {
        stated = lookup(variable);
        if (stated == NULL || stated[0] == '\0') {
            return BAD(err, "init address " SHOWN ": environment variable %s expected, but not set",
                       self->url, variable);
        }
    }
    if (tutti_parse_uint(stated, TUTTI_RANKS_MAX, &number, NULL) != TUTTI_OK) {
        return BAD(err, "init address " SHOWN ": %s is \"%.40s\", need a number up to %d",
                   self->url, words, stated, TUTTI_RANKS_MAX);
    }
    *ret_number = (uint32_t)number;
    return TUTTI_OK;
}

/*
 * Only env:// takes the numbers from variables. The other two must state them, since a RANK that
 * happens to be set could belong to something else.
 */
static tutti_code
find_numbers(const parts *self, bool from_environment, tutti_init_lookup_fn lookup,
             tutti_init_url *url, tutti_error *err)
{
    TUTTI_TRY(find_number(self, self->rank, "rank", from_environment ? "RANK" : NULL, lookup,
                          &url->rank, err));

    TUTTI_TRY(find_number(self, self->world_size, "world size",
                          from_environment ? "WORLD_SIZE" : NULL, lookup, &url->world_size, err));
    if (url->rank >= url->world_size) {
        TUTTI_TRY(BAD(err,
                      "init address " SHOWN
                      ": rank %u in a world of %u, need a rank below the world size",
                      self->url, (unsigned)url->rank, (unsigned)url->world_size));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the place */

/* The parsed text is stored, so that all forms of one address are equal. */
static tutti_code
take_address(const parts *self, const char *text, tutti_init_url *url, tutti_error *err)
{
    tutti_address address;
    tutti_error inner;

    if (tutti_address_parse(text, &address, &inner) != TUTTI_OK) {
        return BAD(err, "init address " SHOWN ": %.400s", self->url, inner.text);
    }
    if (address.path[0] != '\0' || address.port == 0) {
        return BAD(err, "init address " SHOWN ": need a host and a port from 1 to 65535",
                   self->url);
    }
    (void)memcpy(url->address, address.text, sizeof(url->address));
    return TUTTI_OK;
}

/* A colon inside the brackets of an IPv6 address is not that of the port. */
static tutti_code
take_tcp(const parts *self, tutti_init_url *url, tutti_error *err)
{
    const char *host_end = strrchr(self->place, ']');
    const size_t size = strlen(self->place);

    if (size > 0 && self->place[size - 1] == '/') {
        self->place[size - 1] = '\0';
    }
    if (strchr(host_end != NULL ? host_end : self->place, ':') == NULL) {
        return BAD(err, "init address " SHOWN ": port number missing, write tcp://host:port",
                   self->url);
    }
    return take_address(self, self->place, url, err);
}

/* A bare IPv6 address in MASTER_ADDR is given its brackets. */
static tutti_code
take_env(const parts *self, tutti_init_lookup_fn lookup, tutti_init_url *url, tutti_error *err)
{
    const char *host = lookup("MASTER_ADDR");
    const char *port = lookup("MASTER_PORT");
    char text[TUTTI_ADDRESS_MAX];

    if (self->place[0] != '\0') {
        return BAD(err,
                   "init address " SHOWN ": env:// takes no host and no path, write env://?rank=R",
                   self->url);
    }
    if (host == NULL || host[0] == '\0' || port == NULL || port[0] == '\0') {
        return BAD(err, "init address " SHOWN ": environment variable %s expected, but not set",
                   self->url, host == NULL || host[0] == '\0' ? "MASTER_ADDR" : "MASTER_PORT");
    }
    (void)snprintf(text, sizeof(text),
                   strchr(host, ':') != NULL && host[0] != '[' ? "[%.200s]:%.20s" : "%.200s:%.20s",
                   host, port);
    return take_address(self, text, url, err);
}

static int
hex_digit(char letter)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = letter == '\0' ? NULL : strchr(digits, letter | 0x20);

    return at == NULL ? -1 : (int)(at - digits);
}

/* "%20" is a space. False: it does not fit, or is a NUL. */
static bool
decode_init_url(const char *text, char *ret, size_t size)
{
    size_t used = 0;

    while (*text != '\0' && used + 1 < size) {
        const int high = text[0] == '%' ? hex_digit(text[1]) : -1;
        const int low = high >= 0 ? hex_digit(text[2]) : -1;

        ret[used] = (char)(low >= 0 ? high << 4 | low : text[0]);
        if (ret[used++] == '\0') {
            return false;
        }
        text += low >= 0 ? 3 : 1;
    }
    ret[used] = '\0';
    return *text == '\0';
}

/*
 * The file need not be there yet: whoever starts the coordinator writes it, and
 * tutti_init_url_resolve reads it.
 */
static tutti_code
take_file(const parts *self, tutti_init_url *url, tutti_error *err)
{
    if (self->place[0] != '/' || self->place[1] == '\0') {
        return BAD(err, "init address " SHOWN ": path missing, write file:///path", self->url);
    }
    if (!decode_init_url(self->place, url->path, sizeof(url->path))) {
        return BAD(err, "init address " SHOWN ": path of more than %d bytes, or with a zero in it",
                   self->url, TUTTI_INIT_PATH_MAX - 1);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
find_kind(const char *given, const char *scheme, tutti_init_kind *ret_kind, tutti_error *err)
{
    tutti_init_kind kind;

    for (kind = TUTTI_INIT_ENV; kind <= TUTTI_INIT_FILE; kind++) {
        if (strcmp(scheme, tutti_init_kind_name(kind)) == 0) {
            *ret_kind = kind;
            return TUTTI_OK;
        }
    }
    return BAD(err,
               "init address " SHOWN ": no scheme \"%.40s\", known are env://, tcp://, file://",
               given, scheme);
}

tutti_code
tutti_init_url_parse(const char *given, tutti_init_lookup_fn lookup, tutti_init_url *ret_url,
                     tutti_error *err)
{
    char copy[URL_BYTES_MAX];
    parts self = {.url = given};
    tutti_init_url url = {0};
    char *rest;

    if (snprintf(copy, sizeof(copy), "%s", given) >= (int)sizeof(copy)) {
        return BAD(err, "init address of %zu bytes, at most %d", strlen(given), URL_BYTES_MAX - 1);
    }
    rest = strstr(copy, "://");
    if (rest == NULL) {
        return BAD(err, "init address \"" SHOWN "\": write env://, tcp://host:port or file:///path",
                   given);
    }
    *rest = '\0';
    self.place = rest + 3;
    rest = self.place;
    (void)strsep(&rest, "?");
    TUTTI_TRY(find_kind(given, copy, &url.kind, err));
    TUTTI_TRY(split_query(&self, rest, err));
    TUTTI_TRY(url.kind == TUTTI_INIT_ENV   ? take_env(&self, lookup, &url, err)
              : url.kind == TUTTI_INIT_TCP ? take_tcp(&self, &url, err)
                                           : take_file(&self, &url, err));
    TUTTI_TRY(find_numbers(&self, url.kind == TUTTI_INIT_ENV, lookup, &url, err));
    *ret_url = url;
    return TUTTI_OK;
}

/* The first line of a file's text, which is cut there. */
static tutti_code
take_line(const tutti_init_url *url, char *text, char ret_address[TUTTI_ADDRESS_MAX],
          tutti_error *err)
{
    tutti_address address;
    tutti_error inner;

    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOT_JOINED", "%s holds nothing yet",
                              url->path);
    }
    if (tutti_address_parse(text, &address, &inner) != TUTTI_OK) {
        return BAD(err, "%s should hold the coordinator's address: %.400s", url->path, inner.text);
    }
    (void)memcpy(ret_address, address.text, TUTTI_ADDRESS_MAX);
    return TUTTI_OK;
}

/* An empty file is NOT_FOUND like a missing one: its writer may be in the middle of it. */
tutti_code
tutti_init_url_resolve(const tutti_init_url *url, char ret_address[TUTTI_ADDRESS_MAX],
                       tutti_error *err)
{
    char *text = NULL;
    tutti_code code;

    if (url->path[0] == '\0') {
        (void)memcpy(ret_address, url->address, TUTTI_ADDRESS_MAX);
        return TUTTI_OK;
    }
    code = tutti_file_read(url->path, FILE_BYTES_MAX, &text, NULL, err);
    if (code == TUTTI_OK) {
        code = take_line(url, text, ret_address, err);
        free(text);
    }
    return code;
}
