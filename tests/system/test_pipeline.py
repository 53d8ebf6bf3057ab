"""Goal: libtutti's pipelines, infer and sync do what their header says, against real agents.

Method: tests/client/pipeline_program.c, which is two ranks; its own words when it fails.
"""

import os
import unittest

import support

PROGRAM = os.path.join(support.BUILD, "tests", "client", "pipeline_program")


class TestPipeline(unittest.TestCase):
    def run_ranks(self, *options):
        code, out, err = support.run(
            "tutti", "run", "-n", "2", *options, PROGRAM, timeout=4 * support.START_S
        )
        self.assertEqual(code, 0, out + err)

    def test_a_pipeline_is_what_its_header_says(self):
        self.run_ranks("--")


if __name__ == "__main__":
    support.main()
