import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from program import ESCAPE, PROGRAM, main, run

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "bulkhead.yaml"


class HelpAndVersion(unittest.TestCase):
    def test_bare_call_shows_help_and_what_to_type_next(self):
        done = run()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Operate a running process:", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "Try: bulkhead demo")

    def test_help_has_examples_before_options_and_fits_a_screen(self):
        for arguments in (["--help"], ["-h"], ["demo", "--help"], ["check", "--help"], ["env", "--help"], ["explain", "--help"], ["size", "--help"], ["host", "--help"], ["fleet", "--help"], ["simulate", "--help"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertLess(done.stdout.index("Examples:"), done.stdout.index("Options:"))
            self.assertLessEqual(len(done.stdout.splitlines()), 56 if len(arguments) == 1 else 44 if arguments[0] == "simulate" else 28)  # a line for each command
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 88)
            self.assertNotIn(ESCAPE, done.stdout)

    def test_help_is_also_a_command(self):
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "set").stdout, run("set", "--help").stdout)
        done = run("help", "sett")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn('unknown command "sett"; did you mean "set"?', done.stderr)

    def test_every_command_has_json(self):
        for command in re.findall(r"^  ([a-z]+) ", run("--help").stdout.split("Try it:")[1], re.M):
            self.assertIn("--json", run(command, "--help").stdout, command)
        for arguments, field in ((["completion", "bash"], "shell"), (["man"], "page"), (["version"], "version"), (["help", "set"], "command"),
                                 (["env"], "variables"), (["size", "--rate", "10", "--latency", "100ms", "--tolerated-wait", "50ms"], None), (["explain", "timeout"], None)):
            done = run(*arguments, "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            document = json.loads(done.stdout)
            if field:
                self.assertIn(field, document)
            if "text" in document:
                self.assertEqual(document["text"], run(*arguments).stdout)

    def test_version(self):
        done = run("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^bulkhead \d+\.\d+\.\d+\n$")


class Manual(unittest.TestCase):
    @staticmethod
    def render(page, *options):
        return subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou", *options], input=page, capture_output=True, text=True, timeout=30)

    def test_it_has_every_command_and_every_option_of_the_help(self):
        page = run("man").stdout
        rendered = re.sub(r"\s+", " ", self.render(page).stdout)
        commands = re.findall(r"^  ([a-z]+) ", run("--help").stdout.split("Try it:")[1], re.M)
        self.assertGreater(len(commands), 15)
        for command in commands:
            help_text = run(command, "--help").stdout
            self.assertIn(f"bulkhead {command}", rendered)
            section = rendered.split(f" {command} {help_text.split(chr(10))[0]} ", 1)[1]  # begins with what the help begins with
            options = re.findall(r"^  (-[-a-z, ]*[a-z])", help_text, re.M)
            for option in [o for line in options for o in line.split(",") if o not in ("-h", "--help")]:
                self.assertIn(option, section, (command, option))

    def test_the_formatter_has_nothing_to_complain_about(self):
        for width in ("-rLL=72n", "-rLL=120n"):
            done = self.render(run("man").stdout, width)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("EXIT STATUS", done.stdout)


class Output(unittest.TestCase):
    COMMANDS = ["", "--help", "--version", "version", "man", "help", "help set", "completion bash", "env", "env --json", "explain", "explain max_queue", "explain --json",
                "explain --schema", f"check {EXAMPLE}", f"check --json {EXAMPLE}", "size --rate 10 --latency 100ms --tolerated-wait 50ms",
                "size --rate 10 --latency 100ms --tolerated-wait 50ms --yaml"]

    @staticmethod
    def write_to(target, command, **how):
        return subprocess.run([PROGRAM, *command.split()], stdout=target, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=60, **how)

    def test_what_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for command in self.COMMANDS:
                done = self.write_to(full, command)
                self.assertEqual((done.returncode, done.stderr), (1, "bulkhead: cannot write: No space left on device\n"), command)

    def test_a_reader_who_has_gone_is_no_news(self):
        for command in self.COMMANDS:
            for ignored in (False, True):  # of SIGPIPE, as some shells and services have it
                reader, writer = os.pipe()
                os.close(reader)
                try:
                    done = self.write_to(writer, command, restore_signals=not ignored)
                finally:
                    os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (1 if ignored else -signal.SIGPIPE, ""), command)


class Mistakes(unittest.TestCase):
    def check(self, arguments, *texts):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        for text in texts:
            self.assertIn(text, done.stderr)

    def test_an_unknown_command_gets_a_suggestion(self):
        self.check(["dmeo"], 'unknown command "dmeo"; did you mean "demo"?', "bulkhead --help")

    def test_a_far_off_command_gets_none(self):
        done = run("xyzzy")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("did you mean", done.stderr)

    def test_an_unknown_option_gets_a_suggestion(self):
        self.check(["demo", "--secnds", "5"], 'unknown option "--secnds"; did you mean "--seconds"?', "bulkhead demo --help")
        self.check(["demo", "--secnds=5"], 'did you mean "--seconds"?')

    def test_an_unknown_option_comes_before_what_is_missing_or_wrong(self):
        self.check(["set", "db", "--max-concurent", "3"], 'unknown option "--max-concurent"; did you mean "--max-concurrent"?')
        self.check(["set", "--max-concurent", "3"], 'did you mean "--max-concurrent"?')
        self.check(["breaker", "--fro", "3m", "open", "db"], 'did you mean "--for"?')
        self.check(["check", "--strictly"], 'did you mean "--strict"?')
        self.check(["set", "db", "--max-concurrent", "3"], "--reason is required")

    def test_an_option_in_the_wrong_place_names_the_right_one(self):
        self.check(["--json"], 'did you mean "bulkhead demo --json"?')

    def test_a_bad_value_names_the_option_the_value_and_what_is_allowed(self):
        for value in ("abc", "1", "601", "-3", "nan", "inf", "5s", ""):
            self.check(["demo", f"--seconds={value}"], "--seconds")
        self.check(["demo", "--seconds", "1"], '--seconds: "1" is not a number from 4 to 600')
        self.check(["demo", "--seed", "x"], '--seed: "x" is not a whole number')

    def test_a_missing_value_and_a_contradiction_are_named(self):
        self.check(["demo", "--seconds"], "--seconds needs a value")
        self.check(["demo", "--json", "--plain"], "--json excludes --plain")

    def test_an_argument_too_many_is_named(self):
        self.check(["demo", "now"], 'unknown argument "now"')


if __name__ == "__main__":
    main()
