/*
 * Init URL: where a job meets, and as which of how many, in one address, as PyTorch's init_method
 * has it. What PyTorch calls the master is our coordinator.
 *
 *     env://                                    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     tcp://host:port?rank=0&world_size=4       the coordinator's address
 *     file:///path?rank=0&world_size=4          a file that holds it: tutti-coordinator --port-file
 *
 * rank and world_size in the address win over the environment. Other parameters are not looked at.
 * Any thread; nothing is allocated but while a file is read.
 */
#ifndef TUTTI_BASE_CONFIG_INIT_URL_H
#define TUTTI_BASE_CONFIG_INIT_URL_H

#include "base/config/address.h"

#define TUTTI_INIT_PATH_MAX 1024 /* bytes of a path, the NUL included */

typedef enum tutti_init_kind {
    TUTTI_INIT_ENV = 1,
    TUTTI_INIT_TCP = 2,
    TUTTI_INIT_FILE = 3,
} tutti_init_kind;

typedef struct tutti_init_url {
    tutti_init_kind kind;
    uint32_t rank;
    uint32_t world_size;
    char address[TUTTI_ADDRESS_MAX]; /* of the coordinator; "" = it is in the file */
    char path[TUTTI_INIT_PATH_MAX];  /* of that file; "" = there is none */
} tutti_init_url;

/* What a variable says; NULL = it is not set. getenv is one. */
typedef char *(*tutti_init_lookup_fn)(const char *name);

/* Is it meant as one? "SCHEME://..."; not "unix:///path", which is an address. */
bool tutti_init_url_is(const char *text);

/* TUTTI_INVALID_ARGUMENT  BAD_URL: the text says what is missing or known */
tutti_code tutti_init_url_parse(const char *url, tutti_init_lookup_fn lookup,
                                tutti_init_url *ret_url, tutti_error *err);

/*
 * The coordinator's address: what the URL says, or the first line of its file.
 *
 * TUTTI_NOT_FOUND         there is no such file, or nothing in it yet: try again
 * TUTTI_INVALID_ARGUMENT  BAD_URL: it holds no address
 * and what the system says about the file
 */
tutti_code tutti_init_url_resolve(const tutti_init_url *url, char ret_address[TUTTI_ADDRESS_MAX],
                                  tutti_error *err);

/* "env", "tcp", "file". */
const char *tutti_init_kind_name(tutti_init_kind kind);

#endif
