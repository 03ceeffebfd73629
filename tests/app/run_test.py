"""`bulkhead run`: a file as a process. Reload by signal, by rename and by request; a bad file; stopping; being killed."""
import hashlib
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


class Running:
    def __init__(self, directory, limit=20, arguments=(), environment=None):
        self.directory = directory
        self.file = directory + "/b.yaml"
        if limit is not None:
            self.write(limit)
        with open(directory + "/stderr", "a") as stderr:
            self.process = subprocess.Popen([program.PROGRAM, "run", self.file, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=stderr, text=True, env={**os.environ, **(environment or {})})
        STARTED.append(self.process)
        self.first = self.process.stdout.readline()
        assert self.first, self.stderr()

    def stderr(self):
        with open(self.directory + "/stderr") as text:
            return text.read()

    def write(self, limit, text=FILE):
        with open(self.file + ".new", "w") as out:
            out.write(text % (limit, self.directory, self.directory) if "%d" in text else text)
        os.rename(self.file + ".new", self.file)

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.directory + "/admin.sock")
        if body is not None:
            headers["Content-Type"] = "application/json" if isinstance(body, dict) else "application/yaml"
            body = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        data = response.read().decode()
        connection.close()
        return response.status, json.loads(data) if data.startswith("{") else data

    def until(self, holds, what):
        deadline = time.monotonic() + 20
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(what + "\n" + self.stderr())
            time.sleep(0.05)

    def limit(self, name="checkout"):
        return self.ask("GET", "/v1/bulkheads/" + name)[1]["limit"]

    def run(self, *arguments):
        return program.run(*arguments, "--admin", self.directory + "/admin.sock", timeout=30)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="bulkhead-run-")
        self.addCleanup(shutil.rmtree, self.directory)

    def tearDown(self):
        for process in STARTED:
            if process.poll() is None:
                process.kill()
                process.wait()
        STARTED.clear()

    def stderr(self):
        with open(self.directory + "/stderr") as text:
            return text.read()


class Reload(Case):
    def test_a_file_is_followed_by_rename_signal_and_request_and_a_bad_one_changes_nothing(self):
        running = Running(self.directory)
        self.assertIn("2 bulkheads of", running.first)
        self.assertEqual(running.limit(), 20)
        running.write(30)  # a rename: the watch sees it
        running.until(lambda: running.limit() == 30, "the new file is not loaded")

        running.write(0, "version: 1\nbulkheads:\n  checkout: {max_concurent: 5}\n")
        running.until(lambda: running.ask("GET", "/v1/snapshot")[1]["config"]["state"] == "invalid", "the bad file is not told")
        self.assertEqual(running.limit(), 30)
        self.assertIn("max_concurrent", running.ask("GET", "/v1/snapshot")[1]["config"]["error"])
        status, problem = running.ask("POST", "/v1/config/reload")
        self.assertEqual((status, problem["errors"][0]["line"]), (422, 3))
        self.assertEqual(running.run("reload").returncode, 3)

        running.write(40)
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: running.limit() == 40, "SIGHUP does not load the file")
        self.assertEqual(running.ask("GET", "/v1/snapshot")[1]["config"]["state"], "in_sync")
        self.assertEqual(running.stop(), 0)
        self.assertFalse(os.path.exists(self.directory + "/admin.sock"))

    def test_diff_tells_and_reload_does(self):
        running = Running(self.directory, arguments=["--no-watch"])
        self.assertEqual(running.run("diff").stdout, "No changes.\n")
        running.write(25)
        diff = running.run("diff")
        self.assertIn("bulkheads.checkout.max_concurrent: 20 -> 25", diff.stdout)
        self.assertEqual(running.limit(), 20)
        self.assertEqual(running.run("reload", "--dry-run").returncode, 0)
        self.assertEqual(running.limit(), 20)
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 25)
        text = running.ask("GET", "/v1/config")[1]["text"]
        self.assertIn("max_concurrent: 25", text)
        self.assertTrue(running.ask("POST", "/v1/config/validate", text)[1]["valid"])
        self.assertFalse(running.ask("POST", "/v1/config/validate", "version: 9\n")[1]["valid"])
        self.assertEqual(running.ask("POST", "/v1/config/reload", If_Match='"other"')[0], 412)
        running.stop()

    def test_an_override_outlives_a_reload_unless_the_file_changes_that_setting(self):
        running = Running(self.directory, arguments=["--no-watch"])
        self.assertEqual(running.run("set", "checkout", "--limit", "3", "--reason", "r").returncode, 0)
        running.write(20, FILE.replace("max_queue: 10", "max_queue: 11") % (20, self.directory, self.directory))
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 3)
        running.write(50)
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 50)
        self.assertEqual(running.ask("GET", "/v1/overrides")[1]["overrides"], [])
        self.assertIn("replaces the override", running.run("events").stdout)
        running.stop()


