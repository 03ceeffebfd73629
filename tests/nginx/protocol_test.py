"""What the module must not change: how nginx reads requests, other protocols, the upgrade of its binary, odd files."""

import base64
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from harness import ENVIRONMENT, MODULE, Nginx, Upstream, free_port, wait_until

PROGRAM = os.environ.get("TEST_PROGRAM", "")
GRPC_SERVER, GRPC_CLIENT = os.environ.get("TEST_GRPC_SERVER", ""), os.environ.get("TEST_GRPC_CLIENT", "")
FILE = "version: 1\nbulkheads:\n  api: {max_concurrent: 4, max_queue: 100, max_wait: 5s}\n"
PROXY = "location / { bulkhead api; proxy_pass http://service; }"

POST = "POST /status/200 HTTP/1.1\r\nHost: x\r\n"
GET = "GET /status/200 HTTP/1.1\r\nHost: x\r\n"
CHUNKS = "2\r\nok\r\n0\r\n\r\n"
# Requests that one server reads in one way and the next in another.
VECTORS = [
    POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    POST + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + CHUNKS,
    POST + "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    POST + "Content-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    POST + "Transfer-Encoding: gzip\r\n\r\nhello",
    POST + "Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
    POST + "Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    POST + "Transfer-Encoding: chunked\t\r\nContent-Length: 5\r\n\r\n" + CHUNKS,
    POST + "Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS,
    POST + "Content-Length : 5\r\n\r\nhello",
    POST + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    POST + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    POST + "Content-Length: 5, 5\r\n\r\nhello",
    POST + "Content-Length: +5\r\n\r\nhello",
    POST + "Content-Length: 0x5\r\n\r\nhello",
    POST + "Content-Length: -1\r\n\r\nhello",
    POST + "Content-Length: 99999999999999999999\r\n\r\nhello",
    POST + "Content-Length: 5\r\n Transfer-Encoding: chunked\r\n\r\nhello",
    GET.replace("\r\n", "\n") + "\n",
    GET + "A: b\rc\r\n\r\n",
    GET + "A: b\0c\r\n\r\n",
    "GET /status/200 HTTP/1.1\r\n\r\n",
    GET + "Host: y\r\n\r\n",
    POST + "Transfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n",
    POST + "Transfer-Encoding: chunked\r\n\r\n2\r\nokX0\r\n\r\n",
    POST + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok\r\n0\r\n\r\n",
    POST.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    GET.replace("HTTP/1.1", "HTTP/1.2") + "\r\n",
    GET.replace("HTTP/1.1", "http/1.1") + "\r\n",
    "GET /status/200 HTTP/1.1\r\n Host: x\r\n\r\n",
    POST + "Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    GET + "\r\n" + GET + "\r\n",
    GET + "Connection: close, X-Secret\r\nX-Secret: 1\r\n\r\n",
]


class Master:
    """A process that is not our child, with what Nginx uses of a Popen."""

    def __init__(self, pid):
        self.pid, self.stderr = pid, open(os.devnull)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def poll(self):
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                return 0 if f.read().rpartition(")")[2].split()[0] == "Z" else None
        except OSError:
            return 0

    def wait(self, *_):
        wait_until(lambda: self.poll() == 0, "the master ends")


class Daemon(Nginx):
    """In the background: a master in the foreground ignores the signal for an upgrade."""

    def __enter__(self):
        self.write("nginx.conf", self.read("nginx.conf").replace("daemon off;", ""))
        started = self.command()
        assert started.returncode == 0, started.stderr
        wait_until(lambda: os.path.exists(self.path + "/nginx.pid") and self.read("nginx.pid"), "nginx runs")
        self.process = Master(int(self.read("nginx.pid")))
        return self


