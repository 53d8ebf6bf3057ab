/*
 * Goal: whatever another process sends an engine is refused or understood, and what is understood
 * means the same when it is written again.
 * Method: the input as packet, spec, error, signature, and as words of the agreement of three
 * ranks.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coll/agree/agree.h"
#include "coll/agree/agree_private.h"
#include "coll/infer/signature.h"
#include "coll/packet/packet.h"

#define RANKS 3
#define RUN_BYTES 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void
check_packet(const uint8_t *data, size_t size)
{
    unsigned char bytes[TUTTI_PACKET_BYTES];
    tutti_packet packet = {0};
    tutti_packet back = {0};

    if (tutti_packet_read(data, size, &packet)) {
        tutti_packet_write(&packet, bytes);
        check(tutti_packet_read(bytes, sizeof(bytes), &back));
        check(memcmp(&packet, &back, sizeof(packet)) == 0);
    }
}

static void
check_spec(const uint8_t *data, size_t size)
{
    unsigned char bytes[TUTTI_PACKET_SPEC_BYTES];
    tutti_spec spec;
    const size_t used = tutti_packet_read_spec(data, size, &spec);

    check(used <= size);
    if (used > 0) {
        check(tutti_spec_check(&spec, NULL, NULL, NULL) == TUTTI_OK);
        check(tutti_packet_write_spec(&spec, bytes) == used && memcmp(bytes, data, used) == 0);
    }
}

static void
check_error(const uint8_t *data, size_t size)
{
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];
    tutti_error err;
    tutti_error back;
    size_t used;

    tutti_packet_read_error(data, size, &err);
    check(err.code != TUTTI_OK);
    used = tutti_packet_write_error(&err, bytes);
    check(used <= sizeof(bytes));
    tutti_packet_read_error(bytes, used, &back);
    check(back.code == err.code && back.scope == err.scope && back.rank == err.rank);
    check(strcmp(back.reason, err.reason) == 0 && strcmp(back.text, err.text) == 0);
}

static void
check_signature(const uint8_t *data, size_t size)
{
    unsigned char bytes[TUTTI_SIGNATURE_BYTES];
    char buffer[1024];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    tutti_coll_args args;
    tutti_coll_args back;

    if (tutti_signature_read(data, size, &args)) {
        tutti_coll_describe(&args, &text);
        check(tutti_signature_read(bytes, tutti_signature_write(&args, bytes), &back));
        check(tutti_signature_compare(&args, &back) == TUTTI_FIELD_NONE);
    }
}

/* How many ranks do the words speak of? */
static uint32_t
count_ranks(tutti_bytes words)
{
    const unsigned char *at = words.data;
    uint32_t count = 0;
    size_t i;

    for (i = 0; i < words.size; i += RUN_BYTES + at[i + 8]) {
        count += (uint32_t)at[i + 4] | (uint32_t)at[i + 5] << 8;
    }
    return count;
}

static void
check_agreement(const uint8_t *data, size_t size)
{
    static const uint32_t ranks[RANKS] = {0, 1, 2};
    const tutti_coll_args own = {.kind = TUTTI_COLL_BARRIER};
    tutti_coll_agree *agree = tutti_agree_new(RANKS, 1, &own);
    tutti_bytes words;
    tutti_coll_args called;
    bool open;
    tutti_error err;

    if (agree == NULL) {
        return;
    }
    (void)tutti_agree_read(agree, data, size, &err);
    check(tutti_agree_write(agree, &words, &err) == TUTTI_OK);
    if (count_ranks(words) == RANKS) {
        (void)tutti_agree_verdict(agree, "fuzz", 1, ranks, &called, &open, &err);
    }
    tutti_agree_free(agree);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    switch (data[0] % 5) { /* one each, so that a corpus grows for one */
    case 0:
        check_packet(data + 1, size - 1);
        break;
    case 1:
        check_spec(data + 1, size - 1);
        break;
    case 2:
        check_error(data + 1, size - 1);
        break;
    case 3:
        check_signature(data + 1, size - 1);
        break;
    default:
        check_agreement(data + 1, size - 1);
    }
    return 0;
}
