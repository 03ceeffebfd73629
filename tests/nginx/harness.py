"""A real nginx with the module, and an upstream that the test controls, for one test each.

  with Upstream() as up, Nginx(yaml, locations, up) as ngx:
      one = ngx.begin("/hold")                # a request of its own thread
      up.wait_running(1)
      up.release()
      assert one.result().status == 200

Nothing here sleeps for a fixed time: tests wait for a state (Nginx.wait_for) with a bound.
"""

import asyncio
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

MODULE = os.environ.get("TEST_NGINX_MODULE", "")
PROGRAM = os.environ.get("TEST_NGINX", "/usr/sbin/nginx")
# A module with a sanitizer needs its library first. Leaks are not looked for: nginx frees its memory by ending.
ENVIRONMENT = dict(os.environ)
if os.environ.get("TEST_PRELOAD"):
    ENVIRONMENT.update(LD_PRELOAD=os.environ["TEST_PRELOAD"], ASAN_OPTIONS="detect_leaks=0:detect_odr_violation=0")
PATIENCE = 20  # seconds until a state that does not come is a failure


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"never came: {what() if callable(what) else what}")
        time.sleep(0.002)


class Upstream:
    """An HTTP/1.1 service that counts what runs. A request runs to its end even if its connection is gone, as a thread
    of a real service does.

    /hold waits for release(), /sleep/MS for a time, /status/CODE answers that, /body/BYTES sends so much, /stream sends a
    part and waits for release(), /accel/PATH redirects inside nginx, /upgrade becomes an echo.
    """

    def __init__(self):
        self.running = self.most = self.served = 0
        self.order = []  # the queries of the requests, as they came
        self.headers = []
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self.waiting = []
        self.tasks = set()

    def __enter__(self):
        started = threading.Event()

        async def main():
            server = await asyncio.start_server(self.connection, "127.0.0.1", self.port or 0, backlog=4096)
            self.port = server.sockets[0].getsockname()[1]
            self.stop = asyncio.Event()
            started.set()
            await self.stop.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(main()), daemon=True)
        self.thread.start()
        started.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(PATIENCE)
        self.loop.close()

    def release(self, count=1):
        def one():
            for _ in range(min(count, len(self.waiting))):
                self.waiting.pop(0).set_result(None)

        self.loop.call_soon_threadsafe(one)

    def wait_running(self, count):
        wait_until(lambda: self.running == count, lambda: f"{count} running at the upstream, but {self.running}")

    def wait_served(self, count):
        wait_until(lambda: self.served >= count, lambda: f"{count} served by the upstream, but {self.served}")

    async def held(self):
        future = self.loop.create_future()
        self.waiting.append(future)
        await future

    async def connection(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                if "content-length" in headers:
                    await reader.readexactly(int(headers["content-length"]))
                task = asyncio.ensure_future(self.request(lines[0].split()[1], headers, reader, writer))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                if not await asyncio.shield(task):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def request(self, target, headers, reader, writer):
        path, _, query = target.partition("?")
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(query)
        self.headers.append(headers)
        status, body, extra = 200, b"ok\n", ""
        try:
            parts = path.strip("/").split("/")
            if parts[0] == "hold":
                await self.held()
            elif parts[0] == "sleep":
                await asyncio.sleep(int(parts[1]) / 1000)
            elif parts[0] == "status":
                status = int(parts[1])
            elif parts[0] == "body":
                body = b"x" * int(parts[1])
            elif parts[0] == "accel":
                extra = f"X-Accel-Redirect: /{'/'.join(parts[1:])}\r\n"
            elif parts[0] == "stream":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npart\n")
                await writer.drain()
                await self.held()
                writer.write(b"\n")
                return True
            elif parts[0] == "upgrade":
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
                while data := await reader.read(4096):
                    writer.write(data)
                return False
        finally:
            # Before the response is written: whoever has it finds the request ended.
            self.running -= 1
            self.served += 1
        if not writer.is_closing():
            writer.write(f"HTTP/1.1 {status} X\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return True


class Reply:
    def __init__(self, response, body):
        self.status, self.body = response.status, body
        self.headers = {k.lower(): v for k, v in response.getheaders()}

    @property
    def reason(self):
        return self.headers.get("x-bulkhead-reason", "")


class Nginx:
    def __init__(self, yaml, locations, upstream=None, http="", main="", watch="on", user="root"):
        self.directory = tempfile.TemporaryDirectory(prefix="bulkhead-nginx-")
        self.path = self.directory.name
        self.port = free_port()
        self.write("bulkhead.yaml", yaml)
        self.upstream = upstream
        self.main, self.http, self.watch, self.user = main, http, watch, user
        if user != "root":
            os.chmod(self.path, 0o755)
        self.configure(locations)
        self.pool = concurrent.futures.ThreadPoolExecutor(256)
        self.process = None
        self.may_alert = None  # a text in alerts of the log that the test provokes

    def write(self, name, text):
        temporary = os.path.join(self.path, name + ".new")
        with open(temporary, "w") as f:
            f.write(text)
        os.rename(temporary, os.path.join(self.path, name))

    def read(self, name):
        with open(os.path.join(self.path, name)) as f:
            return f.read()

    def configure(self, locations):
        temps = "".join(f"{t}_temp_path {self.path}/{t};" for t in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        service = f"upstream service {{ server 127.0.0.1:{self.upstream.port}; keepalive 64; }}" if self.upstream else ""
        self.write("nginx.conf", f"""
{f'user {self.user};' if os.geteuid() == 0 else ''}
load_module {MODULE};
pid {self.path}/nginx.pid;
error_log {self.path}/error.log notice;
daemon off;
{'env LD_PRELOAD; env ASAN_OPTIONS;' if 'LD_PRELOAD' in ENVIRONMENT else ''}
{self.main}
events {{ worker_connections 4096; }}
http {{
  {temps}
  bulkhead_config {self.path}/bulkhead.yaml watch={self.watch};
  log_format words '$status [$bulkhead] [$bulkhead_reason] [$bulkhead_wait] [$bulkhead_priority] $uri';
  access_log {self.path}/access.log words;
  lingering_close off;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  {self.http}
  {service}
  server {{
    listen 127.0.0.1:{self.port} backlog=4096;
    location = /bulkheads {{ bulkhead off; bulkhead_status json; access_log off; }}
    location = /metrics {{ bulkhead off; bulkhead_status; access_log off; }}
    {locations}
  }}
}}
""")

    def command(self, *arguments):
        return subprocess.run([PROGRAM, "-p", self.path, "-c", self.path + "/nginx.conf",
                               "-e", self.path + "/error.log", *arguments],
                              capture_output=True, text=True, timeout=PATIENCE, env=ENVIRONMENT)

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "-p", self.path, "-c", self.path + "/nginx.conf",
                                         "-e", self.path + "/error.log"],
                                        stderr=subprocess.PIPE, env=ENVIRONMENT)

        def listens():
            if self.process.poll() is not None:
                raise AssertionError("nginx ended: " + self.process.stderr.read().decode() + self.read("error.log"))
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        wait_until(listens, "nginx listens")
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.quit()
        finally:
            self.pool.shutdown(wait=False, cancel_futures=True)
            log = self.read("error.log")
            self.directory.cleanup()
            if kind:
                print(log[-6000:])
        bad = [line for line in log.splitlines()
               if re.search(r"\[(alert|emerg|crit)\]|exited on signal|AddressSanitizer|runtime error:", line)
               and not (self.may_alert and self.may_alert in line)]
        assert kind or not bad, "\n".join(bad)

    def quit(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("nginx did not end")
        self.process.stderr.close()

    def reload(self):
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.workers() - before, "a new worker")

    def workers(self):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
                                  capture_output=True, text=True).stdout
        return set(map(int, children.split()))

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def send(self, path, method="GET", headers=None, body=""):
        """A connection on which this request has been sent."""
        s = self.connect()
        extra = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n{body}".encode())
        return s

    def get(self, path, method="GET", headers=None, body=None, connection=None):
        c = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            c.request(method, path, body, headers or {})
            response = c.getresponse()
            return Reply(response, response.read())
        finally:
            if not connection:
                c.close()

    def begin(self, path, **options):
        return self.pool.submit(self.get, path, **options)

    def state(self, name):
        page = json.loads(self.get("/bulkheads").body)
        return next(b for b in page["bulkheads"] if b["name"] == name)

    def wait_for(self, name, **wanted):
        def there():
            state = self.state(name)
            return all(state[k] == v for k, v in wanted.items())
        wait_until(there, lambda: f"{wanted}, but {self.state(name)}")
