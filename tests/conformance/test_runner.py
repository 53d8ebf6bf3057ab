"""Goal: the runner says what is so: what is right passes, each wrong value or error is found.

Method: small files of cases, run by run_conformance.py as a program; its lines and its exit code.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "system"))
import support  # noqa: E402


def tensor(*data):
    return {"dtype": "int32", "shape": [len(data)], "data": list(data)}


SUM = {
    "id": "sum",
    "kind": "collective",
    "world": 2,
    "group": [1, 0],
    "op": "all_reduce",
    "params": {"reduce_op": "sum"},
    "inputs": {"0": tensor(1, 2), "1": tensor(10, 20)},
    "expect": {"0": tensor(11, 22), "1": tensor(11, 22)},
}
ERROR = {
    "id": "error",
    "kind": "collective",
    "world": 2,
    "group": [0, 1],
    "op": "all_reduce",
    "params": {"reduce_op": "sum"},
    "inputs": {"0": tensor(1), "1": tensor(1, 2)},
    "error": {"code": "INVALID_ARGUMENT", "reason": "SHAPE_MISMATCH", "ranks": "all"},
}
STEPS = {
    "id": "steps",
    "kind": "program",
    "world": 2,
    "group": None,
    "op": "send_recv",
    "params": {},
    "steps": [
        {"rank": 0, "do": "send", "dst": 1, "tensor": tensor(7)},
        {"rank": 1, "do": "recv", "src": 0, "expect": tensor(7)},
        {"rank": 1, "do": "set", "key": "k", "value": "v"},
        {"rank": 0, "do": "get", "key": "k", "expect": "v"},
    ],
}

SESSION = {
    "id": "session",
    "kind": "session",
    "world": 2,
    "group": None,
    "op": "session",
    "params": {"num_workers": 2, "num_groups": 1},
    "steps": [
        {"rank": 0, "do": "debug_set_each", "values": {"0": tensor(1, 2), "1": tensor(10, 20)}, "as": "x"},
        {"rank": 0, "do": "allreduce", "src": "x", "as": "y"},
        {"rank": 0, "do": "debug_get", "ref": "y", "worker": [0, 1], "expect": tensor(11, 22)},
    ],
}
BAD_SUM = {"rank": 0, "do": "allreduce", "src": "x", "op": "band"}


PAIRS = {
    "id": "pairs",
    "kind": "program",
    "world": 2,
    "group": None,
    "op": "send_recv",
    "params": {},
    "steps": [
        {"rank": 1, "do": "irecv", "src": 0, "tag": 1, "as": "a", "expect": tensor(7)},
        {"rank": 1, "do": "irecv", "src": 0, "tag": 2, "as": "b", "expect": tensor(8)},
        {"rank": 0, "do": "isend", "dst": 1, "tag": 2, "tensor": tensor(8)},
        {"rank": 0, "do": "isend", "dst": 1, "tag": 1, "tensor": tensor(7)},
        {"ranks": [0, 1], "do": "barrier"},
        {"rank": 1, "do": "wait", "works": ["b", "a"], "expect": [tensor(8), tensor(7)]},
    ],
}
BYTES = {
    "id": "bytes",
    "kind": "store",
    "world": 1,
    "group": None,
    "op": "store",
    "params": {},
    "steps": [
        {"rank": 0, "do": "set", "key": "k", "value_hex": "00ff"},
        {"rank": 0, "do": "append", "key": "k", "value_hex": "80"},
        {"rank": 0, "do": "get", "key": "k", "expect_hex": "00ff80"},
    ],
}
META = {
    "id": "meta",
    "kind": "program",
    "world": 2,
    "group": None,
    "op": "send_recv",
    "params": {},
    "steps": [
        {"rank": 1, "do": "recv", "src": 0, "shape": [1],
         "error": {"code": "INVALID_ARGUMENT", "reason": "BAD_META"}},
        {"rank": 0, "do": "send", "dst": 1, "tensor": tensor(7)},
        {"rank": 1, "do": "recv", "src": 0, "dtype": "int32", "shape": [1], "expect": tensor(7)},
    ],
}
ABORT = {
    "id": "abort",
    "kind": "group",
    "world": 2,
    "group": None,
    "op": "abort_group",
    "params": {},
    "steps": [
        {"ranks": [0, 1], "do": "new_group", "group": [0, 1], "as": "g"},
        {"rank": 1, "do": "abort_group", "group": "g", "reason": "enough"},
        {"ranks": [0, 1], "do": "barrier", "group": "g", "says": ["by rank 1", "enough"],
         "error": {"code": "ABORTED", "reason": "GROUP_ABORTED"}},
    ],
}
PART = {"of": "a", "offset": 4, "dtype": "int32", "shape": [1]}
RANGE = {
    "id": "range",
    "kind": "program",
    "world": 1,
    "group": None,
    "op": "all_gather",
    "params": {},
    "steps": [
        {"rank": 0, "do": "put_tensor", "as": "a", "tensor": tensor(1, 2, 3)},
        {"rank": 0, "do": "all_gather", "input_range": PART, "output_range": dict(PART, offset=8)},
        {"rank": 0, "do": "get_tensor", "name": "a", "expect": tensor(1, 2, 2)},
    ],
}


def changed(case, change):
    case = copy.deepcopy(case)
    change(case)
    return case


def run(*cases, options=()):
    """Exit code, lines, and what was said besides."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "run_conformance.py"), "--cases", file.name]
            + list(options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=False,
        )
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