class Life(Case):
    def test_metrics_and_health(self):
        running = Running(self.directory)
        text = running.ask("GET", "/metrics")[1]
        self.assertIn('bulkhead_max_concurrent{bulkhead="checkout"} 20', text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        health = running.ask("GET", "/health/bulkheads")
        self.assertEqual(health[0], 200)
        self.assertIn("checkout", json.dumps(health[1]))
        running.stop()

    def test_the_service_manager_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(self.directory + "/notify")
            manager.settimeout(20)
            running = Running(self.directory, arguments=["--grace", "0.2"], environment={"NOTIFY_SOCKET": self.directory + "/notify"})
            self.assertIn(b"READY=1", manager.recv(1000))
            running.process.send_signal(signal.SIGHUP)
            self.assertRegex(manager.recv(1000).decode(), r"RELOADING=1\nMONOTONIC_USEC=\d+")
            self.assertIn(b"READY=1", manager.recv(1000))
            self.assertEqual(running.stop(), 0)
            self.assertIn(b"STOPPING=1", manager.recv(1000))

    def test_what_a_killed_process_leaves_is_explained_by_the_next(self):
        running = Running(self.directory)
        self.assertEqual(running.run("set", "checkout", "--limit", "3", "--reason", "incident").returncode, 0)
        self.assertEqual(running.stop(signal.SIGKILL), -signal.SIGKILL)
        with open(self.directory + "/audit.jsonl", "a") as torn:
            torn.write('{"id": 99, "kind": "over')
        running = Running(self.directory, limit=None)  # the socket's file is still there
        self.assertEqual(running.limit(), 20)
        self.assertIn("the last run did not end by itself", self.stderr())
        self.assertIn("checkout: limit 20 -> 3 for 15 m: incident", self.stderr())
        self.assertEqual(running.stop(), 0)
        before = self.stderr()
        self.assertEqual(Running(self.directory, limit=None).stop(), 0)
        self.assertNotIn("did not end", self.stderr()[len(before):])

    def test_elsewhere_than_on_the_loopback_address_it_speaks_tls_and_asks_for_a_token(self):
        key, certificate = self.directory + "/key.pem", self.directory + "/cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True, timeout=30)
        with open(self.directory + "/tokens", "w") as out:
            out.write("ann operator " + hashlib.sha256(b"secret").hexdigest() + "\n")
        with open(self.directory + "/b.yaml", "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol:\n  listen: 0.0.0.0:0\n  anonymous: none\n"
                      f"  tokens_file: {self.directory}/tokens\n  tls: {{certificate: {certificate}, private_key: {key}}}\n")
        running = Running(self.directory, limit=None)
        port = re.search(r"https://0\.0\.0\.0:(\d+)", running.first).group(1)

        def curl(*arguments):
            return subprocess.run(["curl", "-sS", "--cacert", certificate, "-w", "%{http_code}", "-o", "/dev/null", *arguments,
                                   f"https://localhost:{port}/v1/session"], capture_output=True, text=True, timeout=30).stdout
        self.assertEqual(curl(), "401")
        self.assertEqual(curl("-H", "Authorization: Bearer secret"), "200")
        plain = subprocess.run(["curl", "-sS", f"http://localhost:{port}/livez"], capture_output=True, text=True, timeout=30)
        self.assertNotEqual(plain.returncode, 0)
        self.assertEqual(running.stop(), 0)

    def test_what_cannot_run_says_why(self):
        path = self.directory + "/bad.yaml"
        with open(path, "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: many}\n")
        bad = program.run("run", path)
        self.assertEqual(bad.returncode, 3)
        self.assertIn("bad.yaml:3:", bad.stderr)
        with open(path, "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol: {listen: '0.0.0.0:0'}\n")
        self.assertIn(program.run("run", path).returncode, (1, 3))
        self.assertNotEqual(program.run("run", self.directory + "/none.yaml").returncode, 0)


if __name__ == "__main__":
    program.main()
