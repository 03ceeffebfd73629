"""What an operator does: reads the verdict of a real trouble, and types the commands of docs/operate."""
import hashlib
import json
import os
import pathlib
import pwd
import re
import resource
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import postgres
import program
from servers import Case, Demo, Running, ask

ROOT = pathlib.Path(__file__).resolve().parents[2]

FILE = """version: 1
types:
  partner: {max_concurrent: 9, execution_timeout: 1s}
bulkheads:
  NAME: {max_concurrent: %d, max_queue: 10, max_wait: 100ms, breaker: {open_for: 5s}}
  BORROWER: {type: partner, max_queue: 4, max_wait: 1s}
  analytics: {max_concurrent: 4, breaker: {}}
  payments: {max_concurrent: 4, max_queue: 4, max_wait: 100ms, breaker: {}}
  reports: {max_concurrent: 4}
control:
  unix_socket: %s/admin.sock
  audit_file: %s/audit.jsonl
  allow_faults: true
"""
# Commands that ask a running process, and get --admin here.
ASKING = ("status", "top", "set", "reset", "breaker", "drain", "fault", "switch", "events", "diff", "reload")
PAGES = ("runbook.md", "run.md", "dashboard.md", "alerts.md", "checklist.md", "rehearse.md", "sizing.md")
# The commands of the pages that are not run as they stand, and why. The test fails if a page has another one, or lacks one of these.
NOT_RUN = {
    "bulkhead breaker open\\|close\\|auto NAME": "a syntax; the runbook has its forms",
    "bulkhead switch slow-analytics on": "of the demo: Trouble and Symptoms run it",
}
# Words that stand for something of the reader's.
MEANT = {"SYMPTOM": "full", "REASON": "queue_limit", "SETTING": "max_queue", "COMMAND": "status", "TIME": "10m", "N": "5", "TEXT": "test"}
GATEWAY = """version: 1
bulkheads: {reports: {max_concurrent: 20}}
gateway:
  listeners: {http: {address: 127.0.0.1:8080}}
  upstreams: {shop: {servers: [127.0.0.1:9000]}}
  routes: {reports: {path: /, bulkhead: reports, upstream: shop}}
"""
FLEET = 'version: 1\nbulkheads: {db: {max_concurrent: 5, scope: fleet}}\nfleet: {store: "unix://%s/redis"}\n'
HOST = "version: 1\nbulkheads: {db: {max_concurrent: 5, scope: host}}\nhost: {region: %s/region}\ncontrol: {unix_socket: %s/admin.sock}\n"


