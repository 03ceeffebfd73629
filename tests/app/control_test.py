"""The control plane of the running demo: its numbers, the commands, curl, `top` in a terminal."""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import program
from servers import Demo


class Interface(unittest.TestCase):
    def test_the_numbers_are_those_of_the_calls(self):
        with Demo("--slow") as demo:
            deadline = time.monotonic() + 30
            while True:
                rows = {b["name"]: b for b in demo.get("/v1/snapshot")["bulkheads"]}
                if rows["analytics"]["in_flight"] == 15 and rows["analytics"]["total"]["rejected"] > 0:
                    break
                self.assertLess(time.monotonic(), deadline, rows["analytics"])
                time.sleep(0.2)
            self.assertEqual(set(rows), {"admin", "analytics", "browse", "checkout", "database"})
            self.assertEqual(rows["checkout"]["total"]["rejected"], 0)
            self.assertLessEqual(rows["database"]["in_flight"], 100)
            self.assertEqual(rows["analytics"]["limit"], 15)
            peak = 0
            while peak != 15:  # once the second is over
                self.assertLess(time.monotonic(), deadline)
                history = demo.get("/v1/history?seconds=60&step=1")
                used = next(b for b in history["bulkheads"] if b["name"] == "analytics")["used"]
                peak = max(u for u in used if u is not None)
                self.assertLessEqual(peak, 15)

    def test_curl_and_the_dashboard(self):
        with Demo() as demo:
            page = subprocess.run(["curl", "-sS", "--compressed", "-L", "-D", "-", demo.url + "/"], capture_output=True, text=True, timeout=20)
            self.assertIn("302 Found", page.stdout)
            self.assertIn("default-src 'none'", page.stdout)
            self.assertIn("<!doctype html>", page.stdout.lower())
            local = subprocess.run(["curl", "-sS", "--unix-socket", demo.socket, "http://localhost/v1/session"], capture_output=True, text=True, timeout=20)
            self.assertEqual(json.loads(local.stdout)["role"], "admin")
            stream = subprocess.run(["curl", "-sS", "-N", "--max-time", "3", demo.url + "/v1/stream"], capture_output=True, text=True, timeout=20)
            self.assertGreaterEqual(stream.stdout.count("event: snapshot"), 2)
            frame = json.loads(re.search(r"^data: (.*)$", stream.stdout, re.M).group(1))
            self.assertEqual(len(frame["bulkheads"]), 5)


