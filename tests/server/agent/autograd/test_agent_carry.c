/*
 * Goal: names of tracers and the caller's bytes come out as they went in, whatever they are;
 * nothing else is taken for them. Method: write and read, then every cut and every changed byte of
 * what was written.
 */
#include "server/agent/autograd/tensor_meta.h"
#include "support/testing.h"

static tutti_bytes
bytes_of(const char *text)
{
    return (tutti_bytes){text, strlen(text)};
}

static void
test_carry__nothing_takes_no_bytes(void **state)
{
    unsigned char wire[TUTTI_TENSOR_META_EXTRA_MAX];
    tutti_bytes names;
    tutti_bytes user;

    (void)state;
    assert_int_equal(tutti_tensor_meta_write(NULL, 0, (tutti_bytes){NULL, 0}, wire), 0);
    assert_true(tutti_tensor_meta_read((tutti_bytes){wire, 0}, &names, &user));
    assert_int_equal(names.size + user.size, 0);
}

static void
test_carry__gives_back_names_and_bytes(void **state)
{
    static const char *const given[] = {"a", "some/tracer-2", "c"};
    unsigned char wire[TUTTI_TENSOR_META_EXTRA_MAX + 16];
    char name[TUTTI_NAME_MAX + 1];
    tutti_bytes names;
    tutti_bytes user;
    size_t count;
    size_t size;
    size_t i;

    (void)state;
    for (count = 0; count <= COUNT_OF(given); count++) {
        size = tutti_tensor_meta_write(given, count, bytes_of("\1\1x"), wire);
        assert_true(tutti_tensor_meta_read((tutti_bytes){wire, size}, &names, &user));
        assert_int_equal(user.size, 3);
        assert_memory_equal(user.data, "\1\1x", 3);
        for (i = 0; i < count; i++) {
            assert_true(tutti_tensor_meta_next(&names, name));
            assert_string_equal(name, given[i]);
        }
        assert_false(tutti_tensor_meta_next(&names, name));
    }
}

/* Whatever comes, what is read lies inside of it. */
static void
check_any(const unsigned char *wire, size_t size)
{
    unsigned char *exact = malloc(size + 1); /* for the address sanitizer */
    char name[TUTTI_NAME_MAX + 1];
    tutti_bytes names;
    tutti_bytes user;

    memcpy(exact, wire, size);
    if (tutti_tensor_meta_read((tutti_bytes){exact, size}, &names, &user)) {
        assert_true(user.size <= size);
        while (tutti_tensor_meta_next(&names, name)) {
            assert_true(strlen(name) <= TUTTI_NAME_MAX);
        }
    } else {
        assert_int_equal(names.size + user.size, 0);
    }
    free(exact);
}

static void
test_carry__survives_whatever_comes(void **state)
{
    static const char *const given[] = {"first", "second"};
    unsigned char wire[TUTTI_TENSOR_META_EXTRA_MAX + 16];
    const size_t size = tutti_tensor_meta_write(given, 2, bytes_of("user"), wire);
    size_t i;
    unsigned value;

    (void)state;
    for (i = 0; i < size; i++) {
        const unsigned char kept = wire[i];

        check_any(wire, i);
        for (value = 0; value < 256; value++) {
            wire[i] = (unsigned char)value;
            check_any(wire, size);
        }
        wire[i] = kept;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carry__nothing_takes_no_bytes),
        cmocka_unit_test(test_carry__gives_back_names_and_bytes),
        cmocka_unit_test(test_carry__survives_whatever_comes),
    };

    return cmocka_run_group_tests_name("agent_carry", tests, NULL, NULL);
}
