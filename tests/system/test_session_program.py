"""Goal: libtutti's sessions do what tutti/session.h says, against real agents.

Method: tests/client/session_program.c, one controller of four workers; its own words when it fails.
"""

import os
import unittest

import support

PROGRAM = os.path.join(support.BUILD, "tests", "client", "session_program")


class TestSessionProgram(unittest.TestCase):
    def test_sessions_are_what_their_header_says(self):
        code, out, err = support.run(
            "tutti", "run", "-n", "4", "--", PROGRAM, timeout=4 * support.START_S
        )
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    support.main()