class Commands(unittest.TestCase):
    def test_a_resize_by_command_changes_the_process_and_can_be_taken_back(self):
        with Demo() as demo:
            status = demo.run("status")
            self.assertEqual(status.returncode, 0, status.stderr)
            self.assertIn("checkout", status.stdout)
            self.assertNotIn(program.ESCAPE, status.stdout)
            done = demo.run("set", "checkout", "--limit", "7", "--for", "2m", "--reason", "trying")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("limit 50 -> 7 for 2 m: trying", done.stdout)
            self.assertEqual(demo.get("/v1/bulkheads/checkout")["limit"], 7)
            self.assertIn("limit 50->7", demo.run("status", "checkout").stdout)
            self.assertEqual(demo.run("drain", "admin", "--reason", "test").returncode, 0)
            self.assertEqual(demo.run("breaker", "open", "checkout", "--reason", "test").returncode, 0)
            self.assertEqual(json.loads(demo.run("status", "checkout", "--json").stdout)["breaker"]["mode"], "forced_open")
            self.assertEqual(demo.run("reset", "checkout").returncode, 0)
            after = demo.get("/v1/bulkheads/checkout")
            self.assertEqual((after["limit"], after["breaker"]["mode"], after["overrides"]), (50, "automatic", []))
            self.assertEqual(demo.run("drain", "admin", "--resume").returncode, 0)
            events = demo.run("events").stdout
            for word in ("override", "revert", "drain", "resume"):
                self.assertIn(word, events)
            self.assertIn("checkout", demo.run("top", "--once").stdout)

    def test_the_switches_of_the_program_can_be_thrown(self):
        with Demo() as demo:
            self.assertRegex(demo.run("switch").stdout, r"slow-analytics +off")
            done = demo.run("switch", "slow-analytics", "on", "--reason", "let us see")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(next(s for s in demo.get("/v1/switches")["switches"] if s["name"] == "slow-analytics")["on"])
            self.assertTrue(json.loads(demo.run("switch", "--json").stdout)["switches"][0]["on"])
            self.assertEqual(demo.run("switch", "slow-analytics", "off").returncode, 0)
            self.assertEqual(demo.run("switch", "slow-analytics").returncode, 2)
            self.assertEqual(demo.run("switch", "slow-analytics", "perhaps").returncode, 2)
            self.assertEqual(demo.run("switch", "nothing", "on").returncode, 1)

    def test_what_goes_wrong_has_its_exit_code(self):
        with Demo() as demo:
            def code(*arguments, **more):
                result = demo.run(*arguments, **more)
                self.assertNotEqual(result.stderr, "")
                return result.returncode
            self.assertEqual(code("status", "chekout"), 1)
            self.assertIn('did you mean "checkout"?', demo.run("status", "chekout").stderr)
            self.assertEqual(code("set", "checkout", "--limit", "5"), 2)  # no reason
            self.assertEqual(code("set", "checkout", "--limit", "5", "--for", "25h", "--reason", "r"), 3)
            self.assertEqual(code("breaker", "open", "browse", "--reason", "r"), 5)
            self.assertEqual(code("set", "checkout", "--limit", "5", "--reason", "r", admin=demo.url), 6)
            self.assertEqual(demo.run("set", "checkout", "--limit", "5", "--reason", "r", admin=demo.url, BULKHEAD_TOKEN=demo.token).returncode, 0)
            self.assertEqual(code("diff"), 1)
            self.assertEqual(code("status", admin="/nowhere.sock"), 4)
            self.assertEqual(code("status", admin="ftp://x"), 2)

    def test_completion_knows_every_command(self):
        script = program.run("completion", "bash").stdout
        result = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(bulkhead ""); COMP_CWORD=1; _bulkhead; echo "${COMPREPLY[@]}"'],
                                capture_output=True, text=True, timeout=20)
        self.assertEqual(result.stderr, "")
        for command in ("demo", "status", "top", "set", "reset", "breaker", "drain", "events", "diff", "reload"):
            self.assertIn(command, result.stdout.split())
        self.assertEqual(json.loads(program.run("version", "--json").stdout)["name"], "bulkhead")


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class Top(unittest.TestCase):
    def test_keys_sort_filter_resize_and_quit(self):
        with Demo() as demo:
            server = ["tmux", "-L", "bulkhead-" + str(os.getpid())]

            def tmux(*arguments):
                return subprocess.run([*server, *arguments], capture_output=True, text=True, timeout=20)

            def screen_with(text, without=None):
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    screen = tmux("capture-pane", "-p").stdout
                    if text in screen and (without is None or without not in screen):
                        return screen
                    time.sleep(0.1)
                self.fail(f"{text!r} does not appear:\n{screen}")

            try:
                tmux("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "30", f"{program.PROGRAM} top --admin {demo.socket}; echo left; sleep 30")
                screen_with("analytics")
                tmux("send-keys", "s")
                screen_with("sort: utilization")
                tmux("send-keys", "/", "check", "Enter")
                screen_with("checkout", without="analytics")
                tmux("send-keys", "+")
                screen_with("limit 50 -> 55 for 15m; reason:")
                tmux("send-keys", "busy", "Enter")
                screen_with("checkout: limit 50 -> 55", without="reason:")
                self.assertEqual(demo.get("/v1/bulkheads/checkout")["limit"], 55)
                tmux("send-keys", "q")
                screen_with("left")
            finally:
                tmux("kill-server")


if __name__ == "__main__":
    program.main()
