"""What an installation promises outside of the tree: a program in C and one in Python, and what `./run install` says they need."""

import re

C_PROGRAM = r"""
#include <stdio.h>
#include <tutti/tutti.h>

int
main(void)
{
    tutti_client *client;
    tutti_error err;
    tutti_op op;
    double x = 1;

    tutti_op_init(&op);
    if (tutti_connect(NULL, &client, &err) != TUTTI_OK ||
        tutti_all_reduce_data(client, &op, &(tutti_spec){TUTTI_DTYPE_FP64, 1, {1}}, &x, &x, &err) != TUTTI_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("sum %g\n", x);
    tutti_close(client);
    return 0;
}
"""

PYTHON_PROGRAM = """
import numpy as np
import tutti

with tutti.connect() as agent:
    print("sum %g" % agent.all_reduce(np.ones(1), op="sum")[0])
"""

BUILD = "cc prog.c -o prog $(pkg-config --cflags --libs tutti)"
RUN_C = "tutti run -n 2 --no-prefix -- ./prog"
RUN_PYTHON = "TUTTI_PYTHON=native tutti run -n 2 --no-prefix -- python3 prog.py"
SUMS = "sum 2\nsum 2\n"


def exports(said):
    """What `./run install` said, as commands of a shell."""
    return "; ".join(re.findall(r"^  (export \w+=\S+)", said, re.M))
