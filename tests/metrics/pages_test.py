"""Pages as strangers read them: promtool, a strict reading of OpenMetrics 1.0, and a JSON parser."""
import json
import re
import subprocess
import unittest

from pages import SAMPLE, TARGET, labels_of, page, samples


class PromtoolAcceptsThePages(unittest.TestCase):
    def test_fresh_and_loaded(self):
        for load in "fresh", "loaded":
            done = subprocess.run(["promtool", "check", "metrics"], input=page(load, "prometheus").encode(), capture_output=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""), load)

    def test_it_would_object(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=b"bulkhead_waiting_count 1\n", capture_output=True)
        self.assertEqual(done.returncode, 3, "the source's name is one that promtool rejects, see docs/formats/metrics.md")


class OpenMetricsIsValid(unittest.TestCase):
    """The rules of the specification that a page of ours could break."""

    SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "info": {"_info"}, "histogram": {"_bucket", "_sum", "_count"}}

    def check(self, text):
        self.assertTrue(text.endswith("# EOF\n"))
        lines = text.removesuffix("\n").split("\n")
        family, kind, seen, said, written = None, None, set(), set(), set()
        for line in lines[:-1]:
            self.assertNotIn(line, ("", "# EOF"))
            if line.startswith("# "):
                word, name, rest = line[2:].split(" ", 2)
                self.assertIn(word, ("HELP", "TYPE", "UNIT"))
                if name != family:
                    self.assertNotIn(name, seen, "a family comes in one piece")
                    if family:
                        self.assertTrue(written, f"{family} has no samples")
                    seen.add(name)
                    family, kind, said, written = name, None, set(), set()
                self.assertFalse(written, f"{word} of {name} comes after its samples")
                self.assertNotIn(word, said, "said once")
                said.add(word)
                if word == "TYPE":
                    kind = rest
                if word == "UNIT":
                    self.assertTrue(name.endswith("_" + rest))
                if word == "HELP":
                    self.assertNotRegex(rest, r'(?<!\\)"')
                continue
            match = SAMPLE.fullmatch(line)
            self.assertTrue(match, line)
            name, labels, value = match[1], labels_of(match[2]), float(match[3])
            self.assertIn(name, {family + suffix for suffix in self.SUFFIXES[kind]})
            written.add(name)
            if kind in ("counter", "histogram"):
                self.assertGreaterEqual(value, 0)
            if kind == "info":
                self.assertEqual(value, 1)
            if "le" in labels:
                self.assertRegex(labels["le"], r"^(\d+\.\d+|\+Inf)$", "a float, as OpenMetrics writes it")
        for name in seen:  # what a family's samples are called is no other family's name
            for suffix in "_total", "_info", "_bucket", "_sum", "_count", "_created":
                self.assertNotIn(name + suffix, seen)

    def test_fresh_and_loaded(self):
        for load in "fresh", "loaded":
            self.check(page(load, "openmetrics"))

    def test_it_would_object(self):
        text = page("fresh", "openmetrics")
        for wrong in (text.replace("# EOF\n", ""), text.replace('le="1.0"', 'le="1"'), text + text,
                      text.replace("bulkhead_admitted_total{", "bulkhead_admitted{"),
                      text.replace("# TYPE bulkhead_admitted counter\n", "\n")):
            with self.assertRaises((AssertionError, KeyError, ValueError)):
                self.check(wrong)

    def test_buckets_add_up(self):
        all_samples = samples(page("loaded", "openmetrics"))
        histograms = {}
        for (name, labels), value in all_samples.items():
            if name.endswith("_bucket"):
                rest = tuple(l for l in labels if l[0] != "le")
                le = float(dict(labels)["le"].replace("+Inf", "inf"))
                histograms.setdefault((name.removesuffix("_bucket"), rest), []).append((le, value))
        self.assertGreater(len(histograms), 5)
        for (name, labels), buckets in histograms.items():
            counts = [count for _, count in sorted(buckets)]
            self.assertEqual(len(counts), 15)
            self.assertEqual(counts, sorted(counts))
            self.assertEqual(counts[-1], all_samples[name + "_count", labels])

    def test_both_formats_tell_the_same(self):
        own = re.compile("process_|bulkhead_config_last_reload_success_timestamp")  # differ from page to page
        text, openmetrics = ({k: v for k, v in samples(page("loaded", form)).items() if not own.match(k[0])}
                             for form in ("prometheus", "openmetrics"))
        self.assertEqual(text, openmetrics)


class HealthIsJson(unittest.TestCase):
    def test_python_reads_it(self):
        for load in "fresh", "loaded":
            text = page(load, "json")
            subprocess.run(["python3", "-m", "json.tool"], input=text.encode(), check=True, capture_output=True)
            health = json.loads(text, parse_constant=self.fail)
            self.assertEqual(sum(b["requests"] for b in health["bulkheads"]), health["total"]["requests"])

    def test_rates_and_averages(self):
        health = json.loads(page("loaded", "json"))
        self.assertEqual(health["status"], "degraded")
        by_name = {b["name"]: b for b in health["bulkheads"]}
        plain = by_name["plain"]
        self.assertEqual((plain["admitted"], plain["rejected"], plain["rejection_rate_percent"]), (1, 2, 66.67))
        self.assertNotIn("average_execution_seconds", plain, "it does not measure")
        self.assertAlmostEqual(by_name["search"]["average_execution_seconds"], 0.03)
        self.assertEqual(by_name["search"]["waiting_calls"], 0)
        self.assertEqual(by_name["payments"]["status"], "breaker_open")
        self.assertEqual(by_name["search"]["status"], "saturated")
        self.assertEqual(by_name["checkout"]["status"], "ok", "it lent all it has, and needs none")
        self.assertEqual(by_name["payments"]["saturated_seconds"], 0.25)
        self.assertEqual((by_name["orders"]["members"], by_name["orders"]["admitted"]), (2, 12))
        self.assertEqual(json.loads(page("fresh", "json"))["status"], "ok")


if __name__ == "__main__":
    unittest.main()
