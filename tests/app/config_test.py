import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from program import PROGRAM, main, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "bulkhead.yaml"
BROKEN = ROOT / "tests" / "config" / "broken"
GOOD = ROOT / "tests" / "config" / "good"


def check(text, *options):
    return subprocess.run([PROGRAM, "check", *options, "-"], input=text, capture_output=True, text=True, timeout=60)


class Check(unittest.TestCase):
    def test_the_example_is_good_even_strictly(self):
        done = run("check", "--strict", str(EXAMPLE))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"good: 6 bulkheads, 1 group, 1 set of tenants, control plane, \d+ series")

    def test_exit_codes(self):
        self.assertEqual(check("version: 1\nbulkheads: {a: {}}\n").returncode, 0, "warnings only")
        self.assertEqual(check("version: 1\nbulkheads: {a: {}}\n", "--strict").returncode, 3)
        self.assertEqual(check("version: 1\nbulkheads: {a: {max_wait: 5}}\n").returncode, 3)
        self.assertEqual(run("check", "/no/such/file").returncode, 1)
        self.assertEqual(run("check").returncode, 2)
        self.assertEqual(run("check", str(EXAMPLE), "--strictly").returncode, 2)

    def test_all_errors_go_to_stderr_and_the_count_comes_last(self):
        done = check("version: 1\nbulkheads: {a: {max_wait: 5, shadow: yes}}\n")
        self.assertEqual(done.stdout, "")
        self.assertIn('stdin:2:27: bulkheads.a.max_wait: "5" has no unit', done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1], "stdin: 2 errors")

    def test_json_says_the_same(self):
        done = check("version: 1\nbulkheads: {a: {max_wait: 5}}\n", "--json")
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        told = json.loads(done.stdout)
        self.assertEqual((told["ok"], told["errors"], told["warnings"]), (False, 1, 0))
        self.assertEqual(told["problems"][0] | {"hint": ""}, {
            "severity": "error", "line": 2, "column": 27, "path": "bulkheads.a.max_wait", "message": '"5" has no unit',
            "hint": "", "rule": None, "source": "bulkheads: {a: {max_wait: 5}}"})
        warned = json.loads(check("version: 1\nbulkheads: {a: {fallback: none}}\n", "--json").stdout)
        self.assertTrue(warned["ok"])
        self.assertEqual({p["rule"] for p in warned["problems"]}, {"no-timeout", "one-for-all"})

    def test_the_series_of_a_scrape_are_told_and_too_many_are_warned_of(self):
        def series(n, more=""):
            named = "".join(f"  b{i}: {{execution_timeout: 1s, fallback: none, max_concurrent: {i + 1}{more}}}\n" for i in range(n))
            return check("version: 1\nbulkheads:\n" + named, "--json"), check("version: 1\nbulkheads:\n" + named)
        few, text = series(2)
        one_more = json.loads(series(3)[0].stdout)["series"] - json.loads(few.stdout)["series"]
        self.assertGreater(one_more, 20)
        self.assertIn(f"2 bulkheads, {json.loads(few.stdout)['series']} series", text.stdout)
        self.assertEqual(text.stderr, "")
        many, text = series(10_000 // one_more + 1)
        self.assertGreater(json.loads(many.stdout)["series"], 10_000)
        self.assertIn("a scrape is", text.stderr)
        self.assertEqual(text.returncode, 0)
        threads, _ = series(2, ", isolation: threads, pool: {min_threads: 1}, track_holders: true")
        self.assertEqual(json.loads(threads.stdout)["series"] >= json.loads(few.stdout)["series"], True, "no thread is started")

    def test_it_changes_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            socket = pathlib.Path(directory) / "admin.sock"
            done = check(f"version: 1\ncontrol: {{unix_socket: {socket}, audit_file: {directory}/audit}}\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])


class Environment(unittest.TestCase):
    TEXT = "version: 1\nbulkheads: {external-api: {max_concurrent: 5, max_queue: 1, max_wait: 1s}}\n"

    def program(self, *arguments, **variables):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.TEXT)
            file.flush()
            return subprocess.run([PROGRAM, *arguments, file.name], env=os.environ | variables, capture_output=True, text=True, timeout=60)

    def test_what_is_listed_is_what_can_be_given(self):
        before = self.program("env").stdout
        self.assertIn("BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE=1\n", before)
        self.assertIn("BULKHEAD_CONTROL__LISTEN=\n", before)
        after = self.program("env", BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE="7").stdout
        self.assertIn("# from the environment:\nBULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE=7\n", after)
        self.assertEqual(run("env").returncode, 0)

    def test_what_is_listed_is_an_env_file_that_means_the_same(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "bulkhead.yaml")
            file.write_text(self.TEXT + "control: {listen: 127.0.0.1:0, audit_file: '/tmp/a name # with \"quotes\"'}\n", encoding="utf-8")
            environment = {"BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE": "7"}

            def listed(given):
                # env -i passes nothing else on, and keeps each NAME=VALUE as it is.
                done = subprocess.run(["env", "-i", *[f"{k}={v}" for k, v in given.items()], PROGRAM, "env", file],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
                return dict(line.split("=", 1) for line in lines)
            before = listed(environment)
            self.assertEqual(before["BULKHEAD_CONTROL__AUDIT_FILE"], '/tmp/a name # with "quotes"')
            kept = {k: before[k] for k in ("BULKHEAD_CONTROL__AUDIT_FILE", "BULKHEAD_CONTROL__LISTEN", *environment)}
            self.assertEqual(listed(kept), before)

    def test_a_wrong_one_is_an_error_that_names_it(self):
        for name, value, text in (("BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QEUE", "7", "did you mean BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE?"),
                                  ("BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_WAIT", "7", '"7" has no unit'),
                                  ("BULKHEAD_CONTROL_LISTEN", "x", "did you mean BULKHEAD_CONTROL__LISTEN?")):
            for command in ("check", "env", "run"):
                done = self.program(command, **{name: value})
                self.assertEqual(done.returncode, 3, done.stdout)
                self.assertIn(f"environment: {name}: ", done.stderr)
                self.assertIn(text, done.stderr)
        self.assertEqual(self.program("check", BULKHEAD_TOKEN="x", BULKHEAD_SERVICE_HOST="10.0.0.1").returncode, 0)


class Explain(unittest.TestCase):
    def test_settings_rules_and_reasons(self):
        for topic, text in (("max_queue", "bulkheads.NAME.max_queue"), ("bulkheads.db.breaker.open_for", "default  1m"),
                            ("queue-too-deep", "lint_allow: [queue-too-deep]"), ("breaker_open", "The breaker is open")):
            done = run("explain", topic)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(text, done.stdout)

    def test_columns_do_not_run_together(self):
        for line in run("explain").stdout.splitlines():
            if line.startswith("  "):
                self.assertRegex(line, r"^  \S+  +\S")

    def test_a_word_with_two_meanings_gets_both(self):
        done = run("explain", "timeout")
        self.assertIn("adaptive.aimd.timeout", done.stdout)
        self.assertIn("timeout (reason of a rejection)", done.stdout)

    def test_a_typo_gets_a_suggestion(self):
        for typed, meant in (("max_queu", "max_queue"), ("queue-to-deep", "queue-too-deep"), ("breaker_opne", "breaker_open"),
                             ("bulkheads.db.max_wiat", "max_wait")):
            done = run("explain", typed)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f'did you mean "{meant}"?', done.stderr)

    def test_without_a_topic_everything_is_listed_also_as_json(self):
        text, told = run("explain").stdout, json.loads(run("explain", "--json").stdout)["topics"]
        self.assertEqual({t["kind"] for t in told}, {"setting", "rule", "reason", "symptom"})
        for topic in told:
            self.assertIn(topic.get("path", topic.get("name")), text)


class Size(unittest.TestCase):
    ARGUMENTS = ["--rate", "200", "--latency", "50ms", "--tolerated-wait", "100ms"]

    def test_the_arithmetic_is_shown(self):
        done = run("size", *self.ARGUMENTS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("200/s x 50 ms = 10 calls in flight", "10 x 1.5 (buffer) = 15 concurrent calls", "100 ms / 5 ms = 20 waiting calls",
                     "20 x 50 ms / 15 = 66.7 ms"):
            self.assertIn(text, done.stdout)

    def test_check_accepts_the_yaml_and_has_nothing_to_say_about_the_size(self):
        for arguments in (self.ARGUMENTS, [*self.ARGUMENTS, "--p99", "1ms"], [*self.ARGUMENTS[:4], "--tolerated-wait", "0s"],
                          ["--rate", "3000/h", "--latency", "2s", "--tolerated-wait", "10s", "--name", "reports"]):
            yaml = run("size", *arguments, "--yaml").stdout
            done = check(yaml, "--json")
            self.assertEqual(done.returncode, 0, yaml + done.stdout)
            rules = {p["rule"] for p in json.loads(done.stdout)["problems"]}
            self.assertLessEqual(rules, {"no-fallback", "one-for-all"})
            self.assertTrue(run("size", *arguments).stdout.endswith(yaml))

    def test_p99_gives_the_wait_to_expect_or_the_places_that_keep_it(self):
        told = json.loads(run("size", *self.ARGUMENTS, "--p99", "--json").stdout)
        self.assertEqual(told["max_concurrent"], 15)
        self.assertAlmostEqual(told["erlang_c"]["waiting_share"], 0.102, places=3)
        self.assertAlmostEqual(told["erlang_c"]["p99_wait_ms"], 23.2, places=1)
        more = json.loads(run("size", *self.ARGUMENTS, "--p99", "1ms", "--json").stdout)
        self.assertEqual((more["max_concurrent"], more["erlang_c"]["places_for_target"]), (19, 19))

    def test_without_a_queue_calls_are_rejected_instead_of_waiting(self):
        arguments = [*self.ARGUMENTS[:4], "--tolerated-wait", "0s"]
        for p99 in ([], ["20ms"]):
            text = run("size", *arguments, "--p99", *p99).stdout
            self.assertIn("reject  max_concurrent 15, 10 in flight: 3.65 % of the calls are rejected (Erlang B)\n", text)
            self.assertNotIn("Erlang C", text)
            told = json.loads(run("size", *arguments, "--p99", *p99, "--json").stdout)
            self.assertNotIn("erlang_c", told)
            self.assertAlmostEqual(told["erlang_b"]["rejected_share"], 0.0365, places=4)

    def test_mistakes_are_named(self):
        for arguments, text in ((["--rate", "0"], "--rate"), (["--latency", "50"], "has no unit"), (["--latency", "0s"], "--latency"),
                                (["--buffer", "0.5"], "--buffer"), (["--rate", "1000000000", "--latency", "1h"], "too many"),
                                (["--name", "a.b"], "--name")):
            given = dict(zip(self.ARGUMENTS[::2], self.ARGUMENTS[1::2])) | dict(zip(arguments[::2], arguments[1::2]))
            done = run("size", *[word for pair in given.items() for word in pair])
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(text, done.stderr)


class Documents(unittest.TestCase):
    """What docs/ has is what the table says."""

    def test_reference_and_schema_are_made_from_the_table(self):
        for option, file in (("--markdown", "config.md"), ("--schema", "bulkhead.schema.json")):
            made = run("explain", option).stdout
            kept = (ROOT / "docs" / "formats" / file).read_text(encoding="utf-8")
            self.assertEqual(kept, made, f"run: bulkhead explain {option} > docs/formats/{file}")

    def test_files_in_the_documentation_are_good(self):
        for page in ("docs/formats/config.md", "docs/operate/sizing.md", "README.md"):
            blocks = (ROOT / page).read_text(encoding="utf-8").split("```yaml\n")[1:]
            for block in blocks:
                done = check(block.split("```")[0])
                self.assertEqual(done.returncode, 0, page + "\n" + done.stderr)


class Schema(unittest.TestCase):
    # The schema cannot say these: what must fit together, bounds of what has a unit, or what PyYAML has turned into something else.
    BEYOND = """adaptive_group_too_low adaptive_in_group all_reserved anchor_and_alias burst_for_years byte_order_mark capital_true control_without_door dip_too_high
        duplicate_bulkhead duplicate_quoted duplicate_setting duplicate_top endless_duration fairness_with_threads
        floor_above_ceiling flow_hand_above_queues guarantees_too_many hexadecimal holdback_order initial_outside listen_bad_port listen_everywhere listen_without_port
        max_below_guaranteed max_nothing merge_key min_threads_above name_no name_number name_octal no_failures_allowed octal off
        part_too_much pool_without_threads rate_missing rate_too_fast rate_too_slow share_without_group size_in_group
        socket_path_too_long tag threads_in_group three_times tls_without_listen too_long_duration too_many_threads
        type_with_fault underscore units_out_of_order unknown_group unknown_resource unknown_rule unknown_type utf16
        window_too_short windows_swapped yes zero_duration""".split()

    @classmethod
    def setUpClass(cls):
        import jsonschema
        import yaml
        schema = json.loads((ROOT / "docs" / "formats" / "bulkhead.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        cls.validator = jsonschema.Draft202012Validator(schema)
        cls.yaml = yaml

    def errors(self, path):
        return [error.message for error in self.validator.iter_errors(self.yaml.safe_load(path.read_bytes()))]

    def test_it_accepts_what_is_good(self):
        for path in [EXAMPLE, *sorted(GOOD.glob("*.yaml"))]:
            self.assertEqual(self.errors(path), [], path)

    def test_it_rejects_what_it_can_express(self):
        accepted = []
        for path in sorted(BROKEN.glob("*.yaml")):
            try:
                if not self.errors(path):
                    accepted.append(path.stem)
            except (self.yaml.YAMLError, UnicodeDecodeError):
                pass  # no YAML at all
        self.assertEqual(accepted, self.BEYOND)


if __name__ == "__main__":
    main()
