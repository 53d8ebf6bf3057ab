/* A user's program in C: one rank of an all-reduce, then a tensor there and back. */
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>
#include <tutti/version.h>

static int
fail(const tutti_error *err)
{
    (void)fprintf(stderr, "%s\n", err->text);
    return 1;
}

int
main(void)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {4}};
    float x[4] = {1, 2, 3, 4};
    float back[4] = {0};
    tutti_client *client = NULL;
    tutti_handle handle;
    tutti_error err;
    tutti_op op;

    if (strcmp(tutti_version(), TUTTI_VERSION) != 0) {
        (void)fprintf(stderr, "headers %s, library %s\n", TUTTI_VERSION, tutti_version());
        return 1;
    }
    tutti_op_init(&op);
    if (tutti_connect(NULL, &client, &err) != TUTTI_OK ||
        tutti_all_reduce_data(client, &op, &spec, x, x, &err) != TUTTI_OK ||
        tutti_tensor_put(client, &spec, x, NULL, NULL, &handle, &err) != TUTTI_OK ||
        tutti_tensor_read(client, handle.text, back, sizeof(back), NULL, &err) != TUTTI_OK ||
        tutti_tensor_delete(client, handle.text, &err) != TUTTI_OK) {
        return fail(&err);
    }
    (void)printf("c: rank %u of %u: %g %g %g %g\n", tutti_whoami(client)->rank,
                 tutti_whoami(client)->world_size, (double)back[0], (double)back[1],
                 (double)back[2], (double)back[3]);
    tutti_close(client);
    return 0;
}
