"""The files of ops/ fit what a page says."""
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from pages import ROOT, page, samples

PROMETHEUS, GRAFANA = ROOT / "ops" / "prometheus", ROOT / "ops" / "grafana"
RULES = (PROMETHEUS / "bulkhead.rules.yml").read_text()


def promtool(*arguments, cwd=PROMETHEUS):
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def words(form):
    """What may be asked for: series names, and the values of each label of each."""
    known = {}
    for name, labels in samples(page("loaded", form)):
        for label, value in labels:
            known.setdefault(name, {}).setdefault(label, set()).add(value)
        known.setdefault(name, {})
    return known


def names_in(expression):
    return set(re.findall(r"\b(?:bulkhead|process)_\w+", re.sub(r'"[^"]*"', "", expression)))


class Rules(unittest.TestCase):
    def test_check(self):
        self.assertEqual(promtool("check", "rules", "bulkhead.rules.yml")[0], 0)
        self.assertEqual(promtool("check", "config", "prometheus.yml")[0], 0)

    def test_cases(self):
        code, output = promtool("test", "rules", "bulkhead.rules.test.yml")
        self.assertEqual(code, 0, output)

    def test_every_alert_is_tested_and_explained(self):
        alerts = re.findall(r"- alert: (\w+)", RULES)
        self.assertGreater(len(alerts), 6)
        cases = (PROMETHEUS / "bulkhead.rules.test.yml").read_text()
        guide = (ROOT / "docs" / "operate" / "alerts.md").read_text()
        for alert in alerts:
            self.assertRegex(cases, rf"alertname: {alert}\n\s+exp_alerts:\n", "one that fires")
            self.assertIn(f"\n## {alert}\n", guide)
            self.assertIn(f"runbook: docs/operate/alerts.md#{alert.lower()}\n", RULES)
        self.assertEqual(set(re.findall(r"^## (Bulkhead\w+)$", guide, re.M)), set(alerts))

    def test_every_name_is_on_a_page(self):
        known = words("prometheus")
        body = re.sub(r"#.*", "", re.sub(r"(summary|runbook): .*", "", RULES))
        self.assertGreater(len(names_in(body)), 8)
        self.assertEqual(names_in(body) - known.keys(), set())
        for name, selector in re.findall(r"(bulkhead_\w+)\{([^}]*)\}", body):
            for label, value in re.findall(r'(\w+)!?="([^"]*)"', selector):
                self.assertIn(value, known[name][label], "a word that is really used")

    def test_thresholds(self):
        self.assertRegex(RULES, r'criticality="critical"\} > 0\.01\n\s+and bulkhead:requests:rate5m\{criticality="critical"\} > 1\n')
        self.assertRegex(RULES, r'criticality!="critical"\} > 0\.05\n\s+and bulkhead:requests:rate5m\{criticality!="critical"\} > 1\n')


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.board = json.loads((GRAFANA / "bulkhead.json").read_text())
        self.expressions = [t["expr"] for p in self.panels() for t in p.get("targets", [])]
        self.expressions += [a["expr"] for a in self.board["annotations"]["list"] if "expr" in a]

    def panels(self):
        for panel in self.board["panels"]:
            yield panel
            yield from panel.get("panels", [])

    def test_expressions_are_promql(self):
        self.assertGreater(len(self.expressions), 20)
        groups = {"groups": [{"name": "dashboard", "rules": [
            {"record": f"dashboard:e{i}", "expr": e.replace("$__rate_interval", "1m").replace("$__interval", "1m").replace("$__range", "1h")}
            for i, e in enumerate(self.expressions)]}]}
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "dashboard.rules.yml"
            file.write_text(json.dumps(groups))  # JSON is YAML
            code, output = promtool("check", "rules", str(file), cwd=directory)
        self.assertEqual(code, 0, output)
        self.assertIn(f"{len(self.expressions)} rules found", output)

    def test_every_name_is_on_a_page(self):
        known = words("prometheus")
        recorded = set(re.findall(r"record: (\S+)", RULES))
        for expression in self.expressions:
            self.assertEqual(names_in(expression) - known.keys(), set(), expression)
            self.assertEqual(set(re.findall(r"bulkhead:[\w:]+", expression)) - recorded, set(), expression)
            for name, selector in re.findall(r"((?:bulkhead|process)_\w+)\{([^}]*)\}", expression):
                for label in re.findall(r"(\w+)(?:=|!)", selector):
                    self.assertIn(label, known[name].keys() | {"job", "instance"}, expression)

    def test_imports_anywhere(self):
        self.assertEqual([i["name"] for i in self.board["__inputs"]], ["DS_PROMETHEUS"])
        variables = {v["name"]: v for v in self.board["templating"]["list"]}
        self.assertEqual(list(variables), ["job", "instance", "bulkhead"])
        for panel in self.panels():
            if panel["type"] != "row":
                self.assertEqual(panel["datasource"]["uid"], "${DS_PROMETHEUS}", panel["title"])
                self.assertTrue(panel["targets"] and panel["title"] and panel.get("description"), panel["title"])
        ids = [p["id"] for p in self.panels()]
        self.assertEqual(len(ids), len(set(ids)))
        for expression in self.expressions:
            self.assertIn('job=~"$job"', expression)
            self.assertNotRegex(expression, r"rate\([^[]*\[\d", "a window of its own is empty where scrapes are rarer")

    def test_nothing_overlaps(self):
        taken = set()
        for panel in self.board["panels"]:
            g = panel["gridPos"]
            self.assertLessEqual(g["x"] + g["w"], 24)
            cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells


if __name__ == "__main__":
    unittest.main()
