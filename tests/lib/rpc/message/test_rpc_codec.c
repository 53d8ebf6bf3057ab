/*
 * Goal: rpc_encode and rpc_decode do what protobuf-c does, or leave it to that.
 * Method: random structs of a type that has each kind of field, and of the requests of a service, made by their
 * descriptors. Their bytes, and those bytes damaged, are given to both.
 */
#include "support/testing.h"

#include <protobuf-c/protobuf-c.h>

#include "echo_pb.h"
#include "rpc/message/check.h"
#include "rpc/message/decode.h"
#include "rpc/message/encode.h"
#include "rpc/message/wire_type.h"

#define ROUNDS 4000
#define ROOM (64u << 10)
#define DEPTH_MAX 3

/* ------------------------------------------------------------------------------ random structs */

static uint64_t seed;

static uint64_t
draw_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Of any number of bits, so that short and long varints come. */
static uint64_t
draw_number(void)
{
    const unsigned bits = (unsigned)(draw_bits() % 65);
    const uint64_t number = bits == 0 ? 0 : draw_bits() >> (64 - bits);

    return draw_bits() % 4 == 0 ? 0 - number : number;
}

/* All memory of a test, taken in turn; structs of the tests are never freed one by one. */
typedef struct pool {
    max_align_t bytes[ROOM];
    size_t used;
} pool;

static pool *memory;

static void *
take_pool(size_t size)
{
    void *taken = &memory->bytes[memory->used];

    memory->used += (size + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    assert_true(memory->used <= ROOM);
    memset(taken, 0, size);
    return taken;
}

static ProtobufCMessage *draw_message(const ProtobufCMessageDescriptor *type, unsigned depth);

static void
draw_text(void *to, bool ascii)
{
    static const char *const letters[] = {
        "a", "Z", "0", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    size_t count = draw_bits() % 20;
    char *text = take_pool(4 * count + 1);

    *(char **)to = text;
    while (count-- > 0) {
        strcat(text, letters[draw_bits() % (ascii ? 3 : COUNT_OF(letters))]);
    }
}

static void
draw_bytes(ProtobufCBinaryData *to)
{
    size_t i;

    to->len = draw_bits() % 12;
    to->data = take_pool(to->len);
    for (i = 0; i < to->len; i++) {
        to->data[i] = (uint8_t)draw_bits();
    }
}

static void
draw_value(const ProtobufCFieldDescriptor *field, void *to, unsigned depth)
{
    const uint64_t number = draw_number();
    const ProtobufCEnumDescriptor *names = field->descriptor;

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        draw_text(to, draw_bits() % 2 == 0);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        draw_bytes(to);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)to = draw_message(field->descriptor, depth + 1);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        *(int *)to = names->values[draw_bits() % names->n_values].value;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)to = number & 1;
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)to = draw_bits() % 4 == 0 ? -0.0f : (float)(int64_t)number;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)to = draw_bits() % 4 == 0 ? -0.0 : (double)(int64_t)number;
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
        *(uint32_t *)to = (uint32_t)number;
        break;
    default:
        *(uint64_t *)to = number;
    }
}

static void
draw_field(const ProtobufCFieldDescriptor *field, unsigned char *message, unsigned depth)
{
    void *to = message + field->offset;
    void *quantifier = message + field->quantifier_offset;
    size_t i;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        const size_t count = draw_bits() % 4;

        *(size_t *)quantifier = count;
        *(void **)to = count == 0 ? NULL : take_pool(count * rpc_value_bytes(field->type));
        for (i = 0; i < count; i++) {
            draw_value(field, *(unsigned char **)to + i * rpc_value_bytes(field->type), depth);
        }
        return;
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        if (*(uint32_t *)quantifier != 0) {
            return;
        }
        *(uint32_t *)quantifier = field->id;
    } else if (field->quantifier_offset != 0) {
        *(protobuf_c_boolean *)quantifier = 1;
    }
    draw_value(field, to, depth);
}

static ProtobufCMessage *
draw_message(const ProtobufCMessageDescriptor *type, unsigned depth)
{
    ProtobufCMessage *message = take_pool(type->sizeof_message);
    unsigned i;

    protobuf_c_message_init(type, message);
    for (i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];

        if (draw_bits() % 4 == 0 && (field->type != PROTOBUF_C_TYPE_MESSAGE || depth < DEPTH_MAX)) {
            draw_field(field, (unsigned char *)message, depth);
        }
    }
    return message;
}

