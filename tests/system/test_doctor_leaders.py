#!/usr/bin/python3
"""Goal: `tutti doctor` says which of several coordinators leads, which stand by and for whom, which are silent, and
what does not fit together. Method: real coordinators on Debian's etcd, on another prefix of it, and on one that is away.
"""

import os
import signal
import tempfile

import etcd_case
import support
from cli_case import Case, tutti

etcd_case.skip_all_without()


class Leaders(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-doctor-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.etcd = etcd_case.Etcd(folder.name)
        self.addCleanup(self.etcd.close)

    def serve(self, prefix="test", *options, etcd=None, listen="127.0.0.1:0"):
        program = support.Program("tutti-coordinator", "--store", "etcd:%s/%s" % (etcd or self.etcd.endpoints(), prefix),
                                  "--leader-lease", "2s", *options, listen=listen)
        self.addCleanup(program.kill)
        return program

    def lead(self, *words, **more):
        program = self.serve(*words, **more)
        program.wait_for_log("this coordinator leads")
        return program

    def stand_by(self, *words, **more):
        program = self.serve(*words, **more)
        program.wait_for_log("this coordinator stands by")
        return program

    def doctor(self, *addresses, code, words=()):
        """One agent, in a job of its own, that is well."""
        done = tutti("--json", "doctor", *words, TUTTI_COORDINATOR=",".join(addresses))
        self.assertEqual(done.code, code, done)
        return done.json

    def join(self, *addresses):
        agent = support.Program("tutti-agent", "--coordinator", ",".join(addresses), "--world-size", "1",
                                "--memory-limit", "16MiB", "--net-devices", "lo")
        self.addCleanup(agent.kill)
        agent.wait_for_log("joined")
        return agent

    def states(self, document):
        return [(row["address"], row["state"], row.get("leader")) for row in document["coordinators"]]

    def whats(self, document):
        return [(one["severity"], one["what"]) for one in document["findings"] if "coordinator" in one["what"]]

    def test_who_leads_and_who_stands_by_for_whom(self):
        leader = self.lead()
        standby = self.stand_by()
        self.join(leader.address, standby.address)
        found = self.doctor(standby.address, leader.address, code=0)
        self.assertEqual(self.states(found),
                         [(standby.address, "stands by", leader.address), (leader.address, "leads", None)])
        self.assertEqual(self.whats(found), [])
        text = self.well("doctor", TUTTI_COORDINATOR=standby.address + "," + leader.address).text
        self.assertRegex(text, r"(?m)^%s +stands by +%s$" % (standby.address, leader.address))
        self.assertRegex(text, r"(?m)^%s +leads" % leader.address)

        silent = "127.0.0.1:%d" % etcd_case.free_port()
        found = self.doctor(silent, leader.address, standby.address, code=0)  # one more may die
        self.assertEqual(self.states(found)[0][:2], (silent, "silent"))
        ((severity, what),) = self.whats(found)
        self.assertEqual(severity, "warning")
        self.assertIn("coordinator %s does not answer: " % silent, what)

        standby.send(signal.SIGSTOP)
        found = self.doctor(leader.address, standby.address, code=0, words=("--wait", "500ms"))
        standby.send(signal.SIGCONT)
        self.assertEqual(self.states(found)[1][:2], (standby.address, "silent"))

    def test_streams_go_to_the_one_that_leads(self):
        """Whoever of the coordinators is asked first: backups, watches of keys and of ranks, and top, which begins with one."""
        leader = self.lead()
        standby = self.stand_by()
        self.join(leader.address, standby.address)
        for addresses in (standby.address + "," + leader.address, standby.address):
            more = {"TUTTI_COORDINATOR": addresses}
            self.assertGreater(self.json("backup", os.path.join(self.folder, "b"), **more)["keys"], 0)
            self.assertEqual(self.json("top", "--interval", "100ms", **more)["alive"], 1)
            self.assertIn("1 of 1 ranks alive", self.well("watch", "-t", "1s", **more).text)
            self.assertEqual(self.well("store", "watch", "-t", "1s", **more).text, "")

    def test_two_that_lead_are_told_apart_from_one(self):
        leader = self.lead()
        other = self.lead("elsewhere")
        self.join(leader.address)
        found = self.doctor(leader.address, other.address, code=1)
        self.assertEqual(self.whats(found), [("bad", "2 of the 2 coordinators say that they lead")])

    def test_a_leader_that_is_told_by_another_name(self):
        port = etcd_case.free_port()
        leader = self.lead("test", "--advertise", "localhost:%d" % port, listen="127.0.0.1:%d" % port)
        standby = self.stand_by()
        self.join(leader.address, standby.address)
        found = self.doctor(leader.address, standby.address, code=0)
        self.assertEqual(self.whats(found), [("warning", "coordinator %s says that localhost:%d leads, and %s leads"
                                              % (standby.address, port, leader.address))])

    def test_when_nobody_leads_the_coordinators_are_shown_nevertheless(self):
        waiting = self.serve(etcd="127.0.0.1:%d" % etcd_case.free_port())
        waiting.wait_for_log("no election")
        silent = "127.0.0.1:%d" % etcd_case.free_port()
        found = self.doctor(waiting.address, silent, code=1, words=("-t", "1s"))
        self.assertEqual(self.states(found)[0], (waiting.address, "stands by", ""))
        self.assertEqual(self.states(found)[1][:2], (silent, "silent"))
        self.assertIn(("bad", "none of the 2 coordinators says that it leads"), self.whats(found))
        self.assertIn("error", found)
        done = tutti("doctor", "-t", "1s", TUTTI_COORDINATOR=waiting.address + "," + silent)
        self.assertEqual(done.code, 1)
        self.assertIn("none of the 2 coordinators", done.text)
        self.assertIn("etcdctl endpoint health", done.text)


if __name__ == "__main__":
    support.main()
