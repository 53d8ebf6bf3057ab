"""Goal: libtutti's lists and objects do what their headers say, against real agents.

Method: tests/client/lists_program.c, which is three ranks; its own words when it fails.
"""

import os
import unittest

import support

PROGRAM = os.path.join(support.BUILD, "tests", "client", "lists_program")


class TestLists(unittest.TestCase):
    def test_lists_and_objects_are_what_their_headers_say(self):
        code, out, err = support.run(
            "tutti", "run", "-n", "3", "--", PROGRAM, timeout=4 * support.START_S
        )
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    support.main()
