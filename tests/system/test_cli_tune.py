"""Goal: people see which algorithm an op would take and why, measure what is fast, and agents load what was measured;
wrong words are refused with what would be right.

Method: the command, on agents that are told to be on several hosts.
"""

import json
import os
import tempfile
import unittest

import numpy as np

import support
from cluster_case import Agent, Cluster, all_reduce


class Told(unittest.TestCase):
    size = 4

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(0)
        cls.cluster.size = cls.size
        for rank in range(cls.size):
            cls.cluster.agents.append(
                Agent(cls.cluster, rank, "--host-id", "h%d" % (rank // 2), "--algorithm", "broadcast=chain")
            )
        for agent in cls.cluster.agents:
            agent.wait_joined()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        cls.folder.cleanup()

    def tutti(self, *words, code=0):
        got, out, err = support.run(
            "tutti", "--agent", self.cluster.agents[0].program.address, "--no-progress", *words, timeout=300
        )
        self.assertEqual(got, code, out + err)
        return out + err

    def explain(self, *words):
        return json.loads(self.tutti("explain", *words, "--json"))

    def reduce(self, count=5):
        array = np.arange(count, dtype=np.int32)
        for result in self.cluster.all(lambda agent: all_reduce(agent, array)):
            self.assertEqual(result.tobytes(), (array * self.size).tobytes())

    def test_sizes_end_before_numbers_do(self):
        words = ("--begin", "5", "--end", "9000000000000000000", "--time", "1ms", "-o", "-")
        self.assertIn("more --time", self.tutti("tune", "--ops", "broadcast", *words, code=1))

    def test_explain_says_algorithm_rule_and_alternatives(self):
        self.reduce()
        why = self.explain("all-reduce", "-b", "1M", "--dtype", "INT32")
        self.assertEqual((why["ranks"], why["hosts"], why["settled"], why["alike"]), (4, 2, True, True))
        self.assertEqual((why["algorithm"], why["why"], why["class"]), ("hierarchical", "rule", "exact"))
        self.assertIn("all_reduce exact", why["rule"])
        by_name = {one["algorithm"]: one for one in why["alternatives"]}
        self.assertEqual(by_name["shared"]["why_not"], "not all ranks share memory")
        self.assertGreater(by_name["ring"]["predicted_us"], 0)
        self.assertFalse(by_name["ring"]["keeps_order"])

    def test_explain_before_the_first_op_knows_who_shares_a_host(self):
        fresh = Cluster(3)
        self.addCleanup(fresh.stop)
        for agent in fresh.agents:
            agent.wait_joined()
        words = ["tutti", "--agent", fresh.agents[0].program.address, "--no-progress", "explain", "all_reduce"]
        got, out, err = support.run(*words, "-b", "1M", "--json", timeout=60)
        why = json.loads(out)
        self.assertEqual((why["ranks"], why["hosts"], why["settled"]), (3, 1, False), out + err)
        self.assertTrue(why["shared_memory"])
        got, out, err = support.run(*words, timeout=60)
        self.assertIn("3 ranks on 1 host, sharing memory", out)
        self.assertIn("host placement is taken from the coordinator", out)

    def test_explain_of_floats_keeps_the_order(self):
        for size in ("65", "64K", "1M", "64M", "1G"):
            why = self.explain("all_reduce", "-b", size)
            by_name = {one["algorithm"]: one for one in why["alternatives"]}
            self.assertTrue(by_name[why["algorithm"]]["keeps_order"], why)

    def test_explain_of_a_tiny_all_reduce_says_that_it_rides(self):
        self.reduce()
        why = self.explain("all_reduce", "-b", "64")
        self.assertEqual((why["algorithm"], why["why"]), ("agreement", "small"))
        self.assertIn("travel with the agreement", self.tutti("explain", "all_reduce", "-b", "8"))

    def test_explain_of_one_rank_says_self(self):
        alone = Cluster(1, "--algorithm", "all_reduce=ring")
        self.addCleanup(alone.stop)
        alone.agents[0].wait_joined()
        words = ["tutti", "--agent", alone.agents[0].program.address, "--no-progress", "explain", "all_reduce"]
        for told in ("before the first op", "after it"):
            got, out, err = support.run(*words, "-b", "1M", "--json", timeout=60)
            why = json.loads(out)
            self.assertEqual((why["algorithm"], why["why"], why["alternatives"]), ("self", "one_rank", []), told + err)
            self.assertEqual((why["ranks"], why["settled"], why["alike"]), (1, True, True), told)
            self.assertEqual(why["passed_over"], "ring: needs two ranks")
            self.assertNotIn("rule", why)
            all_reduce(alone.agents[0], np.arange(5, dtype=np.int32))
        got, out, err = support.run(*words, timeout=60)
        self.assertIn("because the group has one rank", out)
        self.assertNotIn("ALGORITHM", out)

    def test_explain_of_what_is_forced_says_so(self):
        why = self.explain("broadcast", "-b", "8")
        self.assertEqual((why["algorithm"], why["why"]), ("chain", "forced"))

    def test_explain_refuses_what_is_no_op_group_or_size(self):
        self.assertIn("is no op", self.tutti("explain", "fast", code=2))
        self.assertIn("no op was called on group nobody", self.tutti("explain", "reduce", "-g", "nobody", code=1))
        self.assertIn("need a size", self.tutti("explain", "reduce", "-b", "much", code=2))
        self.assertIn("does not exist", self.tutti("explain", "reduce", "--dtype", "FP7", code=2))

    def test_tune_writes_a_table_that_agents_load(self):
        path = os.path.join(self.folder.name, "table")
        said = json.loads(
            self.tutti("tune", "--time", "20s", "-b", "8", "-e", "32K", "--ops", "all_reduce,broadcast",
                       "-o", path, "--json")
        )
        self.assertEqual((said["ranks"], said["hosts"], said["loaded"]), (4, 2, False))
        names = {(one["op"], one["class"], one["algorithm"]) for one in said["points"]}
        self.assertIn(("all_reduce", "float", "chain"), names)
        self.assertNotIn(("all_reduce", "float", "ring"), names)  # would change the bits
        # What was forced at the start is again.
        self.assertEqual(self.explain("broadcast", "-b", "8")["why"], "forced")
        self.reduce(70000)
        agent = Agent(self.cluster_of_one(), 0, "--tune-table", path)
        try:
            agent.wait_joined()
            self.assertIn("rules from %s say" % path, agent.program.log())
        finally:
            agent.close()
            agent.program.stop()

    def cluster_of_one(self):
        other = Cluster(0)
        other.size = 1
        self.addCleanup(other.stop)
        return other

    def test_tune_load_tells_the_running_agents(self):
        path = os.path.join(self.folder.name, "loaded")
        self.tutti("tune", "--time", "10s", "-b", "1K", "-e", "1K", "--ops", "all_gather", "-o", path, "--load")
        why = self.explain("all_gather", "-b", "1K")
        self.assertEqual((why["table"], why["why"], why["alike"]), ("told", "rule", True))
        self.assertIn("all_gather any", why["rule"])
        self.reduce()
        for agent in self.cluster.agents:  # as at the start
            from cluster_case import diagnostics

            agent.diagnostics.SetAlgorithms(diagnostics.SetAlgorithmsRequest(), timeout=60)

    def test_agents_told_apart_say_so(self):
        from cluster_case import diagnostics

        one = self.cluster.agents[3].diagnostics
        one.SetAlgorithms(diagnostics.SetAlgorithmsRequest(forced="all_reduce=ring"), timeout=60)
        try:
            self.reduce()
            why = self.explain("all_reduce", "-b", "1M", "--dtype", "INT32")
            self.assertEqual((why["alike"], why["why"]), (False, "base"))
            self.assertIn("told different things", self.tutti("explain", "all_reduce"))
        finally:
            one.SetAlgorithms(diagnostics.SetAlgorithmsRequest(), timeout=60)
        self.reduce()
        self.assertTrue(self.explain("all_reduce")["alike"])

    def test_tune_refuses_what_makes_no_sense(self):
        self.assertIn("need some of all_reduce", self.tutti("tune", "--ops", "fast", code=2))
        self.assertIn("need a time", self.tutti("tune", "--time", "soon", code=2))
        self.assertIn("--begin is more than --end", self.tutti("tune", "-b", "1M", "-e", "8", code=2))


if __name__ == "__main__":
    support.main()
