"""`bulkhead run` with a gateway: a file in, nginx supervised."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest
import unittest.mock

from harness import MODULE, Nginx, Upstream, free_port, wait_until

PROGRAM = os.environ.get("TEST_PROGRAM", "")
GRPC_SERVER, GRPC_CLIENT = os.environ.get("TEST_GRPC_SERVER", ""), os.environ.get("TEST_GRPC_CLIENT", "")


class Gateway(Nginx):
    """bulkhead run instead of nginx; the requests and states are those of Nginx."""

    def __init__(self, upstream, settings="max_concurrent: 1, max_queue: 5", more="", routes=""):
        self.directory = tempfile.TemporaryDirectory(prefix="bulkhead-gateway-test-")
        self.path = self.directory.name
        self.port, self.status = free_port(), free_port()
        self.upstream = upstream
        self.settings, self.more, self.routes = settings, more, routes
        self.rewrite()
        import concurrent.futures
        self.pool = concurrent.futures.ThreadPoolExecutor(32)
        self.may_alert = None

    def rewrite(self, **changes):
        vars(self).update(changes)
        self.write("bulkhead.yaml", f"""version: 1
bulkheads:
  api: {{{self.settings}}}
gateway:
  listeners: {{http: {{address: 127.0.0.1:{self.port}}}}}
  upstreams: {{service: {{servers: [127.0.0.1:{self.upstream.port}]}}}}
  routes:
    all: {{path: /, bulkhead: api, upstream: service}}
    health: {{path: /status/204, upstream: service}}
    {self.routes}
  module: {MODULE}
  access_log: {self.path}/access.jsonl
  {self.more}
