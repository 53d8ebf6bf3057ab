/*
 * The bytes that travel with a tensor: tracers' names and user_meta. They come from another agent,
 * so tutti_tensor_meta_read checks every length before tutti_tensor_meta_next walks the names.
 */
#include "server/agent/autograd/tensor_meta.h"

#include <assert.h>
#include <string.h>

enum {
    KIND_PLAIN = 0,
    KIND_TRACED = 1,
};

size_t
tutti_tensor_meta_write(const char *const *names, size_t name_count, tutti_bytes user,
                        unsigned char *ret)
{
    size_t at = 0;
    size_t i;

    assert(name_count <= TUTTI_TENSOR_META_NAMES_MAX);
    if (name_count == 0 && user.size == 0) {
        return 0;
    }
    ret[at++] = name_count == 0 ? KIND_PLAIN : KIND_TRACED;
    if (name_count > 0) {
        ret[at++] = (unsigned char)name_count;
    }
    for (i = 0; i < name_count; i++) {
        const size_t length = strlen(names[i]);

        assert(length <= TUTTI_NAME_MAX);
        ret[at++] = (unsigned char)length;
        memcpy(ret + at, names[i], length);
        at += length;
    }
    if (user.size > 0) {
        memcpy(ret + at, user.data, user.size);
    }
    return at + user.size;
}

/*
 * `>=` in the last test: a name's length byte and its bytes must both be inside. user_meta may be
 * empty.
 */
bool
tutti_tensor_meta_read(tutti_bytes bytes, tutti_bytes *ret_names, tutti_bytes *ret_user)
{
    const unsigned char *data = bytes.data;
    size_t at = 1;
    unsigned count;

    *ret_names = (tutti_bytes){NULL, 0};
    *ret_user = (tutti_bytes){NULL, 0};
    if (bytes.size == 0) {
        return true;
    }
    if (data[0] == KIND_TRACED && bytes.size >= 2) {
        at = 2;
        for (count = data[1]; count > 0; count--) {
            if (at >= bytes.size || data[at] > TUTTI_NAME_MAX || data[at] >= bytes.size - at) {
                return false;
            }
            at += 1u + data[at];
        }
        *ret_names = (tutti_bytes){data + 2, at - 2};
    } else if (data[0] != KIND_PLAIN) {
        return false;
    }
    *ret_user = (tutti_bytes){data + at, bytes.size - at};
    return true;
}

bool
tutti_tensor_meta_next(tutti_bytes *names, char ret_name[TUTTI_NAME_MAX + 1])
{
    const unsigned char *data = names->data;

    if (names->size == 0) {
        return false;
    }
    assert(data[0] < names->size && data[0] <= TUTTI_NAME_MAX);
    memcpy(ret_name, data + 1, data[0]);
    ret_name[data[0]] = '\0';
    names->size -= 1u + data[0];
    names->data = data + 1 + data[0];
    return true;
}
