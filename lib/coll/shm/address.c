#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/shm/shm_private.h"

/* magic, host size, host id, name of the socket, secret, inner address */
static const unsigned char magic[8] = {'t', 'u', 't', 't', 'i', 's', 'm', '1'};

static unsigned char *
put_shm_address(unsigned char *at, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(at, bytes, size);
    }
    return at + size;
}

tutti_code
tutti_shm_address_make(transport_shm *self, const unsigned char name[SHM_NAME_BYTES],
                       tutti_error *err)
{
    const tutti_bytes inner = self->inner->ops->address(self->inner);
    const size_t host_size = self->on ? strlen(self->host_id) : 0;
    const unsigned char host_bytes = (unsigned char)host_size;
    unsigned char *at;

    assert(host_size < TUTTI_TRANSPORT_SHM_HOST_MAX);
    self->address_size =
        sizeof(magic) + 1 + host_size + SHM_NAME_BYTES + sizeof(self->secret) + inner.size;
    self->address = malloc(self->address_size);
    if (self->address == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for an address");
    }
    at = put_shm_address(self->address, magic, sizeof(magic));
    at = put_shm_address(at, &host_bytes, 1);
    at = put_shm_address(at, self->host_id, host_size);
    at = put_shm_address(at, name, SHM_NAME_BYTES);
    at = put_shm_address(at, self->secret, sizeof(self->secret));
    (void)put_shm_address(at, inner.data, inner.size);
    return TUTTI_OK;
}

bool
tutti_shm_address_read(tutti_bytes bytes, shm_address *ret)
{
    const unsigned char *at = bytes.data;
    const size_t fixed = sizeof(magic) + 1 + SHM_NAME_BYTES + sizeof(ret->secret);

    if (bytes.size < fixed || memcmp(at, magic, sizeof(magic)) != 0 ||
        bytes.size < fixed + at[sizeof(magic)]) {
        return false;
    }
    ret->host_size = at[sizeof(magic)];
    at += sizeof(magic) + 1;
    ret->host_id = (const char *)at;
    ret->name = at + ret->host_size;
    at = ret->name + SHM_NAME_BYTES;
    memcpy(ret->secret, at, sizeof(ret->secret));
    at += sizeof(ret->secret);
    ret->inner.data = at;
    ret->inner.size = bytes.size - fixed - ret->host_size;
    return true;
}
