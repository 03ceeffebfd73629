"""Pages of metrics_target, and what is on them."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = sys.argv.pop(1)

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(?:,|$)')


def page(load, form):
    return subprocess.run([TARGET, "page", load, form], check=True, capture_output=True).stdout.decode("utf-8", "strict")


def labels_of(text):
    """The labels between the braces, in order; every character has to be accounted for."""
    labels, at = {}, 0
    while at < len(text or ""):
        match = LABEL.match(text, at)
        assert match, f"not a label: {text[at:]!r}"
        assert match[1] not in labels, f"label twice: {match[1]}"
        labels[match[1]] = match[2]
        at = match.end()
    return labels


def samples(text):
    """{(name, ((label, value), ...)): value} of a page of either format."""
    out = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, f"not a sample: {line!r}"
        series = match[1], tuple(sorted(labels_of(match[2]).items()))
        assert series not in out, f"twice: {series}"
        out[series] = float(match[3])
    return out