/* ------------------------------------------------------------------------------ both */

static unsigned char *room; /* ROOM bytes */
static unsigned char *packed;

static size_t
pack_plainly(const ProtobufCMessage *message, unsigned char *to)
{
    assert_true(protobuf_c_message_get_packed_size(message) <= ROOM);
    return protobuf_c_message_pack(message, to);
}

/* What was decoded is packed again, as what protobuf-c has unpacked. False: it was left to protobuf-c. */
static bool
compare_decoded(const ProtobufCMessageDescriptor *type, tutti_bytes wire, bool strict)
{
    static max_align_t first[64];
    unsigned char *again = room;
    unsigned char *wanted = room + ROOM / 2;
    ProtobufCMessage *found;
    ProtobufCMessage *plain;
    rpc_arena arena;
    size_t size;

    rpc_arena_init(&arena, wire.size, first, sizeof(first));
    found = rpc_decode(type, wire, strict, &arena);
    if (found != NULL) {
        assert_int_equal(rpc_check(type, wire, strict, NULL), TUTTI_OK);
        plain = protobuf_c_message_unpack(type, NULL, wire.size, wire.data);
        assert_non_null(plain);
        size = pack_plainly(plain, wanted);
        assert_true(size < ROOM / 2);
        assert_int_equal(pack_plainly(found, again), size);
        assert_memory_equal(again, wanted, size);
        protobuf_c_message_free_unpacked(plain, NULL);
    }
    rpc_arena_fini(&arena);
    return found != NULL;
}

static const ProtobufCMessageDescriptor *
type_of_round(int round)
{
    return round % 2 == 0 ? echo_kinds_type() : echo_request_type();
}

static void
begin_messages(int round)
{
    seed = 88172645463325252u + (uint64_t)round * 0x9e3779b97f4a7c15u;
    memory->used = 0;
}

static void
test_encode__writes_what_protobuf_c_writes(void **state)
{
    int round;

    (void)state;
    for (round = 0; round < ROUNDS; round++) {
        const ProtobufCMessage *message;
        const unsigned char *found;
        size_t size;

        begin_messages(round);
        message = draw_message(type_of_round(round), 0);
        size = pack_plainly(message, packed);
        found = rpc_encode(message, room, ROOM);
        assert_non_null(found);
        assert_int_equal(room + ROOM - found, size);
        assert_memory_equal(found, packed, size);
    }
}

static void
test_encode__says_when_the_room_is_too_small(void **state)
{
    int round;

    (void)state;
    for (round = 0; round < ROUNDS / 4; round++) {
        const ProtobufCMessage *message;
        size_t size;

        begin_messages(round);
        message = draw_message(type_of_round(round), 0);
        size = pack_plainly(message, packed);
        memset(room, 0x5a, size + 1);
        assert_ptr_equal(rpc_encode(message, room + 1, size), room + 1);
        if (size > 0) {
            assert_null(rpc_encode(message, room + 1, draw_bits() % size));
        }
        assert_int_equal(room[0], 0x5a);
    }
}

static void
test_decode__makes_what_protobuf_c_makes(void **state)
{
    int round;

    (void)state;
    for (round = 0; round < ROUNDS; round++) {
        const ProtobufCMessageDescriptor *type = type_of_round(round);
        bool whole;

        begin_messages(round);
        whole = compare_decoded(
            type, (tutti_bytes){packed, pack_plainly(draw_message(type, 0), packed)}, true);
        assert_true(whole ||
                    type == echo_kinds_type()); /* that one has a list that is not packed */
    }
}

/* A byte is changed, taken away, put in; or the end is cut off. */
static size_t
damage(unsigned char *bytes, size_t size)
{
    const size_t at = size == 0 ? 0 : draw_bits() % size;

    switch (size == 0 ? 2 : draw_bits() % 4) {
    case 0:
        bytes[at] ^= (unsigned char)(1u << draw_bits() % 8);
        return size;
    case 1:
        memmove(bytes + at, bytes + at + 1, size - at - 1);
        return size - 1;
    case 2:
        memmove(bytes + at + 1, bytes + at, size - at);
        bytes[at] = (unsigned char)draw_bits();
        return size + 1;
    default:
        return at;
    }
}

