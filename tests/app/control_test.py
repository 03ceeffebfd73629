"""The control plane of the running demo: its numbers, the commands, curl, `top` in a terminal."""
import http.server
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest

import program
from servers import Case, Demo, Running, ask


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
            self.assertEqual(rows["analytics"]["max_concurrent"], 15)
            peak = 0
            while peak != 15:  # once the second is over
                self.assertLess(time.monotonic(), deadline)
                history = demo.get("/v1/history?seconds=60&step=1")
                used = next(b for b in history["bulkheads"] if b["name"] == "analytics")["in_flight"]
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
            done = demo.run("set", "checkout", "--max-concurrent", "7", "--for", "2m", "--reason", "trying")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("max_concurrent 50 -> 7 for 2 m: trying", done.stdout)
            self.assertEqual(demo.get("/v1/bulkheads/checkout")["max_concurrent"], 7)
            self.assertRegex(demo.run("status", "checkout").stdout, r"max_concurrent 50->7, unix:\w+, \d+[ms] left\n")  # not cut off
            self.assertEqual(demo.run("drain", "admin", "--reason", "test").returncode, 0)
            self.assertEqual(demo.run("breaker", "open", "checkout", "--reason", "test").returncode, 0)
            self.assertEqual(json.loads(demo.run("status", "checkout", "--json").stdout)["breaker"]["mode"], "forced_open")
            self.assertEqual(demo.run("reset", "checkout").returncode, 0)
            after = demo.get("/v1/bulkheads/checkout")
            self.assertEqual((after["max_concurrent"], after["breaker"]["mode"], after["overrides"]), (50, "automatic", []))
            self.assertEqual(demo.run("drain", "admin", "--resume").returncode, 0)
            events = demo.run("events").stdout
            for word in ("override", "revert", "drain", "resume"):
                self.assertIn(word, events)
            self.assertIn("checkout", demo.run("top", "--once").stdout)

    def test_pools_are_shown_below_the_bulkheads(self):
        with Demo() as demo:
            pools = demo.get("/v1/snapshot")["pools"]
            self.assertGreater(len(pools), 0)
            status = demo.run("status").stdout
            self.assertRegex(status, r"POOL +KIND +IN USE +IDLE +OPENING +WAITING +FAILURES")
            for pool in pools:
                self.assertRegex(status, rf"(?m)^ {re.escape(pool['name'])} +{pool['kind']} +\d+/{pool['max']} ")
            self.assertNotIn("POOL", demo.run("status", "checkout").stdout)

    def test_the_demo_tells_programs_where_it_is_and_what_happens(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-") as directory:
            path = directory + "/admin.sock"
            with subprocess.Popen([program.PROGRAM, "demo", "--serve", "--json", "--listen", "127.0.0.1:0", "--unix-socket", path],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
                try:
                    lines = (json.loads(line) for line in process.stdout)
                    ready = next(line for line in lines if line["kind"] == "ready")
                    self.assertEqual(ready["unix_socket"], path)
                    done = program.run("switch", "slow-analytics", "on", "--reason", "r", "--admin", ready["url"], BULKHEAD_TOKEN=ready["token"])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(next(line for line in lines if line["kind"] == "switch")["actor"], "demo")
                    process.terminate()
                    self.assertEqual([line["kind"] for line in lines][-1], "stop")
                    self.assertEqual(process.wait(20), 0)
                finally:
                    process.kill()

    def test_the_switches_of_the_program_can_be_thrown(self):
        with Demo() as demo:
            self.assertRegex(demo.run("switch").stdout, r"slow-analytics +off")
            done = demo.run("switch", "slow-analytics", "on", "--reason", "let us see")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(next(s for s in demo.get("/v1/switches")["switches"] if s["name"] == "slow-analytics")["on"])
            self.assertTrue(json.loads(demo.run("switch", "--json").stdout)["switches"][0]["on"])
            self.assertRegex(demo.run("switch", "slow-analytics", "off", "--dry-run").stdout, r"^\(dry run\) slow-analytics +off ")
            self.assertTrue(demo.get("/v1/switches")["switches"][0]["on"])
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
            self.assertEqual(code("set", "checkout", "--max-concurrent", "5"), 2)  # no reason
            self.assertEqual(code("set", "checkout", "--max-concurrent", "5", "--for", "25h", "--reason", "r"), 3)
            self.assertEqual(code("breaker", "open", "browse", "--reason", "r"), 5)
            self.assertEqual(code("set", "checkout", "--max-concurrent", "5", "--reason", "r", admin=demo.url), 6)
            self.assertEqual(demo.run("set", "checkout", "--max-concurrent", "5", "--reason", "r", admin=demo.url, BULKHEAD_TOKEN=demo.token).returncode, 0)
            self.assertEqual(code("diff"), 1)
            self.assertEqual(code("status", admin="/nowhere.sock"), 4)
            self.assertEqual(code("status", admin="ftp://x"), 2)

    def test_what_cannot_be_written_is_a_failure(self):
        with Demo() as demo, open("/dev/full", "w") as full:
            for command in (["status"], ["status", "--json"], ["status", "checkout"], ["top", "--once"], ["events"], ["events", "-f"], ["switch"],
                            ["set", "checkout", "--max-concurrent", "7", "--reason", "r"], ["reset", "checkout"]):
                done = subprocess.run([program.PROGRAM, *command, "--admin", demo.socket], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
                self.assertEqual((done.returncode, done.stderr), (1, "bulkhead: cannot write: No space left on device\n"), command)

    def test_who_cannot_be_reached_is_told_as_json_by_every_command_that_asks(self):
        for command in ("status", "top", "events", "diff", "reload", "switch", "reset x", "breaker auto x", "drain x --resume"):
            result = program.run(*command.split(), "--json", "--admin", "/nowhere.sock")
            self.assertEqual(result.returncode, 4)
            self.assertEqual(json.loads(result.stdout)["title"], "No answer", command)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become somebody else")
    def test_a_socket_of_others_is_not_silence(self):
        with Demo() as demo:
            os.chmod(os.path.dirname(demo.socket), 0o755)
            result = subprocess.run([program.PROGRAM, "status", "--admin", demo.socket], user=65534, group=65534, extra_groups=[],
                                    capture_output=True, text=True, timeout=20)
            self.assertEqual(result.returncode, 6, result.stderr)
            self.assertIn(": Permission denied", result.stderr)

    def test_a_server_that_is_no_control_plane_is_told(self):
        class Stranger(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.protocol_version = "HTTP/1.1"
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                for command in (["status"], ["status", "db"], ["top", "--once"], ["events"], ["switch"]):
                    done = program.run(*command, "--admin", f"http://127.0.0.1:{server.server_port}")
                    self.assertEqual((done.returncode, done.stdout), (1, ""), command)
                    self.assertIn("unexpected answer", done.stderr)
            finally:
                server.shutdown()
                thread.join()

    def complete(self, *words):
        script = program.run("completion", "bash").stdout
        result = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bulkhead; echo "${COMPREPLY[@]}"', "bash", "bulkhead", *words],
                                capture_output=True, text=True, timeout=20, cwd=os.path.dirname(__file__))
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_completion_knows_every_command(self):
        for command in ("demo", "status", "top", "set", "reset", "breaker", "drain", "events", "diff", "reload"):
            self.assertIn(command, self.complete(""))
        self.assertEqual(json.loads(program.run("version", "--json").stdout)["name"], "bulkhead")

    def test_completion_knows_the_words_of_arguments(self):
        for words, wanted in (("breaker ", ["open", "close", "auto"]), ("breaker o", ["open"]), ("completion ", ["bash", "zsh", "fish"]), ("switch lights ", ["on", "off"]),
                              ("help s", ["size", "simulate", "status", "set", "switch"]), ("--v", ["--version"]), ("set db --max-c", ["--max-concurrent"]), ("breaker --dr", ["--dry-run"]),
                              ("check contr", ["control_test.py"]), ("run --gr", ["--grace"])):
            self.assertEqual(self.complete(*words.split(" ")), wanted, words)
        self.assertIn("control_test.py", self.complete("check", ""))
        self.assertIn("--max-concurrent", self.complete("set", "db", ""))
        fish = program.run("completion", "fish").stdout
        for argument in ("breaker' -a 'open close auto'", "completion' -a 'bash zsh fish'", "switch' -a 'on off'", "help' -a 'demo "):
            self.assertIn("complete -c bulkhead -f -n '__fish_seen_subcommand_from " + argument, fish)
        self.assertIn("-l version", fish)

    def test_a_socket_is_found_by_any_path(self):
        with Demo() as demo:
            directory, name = os.path.split(demo.socket)

            def code(admin, cwd=directory):
                return subprocess.run([program.PROGRAM, "status", "--admin", admin], capture_output=True, cwd=cwd, timeout=20).returncode
            for path in (name, "./" + name, "unix:" + name, "unix:" + demo.socket):
                self.assertEqual(code(path), 0, path)
            self.assertEqual(code(os.path.basename(directory) + "/" + name, cwd=os.path.dirname(directory)), 0)
            self.assertEqual(code("unix:nowhere.sock"), 4)
            for wrong in ("nowhere.sock", "unix:", "ftp://x/" + name, "localhost:port"):
                self.assertEqual(code(wrong), 2, wrong)

    def test_a_prefix_of_the_address_is_kept(self):
        asked = []

        class Proxy(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                asked.append(self.path)
                response, body = demo.ask("GET", self.path.removeprefix("/ops/shop"))
                self.send_response(response.status)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        with Demo() as demo, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                address = f"http://127.0.0.1:{server.server_port}"
                for given, wanted in (("", ""), ("/", ""), ("/ui/#token=abc", ""), ("/ops/shop", "/ops/shop"), ("/ops/shop/", "/ops/shop"), ("/ops/shop/ui/", "/ops/shop")):
                    done = demo.run("status", admin=address + given)
                    self.assertEqual((done.returncode, asked[-1]), (0, wanted + "/v1/snapshot"), given)
            finally:
                server.shutdown()
                thread.join()

    def test_a_time_may_have_two_units(self):
        with Demo() as demo:
            done = demo.run("set", "checkout", "--max-concurrent", "7", "--for", "1h30m", "--reason", "r")
            self.assertIn("max_concurrent 50 -> 7 for 90 m: r", done.stdout, done.stderr)
        for command in ("set", "breaker", "drain"):
            self.assertIn("1h30m", program.run(command, "--help").stdout)


class Terminal:
    """A command in a terminal of tmux's."""

    def __init__(self, case, command, columns=150):
        self.case = case
        self.server = ["tmux", "-L", f"bulkhead-{os.getpid()}-{columns}"]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "30", command + "; echo left with $?; sleep 30")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")

    def tmux(self, *arguments):
        return subprocess.run([*self.server, *arguments], capture_output=True, text=True, timeout=20)

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def shows(self, text, without=None):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            screen = self.tmux("capture-pane", "-p", "-J").stdout
            if text in screen and (without is None or without not in screen):
                return screen
            time.sleep(0.1)
        self.case.fail(f"{text!r} does not appear:\n{screen}")


class Top(unittest.TestCase):
    def test_keys_sort_filter_resize_and_quit(self):
        with Demo() as demo, Terminal(self, f"{program.PROGRAM} top --admin {demo.socket}") as terminal:
            terminal.shows("analytics")
            terminal.keys("s")
            terminal.shows("sort: utilization")
            terminal.keys("/", "check", "Enter")
            terminal.shows("checkout", without="analytics")
            terminal.keys("+")
            terminal.shows("max_concurrent 50 -> 55 for 15m; reason:")
            terminal.keys("busy", "Enter")
            terminal.shows("checkout: max_concurrent 50 -> 55", without="reason:")
            self.assertEqual(demo.get("/v1/bulkheads/checkout")["max_concurrent"], 55)
            terminal.keys("q")
            terminal.shows("left with 0")


class Narrow(unittest.TestCase):
    def test_the_table_of_status_loses_columns_before_its_lines_break(self):
        with Demo() as demo:
            for columns in (40, 60, 80):
                with Terminal(self, f"{program.PROGRAM} status --admin {demo.socket}", columns) as terminal:
                    shown = terminal.shows("left with 0").split("BULKHEAD", 1)[1].split("left with")[0].splitlines()[1:]
                    rows = [line for line in shown if line.strip()]
                    pools = demo.get("/v1/snapshot")["pools"]
                    self.assertEqual([row.split()[0] for row in rows], ["admin", "analytics", "browse", "checkout", "database", "POOL"] + [p["name"] for p in pools])
                    for row in rows:
                        self.assertLessEqual(len(row), columns)
                        self.assertRegex(row, r" \d+/\d+\b|IN USE")


class TopOfMany(Case):
    def test_the_table_scrolls_and_what_is_selected_stays_selected(self):
        names = [f"b{i:02}" for i in range(60)]
        running = Running(self.directory, text="version: 1\nbulkheads:\n" + "".join(f"  {n}: {{max_concurrent: 20}}\n" for n in names)
                          + f"control: {{unix_socket: {self.directory}/admin.sock}}\n")
        with Terminal(self, f"{program.PROGRAM} top --admin {running.socket}") as terminal:  # 30 lines
            terminal.shows("(1 to 25 of 60)")
            for _ in range(20):
                terminal.keys("j", "Down")
            screen = terminal.shows(">b40", without="b10")
            self.assertIn("(17 to 41 of 60)", screen)
            terminal.keys("Up")
            terminal.shows(">b39")
            terminal.keys("+")
            terminal.shows("b39: max_concurrent 20 -> 22 for 15m; reason:")
            terminal.keys("Up", "first", "Enter")
            terminal.shows("b39: max_concurrent 20 -> 22", without="reason:")
            self.assertEqual(running.ask("GET", "/v1/overrides")[1]["overrides"][0]["overrides"][0]["reason"], "first")
            terminal.keys("+")
            terminal.shows("b39: max_concurrent 22 -> 24 for 15m; reason:")  # from what is in force
            terminal.keys("Escape")
            terminal.keys("q")
            terminal.shows("left with 0")
        running.stop()


class TopDetail(Case):
    def test_enter_shows_a_bulkhead_r_ends_its_overrides_and_escape_goes_back(self):
        running = Running(self.directory)
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "7", "--reason", "sale").returncode, 0)
        with Terminal(self, f"{program.PROGRAM} top --admin {running.socket}") as terminal:
            shown = terminal.shows("1 override is in force: ")  # the verdict leads
            self.assertIn("LAST MINUTE", shown)
            self.assertIn("BREAKER", shown)
            terminal.keys("Enter")
            terminal.shows("as by default:", without="Enter detail")
            terminal.keys("r")
            terminal.shows("checkout: end its overrides (Enter), or keep them (Esc); reason:")
            terminal.keys("over", "Enter")
            terminal.shows("checkout: its overrides have ended")
            self.assertEqual(running.ask("GET", "/v1/overrides")[1]["overrides"], [])
            terminal.keys("Escape")
            terminal.shows("Enter detail")
            terminal.keys("/", "rep", "Enter")
            terminal.shows("filter: rep", without="checkout ")
            terminal.keys("Escape")
            terminal.shows("checkout ", without="filter: rep")
            terminal.keys("q")
            terminal.shows("left with 0")


class Keys(unittest.TestCase):
    def test_the_demo_is_made_slow_and_stripped_of_its_bulkheads_by_keys(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-") as directory:
            path = directory + "/admin.sock"
            with Terminal(self, f"{program.PROGRAM} demo --serve --listen 127.0.0.1:0 --unix-socket {path}") as terminal:
                terminal.shows("Keys: s makes analytics slow")

                def switches():
                    return {s["name"]: s["on"] for s in json.loads(ask(path, "GET", "/v1/switches")[1])["switches"]}
                self.assertEqual(switches(), {"slow-analytics": False, "bulkheads": True})
                terminal.keys("s")
                terminal.shows("analytics is slow, bulkheads are on")
                terminal.keys("b")
                terminal.shows("analytics is slow, bulkheads are off")
                self.assertEqual(switches(), {"slow-analytics": True, "bulkheads": False})
                terminal.keys("q")
                terminal.shows("left with 0")


if __name__ == "__main__":
    program.main()