class Protocol(unittest.TestCase):
    def test_AmbiguousRequestsGetWhatPlainNginxGives(self):
        plain = free_port()
        with Upstream() as up, Nginx(FILE, PROXY, up, http=f"server {{ listen 127.0.0.1:{plain}; location / "
                                     "{ proxy_pass http://service; } }") as ngx:
            def ask(port, id, request):
                """The connection; the service knows the request by its query."""
                s = socket.create_connection(("127.0.0.1", port), 10)
                s.sendall(request.replace("/status/200", f"/status/200?{id}").encode("latin-1"))
                return s

            def seen(s, id):
                """The statuses, and what reached the service: framing and other headers of each request."""
                s.setblocking(False)
                try:
                    answer = s.recv(65536)
                except BlockingIOError:
                    answer = b""
                s.close()
                headers = [sorted(h.items()) for query, h in zip(up.order, up.headers) if query == id]
                return re.findall(rb"HTTP/1\.1 (\d+)", answer), headers
            # All at once: some are never answered, because they seem incomplete.
            all = [(r, ask(ngx.port, f"{n}b", r), ask(plain, f"{n}p", r)) for n, r in enumerate(VECTORS)]
            last = ngx.get("/sleep/700")
            self.assertEqual(last.status, 200)
            for n, (request, protected, other) in enumerate(all):
                self.assertEqual(seen(protected, f"{n}b"), seen(other, f"{n}p"), repr(request))
            ngx.wait_for("api", in_flight=0, waiting_calls=0)

    def test_ABodyThatNobodyReadIsNotTheNextRequest(self):
        inner = "GET /bulkheads HTTP/1.1\r\nHost: x\r\n\r\n"
        file = FILE.replace("4, max_queue: 100", "1")
        for pass_on, kind in (("bulkhead_body_first off; proxy_pass http://service;", "text/plain"),
                              ("set $to service; proxy_pass http://$to;", "application/grpc")):
            with Upstream() as up, Nginx(file, "location / { bulkhead api; bulkhead_fallback 200 none; %s }" % pass_on, up) as ngx:
                one = ngx.begin("/hold")
                up.wait_running(1)
                s = ngx.send("/x", "POST", {"Content-Type": kind, "Content-Length": str(len(inner))}, inner)
                s.sendall(b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answers = b""
                while part := s.recv(65536):
                    answers += part
                s.close()
                self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+)", answers), [b"200", b"200"], answers)
                self.assertNotIn(b"bulkheads", answers)
                up.release()
                self.assertEqual(one.result().status, 200)

    def test_AmbiguousRequestsGetWhatPlainNginxGivesAlsoFromAFallback(self):
        """A full bulkhead with a text, beside an nginx that returns the text; neither needs the body."""
        plain = free_port()
        locations = "location / { bulkhead api; bulkhead_body_first off; bulkhead_fallback 200 none; proxy_pass http://service; }" \
                    "location /free/ { proxy_pass http://service/; }"
        with Upstream() as up, Nginx(FILE.replace("4, max_queue: 100", "1"), locations, up,
                                     http=f"server {{ listen 127.0.0.1:{plain}; location / {{ return 200 none; }} }}") as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)

            def ask(port, request):
                s = socket.create_connection(("127.0.0.1", port), 10)
                s.sendall((request + GET + "\r\n").encode("latin-1"))
                return s

            def statuses(s):
                s.setblocking(False)
                try:
                    answer = s.recv(65536)
                except BlockingIOError:
                    answer = b""
                s.close()
                return re.findall(rb"HTTP/1\.1 (\d+)", answer)
            all = [(r, ask(ngx.port, r), ask(plain, r)) for r in VECTORS]
            self.assertEqual(ngx.get("/free/sleep/500").status, 200)
            for request, protected, other in all:
                self.assertEqual(statuses(protected), statuses(other), repr(request))
            self.assertEqual(up.served, 1)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_OnlyAGrpcCallGetsAGrpcStatus(self):
        """Any client may say that it calls by gRPC; over HTTP/1.1, or where the service speaks HTTP, it does not."""
        port = free_port()
        with Upstream() as up, Nginx(FILE.replace("4, max_queue: 100", "1"), "set $to service;" + PROXY +
                                     "location /variable { bulkhead api; proxy_pass http://$to; }", up,
                                     http="server { listen 127.0.0.1:%d http2; %s }" % (port, PROXY)) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            for path in ("/x", "/variable"):
                reply = ngx.get(path, method="POST", body="text", headers={"Content-Type": "application/grpc"})
                self.assertEqual((reply.status, reply.headers["content-type"]), (503, "application/problem+json"))
            shown = subprocess.run(["curl", "-si", "--http2-prior-knowledge", "-H", "Content-Type: application/grpc", "-d", "text",
                                    f"http://127.0.0.1:{port}/x"], capture_output=True, text=True, timeout=30).stdout
            self.assertTrue(shown.startswith("HTTP/2 503"), shown)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AWebSocketClientTalksThroughABulkhead(self):
        """RFC 6455 with its handshake and its masked frames; the service here is one, too."""
        import threading
        listener = socket.create_server(("127.0.0.1", 0))

        def service():
            s, _ = listener.accept()
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(4096)
            key = re.search(rb"sec-websocket-key: (\S+)", head, re.I)[1]
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            while frame := s.recv(4096):
                length, mask = frame[1] & 0x7f, frame[2:6]
                text = bytes(b ^ mask[i % 4] for i, b in enumerate(frame[6:6 + length]))
                s.sendall(bytes([0x81, len(text)]) + text)
            s.close()

        thread = threading.Thread(target=service, daemon=True)
        thread.start()
        up = type("Service", (), {"port": listener.getsockname()[1]})
        locations = "location / { bulkhead api; proxy_set_header Upgrade $http_upgrade;" \
                    "proxy_set_header Connection upgrade; proxy_pass http://service; }"
        with Nginx(FILE, locations, up) as ngx:
            key = base64.b64encode(os.urandom(16)).decode()
            s = ngx.send("/", headers={"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key,
                                       "Sec-WebSocket-Version": "13"})
            wanted = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
            self.assertIn(wanted, s.recv(4096))
            for text in (b"hello", b"again"):
                mask = os.urandom(4)
                s.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text)))
                self.assertEqual(s.recv(100), bytes([0x81, len(text)]) + text)
            ngx.wait_for("api", in_flight=1)
            s.close()
            ngx.wait_for("api", in_flight=0)
        thread.join(10)
        listener.close()

    @unittest.skipUnless(GRPC_SERVER and GRPC_CLIENT, "built without gRPC")
    def test_AGrpcClientCallsThroughABulkhead(self):
        server = subprocess.Popen([GRPC_SERVER], stdout=subprocess.PIPE, text=True)
        try:
            service = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[1]
            port = free_port()
            file = FILE.replace("4, max_queue: 100", "1")
            with Upstream() as up, Nginx(file, PROXY, up, http=f"server {{ listen 127.0.0.1:{port} http2; location / "
                                         f"{{ bulkhead api; grpc_pass grpc://127.0.0.1:{service}; }} }}") as ngx:
                def buy():
                    client = subprocess.run([GRPC_CLIENT, f"127.0.0.1:{port}", "5"], capture_output=True, text=True, timeout=60)
                    self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
                    return client.stdout.splitlines()
                self.assertEqual(buy(), ["one lamp"] * 5)
                self.assertEqual(ngx.state("api")["requests"], 5)
                ngx.wait_for("api", in_flight=0)
                other = ngx.begin("/hold")
                up.wait_running(1)
                self.assertIn("rejected (concurrency_limit)", buy())  # the client's own breaker may open after some
                up.release()
                self.assertEqual(other.result().status, 200)
        finally:
            server.terminate()
            server.wait(10)
            server.stdout.close()

    def test_AGrpcStatusOpensTheBreaker(self):
        """The service is an nginx that says UNAVAILABLE, in the headers or in the trailers, with HTTP's 200."""
        file = "version: 1\nbulkheads:\n" + "".join(
            f"  {name}: {{max_concurrent: 4, breaker: {{failure_rate: 0.5, minimum_calls: 4}}}}\n" for name in ("first", "last", "good"))
        port, service = free_port(), free_port()
        says = "default_type application/grpc; add_%s grpc-status %d; return 200 %s;"
        with Nginx(file, "", http=f"""
  server {{ listen 127.0.0.1:{service} http2;
    location /first {{ {says % ("header", 14, '""')} }} location /last {{ {says % ("trailer", 14, "text")} }}
    location /good {{ {says % ("trailer", 0, "text")} }} }}
  server {{ listen 127.0.0.1:{port} http2;
    {"".join(f"location /{n} {{ bulkhead {n}; grpc_pass grpc://127.0.0.1:{service}; }}" for n in ("first", "last", "good"))} }}
""") as ngx:
            def call(name):
                shown = subprocess.run(["curl", "-si", "--http2-prior-knowledge", "-H", "Content-Type: application/grpc", "-X", "POST",
                                        f"http://127.0.0.1:{port}/{name}"], capture_output=True, text=True, timeout=30).stdout
                return dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line)
            for name in ("first", "last", "good"):
                for _ in range(4):
                    self.assertNotIn("bulkhead-reason", call(name))
                ngx.wait_for(name, in_flight=0)
            for name in ("first", "last"):
                rejected = call(name)
                self.assertEqual((rejected["grpc-status"], rejected["bulkhead-reason"]), ("14", "breaker_open"))
                self.assertGreaterEqual(int(rejected["grpc-retry-pushback-ms"]), 1000)
            self.assertNotIn("bulkhead-reason", call("good"))

    @unittest.skipUnless(shutil.which("h2load"), "needs h2load: apt-get install nghttp2-client")
    def test_TheCapIsExactForStreamsOfHttp2(self):
        file = FILE.replace("5s", "60s")
        with Upstream() as up, Nginx(file, PROXY, up, http="server { listen 127.0.0.1:%d http2; location / "
                                     "{ bulkhead api; proxy_pass http://service; } }" % (port := free_port())) as ngx:
            shown = subprocess.run(["h2load", "-n", "400", "-c", "4", "-m", "25", f"http://127.0.0.1:{port}/sleep/2"],
                                   capture_output=True, text=True, timeout=50).stdout
            self.assertIn("400 succeeded, 0 failed", shown)
            self.assertIn("status codes: 400 2xx", shown)  # 100 at once: 4 run, 96 wait
            self.assertEqual((up.served, up.most), (400, 4))
            ngx.wait_for("api", in_flight=0, waiting_calls=0)

    def test_AnUpgradeOfTheBinarySharesTheLimitAndLosesNoRequest(self):
        with tempfile.TemporaryDirectory(prefix="bulkhead-region-", dir="/dev/shm") as region:
            file = FILE.replace("4,", "1,").replace("5s}", "20s, scope: host}") + f"host: {{region: {region}/r}}\n"
            with Upstream() as up, Daemon(file, PROXY, up) as ngx:
                old = ngx.begin("/hold")
                up.wait_running(1)
                ngx.process.send_signal(signal.SIGUSR2)
                pid_file = os.path.join(ngx.path, "nginx.pid")
                # The file is empty for a moment after it exists.
                wait_until(lambda: os.path.exists(pid_file + ".oldbin") and os.path.exists(pid_file) and ngx.read("nginx.pid"),
                           "the new master")
                master = int(ngx.read("nginx.pid"))
                try:
                    ngx.process.send_signal(signal.SIGWINCH)  # the old workers finish and take no more
                    # The old worker may still take a connection before it hears of that; both ways it waits for the place.
                    new = ngx.begin("/status/201")
                    wait_until(lambda: not new.done() and up.most == 1, "it waits")
                    up.release()
                    self.assertEqual(old.result().status, 200)
                    self.assertEqual(new.result().status, 201)
                    self.assertEqual(up.most, 1)
                    ngx.process.send_signal(signal.SIGQUIT)
                    ngx.process.wait(20)
                    self.assertEqual(ngx.get("/status/200").status, 200)
                finally:
                    os.kill(master, signal.SIGTERM)

                    def listens():
                        with socket.socket() as s:
                            return s.connect_ex(("127.0.0.1", ngx.port)) == 0
                    wait_until(lambda: not listens(), "the new nginx ends")

    def test_AnyConfigurationIsAcceptedOrItsMistakeIsNamed(self):
        """Random damage to a good file: nginx and the program say what is wrong, and neither crashes."""
        rng = random.Random(16)
        good = """version: 1
bulkheads:
  api: {max_concurrent: 4, max_queue: 10, max_wait: 5s, breaker: {failure_rate: 0.5}}
gateway:
  listeners: {http: {address: 127.0.0.1:8080, http2: false}}
  upstreams: {service: {servers: [127.0.0.1:9000], keep_alive: 8}}
  routes:
    all: {path: /, bulkhead: api, upstream: service, methods: [GET], header: "X-Beta: 1"}
"""
        pieces = ["{", "}", "[", "]", ":", ",", "\n", " ", "'", '"', "\\", "$", ";", "#", "&a", "*a", "!!x", "null", "-1", "\0", "é", "99999999999999999999"]
        with tempfile.TemporaryDirectory() as directory:
            path = directory + "/bulkhead.yaml"
            accepted = 0
            for round in range(25):
                text = good
                for _ in range(rng.randrange(3)):
                    at = rng.randrange(len(text))
                    text = text[:at] + rng.choice(pieces + [""]) + text[at + rng.randrange(3):]
                with open(path, "w") as f:
                    f.write(text)
                if PROGRAM:
                    shown = subprocess.run([PROGRAM, "gateway", "show", path], capture_output=True, text=True)
                    self.assertIn(shown.returncode, (0, 1, 3), text)
                    self.assertTrue(shown.returncode == 0 or shown.stderr, text)
                    conf = shown.stdout.replace("load_module ;", "").replace("127.0.0.1:8080", "127.0.0.1:1")
                    conf = re.sub(r"load_module .*;", f"load_module {MODULE};", conf)
                else:
                    conf = f"load_module {MODULE};\nevents {{}}\nhttp {{ bulkhead_config {path}; }}\n"
                if not conf.strip():
                    continue
                with open(directory + "/nginx.conf", "w") as f:
                    f.write(conf.replace("/tmp/bulkhead-gateway", directory))
                tested = subprocess.run(["/usr/sbin/nginx", "-t", "-p", directory, "-c", directory + "/nginx.conf", "-e", "stderr"],
                                        capture_output=True, text=True, env=ENVIRONMENT)
                self.assertIn(tested.returncode, (0, 1), tested.stderr + text)
                self.assertTrue(tested.returncode == 0 or "[emerg]" in tested.stderr, tested.stderr)
                # What the program accepts, nginx does, too: but for addresses that nothing has.
                if PROGRAM and tested.returncode:
                    self.assertRegex(tested.stderr, "host not found|invalid|bind", conf)
                accepted += tested.returncode == 0
            self.assertGreater(accepted, 3)


if __name__ == "__main__":
    unittest.main()