static void
test_decode__of_damaged_bytes_is_as_protobuf_c_has_it(void **state)
{
    size_t taken = 0;
    int round;

    (void)state;
    for (round = 0; round < 4 * ROUNDS; round++) {
        const ProtobufCMessageDescriptor *type = type_of_round(round);
        size_t size;
        unsigned hits;

        begin_messages(round);
        size = pack_plainly(draw_message(type, 0), packed);
        for (hits = (unsigned)(draw_bits() % 3); hits < 3; hits++) {
            size = damage(packed, size);
        }
        taken += compare_decoded(type, (tutti_bytes){packed, size}, draw_bits() % 2 == 0);
    }
    assert_true(taken > 0);
}

/* Two messages behind each other are one, in which fields come twice. */
static void
test_decode__of_fields_that_come_twice(void **state)
{
    int round;

    (void)state;
    for (round = 0; round < ROUNDS; round++) {
        const ProtobufCMessageDescriptor *type = type_of_round(round);
        size_t size;

        begin_messages(round);
        size = pack_plainly(draw_message(type, DEPTH_MAX - 1), packed);
        size += pack_plainly(draw_message(type, DEPTH_MAX - 1), packed + size);
        (void)compare_decoded(type, (tutti_bytes){packed, size}, false);
    }
}

static void
assert_left(const char *wire, size_t size, bool strict)
{
    static max_align_t first[64];
    rpc_arena arena;

    rpc_arena_init(&arena, size, first, sizeof(first));
    assert_null(rpc_decode(echo_request_type(), (tutti_bytes){wire, size}, strict, &arena));
    rpc_arena_fini(&arena);
}

static void
test_decode__leaves_what_must_be_refused(void **state)
{
    char deep[2 * (TUTTI_RPC_DEPTH_MAX + 1)];
    size_t i;

    (void)state;
    assert_left("\x0a\x01\x00", 3, true);                 /* NUL in a text */
    assert_left("\x0a\x02\xc0\x80", 4, true);             /* not UTF-8 */
    assert_left("\x20\x63", 2, true);                     /* no such colour */
    assert_left("\x2a\x02\x01\x63", 4, true);             /* none in a list of them */
    assert_left("\x0a\x05text", 6, true);                 /* cut */
    assert_left("\x88\x80\x80\x80\x80\x00\x01", 7, true); /* a tag of six bytes */
    assert_left("\x0a\x80\x80\x80\x80\x80\x00", 7, true); /* a length of six bytes */
    assert_left("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12,
                true);                              /* a number of eleven */
    assert_left("\x0b", 1, true);                   /* a group */
    assert_left("\x00\x00", 2, true);               /* field 0 */
    for (i = 0; i < TUTTI_RPC_DEPTH_MAX + 1; i++) { /* field 6 in field 6, or 2 in 2 below it */
        deep[2 * i] = i == 0 ? 0x32 : 0x12;
        deep[2 * i + 1] = (char)(2 * (TUTTI_RPC_DEPTH_MAX - i));
    }
    assert_left(deep, sizeof(deep), true);
}

static void
test_decode__takes_no_more_than_the_arena_has(void **state)
{
    static max_align_t first[4];
    static unsigned char wire[4096];
    rpc_arena arena;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(wire); i += 2) { /* empty messages in field 7 */
        wire[i] = 0x3a;
        wire[i + 1] = 0;
    }
    rpc_arena_init(&arena, sizeof(wire), first, sizeof(first));
    arena.left = 4096;
    assert_null(rpc_decode(echo_request_type(), (tutti_bytes){wire, sizeof(wire)}, true, &arena));
    assert_true(arena.refused);
    rpc_arena_fini(&arena);
}

static int
begin_tests(void **state)
{
    (void)state;
    memory = malloc(sizeof(*memory));
    room = malloc(ROOM);
    packed = malloc(ROOM);
    return memory == NULL || room == NULL || packed == NULL;
}

static int
end_tests(void **state)
{
    (void)state;
    free(memory);
    free(room);
    free(packed);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode__writes_what_protobuf_c_writes),
        cmocka_unit_test(test_encode__says_when_the_room_is_too_small),
        cmocka_unit_test(test_decode__makes_what_protobuf_c_makes),
        cmocka_unit_test(test_decode__of_damaged_bytes_is_as_protobuf_c_has_it),
        cmocka_unit_test(test_decode__of_fields_that_come_twice),
        cmocka_unit_test(test_decode__leaves_what_must_be_refused),
        cmocka_unit_test(test_decode__takes_no_more_than_the_arena_has),
    };

    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
