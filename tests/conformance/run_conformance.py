#!/usr/bin/env python3
"""Run conformance cases against a real coordinator and real agents, through gRPC from outside.

usage: run_conformance.py [--cases FILE] [--filter PATTERN] [--commands | --python | --lane] [--backend nccl [--stand-in]]
                          [--json | --tap] [--list]

README.md beside this file explains the format. Where the programs are: TUTTI_BUILD (build/dev).
"""

import argparse
import collections
import fnmatch
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ.setdefault("TUTTI_SOURCE", ROOT)
os.environ.setdefault("TUTTI_BUILD", os.path.join(ROOT, "build", "dev"))

import collective_case  # noqa: E402
import gradients  # noqa: E402
import places  # noqa: E402
import program_case  # noqa: E402
import session_case  # noqa: E402
import through_commands  # noqa: E402
import through_package  # noqa: E402
import wire  # noqa: E402
from wire import support  # noqa: E402
import worlds  # noqa: E402
from report import Report  # noqa: E402

SKIPPED = 77  # as CTest knows it
LANE_SHARE = 0.9  # the rest: libtutti refuses some itself, and agents that were killed take their counts along
PROGRAM_KINDS = ("program", "group", "mesh", "store", "shape")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", default=os.path.join(HERE, "cases.json"), help="a file of cases")
    parser.add_argument("--filter", default="", help="a glob, or a part, of the ids to run")
    through = parser.add_mutually_exclusive_group()
    through.add_argument("--commands", dest="through", action="store_const", const=through_commands,
                         help="calls go through streams of commands")
    through.add_argument("--python", dest="through", action="store_const", const=through_package,
                         help="collectives, sends and receives go by the Python package")
    through.add_argument("--lane", action="store_true",
                         help="as --python, and fail if the ops by libtutti did not go through shared memory")
    parser.add_argument("--backend", choices=(places.HOST, places.NCCL), default=places.HOST,
                        help="what moves tensors: nccl = they live on GPUs")
    parser.add_argument("--stand-in", action="store_true",
                        help="... on stand-ins for CUDA and NCCL: without a GPU")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_const", const="json", dest="form", help="a line each")
    form.add_argument("--tap", action="store_const", const="tap", dest="form", help="for CTest")
    parser.add_argument("--list", action="store_true", help="print the ids and run nothing")
    return parser.parse_args()


def chosen(cases, pattern):
    return [
        case
        for case in cases
        if pattern in case["id"] or fnmatch.fnmatchcase(case["id"], pattern)
    ]


def run_case(case, world):
    """Result, detail and the ways that were gone."""
    try:
        if case["kind"] == "collective":
            ways = collective_case.run(case, world)
        elif case["kind"] == "grad":
            ways = gradients.run(case, world)
        elif case["kind"] == "session":
            ways = session_case.run(case, world)
        else:
            ways = program_case.run(case, world)
        world.check_alive()
        return "passed", "", ways
    except wire.Missing as missing:
        return "skipped", str(missing), []
    except wire.Wrong as wrong:
        return "failed", str(wrong), []
    except Exception as error:  # one case must not end the others
        return "failed", "%s: %s" % (type(error).__name__, error), []


def reason_to_skip(case):
    if case["kind"] not in PROGRAM_KINDS + ("collective", "grad", "session"):
        return "this runner does not know the kind %s" % case["kind"]
    return ""


def run_world(size, cases, report, through, place):
    world = worlds.World(size, through, place)
    try:
        for case in cases:
            began = time.monotonic()
            result, detail, ways = run_case(case, world)
            if result == "failed":
                detail += "".join("; " + one.log()[-600:] for one in world.dead())
                world.replace()  # ops of it may still wait
            report.add(case, result, detail, time.monotonic() - began, ways)
    finally:
        world.stop()


def run_all(cases, report, through=None, place=places.Place()):
    by_size = collections.defaultdict(list)
    for case in cases:
        reason = reason_to_skip(case)
        if reason:
            report.add(case, "skipped", reason, 0, [])
        else:
            by_size[case["world"]].append(case)
    for size in sorted(by_size):
        run_world(size, by_size[size], report, through, place)


def missing_lane():
    """With --lane: what is wrong with the way that ops took; "" = nothing."""
    native, messages = through_package.COUNTS["native"], places.LaneCluster.messages
    if native == 0:
        return "no op went by libtutti"
    if messages < LANE_SHARE * native:
        return "%d ops went by libtutti, and only %d messages through a lane" % (native, messages)
    return ""


def need_programs():
    for name in ("tutti-coordinator", "tutti-agent"):
        path = os.path.join(support.PROGRAMS, name)
        if not os.path.exists(path):
            sys.exit("run_conformance: no %s: build it, or set TUTTI_BUILD" % path)


def main():
    arguments = read_arguments()
    with open(arguments.cases) as file:
        cases = chosen(json.load(file), arguments.filter)
    if arguments.list:
        for case in cases:
            print(case["id"])
        return 0
    need_programs()
    place, reason = places.prepare(arguments.backend, arguments.stand_in)
    if arguments.lane:
        arguments.through = through_package
        place.make = places.LaneCluster
        reason = reason or ("" if through_package.has_native() else "the package's native module is not built")
    if reason:
        print("1..0 # SKIP %s" % reason if arguments.form == "tap" else "skipped: %s" % reason)
        return SKIPPED
    report = Report(sys.stdout, arguments.form or "text", len(cases))
    try:
        run_all(cases, report, arguments.through, place)
    except wire.Wrong as wrong:
        print("run_conformance: %s" % wrong, file=sys.stderr)
        report.finish()
        return 1
    if arguments.through is through_package and arguments.form != "json":
        print("# " + through_package.counts())
        if arguments.lane:
            print("# %d messages went through lanes" % places.LaneCluster.messages)
    wrong = missing_lane() if arguments.lane else ""
    if wrong:
        print("run_conformance: " + wrong, file=sys.stderr)
    return 0 if report.finish() and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
