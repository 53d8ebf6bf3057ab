#!/usr/bin/env python3
"""Goal: whatever is spoilt, every call ends in its time with the right words, and nothing leaks.

Method: real processes and seeded schedules: a fault, an op, and the phase it strikes in (deck.py), on one host
behind relays, at points inside of agents, and on hosts of their own in network namespaces. After each: the calls are
judged, everything is made
to run again, and the invariants are looked at. Several clusters play side by side. See README.md.

usage: run_faults.py [--schedules N] [--seed S] [--minutes M] [--only I] [--fault NAME] [--lane] [--clusters N]
                     [--markdown FILE] [--verbose]
"""

import argparse
import itertools
import os
import queue
import signal
import sys
import time

import deck
import etcd_case
import lane_cluster
import lanes
from descriptors import DescriptorSchedule
from fault_cluster import FaultCluster
from group_schedules import AbortSchedule, ShrinkSchedule
from net_cluster import NetCluster, namespaces
from net_schedules import NetSchedule
from points import AnswerSchedule, PointSchedule, WireCluster
from report import Report
from schedules import Schedule
from session_schedules import SessionCluster, SessionSchedule
from stores import EtcdCluster, RestoreSchedule, StoreSchedule
from trainer_schedules import TrainerSchedule

import support


def keep_descriptors():
    """Those that we were started with are not for our children, whose own are counted."""
    for number in os.listdir("/proc/self/fd"):
        try:
            os.set_inheritable(int(number), int(number) <= 2)
        except OSError:  # the one that listed them
            pass


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--schedules", type=int, default=200, help="so many, of those that are chosen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="stop after that; 0 = when all have run")
    parser.add_argument("--only", type=int, help="one schedule, by its number")
    parser.add_argument("--fault", action="append", choices=list(deck.FAULTS) + ["sessions"],
                        help="only this one; may be repeated; sessions = all of sessions and functions")
    parser.add_argument("--lane", action="store_true",
                        help="the callers of ops are clients of libtutti with lanes; faults of one host alone")
    parser.add_argument("--clusters", type=int, default=3, help="of each kind, that play side by side")
    parser.add_argument("--markdown", help="write the tables there")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def chosen(options):
    """The cards that shall be played."""
    faults = set(options.fault or deck.FAULTS)
    faults |= set(deck.SESSIONS) if "sessions" in faults else set()
    faults &= set(deck.LOCAL) | set(deck.WIRE) if options.lane else faults  # the others have callers elsewhere
    if options.only is not None:
        return itertools.islice(deck.draw(options.seed), options.only, options.only + 1)
    return itertools.islice((card for card in deck.draw(options.seed) if card[1] in faults), options.schedules)


def deal(options, why_no_hosts):
    """The cards for each kind of cluster; how many of those for several hosts are left out."""
    kinds = (deck.LOCAL, deck.WIRE, deck.ETCD, deck.SESSIONS, deck.NET)
    queues, skipped = [queue.Queue() for _ in kinds], 0
    for card in chosen(options):
        if card[1] in deck.NET and why_no_hosts is not None:
            skipped += 1
        elif card[1] in deck.ETCD and not etcd_case.is_there():
            print("# schedule %d is left out: no etcd" % card[0])
        else:
            queues[[card[1] in kind for kind in kinds].index(True)].put(card)
    return queues + [skipped]


def local_schedule(seed, number, fault, phase, op):
    kind = {"truncated-store": StoreSchedule, "abort": AbortSchedule, "shrink": ShrinkSchedule, "trainer": TrainerSchedule,
            "descriptors": DescriptorSchedule, "coordinator-descriptors": DescriptorSchedule}.get(fault, Schedule)
    kind = PointSchedule if fault.endswith("-at") else AnswerSchedule if fault == "kill-answer" else kind
    return kind(seed, number, fault, phase, op)


def main():
    options = parse()
    keep_descriptors()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # CTest's patience has an end
    if options.lane:
        why_no_lanes = lane_cluster.prepare()
        if why_no_lanes is not None:
            support.skip_all(why_no_lanes)
    why_no_hosts = namespaces.why_not()
    local, wire, restored, driven, net, skipped = deal(options, why_no_hosts)
    report = Report(options.verbose)
    began = time.monotonic()
    on_wire, on_one = WireCluster, FaultCluster
    if options.lane:
        on_wire, on_one = lane_cluster.LaneWireCluster, lane_cluster.LaneCluster
    work = [(lanes.Lane(report, options, PointSchedule, on_wire), wire),
            (lanes.Lane(report, options, RestoreSchedule, EtcdCluster), restored)]
    for _ in range(options.clusters):
        work.append((lanes.Lane(report, options, local_schedule, on_one), local))
        work.append((lanes.Lane(report, options, NetSchedule, NetCluster), net))
        work.append((lanes.Lane(report, options, SessionSchedule, SessionCluster), driven))
    try:
        lanes.play(work, options.minutes)
    finally:
        for lane, _ in work:
            lane.kill()
    seconds = time.monotonic() - began
    report.print_tables()
    if options.markdown:
        left_out = "" if not skipped else "%d schedules between hosts were left out: %s." % (skipped, why_no_hosts)
        report.write_markdown(options.markdown, options.seed, seconds, left_out)
    sys.exit(say(options, report, seconds, why_no_hosts))


def say(options, report, seconds, why_no_hosts):
    between = sum(report.sum(fault) for fault in deck.NET)
    print("%s 1 - faults: %d schedules of seed %d, %d broken, %.0f s" % (
        "not ok" if report.broken else "ok", report.count, options.seed, len(report.broken), seconds))
    print("%s 2 - faults: everybody exits well" % ("not ok" if report.lanes else "ok"))
    if options.lane:
        wrong = lane_cluster.wrong()
        print("# " + lane_cluster.told())
        print("%s 3 - faults: ops went through lanes%s" % ("ok" if wrong is None else "not ok", wrong or ""))
        print("1..3")
        return 1 if report.broken or report.lanes or wrong else 0
    if why_no_hosts is not None:
        print("ok 3 - faults: between hosts # SKIP " + why_no_hosts)
    else:
        print("%s 3 - faults: %d of them between hosts" % ("not ok" if report.broken else "ok", between))
    print("1..3")
    return 1 if report.broken or report.lanes else 0


if __name__ == "__main__":
    main()
