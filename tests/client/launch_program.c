/*
 * One rank that launches its own agent: `launch_program RANK SIZE [COORDINATOR]`. Says where its
 * coordinator is, sums a one over all ranks, says the sum, and stops at the end of its input.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tutti/tutti.h"

static tutti_code
sum_ones(const tutti_launched *launched, float *ret_sum, tutti_error *err)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {1}};
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_op op;
    tutti_code code;

    tutti_client_options_init(&options);
    options.agent = tutti_launched_agent(launched);
    options.coordinator = tutti_launched_coordinator(launched);
    code = tutti_connect_with(&options, &client, err);
    if (code == TUTTI_OK) {
        tutti_op_init(&op);
        *ret_sum = 1;
        code = tutti_all_reduce_data(client, &op, &spec, ret_sum, ret_sum, err);
    }
    tutti_close(client);
    return code;
}

int
main(int argc, char **argv)
{
    tutti_launch_options options;
    tutti_launched *launched = NULL;
    float sum = 0;
    tutti_error err;
    tutti_code code;

    tutti_launch_options_init(&options);
    options.rank = argc > 1 ? atoi(argv[1]) : 0;
    options.world_size = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    options.coordinator = argc > 3 ? argv[3] : NULL;
    code = tutti_launch(&options, &launched, &err);
    if (code == TUTTI_OK) {
        (void)printf("%s\n", tutti_launched_coordinator(launched));
        (void)fflush(stdout);
        code = sum_ones(launched, &sum, &err);
    }
    if (code != TUTTI_OK) {
        (void)printf("%s: %s\n", err.reason, err.text);
        tutti_launched_stop(launched);
        return 1;
    }
    (void)printf("%g\n", (double)sum);
    (void)fflush(stdout);
    while (getchar() != EOF) {
    }
    tutti_launched_stop(launched);
    return 0;
}
