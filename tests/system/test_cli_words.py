#!/usr/bin/python3
"""Goal: keys and values of any bytes go through the command; what it says about itself is right.

Method: a cluster for the keys, servers alone for the rest; shells and groff look at what was made
for them.
"""

import json
import os
import re
import shutil
import subprocess

import support
from cli_case import TUTTI, Case, ClusterCase, environment, file_path, start, tutti, work

import numpy as np


class TestStore(ClusterCase):
    def test_store__sets_gets_counts_and_deletes(self):
        self.well("store", "set", "a", "1")
        self.assertEqual(self.well("store", "get", "a").text, "1\n")
        self.assertEqual(self.well("store", "get", "a", "--raw").out, b"1")
        self.assertEqual(self.well("store", "add", "a", "--by", "5").text, "6\n")
        self.assertEqual(self.json("store", "add", "a", "--by", "-2"), {"key": "a", "value": 4})
        self.fails(["store", "cas", "a", "9", "--expect", "3"], "it holds 4")
        self.well("store", "cas", "a", "9", "--expect", "4")
        self.well("store", "delete", "a")
        self.fails(["store", "delete", "a"], "there is no such key")
        self.fails(["store", "get", "a"], 'no key "a" in job default')
        self.fails(["store", "set", "", "1"], "key")
        done = self.fails(["store", "get", 5000 * "k"], "at most 1024")
        self.assertLess(len(done.err), 500)

    def test_store__takes_any_bytes(self):
        value = bytes(range(256))
        self.well("store", "set", "bytes", "-", stdin=value)
        self.assertEqual(self.well("store", "get", "bytes", "--raw").out, value)
        self.assertEqual(bytes.fromhex(self.json("store", "get", "bytes")["value_hex"]), value)
        shown = self.well("store", "list", "bytes").text
        self.assertIn("\\x00\\x01", shown)
        self.assertNotIn("\x07", shown)
        self.well("store", "set", "grüße", "schön")
        self.assertEqual(self.json("store", "list", "gr")["keys"][0]["value"], "schön")
        self.fails(["store", "set", "big", "-"], "1048577", stdin=bytes(1 << 21))
        self.well("store", "delete", "bytes")
        self.well("store", "delete", "grüße")

    def test_store_wait__says_what_is_missing(self):
        waiting = start("store", "wait", "late", "-t", "30s")
        self.well("store", "set", "late", "1")
        self.assertEqual(waiting.wait(support.START_S), 0, waiting.stderr.read())
        waiting.stdout.close()
        waiting.stderr.close()
        self.fails(["store", "wait", "late", "never", "-t", "200ms"], "1 of 2 keys", '"never"')
        self.well("store", "delete", "late")

    def test_store_watch__shows_changes_until_enough(self):
        for words in (["--json"], []):
            watching = start("store", "watch", "w/", "--count", "2", *words)
            count = 0
            while watching.poll() is None:  # it is not told when the watch stands
                count += 1
                self.well("store", "set", "w/a", str(count))
                self.well("store", "set", "v/a", "not this one")
            out, err = watching.communicate(timeout=support.START_S)
            self.assertEqual((watching.returncode, err), (0, b""))
            lines = out.decode().strip().split("\n")
            self.assertEqual(len(lines), 2)
            if words:
                self.assertEqual([json.loads(line)["key"] for line in lines], ["w/a", "w/a"])
            else:
                self.assertRegex(lines[0], r"^set w/a = \d+$")
        self.well("store", "watch", "nothing", "-t", "200ms")
        for key in ("w/a", "v/a"):
            self.well("store", "delete", key)


