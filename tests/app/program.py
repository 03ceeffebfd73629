"""Runs the program under test: sys.argv[1] is its path, sys.argv[2] the TestCase to run."""
import os
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
ESCAPE = "\x1b"


def run(*arguments, timeout=120, **environment):
    """Off a terminal. The result has returncode, stdout and stderr as text."""
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                          encoding="utf-8", env={**os.environ, **environment})


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