def commands(page):
    """Every `bulkhead ...` of a page, in blocks and in lines."""
    text = (ROOT / "docs/operate" / page).read_text()
    found = [line.split("   #")[0].strip() for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    found += re.findall(r"`(bulkhead [^`]*)`", text)
    return sorted({command for command in found if command.startswith("bulkhead ")})


class Runbook(Case):
    def setUp(self):
        super().setUp()
        self.running = Running(self.directory, text=FILE)

    def test_every_command_of_the_pages_works(self):
        left = set()
        for page in PAGES:
            for command in commands(page):
                with self.subTest(page=page, command=command):
                    if command in NOT_RUN:
                        left.add(command)
                    else:
                        self.try_out(command)
        self.assertEqual(left, set(NOT_RUN))

    def try_out(self, command):
        shown, _, written = re.sub(r" \[.*\]", "", command).partition(" > ")
        words = [MEANT.get(word, word) for word in shlex.split(shown)[1:]]
        names = (["set"], ["reset"], ["breaker"], ["drain"], ["fault"], ["size"], ["run"])
        if words in names:
            words.append("--help")  # the name of a command, not a command
        if words[0] in ASKING and "--help" not in words:
            result = self.running.run(*words)
        elif words[0] in ("run", "demo") and "--help" not in words:
            return self.starts_and_stops(words)
        else:
            result = program.run(*self.with_files(words))
        self.assertEqual(result.returncode, 0, result.stderr)
        if written:
            path = pathlib.Path(self.directory, written)
            path.write_text(result.stdout)
            self.assertEqual(program.run("check", str(path)).returncode, 0)

    def with_files(self, words):
        """The files that a command names are of its kind; a command that needs one and does not name it gets one."""
        path = pathlib.Path(self.directory, "of-" + words[0])
        if words[0] == "host":
            path.mkdir(exist_ok=True)
            Running(str(path), text=HOST % (path, path))
            path = path / "b.yaml"
        elif words[0] == "fleet":
            path.write_text(FLEET % self.directory)
            redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.directory + "/redis", "--save", ""], stdout=subprocess.PIPE, text=True)
            self.addCleanup(redis.communicate)
            self.addCleanup(redis.kill)
            self.assertTrue(any("ready to accept connections" in line.lower() for line in redis.stdout))
        else:
            path.write_text(GATEWAY if words[0] == "gateway" else program.run("init", "--name", "db", "--rate", "200", "--latency", "50ms").stdout)
        if words[0] == "check" and words[-1] in ("check", "--strict"):
            words = [*words, "FILE"]
        load = pathlib.Path(self.directory, "load.yaml")
        if "load.yaml" in words:
            load.write_text(program.run("simulate", str(path), "--write-load").stdout)
        return [{"FILE": str(path), "bulkhead.yaml": str(path), "load.yaml": str(load)}.get(word, word) for word in words]

    def starts_and_stops(self, words):
        file, socket = pathlib.Path(self.directory, "of-run"), self.directory + "/of-run.sock"
        file.write_text("version: 1\nbulkheads: {db: {max_concurrent: 2}}\n")
        words = [str(file) if word in ("FILE", "bulkhead.yaml") else word for word in words]
        if words == ["run", "--json"]:
            words.append(str(file))
        words += ["--listen", "127.0.0.1:0", "--unix-socket", socket]
        with subprocess.Popen([program.PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            first = process.stdout.readline()
            process.terminate()
            _, errors = process.communicate(timeout=30)
        self.assertTrue(first, errors)
        self.assertEqual("--json" in words, first.startswith("{"), first)
        self.assertEqual(process.returncode, 0, errors)

    def test_the_lines_that_make_a_token_make_one_that_works(self):
        text = (ROOT / "docs/operate/run.md").read_text()
        lines = next(block for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) if "openssl rand" in block)
        tokens = self.directory + "/tokens"
        pathlib.Path(tokens).touch(mode=0o600)
        of = self.directory + "/other"
        pathlib.Path(of).mkdir()
        running = Running(of, text="version: 1\nbulkheads: {reports: {max_concurrent: 9}}\n"
                          f"control: {{listen: '127.0.0.1:0', unix_socket: {of}/admin.sock, tokens_file: {tokens}}}\n")
        script = lines.replace("/etc/bulkhead/tokens", tokens).replace("127.0.0.1:9920", f"127.0.0.1:{running.port}")
        done = subprocess.run(["bash", "-ec", f"bulkhead() {{ '{program.PROGRAM}' \"$@\"; }}\n{script}"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(running.ask("GET", "/v1/bulkheads/reports")[1]["max_concurrent"], 5)

    def test_every_symptom_has_its_section_and_its_row(self):
        page = (ROOT / "docs/operate/runbook.md").read_text()
        topics = json.loads(program.run("explain", "--json").stdout)["topics"]
        symptoms = [topic["name"] for topic in topics if topic["kind"] == "symptom"]
        self.assertGreater(len(symptoms), 15)
        for name in symptoms:
            self.assertIn(f"\n### {name}\n", page)
            self.assertIn(f"\n| [{name}](#{name}) |", page)
            self.assertIn(f"runbook.md#{name}", program.run("explain", name).stdout)
        self.assertEqual(sorted(re.findall(r"^### ([a-z-]+)$", page, re.M)), sorted(symptoms))
        # "The first row that applies": in the order of the rules, which a test of control/state checks.
        self.assertEqual(re.findall(r"^\| \[([a-z-]+)\]", page, re.M), symptoms)

    def test_the_verdict_leads_and_follows_what_operators_do(self):
        self.assertTrue(self.running.run("status").stdout.startswith("Idle: no calls in the last 10 s; 5 bulkheads ready."))
        self.assertEqual(self.running.run("drain", "NAME", "--for", "5m", "--reason", "upgrade").returncode, 0)

        def leads():
            return self.running.run("status").stdout.startswith("NAME is drained by unix:")
        until(leads)
        self.assertIn("(upgrade), ends in ", self.running.run("top", "--once").stdout)
        status = self.running.ask("GET", "/v1/status")[1]
        finding = status["verdict"]["findings"][0]
        self.assertEqual((finding["symptom"], finding["next"]), ("drained", "bulkhead drain NAME --resume"))
        self.assertEqual(self.running.run(*shlex.split(finding["next"])[1:]).returncode, 0, "the command of the verdict works")
        until(lambda: not leads())

    def test_the_verdict_of_a_file(self):
        def symptoms():
            return [f["symptom"] for f in self.running.ask("GET", "/v1/status")[1]["verdict"]["findings"]]
        self.running.write(20, FILE.replace("  audit_file", "  max_streams: 3\n  audit_file"))
        until(lambda: symptoms() == ["out-of-sync"])
        self.assertIn("1 setting of the file needs a restart", self.running.run("status").stdout)
        self.running.write(-1, FILE)
        until(lambda: "config-invalid" in symptoms())
        self.assertIn("is not valid: ", self.running.run("status").stdout)
        self.running.write(20, FILE)
        until(lambda: not symptoms())

    def test_names_for_completion(self):
        self.assertEqual(self.running.run("status", "--names").stdout.split(), ["BORROWER", "NAME", "analytics", "payments", "reports"])
        script = program.run("completion", "bash").stdout
        completed = subprocess.run(["bash", "-c", script + f"""
bulkhead() {{ '{program.PROGRAM}' "$@" --admin '{self.running.socket}'; }}
COMP_WORDS=(bulkhead set an) COMP_CWORD=2; _bulkhead; echo "${{COMPREPLY[*]}}" """], capture_output=True, text=True, timeout=30)
        self.assertEqual(completed.stdout.strip(), "analytics", completed.stderr)

    def test_errors_name_options_and_commands(self):
        unknown = self.running.run("set", "nameless", "--max-concurrent", "5", "--reason", "x").stderr
        self.assertNotIn("/v1/", unknown)
        self.assertIn("bulkhead status lists them", unknown)
        self.assertIn("drain it: bulkhead drain reports", self.running.run("breaker", "open", "reports", "--reason", "x").stderr)
        self.assertIn("--error 200% is not a share: write 10% or 0.1", self.running.run("fault", "NAME", "--error", "200%", "--reason", "x").stderr)
        # The command that works is the one that was typed, and a reason.
        for words in (["fault", "NAME", "--error", "20%"], ["set", "NAME", "--max-queue", "9"], ["drain", "NAME"], ["breaker", "NAME", "open"]):
            error = self.running.run(*words).stderr
            self.assertIn("--reason is required", error)
            works = re.search(r"^Try: bulkhead (.*)$", error, re.M).group(1)
            self.assertEqual(program.run(*shlex.split(works)).returncode, 0, works)
        self.assertEqual(self.running.ask("GET", "/v1/bulkheads/NAME")[1]["breaker"]["mode"], "forced_open", "the name may come first")
        self.assertEqual(self.running.run("breaker", "NAME", "shut").returncode, 2)
        self.assertNotIn("s3cret", program.run("drain", "x", "--token", "s3cret").stderr)
        long = self.running.run("set", "NAME", "--max-concurrent", "5", "--for", "48h", "--reason", "x").stderr
        self.assertIn('--for: "48h" is not a duration from 1s to 24h', long)
        self.assertIn('--max-concurrent: "0" is not a whole number from 1 to 268435455', program.run("set", "a", "--max-concurrent", "0", "--reason", "x").stderr)


def until(holds, seconds=40):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("this never happened")
        time.sleep(0.3)


class Trouble(unittest.TestCase):
    """The shop of the demo, with a real database: its trouble is read back from the command line and the interface."""

    def test_the_verdict_of_a_slow_dependency_with_and_without_bulkheads(self):
        with Demo() as demo:
            def sentence():
                return demo.get("/v1/status")["verdict"]["sentence"]

            def bulkhead(name):
                return next(b for b in demo.get("/v1/status")["bulkheads"] if b["name"] == name)
            until(lambda: bulkhead("checkout")["seconds"] > 12)  # it has learnt what its calls take
            until(lambda: re.match(r"All is well: 5 bulkheads, \d+ calls/s, ", sentence()), 90)  # also the last minute
            demo.run("switch", "slow-analytics", "on")
            until(lambda: re.match(r"analytics rejects \d+ % \(\w+\) since \d\d:\d\d:\d\d UTC.*checkout.* fine.*Likely: the dependency is slow", sentence()))
            self.assertEqual(bulkhead("checkout")["rejected"], 0)
            shown = demo.run("status").stdout
            self.assertTrue(shown.startswith("analytics rejects"), shown)
            health = demo.get("/health/bulkheads")
            analytics = next(b for b in health["bulkheads"] if b["name"] == "analytics")
            self.assertGreater(analytics["last_minute"]["rejected"], 0)
            self.assertGreater(analytics["since"], 1.7e9)
            # Each arriving call counts once: the calls of database arrived at a route.
            routes = sum(b["requests"] for b in health["bulkheads"] if not b["nested"])
            self.assertEqual(health["total"]["requests"], routes)
            kinds = [event["kind"] for event in demo.get("/v1/events")["events"]]
            self.assertIn("rejecting", kinds)
            demo.run("switch", "bulkheads", "off")
            until(lambda: sentence().startswith("database rejects"))
            self.assertEqual(demo.get("/v1/status")["verdict"]["severity"], "critical")


class Symptoms(unittest.TestCase):
    """Each is made to happen in the shop of the demo, and read back from the interface and the command line."""

    def appears(self, demo, symptom, subject):
        """Among the findings of the interface and of the command; where it is the worst one, it leads with its command and its page.

        A busy machine may have troubles of its own: they do not matter here."""
        def holds():
            verdict = json.loads(demo.run("status", "--json").stdout)["verdict"]
            found = [(f["symptom"], f["subject"]) for f in demo.get("/v1/status")["verdict"]["findings"]]
            if (symptom, subject) not in found or (symptom, subject) not in [(f["symptom"], f["subject"]) for f in verdict["findings"]]:
                return False
            worst = verdict["findings"][0]
            self.assertTrue(verdict["sentence"].endswith(f"Next: {worst['next']}, or runbook#{worst['symptom']}"), verdict["sentence"])
            shown = demo.run("status").stdout.split("\n\n")[0]
            self.assertRegex(" ".join(shown.split()), r"Likely: .* Next: bulkhead .*, or runbook#[a-z-]+$")
            for finding in verdict["findings"]:
                self.command_works(demo, finding)
            return True
        try:
            until(holds, 90)
        except AssertionError:
            self.fail(f"not {symptom} of {subject}: {json.dumps(demo.get('/v1/status')['verdict'])}")

    def command_works(self, demo, finding):
        """The server does not reject what the verdict recommends. The bulkhead may have recovered meanwhile: that is no error."""
        words = shlex.split(finding["next"])[1:]
        tried = demo.run(*words, *(["--dry-run"] if words[0] in ("set", "breaker", "drain", "fault", "reset") else []))
        # diff says with 3 that the file is not valid.
        self.assertIn(tried.returncode, (0, 3) if words == ["diff"] else (0,), f"{finding}\n{tried.stderr}")

    def test_in_the_shop(self):
        with Demo() as demo:
            until(lambda: demo.get("/v1/status")["bulkheads"][0]["seconds"] > 12)  # it has learnt what its calls take
            for symptom, subject, begin, end in (
                    ("overridden", "admin", "set admin --max-queue 7 --for 10m --reason test", "reset admin"),
                    ("drained", "admin", "drain admin --for 10m --reason test", "drain admin --resume"),
                    ("fault-injected", "admin", "fault admin --latency 1ms --for 10m --reason test", "fault admin --end"),
                    ("breaker-open", "checkout", "breaker open checkout --for 10m --reason test", "breaker auto checkout"),
                    ("failing", "checkout", "fault checkout --error 30% --for 10m --reason test", "fault checkout --end"),
                    ("too-small", "browse", "set browse --max-concurrent 1 --max-queue 2 --for 10m --reason test", "reset browse"),
                    ("slow-dependency", "browse", "fault browse --latency 3s --for 10m --reason test", "fault browse --end"),
                    ("slow-dependency", "analytics", "switch slow-analytics on", "switch slow-analytics off"),
                    ("switched-off", "admin", "switch bulkheads off", "switch bulkheads on")):
                for words, then in ((begin, True), (end, False)):
                    done = demo.run(*words.split())
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if then:
                        self.appears(demo, symptom, subject)

    def test_of_a_young_process(self):
        with Demo("--slow") as demo:
            self.appears(demo, "full", "analytics")


SHOP = """version: 1
lint_allow: [unused, no-fallback, no-buffer, not-enforced]
groups:
  db: {total: 10, lend: revocable}
bulkheads:
  limited: {max_concurrent: 10, rate_limit: {rate: 10, burst: 5}}
  kept: {max_concurrent: 10, max_queue: 4, max_wait: 200ms, critical_reserve: 50%}
  hung: {max_concurrent: 4, track_holders: true}
  lender: {group: db, guaranteed: 5, max_queue: 9, max_wait: 20s}
  borrower: {group: db, guaranteed: 5, max_queue: 9, max_wait: 20s}
  observed: {max_concurrent: 1, shadow: true}
  bursts: {max_concurrent: 2, criticality: critical}
  closing: {max_concurrent: 2}
  far: {max_concurrent: 4, scope: fleet}
fleet: {store: "unix://DIRECTORY/redis", lease: 1s}
control: {unix_socket: DIRECTORY/admin.sock, max_streams: 16}
"""


class Shop:
    """The symptom shop, with a store for its fleet, until the end of the with-block."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bulkhead-", dir="/dev/shm")
        self.file, self.socket = self.directory + "/b.yaml", self.directory + "/admin.sock"
        self.write(SHOP)
        self.redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.directory + "/redis", "--save", "", "--dir", self.directory],
                                      stdout=subprocess.DEVNULL)
        until(lambda: pathlib.Path(self.directory + "/redis").exists())
        self.process = subprocess.Popen([os.environ["SYMPTOM_SHOP"], self.file], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        for process in (self.process, self.redis):
            process.terminate()
        self.code = self.process.wait(30)
        self.redis.wait(30)
        self.process.stdout.close()
        shutil.rmtree(self.directory)

    def write(self, text):
        pathlib.Path(self.file).write_text(text.replace("DIRECTORY", self.directory))

    def run(self, *arguments):
        return program.run(*arguments, "--admin", self.socket, timeout=30)

    def get(self, path):
        response, body = ask(self.socket, "GET", path)
        assert response.status == 200, body
        return json.loads(body)


class ShopSymptoms(Symptoms):
    """Those that the demo does not have, in a shop whose bulkheads each have one."""

    @unittest.skipUnless(shutil.which("redis-server"), "needs redis-server")
    def test_in_the_shop(self):
        with Shop() as shop:
            for symptom, subject in (("lender-starved", "lender"), ("rate-limited", "limited"), ("reserve", "kept"), ("shadow-only", "observed"),
                                     ("closed", "closing"), ("rejecting", "bursts")):
                self.appears(shop, symptom, subject)
            self.check_rows(shop)
            shop.redis.kill()
            self.appears(shop, "fleet-cut-off", "far")
            shop.write(SHOP.replace("max_streams: 16", "max_streams: 3"))
            self.assertEqual(shop.run("reload").returncode, 0)
            self.appears(shop, "out-of-sync", shop.file)
            shop.write(SHOP.replace("max_concurrent", "max_concurent"))
            self.assertNotEqual(shop.run("reload").returncode, 0)
            self.appears(shop, "config-invalid", shop.file)
            self.appears(shop, "stuck-calls", "hung")
            kinds = {(event["kind"], event["bulkhead"]) for event in shop.get("/v1/events?newest=1000")["events"]}
            self.assertLessEqual({("rejecting", "limited"), ("rejecting", "kept"), ("stuck", "hung"), ("cut_off", "far")}, kinds)

    def check_rows(self, shop):
        """Each finding has its begin, and the row of its bulkhead says the same."""
        status = shop.get("/v1/status")
        rows = {row["name"]: row for row in status["bulkheads"]}
        for finding in status["verdict"]["findings"]:
            self.assertGreater(finding["since"], 1.7e9, finding)
            if finding["subject"] in rows:
                row = rows[finding["subject"]]
                self.assertEqual((row["state"], row["since"]), (finding["symptom"], finding["since"]))
        for name in status["verdict"]["fine"]:
            self.assertEqual(rows[name]["state"], "ok")

    test_of_a_young_process = None


class PostgresSymptoms(Symptoms):
    """The same shop on a PostgreSQL server, which goes away."""

    def test_in_the_shop(self):
        with postgres.Server() as server, Demo("--postgres", server.url) as demo:
            until(lambda: demo.get("/v1/status")["bulkheads"][0]["seconds"] > 12)
            demo.run("switch", "slow-analytics", "on")
            self.appears(demo, "slow-dependency", "analytics")
            demo.run("switch", "slow-analytics", "off")
            server.command(f"{postgres.binaries()}/pg_ctl", "-w", "-m", "immediate", "-D", server.data, "stop")
            until(lambda: any(f["symptom"] == "pool-down" for f in demo.get("/v1/status")["verdict"]["findings"]), 90)
            self.assertRegex(demo.run("status").stdout, r"^pool connections cannot connect: |connections \(pool-down\)")
            server.command(f"{postgres.binaries()}/pg_ctl", "-w", "-t", "60", "-l", "/dev/null", "-D", server.data, "start")
            until(lambda: not any(f["symptom"] == "pool-down" for f in demo.get("/v1/status")["verdict"]["findings"]), 90)

    test_of_a_young_process = None


class Author(Case):
    """init, fmt, config show, check --against."""

    def test_init_writes_a_file_that_is_good_and_runs(self):
        for arguments in ([], ["--name", "orders", "--rate", "200", "--latency", "50ms", "--pool", "100"], ["--rate", "9000/m", "--pool", "5"]):
            text = program.run("init", *arguments).stdout
            path = self.directory + "/b.yaml"
            pathlib.Path(path).write_text(text)
            checked = program.run("check", "--strict", path)
            self.assertEqual(checked.returncode, 0, text + checked.stderr)
            self.assertEqual(program.run("fmt", "--check", path).returncode, 0, "it is formatted")
        self.assertIn("--rate", program.run("init", "--rate", "many").stderr)

    def test_fmt_changes_the_look_and_not_the_meaning(self):
        path = self.directory + "/b.yaml"
        text = "version: 1   \n\n\n\nbulkheads:\n     # a comment\n     db:\n        max_concurrent: 5  # why\n        breaker:\n            open_for: 5s\r\n"
        pathlib.Path(path).write_text(text)
        before = program.run("config", "show", path).stdout
        self.assertEqual(program.run("fmt", "--check", path).returncode, 3)
        self.assertEqual(program.run("fmt", "--write", path).returncode, 0)
        self.assertEqual(pathlib.Path(path).read_text(),
                         "version: 1\n\nbulkheads:\n  # a comment\n  db:\n    max_concurrent: 5  # why\n    breaker:\n      open_for: 5s\n")
        self.assertEqual(program.run("config", "show", path).stdout, before)
        self.assertEqual(program.run("fmt", "--check", path).returncode, 0)
        pathlib.Path(path).write_text("version: [\n")
        self.assertEqual(program.run("fmt", "--write", path).returncode, 3)
        self.assertEqual(pathlib.Path(path).read_text(), "version: [\n")

    def test_a_file_that_cannot_be_written_stays_as_it_was(self):
        path = pathlib.Path(self.directory, "b.yaml")
        link = pathlib.Path(self.directory, "link.yaml")
        link.symlink_to("b.yaml")
        text = "version: 1\nbulkheads:\n    db:\n        max_concurrent: 5\n"
        path.write_text(text)
        path.chmod(0o640)
        small = subprocess.run([program.PROGRAM, "fmt", "--write", str(path)], capture_output=True, text=True, timeout=30,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)))
        self.assertEqual((small.returncode, path.read_text(), sorted(os.listdir(self.directory))), (1, text, ["b.yaml", "link.yaml"]))
        self.assertIn(f"bulkhead fmt: cannot write {path}: File too large", small.stderr)
        self.assertEqual(program.run("fmt", "--write", str(link)).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertEqual((path.stat().st_mode & 0o777, path.read_text()), (0o640, text.replace("    db", "  db").replace("        max", "    max")))

    def test_config_show_says_where_each_value_comes_from(self):
        path = self.directory + "/b.yaml"
        pathlib.Path(path).write_text(FILE % (7, self.directory, self.directory))
        shown = program.run("config", "show", path, "--provenance", BULKHEAD_BULKHEADS__REPORTS__MAX_CONCURRENT="6").stdout
        of = {line.split()[0]: line for line in shown.splitlines()}
        self.assertRegex(of["bulkheads.NAME.max_concurrent"], rf" 7 +{path}:5$")
        self.assertRegex(of["bulkheads.BORROWER.execution_timeout"], rf" 1s +type partner, {path}:3$")
        self.assertRegex(of["bulkheads.reports.max_concurrent"], r" 6 +\$BULKHEAD_BULKHEADS__REPORTS__MAX_CONCURRENT$")
        self.assertNotIn("bulkheads.reports.max_queue", of)
        self.assertIn("default", program.run("config", "show", path, "--provenance", "--all").stdout)

    def test_config_show_has_the_gateway_whose_file_the_environment_does_not_change(self):
        path = self.directory + "/b.yaml"
        pathlib.Path(path).write_text(GATEWAY)
        shown = program.run("config", "show", path, "--provenance", BULKHEAD_BULKHEADS__REPORTS__MAX_CONCURRENT="6").stdout
        of = {line.split()[0]: line for line in shown.splitlines()}
        self.assertRegex(of["bulkheads.reports.max_concurrent"], rf" 20 +{path}:2$")
        self.assertRegex(of["gateway.listeners.http.address"], rf" \"127\.0\.0\.1:8080\" +{path}:4$")
        self.assertRegex(of["gateway.upstreams.shop.servers"], rf" \[\"127\.0\.0\.1:9000\"\] +{path}:5$")
        self.assertRegex(of["gateway.routes.reports.upstream"], rf" shop +{path}:6$")
        self.assertNotIn("gateway.workers", of)
        self.assertRegex(program.run("config", "show", path, "--provenance", "--all").stdout, r"gateway\.workers +1 +default")
        pathlib.Path(path).write_text(GATEWAY.replace("upstream: shop", "upstream: none-such"))
        self.assertEqual(program.run("config", "show", path).returncode, 3)
        self.assertEqual(program.run("fmt", path).returncode, 3)

    def test_check_against_a_running_process_shows_what_would_change(self):
        running = Running(self.directory, text=FILE)
        path = self.directory + "/next.yaml"
        pathlib.Path(path).write_text(FILE % (25, self.directory, self.directory))
        checked = program.run("check", path, "--against", running.socket)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertIn("~ bulkheads.NAME.max_concurrent: 20 -> 25", checked.stdout)
        self.assertEqual(program.run("check", path, "--against", self.directory + "/none.sock").returncode, 4)

    def test_the_example_file_starts_as_it_is(self):
        shutil.copy(ROOT / "examples/bulkhead.yaml", self.directory + "/b.yaml")
        running = Running(self.directory, limit=None, arguments=["--listen", "127.0.0.1:0"])
        self.assertIn("control plane at http://127.0.0.1:", running.first)

    def test_a_reader_without_a_token_on_other_hosts_is_a_warning(self):
        path = self.directory + "/b.yaml"
        pathlib.Path(path).write_text("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol:\n  listen: 0.0.0.0:9920\n  anonymous: viewer\n"
                                      "  tokens_file: /t\n  tls: {certificate: /c, private_key: /k}\n")
        self.assertIn("every client that reaches 0.0.0.0:9920 may read without a token", program.run("check", path).stderr)


class Unit(Case):
    """The unit of the package. Its user reads only what the unit gives it."""
    UNIT = (ROOT / "packaging/debian/bulkhead.service").read_text()

    def test_systemd_accepts_the_unit(self):
        self.assertTrue(shutil.which("systemd-analyze"), "systemd-analyze is missing: scripts/setup test")
        path = pathlib.Path(self.directory) / "bulkhead.service"
        path.write_text(self.UNIT.replace("/usr/bin/bulkhead", program.PROGRAM))
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60)
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))

    def file(self, name, text, mode):
        path = pathlib.Path(self.directory, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def line(self, name):
        return f"{name} operator {hashlib.sha256(name.encode()).hexdigest()}\n"

    def role(self, port, token):
        answer = urllib.request.Request(f"http://127.0.0.1:{port}/v1/session", headers={"Authorization": "Bearer " + token})
        try:
            return json.load(urllib.request.urlopen(answer, timeout=10))["role"]
        except urllib.error.HTTPError as error:
            return error.code

    def config(self, tokens):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pathlib.Path(self.directory).chmod(0o755)
        text = f"version: 1\nbulkheads: {{db: {{max_concurrent: 2}}}}\ncontrol: {{listen: '127.0.0.1:{port}', tokens_file: {tokens}}}\n"
        return port, self.file("bulkhead.yaml", text, 0o644)

    def start(self, config, **how):
        """As ExecStart of the unit says, as a user without rights where the test may choose one."""
        command = re.search(r"^ExecStart=(.*)$", self.UNIT, re.M).group(1)
        words = command.replace("/usr/bin/bulkhead", program.PROGRAM).replace("${CONFIG}", str(config)).replace("$OPTIONS", "").split()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **how)

        def stop():
            process.terminate()
            process.communicate(timeout=30)
        self.addCleanup(stop)
        self.assertIn("control plane at", process.stdout.readline() or process.stderr.read())

    def as_nobody(self, path, **more):
        """The owner of the file, and how to be a process that is not root: a test that is not root owns all it makes."""
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], **more}

    def test_a_credential_that_only_its_user_can_read_gives_access(self):
        credential = self.file("credentials/tokens", self.line("ann"), 0o400)
        port, config = self.config(credential)
        self.start(config, env={**os.environ, "CREDENTIALS_DIRECTORY": str(credential.parent)}, **self.as_nobody(credential))
        self.assertEqual((self.role(port, "ann"), self.role(port, "bob")), ("operator", 401))

    def test_a_file_of_its_group_is_read_again(self):
        tokens = self.file("tokens", self.line("ann"), 0o640)
        port, config = self.config(tokens)
        group = 54321  # of nobody else
        how = self.as_nobody(tokens, extra_groups=[group])
        if how:
            os.chown(tokens, 0, group)
        self.start(config, **how)
        self.assertEqual((self.role(port, "ann"), self.role(port, "bob")), ("operator", 401))
        with tokens.open("a") as file:
            file.write(self.line("bob"))
        self.assertEqual(self.role(port, "bob"), "operator")

    @unittest.skipUnless(pathlib.Path("/run/systemd/system").is_dir() and os.geteuid() == 0, "PID 1 is not systemd, or this is not root")
    def test_a_transient_unit_with_the_settings_of_the_unit_serves(self):
        name = f"bulkhead-test-{os.getpid()}"
        tokens = self.file("tokens", self.line("ann"), 0o600)
        port, config = self.config(f"/run/credentials/{name}.service/tokens")
        service = self.UNIT.split("[Service]\n")[1].split("\n[")[0]
        settings = [line for line in service.splitlines() if "=" in line and not re.match(r"#|Exec|Environment", line)]
        given = [f"--property={line.replace('/etc/bulkhead/tokens', str(tokens)).replace('=bulkhead', '=' + name)}" for line in settings]
        # ProtectHome and the private /tmp of DynamicUser hide the directory of the test.
        given += [f"--property=BindReadOnlyPaths={config.parent} {pathlib.Path(program.PROGRAM).parent}"]
        self.addCleanup(subprocess.run, ["systemctl", "stop", name], timeout=60)
        started = subprocess.run(["systemd-run", "--unit", name, "--collect", *given, program.PROGRAM, "run", str(config)],
                                 capture_output=True, text=True, timeout=60)  # Type=notify: it waits until the program is ready
        self.assertEqual(started.returncode, 0, started.stderr)
        self.assertEqual((self.role(port, "ann"), self.role(port, "bob")), ("operator", 401))


if __name__ == "__main__":
    program.main()
