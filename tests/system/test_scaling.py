#!/usr/bin/python3
"""Goal: the model of bench/scaling finds the constants that made its rows, and its page can be written again and again.

Method: rows made from constants, with every algorithm; a page in a folder of our own. That algorithms cost what the
model says is for measurements to show, not for a test.
"""

import json
import os
import sys
import tempfile
import unittest

import support

sys.path.insert(0, os.path.join(support.SOURCE, "bench", "scaling"))

import model  # noqa: E402

TRUE = [200.0, 900.0, 40.0, 8.0, 1.5]  # c, alpha, omega, beta, gamma
NEAR = [150.0, 90.0, 0.1]
CORES = 2


def rows():
    for op, algorithm in model.ALGORITHMS:
        for ranks in (2, 4, 8):
            for size in (8, 8192, 1 << 18, 1 << 22) if op != "barrier" else (0,):
                us = model.predict(model.terms_of_hosts(op, algorithm, ranks, size, CORES), TRUE)
                yield {"place": "hosts", "ranks": ranks, "hosts": ranks, "op": op, "algorithm": algorithm, "bytes": size,
                       "us": us}
    for op in model.SHARED:
        for ranks in (2, 4, 8, 16):
            for size in (8, 1 << 20, 1 << 24):
                us = model.predict(model.terms_of_host(op, ranks, size, CORES), NEAR)
                yield {"place": "host", "ranks": ranks, "hosts": 1, "op": op, "algorithm": "auto", "bytes": size, "us": us}


DOCUMENT = {"date": "2026-01-01", "about": ["a machine"], "cores": CORES, "rate": "1gbit", "delay_ms": 1, "left_out": [],
            "coordinator": [{"ranks": n, "join_cpu_ms": 10 + n, "idle_cpu_us_per_s": 50 * n, "resident_bytes": n << 20}
                            for n in (2, 4)]}


class TestModel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-scaling-")
        self.path = os.path.join(self.folder.name, "rows.json")
        with open(self.path, "w") as file:
            json.dump(dict(DOCUMENT, rows=list(rows())), file)

    def tearDown(self):
        self.folder.cleanup()

    def test_fit__finds_the_constants_that_made_the_rows(self):
        _, places = model.read(self.path)
        for place, wanted in (("hosts", TRUE), ("host", NEAR)):
            for found, true in zip(places[place].constants, wanted):
                self.assertAlmostEqual(found, true, delta=1e-6 * true)
            self.assertLess(places[place].errors()[-1], 1.000001)
        self.assertIsNone(places["far"].constants)  # no rows, nothing said

    def test_terms__of_a_ring_and_of_halving_and_doubling(self):
        rounds, link, reduced, messages = model.ALGORITHMS["all_reduce", "ring"](8, 800)
        self.assertEqual((rounds, link, reduced, messages), (14, 1400, 700, 14))
        rounds, link, reduced, messages = model.ALGORITHMS["all_reduce", "rabenseifner"](6, 400)
        self.assertEqual((rounds, link, reduced, messages), (6, 1000, 700, 5))  # four of six, and folding

    def test_page__is_written_between_its_marks_and_again(self):
        page = os.path.join(self.folder.name, "page.md")
        with open(page, "w") as file:
            file.write("before\n<!-- model.py: begin -->\nold\n<!-- model.py: end -->\nbehind\n")
        model.DOCS, kept = page, model.DOCS
        try:
            model.write_docs(model.report(self.path))
            with open(page) as file:
                first = file.read()
            model.write_docs(model.report(self.path))
            with open(page) as file:
                self.assertEqual(file.read(), first)
        finally:
            model.DOCS = kept
        self.assertTrue(first.startswith("before\n") and first.endswith("behind\n"))
        self.assertNotIn("old", first)
        self.assertIn("4096 hosts", first)
        self.assertIn("| alpha | 900 us |", first)


if __name__ == "__main__":
    support.main()
