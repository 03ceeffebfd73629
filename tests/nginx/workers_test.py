"""One limit for several workers: scope: host."""

import asyncio
import os
import re
import signal
import tempfile
import unittest

from harness import Nginx, Upstream, wait_until

PROXY = "location / { bulkhead api; proxy_ignore_client_abort on; proxy_pass http://service; }"
WORKERS = "worker_processes 3;"


class Workers(unittest.TestCase):
    def setUp(self):
        self.region = tempfile.TemporaryDirectory(prefix="bulkhead-region-", dir="/dev/shm")
        self.addCleanup(self.region.cleanup)

    def file(self, settings):
        return f"version: 1\nhost: {{region: {self.region.name}/r}}\nbulkheads:\n  api: {{{settings}, scope: host}}\n"

    def storm(self, ngx, clients=60, requests=15):
        """Each request on a connection of its own, so that all workers get some."""
        async def client():
            statuses = []
            for _ in range(requests):
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", ngx.port)
                    writer.write(b"GET /sleep/3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    answer = await reader.read(-1)
                    statuses.append(answer.split(b" ")[1] if answer else b"cut")
                    writer.close()
                except OSError:
                    statuses.append(b"cut")
            return statuses

        async def all():
            return sum(await asyncio.gather(*(client() for _ in range(clients))), [])
        return asyncio.run(all())

    def test_WorkersShareTheLimitAndTheirLines(self):
        with Upstream() as up, Nginx(self.file("max_concurrent: 4, max_queue: 100, max_wait: 5s"), PROXY, up,
                                     main=WORKERS) as ngx:
            wait_until(lambda: len(ngx.workers()) == 3, "three workers")
            self.assertEqual(set(self.storm(ngx)), {b"200"})
            self.assertEqual(up.most, 4)
            self.assertNotIn("hold for each of them alone", ngx.read("error.log"))

    def test_AKilledWorkerLosesNoPlace(self):
        with Upstream() as up, Nginx(self.file("max_concurrent: 2, max_queue: 100, max_wait: 5s"), PROXY, up,
                                     main=WORKERS) as ngx:
            ngx.may_alert = "exited on signal 9"
            # Connections until two workers hold one place each or one worker both; then every worker is killed.
            held = [ngx.send("/hold") for _ in range(2)]
            up.wait_running(2)
            wait_until(lambda: len(ngx.workers()) == 3, "three workers")
            for pid in ngx.workers():
                os.kill(pid, signal.SIGKILL)
            for s in held:
                s.close()
            wait_until(lambda: len(ngx.workers()) == 3, "three workers again")
            up.release(2)
            up.wait_running(0)
            up.most = 0
            self.assertEqual(set(self.storm(ngx)), {b"200"})
            self.assertEqual(up.most, 2)

    def test_OldAndNewWorkersOfAReloadShareTheLimit(self):
        with Upstream() as up, Nginx(self.file("max_concurrent: 2, max_queue: 100, max_wait: 20s"), PROXY, up,
                                     main=WORKERS) as ngx:
            old = [ngx.begin("/hold") for _ in range(2)]
            up.wait_running(2)
            before = ngx.workers()
            ngx.reload()
            wait_until(lambda: len(ngx.workers() - before) == 3, "three new workers")
            new = [ngx.begin("/sleep/1") for _ in range(3)]
            # They wait for the old workers' requests; one of those ends, and the new ones pass one by one.
            up.release()
            self.assertEqual([r.result().status for r in new], [200] * 3)
            up.release()
            self.assertEqual([r.result().status for r in old], [200] * 2)
            self.assertEqual(up.most, 2)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for workers of another user")
    def test_WorkersOfAnotherUserUseTheRegionThatTheirMasterMakes(self):
        os.chmod(self.region.name, 0o755)  # as /run/bulkhead: only root may create files in it
        file = self.file("max_concurrent: 2, max_queue: 100, max_wait: 5s")
        for again in (False, True):  # and the one that is there already
            with Upstream() as up, Nginx(file, PROXY, up, main=WORKERS, user="www-data") as ngx:
                self.assertEqual(set(self.storm(ngx, clients=10, requests=3)), {b"200"})
                self.assertEqual(up.most, 2)
                before = ngx.workers()
                ngx.reload()
                wait_until(lambda: len(ngx.workers() - before) == 3, "three new workers")
                self.assertEqual(ngx.get("/status/200").status, 200)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for workers of another user")
    def test_ARegionThatWorkersCannotUseIsSaidAtTheStart(self):
        os.chmod(self.region.name, 0o755)
        region = self.region.name + "/r"
        with Upstream() as up:
            ngx = Nginx(self.file("max_concurrent: 2"), PROXY, up, user="www-data")
            ngx.may_alert = "#"  # each of them
            self.assertEqual(ngx.command("-t").returncode, 0)  # makes the region
            os.chown(region, 65534, 65534)  # that of another service
            with ngx:
                wait_until(lambda: "cannot be respawned" in ngx.read("error.log"), "the worker ends")
                self.assertRegex(ngx.read("error.log"), r"\[emerg\].*" + region)

    def test_AnImpossibleFileIsRejectedBeforeNginxRuns(self):
        fleet = "version: 1\nfleet: {store: 'redis://127.0.0.1:1'}\nbulkheads:\n  api: {max_concurrent: 4}\n  far: {max_concurrent: 4, scope: fleet}\n"
        budget = fleet.replace("far: {max_concurrent: 4, scope: fleet}", "far: {max_concurrent: 4, budgets: {tokens: {max: 9, scope: fleet}}}")
        for file, http, text in ((budget, "", '"far" has scope: fleet'), (self.file("max_concurrent: 4").replace("/r}", "/none/r}"), "", "does its directory exist"),
                                 (self.file("max_concurrent: 4"), "bulkhead_board /none/board;", "/none/board"),
                                 (fleet, "", '"far" has scope: fleet, which nginx cannot use: write scope: host')):
            with Upstream() as up:
                good = Nginx(self.file("max_concurrent: 4"), PROXY, up)
                bad = Nginx(file, PROXY, up, http=http)
                result = bad.command("-t")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(text, result.stderr)
                with good as ngx:
                    ngx.may_alert = "[emerg]"
                    before = ngx.workers()
                    ngx.write("bulkhead.yaml", file)
                    ngx.http = http
                    ngx.configure(PROXY)
                    ngx.process.send_signal(signal.SIGHUP)
                    wait_until(lambda: text in ngx.read("error.log"), "the problem in the log")
                    self.assertEqual(ngx.get("/status/200").status, 200)
                    self.assertEqual(ngx.workers(), before)
                bad.directory.cleanup()

    def test_PagesShowTheSumOverWorkersPastAndPresent(self):
        with Upstream() as up, Nginx(self.file("max_concurrent: 4, max_queue: 100, max_wait: 5s"), PROXY, up,
                                     main=WORKERS) as ngx:
            ngx.may_alert = "exited on signal 9"

            def total():
                page = ngx.get("/metrics").body.decode()
                return sum(int(float(n)) for n in re.findall(r'^bulkhead_requests_total\{[^}]*bulkhead="api"[^}]*\} (\S+)', page, re.M))
            self.storm(ngx, clients=10, requests=6)
            wait_until(lambda: total() == 60, lambda: f"60 calls, but {total()}")
            before = ngx.workers()
            ngx.reload()
            wait_until(lambda: len(ngx.workers() - before) == 3 and not ngx.workers() & before, "three new workers")
            self.assertEqual(total(), 60)
            self.storm(ngx, clients=4, requests=5)
            wait_until(lambda: total() == 80, lambda: f"80 calls, but {total()}")
            for pid in ngx.workers():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: len(ngx.workers() - before) == 3, "three workers again")
            self.assertEqual(total(), 80)
            held = [ngx.send("/hold") for _ in range(4)]
            up.wait_running(4)
            ngx.wait_for("api", in_flight=4)
            up.release(4)
            for s in held:
                s.close()

    def test_TheLogNamesTheLimitsThatHoldForEachWorker(self):
        with Upstream() as up, Nginx("version: 1\nbulkheads:\n  api: {max_concurrent: 1}\n", PROXY, up,
                                     main="worker_processes 2;") as ngx:
            # The port is open before the log is written.
            wait_until(lambda: "these limits of" in ngx.read("error.log"), "the warning")
            self.assertIn("hold for each of them alone: api; write scope: host", ngx.read("error.log"))
        settings = "max_concurrent: 1, rate_limit: {rate: 5}, breaker: {failure_rate: 0.5}"
        with Upstream() as up, Nginx(self.file(settings), PROXY, up, main="worker_processes 2;") as ngx:
            wait_until(lambda: "each counts for itself" in ngx.read("error.log"), "the warning")
            self.assertIn("bulkhead.yaml: api.breaker, api.rate_limit", ngx.read("error.log"))
            self.assertNotIn("these limits of", ngx.read("error.log"))


if __name__ == "__main__":
    unittest.main()