""")

    def __enter__(self):
        log = open(os.path.join(self.path, "error.log"), "w")
        self.process = subprocess.Popen([PROGRAM, "run", self.path + "/bulkhead.yaml", "--listen", f"127.0.0.1:{self.status}",
                                         "--unix-socket", self.path + "/admin.sock"],
                                        stdout=log, stderr=log)
        self.process.stderr = log
        def answers():
            if self.process.poll() is not None:
                raise AssertionError("it ended: " + self.read("error.log"))
            try:
                return self.get("/bulkheads")
            except OSError:
                return False
        wait_until(answers, "the gateway answers")
        return self

    def get(self, path, **options):
        if path != "/bulkheads":
            return super().get(path, **options)
        import http.client
        c = http.client.HTTPConnection("127.0.0.1", self.status, timeout=20)
        return super().get("/health/bulkheads", connection=c)

    def metrics(self):
        import http.client
        c = http.client.HTTPConnection("127.0.0.1", self.status, timeout=20)
        return super().get("/metrics", connection=c).body.decode()

    def nginx_pid(self):
        pids = self.workers()  # the children of bulkhead run
        return next(iter(pids)) if pids else 0


class GatewayTest(unittest.TestCase):
    def test_TheGatewayProtectsAServiceAndExemptsItsHealthChecks(self):
        with Upstream() as up, Gateway(up, "max_concurrent: 1") as gw:
            one = gw.begin("/hold")
            up.wait_running(1)
            self.assertEqual(gw.get("/x").reason, "concurrency_limit")
            self.assertEqual(gw.get("/status/204").status, 204)
            self.assertIn("x-forwarded-for", up.headers[-1])
            up.release()
            self.assertEqual(one.result().status, 200)
            wait_until(lambda: gw.read("access.jsonl").count("\n") >= 3, "the log")
            lines = [json.loads(line) for line in gw.read("access.jsonl").splitlines()]
            self.assertIn(("api", "concurrency_limit", 503), [(x["bulkhead"], x["reason"], x["status"]) for x in lines])

    def test_OnlyTrustedPeersGiveAPriority(self):
        for trusted, wanted in (("[127.0.0.0/8]", "critical"), ("[10.0.0.0/8]", "normal")):
            with Upstream() as up, Gateway(up, more=f"trusted_peers: {trusted}") as gw:
                self.assertEqual(gw.get("/status/200", headers={"Priority": "u=0"}).status, 200)
                wait_until(lambda: '"priority":"%s"' % wanted in gw.read("access.jsonl"), wanted)

    def test_OnlyTrustedPeersSayWhatWasForwarded(self):
        given = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}
        for trusted, proto, host in (("[127.0.0.0/8]", "https", "shop.example"), ("[10.0.0.0/8]", "http", "127.0.0.1")):
            with Upstream() as up, Gateway(up, more=f"trusted_peers: {trusted}") as gw:
                self.assertEqual(gw.get("/status/200", headers=given).status, 200)
                self.assertEqual((up.headers[-1]["x-forwarded-proto"], up.headers[-1]["x-forwarded-host"]), (proto, host))
                self.assertEqual(gw.get("/status/200").status, 200)
                self.assertEqual(up.headers[-1]["x-forwarded-proto"], "http")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for workers of another user")
    def test_WorkersAreNotRoots(self):
        def ids(pid):
            with open(f"/proc/{pid}/status") as f:
                return re.search(r"Uid:\t(\d+)", f.read())[1]

        for more, uid in (("", "33"), ("user: nobody", "65534"), ("user: root", "0")):
            with tempfile.TemporaryDirectory(prefix="bulkhead-region-", dir="/dev/shm") as region, Upstream() as up:
                os.chmod(region, 0o755)
                gw = Gateway(up, "max_concurrent: 1, max_queue: 5, scope: host", more=more)
                text = f"host: {{region: {region}/r}}\n"
                gw.write("bulkhead.yaml", gw.read("bulkhead.yaml") + text)
                with gw:
                    workers = subprocess.run(["ps", "-o", "pid=", "--ppid", str(gw.nginx_pid())], capture_output=True, text=True).stdout
                    self.assertEqual({ids(pid) for pid in workers.split()}, {uid})
                    self.assertEqual(gw.get("/status/200", method="POST", body="x" * (2 << 20)).status, 200)  # through a file
                    gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace("max_concurrent: 1", "max_concurrent: 3"))
                    gw.wait_for("api", max_concurrent=3)
                    held = [gw.begin("/hold") for _ in range(3)]
                    up.wait_running(3)
                    up.release(3)
                    self.assertEqual([one.result().status for one in held], [200] * 3)

    def test_ARequestIsRepeatedOnlyOnAConnectionThatWasKept(self):
        """A server that dies of a request must not take the next one with it."""
        import threading
        seen = []

        def service(answers):
            """A server that answers this many requests of a connection, and closes it when it has read the next one."""
            s = socket.create_server(("127.0.0.1", 0))

            def connection(c):
                for n in range(99):
                    head = b""
                    while b"\r\n\r\n" not in head:
                        part = c.recv(4096)
                        if not part:
                            return c.close()
                        head += part
                    seen.append(head.split()[0])
                    if n == answers:
                        return c.close()
                    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

            def accept():
                while True:
                    try:
                        c, _ = s.accept()
                    except OSError:
                        return
                    threading.Thread(target=connection, args=(c,), daemon=True).start()
            threading.Thread(target=accept, daemon=True).start()
            return s
        for answers, more, wanted in ((0, "", [(502, 1), (502, 1), (502, 1)]), (0, ", tries: 2, max_fails: 0", [(502, 2), (502, 1), (502, 2)]),
                                      (1, ", keep_alive: 1", [(200, 2), (502, 1), (200, 1)])):
            with service(answers) as one, service(answers) as two, Upstream() as up:
                gw = Gateway(up, "max_concurrent: 5")
                servers = f"127.0.0.1:{one.getsockname()[1]}" + (f", 127.0.0.1:{two.getsockname()[1]}" if answers == 0 else "")
                gw.write("bulkhead.yaml", re.sub(r"servers: \[.*?\]", f"servers: [{servers}]{more}", gw.read("bulkhead.yaml")))
                with gw:
                    if answers:
                        self.assertEqual(gw.get("/kept").status, 200)
                    got = []
                    for method in ("GET", "POST", "PUT"):
                        seen.clear()
                        got.append((gw.get("/x", method=method, body="a" if method != "GET" else None).status, len(seen)))
                    self.assertEqual(got, wanted, more)

    def test_LimitsAreAppliedLiveAndRoutesByAReload(self):
        with Upstream() as up, Gateway(up) as gw:
            all = [gw.begin("/hold") for _ in range(2)]
            gw.wait_for("api", in_flight=1, waiting_calls=1)
            gw.rewrite(settings="max_concurrent: 2, max_queue: 5")
            up.wait_running(2)  # without a new worker, in which the line would be empty
            gw.rewrite(routes="gone: {path: /gone, host: gone.example, upstream: service}")
            wait_until(lambda: "nginx has been reloaded" in gw.read("error.log"), "the reload")
            gw.rewrite(routes="gone: {path: gone, upstream: nobody}")
            wait_until(lambda: "the previous configuration stays in force" in gw.read("error.log"), "the problem")
            self.assertIn('unknown upstream "nobody"', gw.read("error.log"))
            up.release(2)
            self.assertEqual([a.result().status for a in all], [200, 200])

    def test_AGatewayThatCannotListenSaysSoAndEnds(self):
        with Upstream() as up, socket.create_server(("127.0.0.1", 0)) as taken:
            gw = Gateway(up)
            gw.rewrite(port=taken.getsockname()[1])
            done = subprocess.run([PROGRAM, "run", gw.path + "/bulkhead.yaml", "--listen", f"127.0.0.1:{gw.status}",
                                   "--unix-socket", gw.path + "/admin.sock"], capture_output=True, text=True, timeout=40)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("Address already in use", done.stderr)
            self.assertIn("nginx has ended (exit code 1)", done.stdout + done.stderr)
            self.assertNotIn("requests pass", done.stdout)
            gw.directory.cleanup()

    def test_AListenerThatNginxCannotOpenChangesNothing(self):
        with Upstream() as up, socket.create_server(("127.0.0.1", 0)) as taken, Gateway(up) as gw:
            gw.may_alert = "Address already in use"
            port = gw.port
            gw.rewrite(port=taken.getsockname()[1])
            wait_until(lambda: "could not take the new listeners" in gw.read("error.log"), "the problem")
            self.assertNotIn("nginx has been reloaded", gw.read("error.log"))
            gw.port = port
            self.assertEqual(gw.get("/status/200").status, 200)
            gw.may_alert = "#"
            before = gw.nginx_pid()
            os.kill(before, signal.SIGTERM)  # the next one has the last listeners, too
            wait_until(lambda: gw.nginx_pid() not in (0, before), "another nginx")

            def answers():
                try:
                    return gw.get("/status/200").status == 200
                except OSError:
                    return False
            wait_until(answers, "an answer")
            taken.close()
            other = free_port()
            gw.rewrite(port=other)
            wait_until(lambda: "nginx has been reloaded" in gw.read("error.log"), "the reload")
            self.assertEqual(gw.get("/status/200").status, 200)

    def test_AnNginxThatDiesIsStartedAgain(self):
        with Upstream() as up, Gateway(up) as gw:
            gw.may_alert = "exited on signal"
            before = gw.nginx_pid()
            os.kill(before, signal.SIGTERM)
            wait_until(lambda: gw.nginx_pid() not in (0, before), "another nginx")

            def answers():
                try:
                    return gw.get("/status/200").status == 200
                except OSError:
                    return False
            wait_until(answers, "an answer")

    def test_AKilledGatewayLeavesNoNginxAndItsFilesOnlyUntilTheNextOne(self):
        def runs(pid):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    return f.read().rpartition(")")[2].split()[0] != "Z"
            except OSError:
                return False
        with tempfile.TemporaryDirectory(prefix="bulkhead-temporary-") as temporary, Upstream() as up, \
                unittest.mock.patch.dict(os.environ, TMPDIR=temporary):
            os.chmod(temporary, 0o755)
            strangers = ["bulkhead-gateway-mine", "bulkhead-gateway-notmine"]
            for name in strangers:
                os.mkdir(os.path.join(temporary, name))
            with Gateway(up) as gw:
                nginx = gw.nginx_pid()
                workers = subprocess.run(["ps", "-o", "pid=", "--ppid", str(nginx)], capture_output=True, text=True).stdout.split()
                one = gw.send("/hold")
                up.wait_running(1)
                with Gateway(up):  # beside it
                    self.assertEqual(gw.get("/status/204").status, 204)
                [left] = set(os.listdir(temporary)) - set(strangers)
                gw.process.kill()
                gw.process.wait()
                wait_until(lambda: not any(map(runs, [nginx, *workers])), "nginx ends")
                one.close()
                up.release()
            again = Gateway(up)
            again.port = gw.port
            again.rewrite()
            with again:
                self.assertEqual(again.get("/status/200").status, 200)
                self.assertNotIn(left, os.listdir(temporary))
            self.assertEqual(set(os.listdir(temporary)), set(strangers))

    def test_WorkersShareALimitOfTheHost(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-region-", dir="/dev/shm") as region, Upstream() as up:
            os.chmod(region, 0o755)  # for workers of another user
            def gateway(scope):
                g = Gateway(up, "max_concurrent: 2, max_queue: 50" + scope, more="workers: 3")
                g.write("bulkhead.yaml", g.read("bulkhead.yaml") + f"host: {{region: {region}/r}}\n")
                return g

            with gateway(", scope: host") as g:
                all = [g.begin("/sleep/2") for _ in range(60)]
                self.assertEqual({one.result().status for one in all}, {200})
                self.assertEqual(up.most, 2)
            g = gateway("")
            bad = subprocess.run([PROGRAM, "run", g.path + "/bulkhead.yaml"], capture_output=True, text=True)
            self.assertNotEqual(bad.returncode, 0)
            self.assertIn("gateway.routes.all.bulkhead", bad.stderr)
            self.assertIn("add scope: host", bad.stderr)
            g.directory.cleanup()

    def test_OperatorsReachAllWorkersAndSeeTheirSum(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-region-", dir="/dev/shm") as region, Upstream() as up:
            os.chmod(region, 0o755)  # for workers of another user
            g = Gateway(up, "max_concurrent: 2, max_queue: 50, breaker: {failure_rate: 0.5}, scope: host", more="workers: 2")
            g.write("bulkhead.yaml", g.read("bulkhead.yaml") + f"host: {{region: {region}/r}}\n")

            def operate(*words):
                result = subprocess.run([PROGRAM, *words, "--admin", g.path + "/admin.sock", "--reason", "test"],
                                        capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stderr)
                return result.stdout

            def all_say(reason):
                """Connections of their own, so that every worker gets some."""
                hurry = {"X-Request-Timeout-Ms": "300"}  # one that comes before the order would wait in line
                wait_until(lambda: all(g.get("/status/200", headers=hurry).reason == reason for _ in range(12)),
                           reason or "admitted")

            with g:
                held = [g.begin("/hold") for _ in range(5)]
                g.wait_for("api", in_flight=2, waiting_calls=3)
                operate("set", "api", "--max-concurrent", "4")
                up.wait_running(4)
                g.wait_for("api", in_flight=4, waiting_calls=1)
                self.assertIn("4 running calls", operate("drain", "api"))
                all_say("draining")
                before = g.nginx_pid()
                os.kill(before, signal.SIGKILL)  # the workers of the next one begin with the orders, too
                g.may_alert = "exited on signal"
                wait_until(lambda: g.nginx_pid() not in (0, before), "another nginx")

                def all_ended():
                    up.release(9)  # one that waited in line arrives at the service after the others
                    return all(one.done() for one in held)
                wait_until(all_ended, "the old requests end, or are cut with their nginx")

                def drained():
                    try:
                        return g.get("/status/200", headers={"X-Request-Timeout-Ms": "300"}).reason == "draining"
                    except OSError:
                        return False
                wait_until(drained, "draining after a restart")
                operate("drain", "api", "--resume")
                all_say("")
                operate("breaker", "open", "api")
                all_say("breaker_open")
                operate("breaker", "auto", "api")
                all_say("")

    def test_AnOperatorsResumeIsObeyedWhileTheFileChanges(self):
        with Upstream() as up, Gateway(up) as gw:
            def operate(*words):
                return subprocess.Popen([PROGRAM, *words, "--admin", gw.path + "/admin.sock", "--reason", "test"],
                                        stdout=subprocess.DEVNULL)
            for limit in range(2, 7):
                self.assertEqual(operate("drain", "api").wait(20), 0)
                wait_until(lambda: gw.get("/status/200").reason == "draining", "draining")
                resume = operate("drain", "api", "--resume")
                gw.rewrite(settings=f"max_concurrent: {limit}, max_queue: 5")
                self.assertEqual(resume.wait(20), 0)
                wait_until(lambda: gw.get("/status/200").status == 200, "admitted again")

    def test_AnNginxOfYourOwnHasAControlPlaneThroughItsBoard(self):
        with Upstream() as up:
            locations = "location / { bulkhead api; proxy_pass http://service; }"
            ngx = Nginx("version: 1\nbulkheads:\n  api: {max_concurrent: 1}\n", "", up)
            ngx.http = f"bulkhead_board {ngx.path}/board;"
            ngx.configure(locations)
            admin = ngx.path + "/admin.sock"

            def operate(*words):
                result = subprocess.run([PROGRAM, *words, "--admin", admin], capture_output=True, text=True, timeout=20)
                return result.stdout if result.returncode == 0 else ""

            def start():
                return subprocess.Popen([PROGRAM, "run", ngx.path + "/bulkhead.yaml", "--board", ngx.path + "/board",
                                         "--listen", "127.0.0.1:0", "--unix-socket", admin, "--grace", "0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            with ngx:
                run = start()
                try:
                    self.assertIn("control plane", run.stdout.readline())
                    self.assertIn("requests pass through nginx", run.stdout.readline())
                    held = ngx.begin("/hold")
                    up.wait_running(1)
                    wait_until(lambda: json.loads(operate("status", "--json"))["bulkheads"][0]["in_flight"] == 1, "its request")
                    self.assertTrue(operate("set", "api", "--max-concurrent", "2", "--reason", "test"))
                    wait_until(lambda: ngx.get("/status/200").status == 200, "a second place")
                    self.assertTrue(operate("drain", "api", "--reason", "test"))
                    wait_until(lambda: ngx.get("/status/200").reason == "draining", "draining")
                    run.kill()
                    run.wait(20)
                    run.stdout.close()
                    run = start()  # the next one begins with the file
                    self.assertIn("control plane", run.stdout.readline())
                    wait_until(lambda: ngx.get("/status/200").reason == "concurrency_limit", "neither drained nor larger")
                finally:
                    run.terminate()
                    self.assertEqual(run.wait(20), 0)
                    run.stdout.close()
                up.release()
                self.assertEqual(held.result().status, 200)

    def test_CountersSurviveAReloadAndAKilledWorker(self):
        with Upstream() as up, Gateway(up) as gw:
            def admitted():
                page = gw.metrics()
                return int(float(re.search(r'^bulkhead_requests_total\{[^}]*bulkhead="api"[^}]*\} (\S+)', page, re.M)[1]))
            for _ in range(5):
                gw.get("/status/200")
            wait_until(lambda: admitted() >= 5, lambda: gw.metrics())
            gw.rewrite(routes="more: {path: /more, upstream: service}")
            wait_until(lambda: "nginx has been reloaded" in gw.read("error.log"), "the reload")
            for _ in range(3):
                gw.get("/status/200")
            wait_until(lambda: admitted() == 8, lambda: gw.metrics())

    def test_ListenersSpeakTlsHttp2AndTheProxyProtocol(self):
        with Upstream() as up, tempfile.TemporaryDirectory(prefix="bulkhead-certificates-") as certificates:
            for name in ("one", "two"):
                subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}",
                                "-keyout", f"{certificates}/{name}.key", "-out", f"{certificates}/{name}.crt"],
                               check=True, capture_output=True)
            gw = Gateway(up, "max_concurrent: 5")
            one, two, behind, behind_too = (free_port() for _ in range(4))
            gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace(f"{{http: {{address: 127.0.0.1:{gw.port}}}}}", f"""
    http: {{address: 127.0.0.1:{gw.port}}}
    one: {{address: 127.0.0.1:{one}, http2: true, tls: {{certificate: {certificates}/one.crt, private_key: {certificates}/one.key}}}}
    two: {{address: 127.0.0.1:{two}, tls: {{certificate: {certificates}/two.crt, private_key: {certificates}/two.key}}}}
    behind: {{address: 127.0.0.1:{behind}, proxy_protocol: true}}
    behind-too: {{address: 127.0.0.1:{behind_too}, proxy_protocol: true}}"""))
            with gw:
                def curl(port, *options):
                    shown = subprocess.run(["curl", "-skv", "-w", "%{http_version} %{http_code}", *options,
                                            f"https://127.0.0.1:{port}/status/200"], capture_output=True, text=True, timeout=20)
                    return re.search(r"subject: CN=(\w+)", shown.stderr)[1], shown.stdout.splitlines()[-1]
                self.assertEqual(curl(one, "--http2"), ("one", "2 200"))
                self.assertEqual(curl(two, "--http2"), ("two", "1.1 200"))
                self.assertEqual(up.headers[-1]["x-forwarded-proto"], "https")
                for port in (behind, behind_too):
                    with socket.create_connection(("127.0.0.1", port), 20) as s:
                        s.sendall(b"PROXY TCP4 203.0.113.9 192.0.2.1 1111 80\r\nGET /status/200 HTTP/1.1\r\nHost: x\r\n"
                                  b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n")
                        self.assertIn(b" 200 ", s.recv(4096))
                    self.assertEqual(up.headers[-1]["x-forwarded-for"], "203.0.113.9")
                    self.assertTrue(up.headers[-1]["traceparent"].startswith("00-0af765"))

    @unittest.skipUnless(GRPC_SERVER and GRPC_CLIENT, "built without gRPC")
    def test_AGrpcServiceIsProtected(self):
        server = subprocess.Popen([GRPC_SERVER], stdout=subprocess.PIPE, text=True)
        try:
            service = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[1]
            with Upstream() as up:
                gw = Gateway(up, "max_concurrent: 5")
                grpc = free_port()
                gw.write("bulkhead.yaml", gw.read("bulkhead.yaml")
                         .replace("{http: {", f"{{grpc: {{address: 127.0.0.1:{grpc}, http2: true}}, http: {{")
                         .replace("{service: {", f"{{shop: {{servers: [127.0.0.1:{service}], protocol: grpc}}, service: {{")
                         .replace("  routes:\n", "  routes:\n    shop: {path: /shop.Shop/, bulkhead: api, upstream: shop}\n"))
                with gw:
                    client = subprocess.run([GRPC_CLIENT, f"127.0.0.1:{grpc}", "5"], capture_output=True, text=True, timeout=60)
                    self.assertEqual(client.stdout.splitlines(), ["one lamp"] * 5, client.stderr)
                    gw.wait_for("api", admitted=5, in_flight=0)
        finally:
            server.terminate()
            server.wait(10)
            server.stdout.close()

    def test_ABodyMayBeLargeAndAStreamIsPassedOnAsItArrives(self):
        with Upstream() as up, Gateway(up, "max_concurrent: 5", more="max_body: 3MiB",
                                       routes="stream: {path: /stream, bulkhead: api, upstream: service, streaming: true}") as gw:
            self.assertEqual(gw.get("/status/200", method="POST", body="x" * (2 << 20)).status, 200)
            self.assertEqual(gw.get("/status/200", method="POST", body="x" * (4 << 20)).status, 413)
            with gw.send("/stream") as s:
                data = b""
                while b"part\n" not in data:  # the rest has not been sent yet
                    data += s.recv(4096)
                gw.wait_for("api", in_flight=1)
                up.release()

    def test_AClientThatLeavesAStreamGivesItsPlaceBack(self):
        with Upstream() as up, Gateway(up, "max_concurrent: 3, breaker: {failure_rate: 0.5, minimum_calls: 2}",
                                       routes="stream: {path: /stream, bulkhead: api, upstream: service, streaming: true}") as gw:
            streams = [gw.send("/stream") for _ in range(3)]
            for s in streams:
                self.assertTrue(s.recv(1000))
            gw.wait_for("api", in_flight=3)
            for s in streams:
                s.close()
            gw.wait_for("api", in_flight=0, failed=0)
            self.assertEqual(gw.get("/status/200").status, 200)
            up.release(3)

    def test_RoutesAreChosenByMethodAndHeader(self):
        routes = """writes: {path: /, methods: [POST, PUT], bulkhead: other, upstream: service}
    beta: {path: /, header: "X-Beta: 1", bulkhead: beta, upstream: service}
    traced: {path: /, methods: [GET], header: X-Trace, bulkhead: traced, upstream: service}
    only: {path: /only, methods: [DELETE], upstream: service}"""
        with Upstream() as up:
            gw = Gateway(up, routes=routes)
            gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace("bulkheads:\n", "bulkheads:\n" + "".join(
                f"  {name}: {{max_concurrent: 3}}\n" for name in ("other", "beta", "traced"))))
            with gw:
                def took(method="GET", path="/status/200", **headers):
                    headers = {name.replace("_", "-"): value for name, value in headers.items()}
                    reply = gw.get(path, method=method, headers=headers, body="text" if method == "POST" else None)
                    line = wait_until(lambda: gw.read("access.jsonl").endswith("\n") and gw.read("access.jsonl").splitlines()[-1], "a line")
                    open(gw.path + "/access.jsonl", "w").close()
                    return reply.status, json.loads(line)["bulkhead"]
                self.assertEqual(took(), (200, "api"))
                self.assertEqual(took("POST"), (200, "other"))
                self.assertEqual(took(X_Beta="1"), (200, "beta"))
                self.assertEqual(took("POST", X_Beta="1"), (200, "beta"))
                self.assertEqual(took(X_Beta="2"), (200, "api"))
                self.assertEqual(took(X_Trace="any"), (200, "traced"))
                self.assertEqual(took("POST", X_Trace="any"), (200, "other"))
                self.assertEqual(took(path="/only"), (200, "api"))  # the longest path that fits the whole request
                self.assertEqual(took("POST", path="/only"), (200, "other"))
                self.assertEqual(took("DELETE", path="/only"), (200, ""))

    def test_RoutesOfAHostComeFirstAndThoseOfAnyHostAfterThem(self):
        long = "a-name-that-is-as-long-as-those-that-clusters-give-to-a-service.namespace.svc.cluster.example"
        routes = f"""shop: {{path: /shop, host: shop.example, bulkhead: shop, upstream: service}}
    writes: {{path: /writes, host: shop.example, methods: [POST], bulkhead: shop, upstream: service}}
    all-of-admin: {{path: /, host: admin.example, bulkhead: admin, upstream: service}}
    long: {{path: /, host: {long}, header: "X-Key: {'k' * 100}", bulkhead: admin, upstream: service}}"""
        with Upstream() as up:
            gw = Gateway(up, routes=routes)
            gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace(
                "bulkheads:\n", "bulkheads:\n  shop: {max_concurrent: 3}\n  admin: {max_concurrent: 3}\n"))
            with gw:
                def took(host, path, method="GET", **headers):
                    self.assertIn(gw.get(path, method=method, headers={"Host": host, **headers}).status, (200, 204))
                    line = wait_until(lambda: gw.read("access.jsonl").endswith("\n") and gw.read("access.jsonl").splitlines()[-1], "a line")
                    open(gw.path + "/access.jsonl", "w").close()
                    return json.loads(line)["bulkhead"]
                self.assertEqual(took("shop.example", "/shop/1"), "shop")
                self.assertEqual(took("shop.example", "/writes", "POST"), "shop")
                self.assertEqual(took("shop.example", "/writes"), "api")
                self.assertEqual(took("shop.example", "/status/200"), "api")
                self.assertEqual(took("shop.example", "/status/204"), "")  # the route of health checks
                self.assertEqual(took("admin.example", "/status/204"), "admin")  # all of it
                self.assertEqual(took("other.example", "/shop/1"), "api")
                self.assertEqual(took(long, "/x"), "api")
                self.assertEqual(took(long, "/x", **{"X-Key": "k" * 100}), "admin")

    def test_CheckFindsWhatDoesNotFitTogether(self):
        def check(path):
            done = subprocess.run([PROGRAM, "check", path], capture_output=True, text=True)
            return done.returncode, done.stderr
        with Upstream() as up:
            gw = Gateway(up, "max_concurrent: 100, execution_timeout: 90s")
            code, said = check(gw.path + "/bulkhead.yaml")
            self.assertEqual(code, 0, said)
            self.assertIn("gateway.upstreams.service.keep_alive", said)
            self.assertIn("gateway.upstreams.service.read_timeout", said)
            self.assertNotIn("budget", said)
            budgets = Gateway(up, "budgets: {tokens: {max: 100, per_call_max: 50}}")
            code, said = check(budgets.path + "/bulkhead.yaml")
            self.assertEqual(code, 0, said)
            self.assertIn('no request of a gateway names the budget "tokens" of "api"', said)
            gw.write("extra.conf", "location /more { limit_conn here 5; proxy_pass http://service; }")
            os.mkdir(gw.path + "/sites")  # what a file there includes is beside nginx.conf
            gw.write("sites/one.conf", "server { bulkhead api; location / { grpc_pass grpc://service; } include last.conf; }")
            gw.write("last.conf", "location /long { grpc_read_timeout 2m; grpc_pass grpc://service; }")
            gw.write("nginx.conf", """events {}
