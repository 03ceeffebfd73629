"""A real Prometheus scrapes a running process, and then knows what the process itself counts."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from pages import ROOT, TARGET

PATIENCE = 90  # seconds until a broken build is given up; what is waited for comes long before


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class PrometheusReadsWhatTheProcessCounts(unittest.TestCase):
    def setUp(self):
        self.target = subprocess.Popen([TARGET, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, self.target)
        self.port = int(self.target.stdout.readline())

    @staticmethod
    def stop(process):
        process.terminate()
        process.communicate(timeout=30)

    def tell(self, line):
        print(line, file=self.target.stdin, flush=True)
        return self.target.stdout.readline().strip()

    def start_prometheus(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="bulkhead-prometheus-"))
        self.addCleanup(shutil.rmtree, directory, True)
        shutil.copy(ROOT / "ops" / "prometheus" / "bulkhead.rules.yml", directory)
        (directory / "prometheus.yml").write_text(
            (ROOT / "ops" / "prometheus" / "prometheus.yml").read_text()
            .replace("127.0.0.1:9920", f"127.0.0.1:{self.port}").replace("15s", "1s"))
        self.web = free_port()
        log = open(directory / "log", "w")
        self.addCleanup(log.close)
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address=127.0.0.1:{self.web}"], stdout=log, stderr=log)
        self.addCleanup(self.stop, prometheus)

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/api/v1/{path}", timeout=10) as reply:
                return json.load(reply)["data"]
        except OSError:  # it is not up yet
            return None

    def query(self, expression):
        data = self.get("query?" + urllib.parse.urlencode({"query": expression}))
        return [(r["metric"], float(r["value"][1])) for r in data["result"]] if data else []

    def value(self, expression):
        found = self.query(expression)
        return found[0][1] if len(found) == 1 else None

    def until(self, expression, wanted):
        end = time.monotonic() + PATIENCE
        while (last := self.value(expression)) != wanted:
            self.assertLess(time.monotonic(), end, f"{expression} is {last}, not {wanted}")
            time.sleep(0.2)

    def test_queries_equal_counters(self):
        self.start_prometheus()
        self.until('bulkhead_rejected_total{bulkhead="search",reason="concurrency_limit"}', 0)  # from the start
        self.assertEqual(self.tell("call checkout 137"), "done")
        self.assertEqual(self.tell("call search 11"), "done")
        self.assertEqual(self.tell("reject search 29"), "done")
        self.assertEqual(self.tell("hold checkout"), "done")
        counters = json.loads(self.tell("counters"))
        self.assertEqual(counters["search"]["concurrency_limit"], 29)
        self.assertGreaterEqual(counters["checkout"]["admitted"], 138)
        for name, own in counters.items():
            of = f'{{job="bulkhead",bulkhead="{name}"}}'
            rejected = f'{{bulkhead="{name}",reason="concurrency_limit"}}'
            self.until(f"sum(bulkhead_rejected_total{rejected})", own["concurrency_limit"])
            self.until(f"bulkhead_admitted_total{of}", own["admitted"])
            self.until(f"bulkhead_active_calls{of}", own["active"])
            self.until(f"bulkhead_service_seconds_count{of}", own["served"])
            self.until(f'bulkhead_service_seconds_bucket{{bulkhead="{name}",le="+Inf"}}', own["served"])
            self.until(f"sum(bulkhead_requests_total{of})", own["admitted"] + own["concurrency_limit"])
            self.until(f'bulkhead_completions_total{{bulkhead="{name}",outcome="success"}}', own["succeeded"])
        self.assertEqual(self.query('bulkhead_info{bulkhead="checkout"}')[0][0]["criticality"], "critical")
        # The shipped rules run on it, and Prometheus took the newer format, with its units.
        end = time.monotonic() + PATIENCE
        while not self.query("bulkhead:requests:rate5m > 0"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)
        self.assertEqual({r["health"] for g in self.get("rules")["groups"] for r in g["rules"]}, {"ok"})
        self.assertEqual(self.get("metadata?metric=bulkhead_service_seconds")["bulkhead_service_seconds"][0]["unit"], "seconds")
        self.assertEqual([t["health"] for t in self.get("targets")["activeTargets"]], ["up"])

    def test_both_formats_are_served(self):
        for accept, wanted in (("", "text/plain; version=0.0.4"), ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0"),
                               ("application/json", "application/json")):
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics", headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=10) as reply:
                self.assertTrue(reply.headers["Content-Type"].startswith(wanted))
                body = reply.read().decode()
            self.assertEqual(body.endswith("# EOF\n"), "openmetrics" in wanted)


if __name__ == "__main__":
    unittest.main()
