"""Goal: TLS, client certificates and tokens, given as arguments or in the environment; and what is
said when they are missing.

Method: agents that want all three.
"""

import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402

CA, CERT, KEY, TOKEN_FILE = (
    os.environ.get("TUTTI_" + name, "") for name in ("TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN_FILE")
)


@unittest.skipUnless(CA, "no certificates: set TUTTI_TLS_CA and the others")
class Secure(unittest.TestCase):
    def connect(self, **how):
        known = dict(tls_ca=CA, tls_cert=CERT, tls_key=KEY, token_file=TOKEN_FILE, timeout=20)
        return tutti.connect(case.ADDRESSES[0], **dict(known, **how))

    def refused(self, code, words="", **how):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.connect(**how).close()
        self.assertEqual(caught.exception.code.name, code, caught.exception)
        self.assertIn(words, caught.exception.text)

    def test_who_shows_all_comes_in(self):
        with self.connect() as agent, agent.put(np.ones(2)) as tensor:
            self.assertEqual(tensor.numpy().tolist(), [1, 1])

    def test_a_token_can_be_given_as_text(self):
        with open(TOKEN_FILE) as file:
            with self.connect(token=file.read().strip(), token_file="") as agent:
                self.assertEqual(agent.rank, 0)

    def test_a_name_stands_for_the_address(self):
        with self.connect(tls_name="localhost") as agent:
            self.assertEqual(agent.rank, 0)
        words = r"its certificate is for .*localhost.*, not for somebody.else: give one of these as tls_name"
        with self.assertRaisesRegex(tutti.TuttiError, words):
            self.connect(tls_name="somebody.else")

    def test_who_shows_too_little_does_not(self):
        self.refused("UNAUTHENTICATED", token="wrong", token_file="")
        self.refused("UNAUTHENTICATED", token_file="")
        self.refused("UNAVAILABLE", "tls_cert", tls_cert="", tls_key="")
        self.refused("UNAVAILABLE", "tls_ca", tls_ca="", tls_cert="", tls_key="")
        self.refused("INVALID_ARGUMENT", tls_key="")


if __name__ == "__main__":
    tap.main()
