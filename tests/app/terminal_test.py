"""The live table in a real terminal: tmux draws what the program writes, and tells what is on the screen."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from program import PROGRAM, main


class Terminal:
    def __init__(self, columns=80, rows=24, **environment):
        self.directory = tempfile.TemporaryDirectory(prefix="bulkhead-test-")
        settings = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PS1": "ready$ ", **environment}
        variables = [f"{name}={value}" for name, value in settings.items()]
        self.tmux("-u", "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  " ".join(["env", *(f"'{v}'" for v in variables), "bash", "--norc", "--noprofile"]))
        self.wait_for(r"ready\$")

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-S", f"{self.directory.name}/tmux", *arguments], capture_output=True, text=True, check=True, timeout=30).stdout

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def wait_for(self, pattern, seconds=60):
        until = time.monotonic() + seconds
        while True:
            shown = self.screen()
            if re.search(pattern, shown, re.DOTALL):
                return shown
            if time.monotonic() > until:
                raise AssertionError(f"{pattern!r} did not appear on:\n{shown}")
            time.sleep(0.1)

    def is_sane(self):
        """Main screen, visible cursor, wrapping on, and a keyboard that echoes line by line."""
        flags = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").split()
        self.type("clear; stty -a", "Enter")
        modes = self.wait_for(r"speed.*\bextproc").split()
        return flags == ["0", "1", "1"] and "icanon" in modes and "echo" in modes and "isig" in modes

    def close(self):
        self.tmux("kill-server")
        self.directory.cleanup()


class LiveTable(unittest.TestCase):
    def open(self, **settings):
        terminal = Terminal(**settings)
        self.addCleanup(terminal.close)
        return terminal

    def test_shows_both_acts_then_the_result_and_leaves_the_terminal_sane(self):
        terminal = self.open()
        terminal.type(f"{PROGRAM} demo --seconds 8; echo code=$?", "Enter")
        first = terminal.wait_for(r"WITHOUT BULKHEADS.*analytics has turned slow.*Starving")
        for route in ("checkout", "browse", "analytics", "admin"):
            self.assertRegex(first, rf"(?m)^ {route} +[█▏▎▍▌▋▊▉·]+ +\d+/100 .*\d+")
        self.assertRegex(first, r"\d+ s left")
        second = terminal.wait_for(r" WITH BULKHEADS.*analytics has turned slow.*Only analytics is rejected")
        self.assertRegex(second, r"(?m)^ checkout .* \d+/50 ")
        self.assertIn("15/15", second)
        last = terminal.wait_for(r"code=\d+")
        self.assertIn("code=0", last)
        self.assertIn("While analytics was slow", last)
        self.assertNotIn("s left", last)
        self.assertTrue(terminal.is_sane())

    def test_ctrl_c_gives_the_terminal_back(self):
        terminal = self.open()
        terminal.type("echo before; " + f"{PROGRAM} demo; echo code=$?", "Enter")
        terminal.wait_for("WITHOUT BULKHEADS")
        terminal.type("C-c")
        shown = terminal.wait_for(r"code=\d+")
        self.assertIn("code=130", shown)
        self.assertIn("before", shown)  # what was there is there again
        self.assertTrue(terminal.is_sane())

    def test_q_leaves(self):
        terminal = self.open()
        terminal.type(f"{PROGRAM} demo; echo code=$?", "Enter")
        terminal.wait_for("WITHOUT BULKHEADS")
        terminal.type("q")
        self.assertIn("code=0", terminal.wait_for(r"code=\d+"))
        self.assertTrue(terminal.is_sane())

    def test_a_narrow_terminal_gets_fewer_columns_not_broken_ones(self):
        terminal = self.open(columns=50, rows=20)
        terminal.type(f"{PROGRAM} demo --seconds 5", "Enter")
        shown = terminal.wait_for(r"WITHOUT BULKHEADS.*database")
        self.assertRegex(shown, r"(?m)^ checkout +\d+/100 ")
        self.assertRegex(shown, r"(?m)^ database +\d+/100 ")

    def colours_of(self, **environment):
        terminal = self.open(**environment)
        terminal.type(f"{PROGRAM} demo --seconds 4", "Enter")
        terminal.wait_for("WITHOUT BULKHEADS.*database")
        return re.findall(r"\x1b\[[0-9;]*m", terminal.screen(colours=True))

    def test_colours_unless_no_color_is_set(self):
        self.assertTrue(self.colours_of())
        self.assertFalse(self.colours_of(NO_COLOR="1"))

    def test_a_dumb_terminal_gets_plain_lines(self):
        terminal = self.open(TERM="dumb")
        terminal.type(f"{PROGRAM} demo --seconds 4 | head -3; {PROGRAM} demo --seconds 4", "Enter")
        terminal.wait_for("Act 1 of 2, without bulkheads.*Act 1 of 2, without bulkheads")


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("tmux is missing: scripts/setup test installs it")
        sys.exit(77)
    os.environ.pop("TMUX", None)
    main()
