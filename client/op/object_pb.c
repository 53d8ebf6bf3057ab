/* tutti.v1.Object: bytes that say what they are, as the bytes of a tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"
#include "client/op/object.h"
#include "tutti/v1/object.pb-c.h"

static void
fill_object(const tutti_object *object, Tutti__V1__Object *message)
{
    tutti__v1__object__init(message);
    message->content_type = client_write_text(object->content_type);
    message->payload = client_write_bytes(object->data, object->size);
}

size_t
client_object_size(const tutti_object *object)
{
    Tutti__V1__Object message;

    fill_object(object, &message);
    return tutti__v1__object__get_packed_size(&message);
}

size_t
client_object_write(const tutti_object *object, unsigned char *ret_bytes)
{
    Tutti__V1__Object message;

    fill_object(object, &message);
    return tutti__v1__object__pack(&message, ret_bytes);
}

tutti_code
client_object_read(const unsigned char *bytes, size_t size, tutti_object *ret_object,
                   tutti_error *err)
{
    Tutti__V1__Object *message = tutti__v1__object__unpack(NULL, size, bytes);
    tutti_object object = {.size = 0};
    tutti_code code = TUTTI_OK;

    if (message == NULL || strlen(message->content_type) > TUTTI_CONTENT_TYPE_MAX) {
        code = TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "NOT_AN_OBJECT",
            "%zu bytes came that are not an object: let all ranks call the op for objects", size);
    }
    if (code == TUTTI_OK) {
        client_read_text(message->content_type, object.content_type, sizeof(object.content_type));
        code = client_read_value(message->payload, &object.data, &object.size, err);
    }
    if (code == TUTTI_OK) {
        *ret_object = object;
    }
    if (message != NULL) {
        tutti__v1__object__free_unpacked(message, NULL);
    }
    return code;
}
