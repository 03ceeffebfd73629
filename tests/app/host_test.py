"""`bulkhead host`, `bulkhead fleet` and `bulkhead run` with limits that processes share."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from program import PROGRAM, main, run

MODULE = pathlib.Path(__file__).resolve().parents[2] / "adapters" / "shm" / "python"

HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bulkhead_host import Limit
limit = Limit(sys.argv[2], "gpu", max_concurrent=4)
permits = [limit.acquire(timeout=0), limit.acquire(timeout=0, cost=2)]
print("ready", flush=True)
time.sleep(600)
"""


class Host(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.region = os.path.join(self.directory.name, "region")
        self.file = os.path.join(self.directory.name, "bulkhead.yaml")
        pathlib.Path(self.file).write_text(
            "version: 1\nlint_allow: [unused, no-fallback]\n"
            f"host: {{region: {self.region}}}\n"
            f"control: {{unix_socket: {self.directory.name}/s}}\n"
            "bulkheads: {gpu: {max_concurrent: 4, max_queue: 5, max_wait: 1s, execution_timeout: 1s, scope: host}}\n")
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.communicate()
        self.directory.cleanup()

    def start(self, *command):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def holder(self):
        process = self.start(sys.executable, "-B", "-c", HOLDER, str(MODULE), self.region)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def look(self, *arguments):
        done = run("host", *arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_it_lists_who_holds_what_and_misses_the_dead(self):
        holder = self.holder()
        (limit,) = self.look(self.region)["limits"]
        self.assertEqual((limit["name"], limit["max_concurrent"], limit["in_flight"]), ("gpu", 4, 3))
        (held,) = limit["holders"]
        self.assertEqual((held["pid"], held["units"], held["alive"]), (holder.pid, 3, True))
        self.assertGreaterEqual(held["oldest_seconds"], 0)
        text = run("host", self.region).stdout
        self.assertIn("gpu: 3 of 4 units in use", text)
        self.assertIn(f"pid {holder.pid} ", text)

        holder.send_signal(signal.SIGKILL)
        holder.wait()
        (held,) = self.look(self.region)["limits"][0]["holders"]
        self.assertFalse(held["alive"])
        swept = self.look(self.region, "--sweep")
        self.assertEqual((swept["swept"], swept["limits"][0]["in_flight"]), (3, 0))

    def test_a_file_names_the_region_that_run_makes(self):
        process = self.start(PROGRAM, "run", self.file, "--json")
        self.assertTrue(any('"ready"' in line for line in process.stdout))
        document = self.look(self.file)
        self.assertEqual(document["region"], self.region)
        self.assertEqual([p["pid"] for p in document["processes"]], [process.pid])
        self.assertEqual(document["limits"][0]["max_concurrent"], 4)

    def test_mistakes_are_explained(self):
        done = run("host", self.region)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(self.region, done.stderr)
        pathlib.Path(self.file).write_text("version: 1\nlint_allow: [unused]\n")
        done = run("host", self.file)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("names no region", done.stderr)


@unittest.skipUnless(shutil.which("redis-server"), "needs redis-server")
class Fleet(unittest.TestCase):
    """Two processes of one host and one of another share a limit through Redis."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.processes = []
        self.redis = self.start("redis-server", "--port", "0", "--unixsocket", self.path("redis"), "--save", "", "--dir", self.path())

    def tearDown(self):
        self.redis.send_signal(signal.SIGCONT)
        for process in self.processes:
            process.kill()
            process.communicate()
        self.directory.cleanup()

    def path(self, *names):
        return os.path.join(self.directory.name, *names)

    def start(self, *command):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def file(self, name, region=None, times="lease: 1s"):
        path = self.path(name + ".yaml")
        pathlib.Path(path).write_text(
            "version: 1\nlint_allow: [unused, no-fallback]\n"
            + (f"host: {{region: {self.path(region)}}}\n" if region else "") +
            f'fleet: {{store: "unix://{self.path("redis")}", {times}, mode: block}}\n'
            f"control: {{unix_socket: {self.path(name)}}}\n"
            "bulkheads: {pay: {max_concurrent: 50, max_queue: 5, max_wait: 1s, execution_timeout: 1s, scope: fleet}}\n")
        return path

    def serve(self, name, region=None, **more):
        process = self.start(PROGRAM, "run", self.file(name, region, **more), "--json")
        self.assertTrue(any('"ready"' in line for line in process.stdout))
        return process

    def listed(self, file, done, patience=60):
        """The members of the limit as `bulkhead fleet` shows them, by their names, once done(members)."""
        end = time.monotonic() + patience
        while True:
            answer = run("fleet", file, "--json")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            (limit,) = json.loads(answer.stdout)["limits"]
            members = {m["name"]: m for m in limit.get("members", [])}
            if done(members) or time.monotonic() > end:
                return limit, members
            time.sleep(0.05)

    def status(self, name, *words, patience=60):
        """The output of status, once all words are in it."""
        end = time.monotonic() + patience
        while True:
            text = run("status", "pay", "--admin", self.path(name)).stdout
            if all(word in text for word in words) or time.monotonic() > end:
                return text
            time.sleep(0.05)

    def test_status_shows_the_lease_of_the_host_and_the_loss_of_the_store(self):
        self.serve("a", "one")
        self.serve("b", "one")
        self.serve("c", "two")
        for name in "abc":
            text = self.status(name, "fleet: leased", "2 members")
            self.assertIn("fleet: leased, block; 2 members; holds ", text)
            self.assertIn("host: 0 units in use by all processes", text)
        text = run("host", self.path("one")).stdout
        self.assertIn("2 processes", text)
        self.assertIn("leased of the 50 of the fleet", text)

        self.redis.send_signal(signal.SIGSTOP)
        for name in "ab":  # the process that talks to the store, and one that does not
            text = self.status(name, "fleet: degraded for ", "no answer")
            self.assertIn("(safe_share), block; 2 members", text)
            self.assertIn("no answer in time", text)
        self.redis.send_signal(signal.SIGCONT)
        for name in "abc":
            self.assertIn("fleet: leased", self.status(name, "fleet: leased"))

    def test_all_members_are_listed_and_a_killed_one_lapses_and_vanishes(self):
        times = {"times": "lease: 3s, grace: 2s"}
        self.serve("a", "one", **times)  # a and b are one member
        self.serve("b", "one", **times)
        c, d = self.serve("c", **times), self.serve("d", **times)
        host = socket.gethostname()
        first, killed = f"{host}-{c.pid}", f"{host}-{d.pid}"
        limit, members = self.listed(self.path("a.yaml"), lambda m: {host, first, killed} <= m.keys())
        self.assertEqual(members.keys(), {host, first, killed})
        self.assertEqual((limit["leased"], limit["lapsed"], limit["max_concurrent"]), (3, 0, 50))
        self.assertEqual(limit["held"], sum(m["held"] for m in members.values()))
        text = run("fleet", self.path("a.yaml")).stdout
        self.assertIn("pay: limit 50; 3 members; ", text)
        self.assertRegex(text, f"  {killed} *  holds [0-9]+, needs [0-9]+; lease renewed [0-9.]+ s ago")

        # A process shows all members too, and which of them it is itself.
        for name, own in (("a", host), ("c", first)):
            text = self.status(name, "ago: 3 leased; ", f"{own} (this one)")
            self.assertIn(f"{own} (this one): ", text)
            self.assertIn(f"{killed}: ", text)

        d.kill()
        _, members = self.listed(self.path("a.yaml"), lambda m: m.get(killed, {}).get("state") == "lapsed")
        self.assertEqual(members[killed]["state"], "lapsed")
        self.assertEqual(members[first]["state"], "leased")
        self.assertRegex(self.status("c", "1 lapsed with "), f"{killed}: lapsed")
        limit, members = self.listed(self.path("a.yaml"), lambda m: killed not in m)
        self.assertEqual((members.keys(), limit["lapsed"]), ({host, first}, 0))

    def test_mistakes_are_explained(self):
        file = self.file("a")
        self.assertIn("pay: no process uses it", run("fleet", file).stdout)
        done = run("fleet", file, "other")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn('no bulkhead "other" with scope: fleet', done.stderr)
        self.redis.kill()
        self.redis.wait()
        done = run("fleet", file)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("redis", done.stderr)


if __name__ == "__main__":
    main()
