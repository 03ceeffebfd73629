"""The programs that serve a control plane, as tests start, ask and stop them."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse

import program

FILE = """version: 1
bulkheads:
  checkout: {max_concurrent: %d, max_queue: 10, max_wait: 100ms, breaker: {open_for: 5s}}
  reports: {max_concurrent: 4, max_queue: 4, max_wait: 1s}
control:
  unix_socket: %s/admin.sock
  audit_file: %s/audit.jsonl
"""

STARTED = []  # processes, to end what a failed test leaves


def ask(where, method, path, body=None, token=None, headers=None, kind="application/json"):
    """`where`: a port of this host, or the path of a unix socket. Gives the response and its body as text."""
    connection = http.client.HTTPConnection("localhost", timeout=20)
    if isinstance(where, int):
        connection.sock = socket.create_connection(("127.0.0.1", where), timeout=20)
    else:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        try:
            connection.sock.connect(where)
        except OSError:
            connection.close()
            raise
    headers = dict(headers or {})
    if token:
        headers["Authorization"] = "Bearer " + token
    if body is not None:
        headers["Content-Type"] = kind
        body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read() if path != "/v1/stream" or response.status != 200 else b""
        return response, data.decode()
    finally:
        connection.close()


class Demo:
    """`bulkhead demo --serve` on a free port, until the end of the with-block."""

    def __init__(self, *arguments):
        self.directory = tempfile.mkdtemp(prefix="bulkhead-")
        self.socket = self.directory + "/admin.sock"
        self.process = subprocess.Popen(
            [program.PROGRAM, "demo", "--serve", "--listen", "127.0.0.1:0", "--unix-socket", self.socket, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text = ""
        while "Ctrl-C" not in text:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(text + self.process.stderr.read())
            text += line
        url, self.token = re.search(r"(http://127\.0\.0\.1:\d+)/ui/#token=(\w+)", text).groups()
        self.url = url
        self.port = urllib.parse.urlparse(url).port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.code = self.process.wait(20)
        self.process.stdout.close()
        self.process.stderr.close()
        shutil.rmtree(self.directory)

    def ask(self, method, path, local=False, **options):
        return ask(self.socket if local else self.port, method, path, **options)

    def get(self, path, local=False):
        response, body = self.ask("GET", path, local=local)
        assert response.status == 200, (path, response.status, body)
        return json.loads(body)

    def run(self, *arguments, admin=None, **environment):
        return program.run(*arguments, "--admin", admin or self.socket, timeout=30, **environment)


class Running:
    """`bulkhead run` of directory/b.yaml, which is FILE with this limit, or with None what is there already."""

    def __init__(self, directory, limit=20, arguments=(), environment=None, text=FILE):
        self.directory = directory
        self.file = directory + "/b.yaml"
        self.socket = directory + "/admin.sock"
        if limit is not None:
            self.write(limit, text)
        with open(directory + "/stderr", "a") as stderr:
            self.process = subprocess.Popen([program.PROGRAM, "run", self.file, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=stderr, text=True, env={**os.environ, **(environment or {})})
        STARTED.append(self.process)
        self.first = self.process.stdout.readline()
        assert self.first, self.stderr()
        port = re.search(r"127\.0\.0\.1:(\d+)", self.first)
        self.port = int(port.group(1)) if port else None

    def stderr(self):
        with open(self.directory + "/stderr") as text:
            return text.read()

    def write(self, limit, text=FILE):
        with open(self.file + ".new", "w") as out:
            out.write(text % (limit, self.directory, self.directory) if "%d" in text else text)
        os.rename(self.file + ".new", self.file)

    def ask(self, method, path, body=None, **headers):
        kind = "application/json" if isinstance(body, dict) else "application/yaml"
        response, data = ask(self.socket, method, path, body=body, kind=kind, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return response.status, json.loads(data) if data.startswith("{") else data

    def until(self, holds, what):
        deadline = time.monotonic() + 20
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(what + "\n" + self.stderr())
            time.sleep(0.05)

    def limit(self, name="checkout"):
        return self.ask("GET", "/v1/bulkheads/" + name)[1]["max_concurrent"]

    def run(self, *arguments):
        return program.run(*arguments, "--admin", self.socket, timeout=30)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


class Case(unittest.TestCase):
    """With a directory of its own; ends what Running has started."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="bulkhead-run-")
        self.addCleanup(shutil.rmtree, self.directory)

    def tearDown(self):
        for process in STARTED:
            if process.poll() is None:
                process.kill()
                process.wait()
                process.stdout.close()
        STARTED.clear()

    def stderr(self):
        with open(self.directory + "/stderr") as text:
            return text.read()
