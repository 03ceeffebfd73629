"""What an operator does: reads the verdict of a real trouble, and types the commands of docs/operate."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

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
# Of the pages, these run for ever, need another machine, or are a part of a sentence.
ELSEWHERE = re.compile(r"bulkhead (run|demo|check|env|init)\b|--admin|\.\.\.|-f\b|slow-analytics|^bulkhead$|\bFILE\b|\|")


def commands(page):
    """Every `bulkhead ...` of a page, in blocks and in lines."""
    text = (ROOT / "docs/operate" / page).read_text()
    found = [line.split("   #")[0].strip() for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    found += re.findall(r"`(bulkhead [^`]*)`", text)
    return sorted({command for command in found if command.startswith("bulkhead ") and not ELSEWHERE.search(command)})


class Runbook(Case):
    def setUp(self):
        super().setUp()
        self.running = Running(self.directory, text=FILE)

    def test_every_command_of_the_pages_works(self):
        seen = 0
        for page in ("runbook.md", "run.md", "dashboard.md", "alerts.md", "checklist.md", "rehearse.md", "sizing.md"):
            for command in commands(page):
                words = shlex.split(command.replace("SYMPTOM", "full").replace("REASON", "queue_limit").replace("SETTING", "max_queue"))[1:]
                if words[0] not in ASKING and words[0] not in ("explain", "man", "version", "help", "size"):
                    continue
                if any(re.fullmatch(r"\[.*|TIME|N|TEXT|COMMAND", word) for word in words):
                    continue  # a syntax, not a command
                if words in (["set"], ["reset"], ["breaker"], ["drain"], ["fault"], ["size"]):
                    continue  # the name of a command
                result = self.running.run(*words) if words[0] in ASKING else program.run(*words)
                self.assertEqual(result.returncode, 0, f"{page}: {command}\n{result.stderr}")
                seen += 1
        self.assertGreater(seen, 12)

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
            return True
        try:
            until(holds, 90)
        except AssertionError:
            self.fail(f"not {symptom} of {subject}: {json.dumps(demo.get('/v1/status')['verdict'])}")

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
            self.assertNotIn(("rejecting", "bursts"), kinds, "its bursts are too short for an episode")

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


class Unit(unittest.TestCase):
    def test_systemd_accepts_the_unit(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd here")
        with tempfile.TemporaryDirectory() as directory:
            unit = (ROOT / "packaging/debian/bulkhead.service").read_text().replace("/usr/bin/bulkhead", program.PROGRAM)
            path = pathlib.Path(directory) / "bulkhead.service"
            path.write_text(unit)
            verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60)
            self.assertEqual((verified.returncode, verified.stderr), (0, ""))


if __name__ == "__main__":
    program.main()
