/*
 * Goal: what people type (addresses, sizes, times, ranks, names) is refused with words or
 * understood, an address that is understood is understood again as it is shown, and there is one
 * way to write a ref. Method: the input as text, to every parser of base.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/address.h"
#include "base/data/ref.h"
#include "base/error/text.h"

#define RANKS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void
check_address(const tutti_address *address)
{
    tutti_address again;
    tutti_error err;

    check(strlen(address->text) < TUTTI_ADDRESS_MAX);
    check((address->host[0] == '\0') != (address->path[0] == '\0'));
    check(tutti_address_parse(address->text, &again, &err) == TUTTI_OK);
    check(strcmp(again.text, address->text) == 0 && again.port == address->port);
    check(strcmp(again.host, address->host) == 0 && strcmp(again.path, address->path) == 0);
    check(tutti_address_is_local(&again) == tutti_address_is_local(address));
}

static void
parse_addresses(const char *text)
{
    tutti_address addresses[TUTTI_ADDRESSES_MAX];
    size_t count = 0;
    size_t i;
    tutti_error err;

    if (tutti_address_parse_list(text, addresses, &count, &err) == TUTTI_OK) {
        check(count >= 1 && count <= TUTTI_ADDRESSES_MAX);
        for (i = 0; i < count; i++) {
            check_address(&addresses[i]);
        }
    } else {
        check(err.code == TUTTI_INVALID_ARGUMENT && err.text[0] != '\0');
    }
}

static void
parse_numbers(const char *text)
{
    uint32_t ranks[RANKS_MAX];
    size_t count = 0;
    uint64_t number = 0;
    bool value;
    tutti_error err;

    (void)tutti_parse_bytes(text, &number, &err);
    (void)tutti_parse_ns(text, &number, &err);
    (void)tutti_parse_bool(text, &value, &err);
    if (tutti_parse_uint(text, 1000, &number, &err) == TUTTI_OK) {
        check(number <= 1000);
    }
    if (tutti_parse_ranks(text, ranks, RANKS_MAX, &count, &err) == TUTTI_OK) {
        check(count <= RANKS_MAX);
    }
}

static void
parse_ref(const char *text)
{
    char again[TUTTI_REF_SIZE];
    tutti_ref ref;

    if (tutti_ref_parse(text, "tensor", &ref)) {
        tutti_ref_format(&ref, "tensor", again, sizeof(again));
        check(strcmp(again, text) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    tutti_error err;

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    parse_addresses(text);
    parse_numbers(text);
    parse_ref(text);
    if (tutti_check_name(text, "job", &err) != TUTTI_OK) {
        check(strlen(err.text) < sizeof(err.text));
    }
    check(tutti_compare_numeric(text, text) == 0);
    free(text);
    return 0;
}