http {
  bulkhead_config bulkhead.yaml;
  upstream service { server 127.0.0.1:1; keepalive 10; }   # a comment with ; and {
  proxy_read_timeout 30s;
  server {
    bulkhead "api";
    location / { proxy_pass http://service; }
    include extra.conf;
    location ~ "^/x{1,3}$" { bulkhead off; proxy_pass http://service; }
  }
  include sites/*.conf;
}
""")
            code, said = check(gw.path + "/nginx.conf")
            self.assertEqual(code, 0, said)
            self.assertIn("nginx.conf:8:1: proxy_pass: warning: proxy_read_timeout is shorter", said)
            self.assertIn("keeps 10 connections", said)
            self.assertIn("extra.conf:1:1: proxy_pass: warning: limit_conn", said)
            self.assertIn("one.conf:1:1: grpc_pass: warning: grpc_read_timeout is shorter", said)
            self.assertIn("last.conf:1:1: grpc_pass: warning: upstream service keeps", said)
            self.assertNotIn("last.conf:1:1: grpc_pass: warning: grpc_read_timeout", said)
            with open(gw.path + "/nginx.conf") as f:
                conf = f.read()
            gw.write("nginx.conf", conf.replace("timeout 30s", "timeout '1m 31s'").replace("http {", "http\n{"))
            code, said = check(gw.path + "/nginx.conf")
            self.assertEqual(code, 0, said)
            self.assertNotIn("proxy_read_timeout is shorter", said)
            self.assertNotIn("worker_processes", said)
            gw.write("nginx.conf", "worker_processes auto;\n" + conf)
            code, said = check(gw.path + "/nginx.conf")
            self.assertEqual(code, 0, said)
            self.assertEqual(said.count('worker_processes is auto, and each worker has a limit of its own for "api"'), 1, said)
            # Also where nothing is passed on.
            gw.write("nginx.conf", conf.replace("bulkhead off; proxy_pass http://service;", "bulkhead missing; root /srv;"))
            code, said = check(gw.path + "/nginx.conf")
            self.assertEqual(code, 3, said)
            self.assertIn('nginx.conf:10:1: bulkhead: there is no bulkhead "missing"', said)
            gw.write("nginx.conf", conf.replace('"api"', "nothing"))
            code, said = check(gw.path + "/nginx.conf")
            self.assertEqual(code, 3, said)
            self.assertIn('there is no bulkhead "nothing"', said)
            gw.directory.cleanup()

    def test_TheDemoTellsItsStoryAndEnds(self):
        done = subprocess.run([PROGRAM, "demo", "--gateway", "--seconds", "4", "--json"], capture_output=True, text=True, timeout=55)
        self.assertTrue(done.stdout, done.stderr)
        acts = json.loads(done.stdout)["acts"]
        self.assertEqual(len(acts), 3)
        unprotected, protected = (acts[i]["routes"][0]["served"] / acts[i]["routes"][0]["requests"] for i in (1, 2))
        self.assertGreater(protected, unprotected)

    def test_SigtermDrains(self):
        with Upstream() as up, Gateway(up) as gw:
            all = [gw.begin("/hold") for _ in range(2)]
            gw.wait_for("api", in_flight=1, waiting_calls=1)
            gw.process.send_signal(signal.SIGTERM)
            for n in range(2):
                up.wait_running(1)
                up.release()
                up.wait_served(n + 1)
            self.assertEqual([a.result().status for a in all], [200, 200])
            wait_until(lambda: gw.process.poll() == 0, "it ends")

    def test_ShowPrintsTheConfigurationAndMistakesAreNamed(self):
        with Upstream() as up:
            gw = Gateway(up)
            def show():
                return subprocess.run([PROGRAM, "gateway", "show", gw.path + "/bulkhead.yaml"], capture_output=True, text=True)
            self.assertIn("bulkhead api;", show().stdout)
            for routes, text in [("a: {path: '/x;}', upstream: service}", "is not a path"),
                                 ("a: {path: /, upstream: service}", "same host and path"),
                                 ("a: {path: /a, bulkhead: none-such, upstream: service}", 'unknown bulkhead "none-such"'),
                                 ("a: {pth: /a, upstream: service}", "did you mean path?")]:
                gw.rewrite(routes=routes)
                result = show()
                self.assertEqual(result.returncode, 3, text)
                self.assertIn(text, result.stderr)
                self.assertTrue(re.search(r"bulkhead\.yaml:\d+:\d+: gateway\.routes\.a", result.stderr), result.stderr)
            gw.rewrite(routes="")
            for more, text in [(f"other: {{address: 127.0.0.1:{gw.port}}}", "gateway.listeners.http.address: another listener has it"),
                               ("other: {address: 127.0.0.1:70000}", '"127.0.0.1:70000" is not an address and a port')]:
                gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace("listeners: {", "listeners: {%s, " % more))
                self.assertIn(text, show().stderr)
                gw.rewrite()
            # nginx has files of its own beside its configuration, which are gone when it ends.
            gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace(gw.path + "/access.jsonl", "access.jsonl").replace(
                "listeners: {", "listeners: {tls: {address: 127.0.0.1:1, tls: {certificate: own.crt, private_key: own.key}}, "))
            for line in ("access_log %s/access.jsonl", "ssl_certificate %s/own.crt;", "ssl_certificate_key %s/own.key;"):
                self.assertIn(line % os.getcwd(), show().stdout)
            gw.rewrite()
            gw.write("bulkhead.yaml", gw.read("bulkhead.yaml").replace("bulkheads:\n", "fleet: {store: 'redis://127.0.0.1:1'}\n"
                                                                       "bulkheads:\n  far: {max_concurrent: 4, scope: fleet}\n"))
            self.assertRegex(show().stderr, r"bulkhead\.yaml:4:\d+: bulkheads\.far\.scope: nginx cannot use a limit of a fleet")
            gw.directory.cleanup()


if __name__ == "__main__":
    unittest.main()