class TestWords(Case):
    def test_unknown_commands__come_with_a_suggestion(self):
        self.fails(["staus"], 'no command "staus", did you mean "status"?', code=2)
        self.fails(["clutser", "start"], 'did you mean "cluster"?', code=2)
        self.fails(["cluster", "strat"], 'did you mean "cluster start"?', code=2)
        self.fails(["cluster"], "usage: tutti cluster COMMAND", code=2)
        self.fails(["xyzzy"], "try: tutti --help", code=2)
        self.assertNotIn("did you mean", tutti("nope").err)
        self.fails(["put", "x.npy", "--nmae", "w"], "put: no option --nmae", code=2)
        self.fails([], "usage: tutti COMMAND", code=2)

    def test_groups_of_commands__show_a_line_for_each(self):
        for words in (["cluster", "--help"], ["store", "-h"], ["help", "token"]):
            done = tutti(*words)
            self.assertEqual((done.code, done.err), (0, ""), words)
            self.assertIn("COMMAND [arguments] [options]", done.text)
        self.assertRegex(tutti("cluster", "--help").text, r"cluster stop +stop a local cluster")

    def test_wrong_words__are_documents_with_json(self):
        for words in (["nope"], ["cluster"], ["put"], ["list", "--nope"], ["list", "-t", "x"]):
            done = tutti(*words, "--json")
            self.assertEqual(done.code, 2, words)
            self.assertEqual(json.loads(done.text)["error"]["reason"], "USAGE")
            self.assertIn(json.loads(done.text)["error"]["text"], done.err + "a command is missing")

    def test_every_error__has_a_reason(self):
        for words, code, reason in (
            (["put", "nothing.npy"], 1, "SYSTEM"),
            (["status", "--cluster", "nowhere"], 1, "LOCAL"),
            (["status", "--agent", "nonsense"], 2, "BAD_ADDRESS"),
            (["init", "nonsense"], 2, "BAD_URL"),
            (["functions", "--rank", "x"], 2, "USAGE"),
        ):
            done = tutti(*words, "--json")
            self.assertEqual((done.code, json.loads(done.text)["error"]["reason"]), (code, reason), words)
            self.assertEqual(done.err.count("tutti: "), 1, done.err)

    def test_addresses__that_lead_nowhere(self):
        self.fails(["list", "--agent", "127.0.0.1:1"], "could not reach 127.0.0.1:1", "refused")
        self.fails(["list", "--agent", "nonsense"], "write host:port, [v6]:port or unix:/path", code=2)
        self.fails(["list", "--agent", "unix:/nonexistent/x"], "unix:/nonexistent/x")
        self.fails(["health", "127.0.0.1:1"], "could not reach 127.0.0.1:1")
        self.fails(["health", "nonsense"], "write host:port", code=2)
        self.fails(["list", "-c", "nobody"], 'no cluster "nobody" here')

    def test_health__of_servers_and_services(self):
        with support.Program("tutti-coordinator") as server:
            self.assertEqual(self.well("health", server.address).text, "serving\n")
            service = "tutti.v1.StoreService"
            seen = self.json("health", server.address, "--service", service)
            self.assertEqual(seen, {"address": server.address, "serving": True})
            self.fails(["health", server.address, "-s", "no.Such"], "no.Such")

    def test_coordinator_alone__serves_groups_and_keys(self):
        with support.Program("tutti-coordinator") as server:
            words = ["--coordinator", server.address, "--job", "alone"]
            self.fails(["store", "get", "a", *words], "alone")
            self.fails(["status", *words], "alone")
            self.fails(["list", "--agent", server.address], server.address + " is a coordinator, not an agent: give")
            error = tutti("list", "--agent", server.address, "--json").json["error"]
            self.assertEqual(error["reason"], "NOT_AN_AGENT")
            self.fails(["store", "get", "a"], "alone", TUTTI_COORDINATOR=server.address, TUTTI_JOB="alone")

    def test_errors__are_documents_with_json(self):
        done = tutti("list", "--agent", "127.0.0.1:1", "--json")
        self.assertEqual(done.code, 1)
        self.assertEqual(done.json["error"]["code"], "UNAVAILABLE")
        self.assertIn("127.0.0.1:1", done.json["error"]["text"])
        error = tutti("put", "nothing.npy", "--json").json["error"]
        self.assertEqual((error["code"], error["reason"]), ("NOT_FOUND", "SYSTEM"))

    def test_version__is_one_line_or_a_document(self):
        text = self.well("version").text
        self.assertRegex(text, r"^tutti \d+\.\d+\.\d+\n$")
        self.assertEqual(self.well("--version").text, text)
        self.assertEqual("tutti " + self.json("version")["version"] + "\n", text)

    def test_help__knows_every_command(self):
        text = self.well("help").text
        commands = re.findall(r"(?m)^  (?!tutti )([a-z-]+(?: [a-z]+)?)   ", text)
        self.assertGreater(len(commands), 30)
        for command in commands:
            page = self.well("help", *command.split()).text
            self.assertIn("usage: tutti " + command, page)
            self.assertEqual(self.well(*command.split(), "--help").text, page)
            self.assertLessEqual(max(len(line) for line in page.split("\n")), 80)
            self.assertIn("\nexamples:\n", page)
            self.assertNotRegex(page, "not said|nothing is said")
        self.assertIn("cluster stop  ", self.well("help", "cluster").text)
        self.fails(["help", "xyzzy"], 'no command "xyzzy"', code=2)

    def test_closed_output__is_told_unless_nobody_reads(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        with open("/dev/full", "wb") as full:
            code = subprocess.call([TUTTI, "help"], stdout=full, stderr=subprocess.DEVNULL)
        self.assertEqual(code, 1)

    def check_shell(self, shell, check):
        if shutil.which(shell) is None:
            self.skipTest("no %s here: install it to check its completion" % shell)
        text = self.well("completion", shell).out
        done = subprocess.run([shell, *check], input=text, stderr=subprocess.PIPE, close_fds=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return text.decode()

    def test_completion__for_bash_completes(self):
        self.check_shell("bash", ["-n"])
        script = "source <(%s completion bash); COMP_WORDS=(tutti %s); COMP_CWORD=%d; _tutti; "
        script += 'printf "%%s\\n" "${COMPREPLY[@]}"'
        for words, wanted in [
            ("sta", ["stall", "stat", "status"]),
            ("cluster st", ["start", "stop", "status"]),
            ("put --na", ["--name"]),
            ("all-reduce --op m", ["min", "max"]),
            ("--json cl", ["cluster"]),
            ("store l", ["len", "lease", "list"]),
            ("store lease ''", ["grant", "keep", "list", "revoke"]),
            ("store lease keep --ho", ["--hold"]),
        ]:
            line = script % (TUTTI, words, len(words.split()))
            found = subprocess.check_output(["bash", "-c", line], close_fds=False).decode().split()
            self.assertEqual(sorted(found), sorted(wanted), words)
        self.fails(["completion", "tcsh"], "need bash, zsh or fish", code=2)

    def test_completion__for_zsh_is_read_by_zsh(self):
        self.check_shell("zsh", ["-n"])

    def test_completion__for_fish_is_read_by_fish(self):
        self.check_shell("fish", ["--no-execute"])

    def test_man__makes_pages_that_groff_likes(self):
        self.well("man", file_path("man"))
        pages = sorted(os.listdir(file_path("man")))
        self.assertIn("tutti.1", pages)
        self.assertIn("tutti-cluster-start.1", pages)
        self.fails(["man", "/nonexistent/man"], "/nonexistent/man")
        if shutil.which("groff") is None:
            self.skipTest("no groff here: install it to check the man pages")
        for page in pages:
            done = subprocess.run(
                ["groff", "-man", "-Tascii", "-P-cbou", "-ww", file_path("man/" + page)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                close_fds=False,
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""), page)
            self.assertIn(b"EXIT STATUS", done.stdout)


class TestCompletion(ClusterCase):
    def complete(self, *words, function="_tutti"):
        """What bash offers for the last of the words."""
        line = "source <(%s completion bash); COMP_WORDS=(%s); COMP_CWORD=%d; %s; " % (
            TUTTI, " ".join("'%s'" % word for word in words), len(words) - 1, function)
        line += 'printf "%s\\n" "${COMPREPLY[@]}"'
        return subprocess.check_output(["bash", "-c", line], close_fds=False, cwd=work.name,
                                       env=environment()).decode().split("\n")[:-1]

    def test_completion__for_bash_knows_what_there_is(self):
        self.save("seen.npy", np.zeros(3))
        self.well("put", "seen.npy", "--name", "gradient")
        self.well("group", "create", "pairs", "0,1")
        for words, wanted in [
            ("stat ", "gradient"), ("stat gra", "gradient"), ("-c default stat ", "gradient"),
            ("all-reduce ", "gradient"), ("all-reduce ", "seen.npy"), ("bench all", "all_reduce"),
            ("group delete ", "pairs"), ("bench all_reduce -g ", "pairs"), ("bench all_reduce --group p", "pairs"),
            ("cluster stop --name ", "default"), ("stat -c ", "default"), ("stat --cluster ", "default"),
        ]:
            self.assertIn(wanted, self.complete(TUTTI, *words.split(" ")), words)
        self.assertNotIn("seen.npy", self.complete(TUTTI, "bench", ""))
        self.well("group", "delete", "pairs")
        self.well("delete", "gradient", "--rank", "0")

    def test_completion__for_bash_runs_no_names(self):
        folder = file_path("run/tutti/a$(touch${IFS}came)")
        os.mkdir(folder)
        self.addCleanup(os.rmdir, folder)
        self.assertEqual(self.complete(TUTTI, "stat", "-c", ""), ["default"])
        self.assertFalse(os.path.exists(file_path("came")))

    def test_completion__for_bash_knows_the_options_of_the_servers(self):
        for program in ("tutti-agent", "tutti-coordinator"):
            path = os.path.join(os.path.dirname(TUTTI), program)
            self.assertEqual(self.complete(path, "--tls-ce", function="_tutti_server"), ["--tls-cert"])
            self.assertEqual(self.complete(path, "--versi", function="_tutti_server"), ["--version"])


if __name__ == "__main__":
    support.main()