class Runner(unittest.TestCase):
    def check_fails(self, case, *words):
        code, lines, _ = run(case)
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        for word in words:
            self.assertIn(word, lines[0])

    def test_cases_that_hold_pass(self):
        code, lines, said = run(SUM, ERROR, STEPS)
        self.assertEqual((code, lines), (0, ["3 passed, 0 failed, 0 skipped"]), said)

    def test_a_wrong_value_fails_and_both_are_told(self):
        wrong = changed(SUM, lambda case: case["expect"].update({"1": tensor(11, 23)}))
        words = ("FAILED sum", "inline", "rank 1", "int32[2](11 23)", "int32[2](11 22)")
        self.check_fails(wrong, *words)

    def test_a_wrong_shape_or_dtype_fails(self):
        shape = changed(SUM, lambda case: case["expect"]["0"].update(shape=[2, 1]))
        dtype = changed(SUM, lambda case: case["expect"]["0"].update(dtype="uint32"))
        self.check_fails(shape, "int32[2, 1]")
        self.check_fails(dtype, "uint32[2]")

    def test_a_result_where_none_is_due_fails(self):
        self.check_fails(changed(SUM, lambda case: case["expect"].pop("0")), "expected None")

    def test_another_error_or_none_fails(self):
        reason = changed(ERROR, lambda case: case["error"].update(reason="DTYPE_MISMATCH"))
        none = changed(ERROR, lambda case: case["inputs"].update({"0": tensor(1, 2)}))
        self.check_fails(reason, "DTYPE_MISMATCH", "got INVALID_ARGUMENT SHAPE_MISMATCH")
        self.check_fails(none, "expected INVALID_ARGUMENT SHAPE_MISMATCH", "int32[2](2 4)")

    def test_an_error_that_was_not_expected_fails(self):
        case = changed(ERROR, lambda case: case.pop("error"))
        self.check_fails(dict(case, expect={"0": tensor(2), "1": tensor(2)}), "SHAPE_MISMATCH")

    def test_a_wrong_step_fails_with_its_number(self):
        for place, value in ((1, tensor(8)), (3, "w")):
            wrong = changed(STEPS, lambda case: case["steps"][place].update(expect=value))
            self.check_fails(wrong, "step %d" % (place + 1))

    def test_pairs_are_begun_and_waited_for_together(self):
        code, lines, said = run(PAIRS, META)
        self.assertEqual((code, lines), (0, ["2 passed, 0 failed, 0 skipped"]), said)
        for place, change in ((0, {"expect": tensor(9)}), (5, {"expect": [tensor(8), tensor(8)]})):
            wrong = changed(PAIRS, lambda case: case["steps"][place].update(change))
            self.check_fails(wrong, "step %d" % (place + 1))

    def test_words_of_an_error_and_what_a_range_holds_are_compared(self):
        code, lines, said = run(ABORT, RANGE)
        self.assertEqual((code, lines), (0, ["2 passed, 0 failed, 0 skipped"]), said)
        wrong = changed(ABORT, lambda case: case["steps"][2].update(says=["by rank 0"]))
        self.check_fails(wrong, "step 3", "by rank 0")
        wrong = changed(RANGE, lambda case: case["steps"][2].update(expect=tensor(1, 2, 3)))
        self.check_fails(wrong, "step 3", "int32[3](1 2 2)")

    def test_values_of_any_bytes_are_said_in_digits(self):
        code, lines, said = run(BYTES)
        self.assertEqual((code, lines), (0, ["1 passed, 0 failed, 0 skipped"]), said)
        wrong = changed(BYTES, lambda case: case["steps"][2].update(expect_hex="00ff81"))
        self.check_fails(wrong, "step 3", "expected 00ff81, got 00ff80")

    def test_what_nobody_offers_is_skipped_with_its_name(self):
        case = changed(SUM, lambda case: case["params"].update(flavour="sweet"))
        other = dict(STEPS, id="later", kind="poem")
        step = dict(SESSION, id="step", steps=[{"rank": 0, "do": "sing"}])
        code, lines, _ = run(case, other, step)
        self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed, 3 skipped"))
        self.assertIn("skipped 1: this runner does not know the param flavour", lines)
        self.assertIn("skipped 1: this runner does not know the kind poem", lines)
        self.assertIn("skipped 1: this runner does not know the step sing", lines)

    def test_sessions_that_hold_pass_and_others_fail_with_their_leader_and_step(self):
        code, lines, said = run(SESSION)
        self.assertEqual((code, lines), (0, ["1 passed, 0 failed, 0 skipped"]), said)
        wrong = changed(SESSION, lambda case: case["steps"][2].update(expect=tensor(12, 23)))
        self.check_fails(wrong, "leader 0", "step 3 (debug_get)", "int32[2](11 22)")
        untold = changed(SESSION, lambda case: case["steps"].append(BAD_SUM))
        self.check_fails(untold, "leader 0", "BAD_REDUCE_OP")
        told = dict(BAD_SUM, error={"code": "INVALID_ARGUMENT", "reason": "BAD_REDUCE_OP"})
        code, lines, said = run(changed(SESSION, lambda case: case["steps"].append(told)))
        self.assertEqual((code, lines), (0, ["1 passed, 0 failed, 0 skipped"]), said)

    def test_filter_list_and_forms(self):
        _, lines, _ = run(SUM, ERROR, STEPS, options=("--list", "--filter", "s*"))
        self.assertEqual(lines, ["sum", "steps"])
        _, lines, _ = run(SUM, ERROR, options=("--json", "--filter", "err"))
        self.assertEqual([json.loads(line)["result"] for line in lines], ["passed"])
        wrong = changed(SUM, lambda case: case["expect"].update({"1": None}))
        code, lines, _ = run(ERROR, wrong, options=("--tap",))
        self.assertEqual((code, lines[:3]), (1, ["1..2", "ok 1 - error", "not ok 2 - sum"]))


if __name__ == "__main__":
    support.main()
