"""The control plane of the running demo: its interface against its own OpenAPI document, the commands, curl."""
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

import jsonschema
import program


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

    def ask(self, method, path, body=None, token=None, local=False, headers=None, kind="application/json"):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        if local:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.socket)
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = "Bearer " + token
        if body is not None:
            headers["Content-Type"] = kind
            body = body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read() if path != "/v1/stream" or response.status != 200 else b""
        connection.close()
        return response, data.decode()

    def get(self, path):
        response, body = self.ask("GET", path)
        assert response.status == 200, (path, response.status, body)
        return json.loads(body)

    def run(self, *arguments, admin=None, **environment):
        return program.run(*arguments, "--admin", admin or self.socket, timeout=30, **environment)


class Interface(unittest.TestCase):
    def test_every_documented_answer_is_given_and_is_as_documented(self):
        with Demo() as demo:
            document = demo.get("/v1/openapi.json")
            operations = {(method.upper(), path): o for path, methods in document["paths"].items() for method, o in methods.items()}
            seen = set()

            def check(method, path, template, response, body):
                operation = operations[(method, template)]
                answer = operation["responses"].get(str(response.status))
                self.assertIsNotNone(answer, f"{method} {path} answered {response.status}, which is not documented: {body[:300]}")
                seen.add((method, template, response.status))
                for kind, content in answer.get("content", {}).items():
                    self.assertTrue(response.getheader("Content-Type").startswith(kind), (method, path, response.getheader("Content-Type")))
                    if kind.endswith("json"):
                        schema = {**content["schema"], "components": document["components"]}
                        jsonschema.Draft202012Validator(schema).validate(json.loads(body))

            def ask(method, template, name=None, query="", **options):
                path = template.replace("{name}", name or "checkout") + query
                response, body = demo.ask(method, path, **options)
                check(method, path, template, response, body)
                return response, body

            why = {"reason": "test"}
            changes = {"/v1/overrides/{name}": {"limit": 7, "ttl": 60, **why}, "/v1/circuits/{name}/override": {"state": "open", **why},
                       "/v1/drains/{name}": {"ttl": "5m", **why}}
            for (method, path), operation in operations.items():
                if operation["x-role"] != "none":
                    ask(method, path, token="wrong")  # 401
                    ask(method, path, headers={"Origin": "http://elsewhere.example"})  # 403
                if method == "GET":
                    response, _ = ask(method, path, local=True)
                if method == "GET" and "{name}" in path:
                    ask(method, path, "nobody")
            for path, body in changes.items():
                etag = ask("GET", path)[0].getheader("ETag")
                ask("PUT", path, body=body, local=True, headers={"If-Match": etag})
                ask("PUT", path, body=body, local=True, headers={"If-Match": etag})  # 412
                ask("DELETE", path, local=True, headers={"If-Match": etag})
                for method in ("PUT", "DELETE"):
                    ask(method, path, body="{", local=True)
                    ask(method, path, body=body, local=True, kind="text/plain")
                    ask(method, path, body={"colour": "red"}, local=True)
                    ask(method, path, "nobody", body=body if method == "PUT" else None, local=True)
                ask("DELETE", path, local=True)
            ask("PUT", "/v1/circuits/{name}/override", "browse", body=changes["/v1/circuits/{name}/override"], local=True)  # 409: has none
            ask("DELETE", "/v1/circuits/{name}/override", "browse", local=True)
            switch = "/v1/switches/{name}"
            ask("PUT", switch, "slow-analytics", body={"on": True}, token=demo.token)
            ask("PUT", switch, "nothing", body={"on": True}, token=demo.token)
            ask("PUT", switch, "bulkheads", body="{", token=demo.token)
            ask("PUT", switch, "bulkheads", body={"on": 1}, token=demo.token)
            ask("PUT", switch, "bulkheads", body={"on": True}, token=demo.token, kind="text/plain")

            def operation(path, body, **more):
                return {"operations": [{"method": "PUT", "path": path, "body": body, **more}]}
            batch = "/v1/batch"
            ask("POST", batch, body=operation("/v1/overrides/browse", {"limit": 9, **why}), token=demo.token)
            ask("POST", batch, body=operation("/v1/overrides/browse", {"limit": 9, **why}, if_match='"old"'), token=demo.token)
            ask("POST", batch, body=operation("/v1/overrides/nobody", {"limit": 9, **why}), token=demo.token)
            ask("POST", batch, body=operation("/v1/circuits/browse/override", {"state": "open", **why}), token=demo.token)
            ask("POST", batch, body={"operations": []}, token=demo.token)
            ask("POST", batch, body="[", token=demo.token)
            ask("POST", batch, body="{}", token=demo.token, kind="text/plain")
            for path in ("/v1/history", "/v1/events", "/v1/audit"):
                ask("GET", path, query="?seconds=x&limit=x")
            ask("GET", "/v1/history", query="?seconds=60&step=2&bulkhead=checkout")
            ask("GET", "/v1/history", query="?bulkhead=nobody")
            for path in ("/v1/config/validate", "/v1/config/reload"):
                ask("POST", path, body="version: 1", kind="application/yaml", local=True)  # 404: the demo has no file

            # What needs a file or a crowd is seen by others: tests of adapters/control, and of `bulkhead run`.
            elsewhere = {(m, p, int(s)) for (m, p), o in operations.items() for s in o["responses"]
                         if p.startswith("/v1/config") or (p, s) in (("/v1/stream", "503"), ("/readyz", "503"))
                         or (s == "409" and not p.startswith("/v1/circuits") and p != batch) or (s == "409" and m == "DELETE")}
            documented = {(m, p, int(s)) for (m, p), o in operations.items() for s in o["responses"]}
            self.assertEqual(documented - seen - elsewhere, set())
        self.assertEqual(demo.code, 0)

    def test_the_numbers_are_those_of_the_calls(self):
        with Demo("--slow") as demo:
            deadline = time.monotonic() + 30
            while True:
                rows = {b["name"]: b for b in demo.get("/v1/snapshot")["bulkheads"]}
                if rows["analytics"]["in_flight"] == 15 and rows["analytics"]["total"]["rejected"] > 0:
                    break
                self.assertLess(time.monotonic(), deadline, rows["analytics"])
                time.sleep(0.2)
            self.assertEqual(set(rows), {"admin", "analytics", "browse", "checkout", "database"})
            self.assertEqual(rows["checkout"]["total"]["rejected"], 0)
            self.assertLessEqual(rows["database"]["in_flight"], 100)
            self.assertEqual(rows["analytics"]["limit"], 15)
            peak = 0
            while peak != 15:  # once the second is over
                self.assertLess(time.monotonic(), deadline)
                history = demo.get("/v1/history?seconds=60&step=1")
                used = next(b for b in history["bulkheads"] if b["name"] == "analytics")["used"]
                peak = max(u for u in used if u is not None)
                self.assertLessEqual(peak, 15)

    def test_curl_and_the_dashboard(self):
        with Demo() as demo:
            page = subprocess.run(["curl", "-sS", "--compressed", "-L", "-D", "-", demo.url + "/"], capture_output=True, text=True, timeout=20)
            self.assertIn("302 Found", page.stdout)
            self.assertIn("default-src 'none'", page.stdout)
            self.assertIn("<!doctype html>", page.stdout.lower())
            local = subprocess.run(["curl", "-sS", "--unix-socket", demo.socket, "http://localhost/v1/session"], capture_output=True, text=True, timeout=20)
            self.assertEqual(json.loads(local.stdout)["role"], "admin")
            stream = subprocess.run(["curl", "-sS", "-N", "--max-time", "3", demo.url + "/v1/stream"], capture_output=True, text=True, timeout=20)
            self.assertGreaterEqual(stream.stdout.count("event: snapshot"), 2)
            frame = json.loads(re.search(r"^data: (.*)$", stream.stdout, re.M).group(1))
            self.assertEqual(len(frame["bulkheads"]), 5)


class Commands(unittest.TestCase):
    def test_a_resize_by_command_changes_the_process_and_can_be_taken_back(self):
        with Demo() as demo:
            status = demo.run("status")
            self.assertEqual(status.returncode, 0, status.stderr)
            self.assertIn("checkout", status.stdout)
            self.assertNotIn(program.ESCAPE, status.stdout)
            done = demo.run("set", "checkout", "--limit", "7", "--for", "2m", "--reason", "trying")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("limit 50 -> 7 for 2 m: trying", done.stdout)
            self.assertEqual(demo.get("/v1/bulkheads/checkout")["limit"], 7)
            self.assertIn("limit 50->7", demo.run("status", "checkout").stdout)
            self.assertEqual(demo.run("drain", "admin", "--reason", "test").returncode, 0)
            self.assertEqual(demo.run("breaker", "open", "checkout", "--reason", "test").returncode, 0)
            self.assertEqual(json.loads(demo.run("status", "checkout", "--json").stdout)["breaker"]["mode"], "forced_open")
            self.assertEqual(demo.run("reset", "checkout").returncode, 0)
            after = demo.get("/v1/bulkheads/checkout")
            self.assertEqual((after["limit"], after["breaker"]["mode"], after["overrides"]), (50, "automatic", []))
            self.assertEqual(demo.run("drain", "admin", "--resume").returncode, 0)
            events = demo.run("events").stdout
            for word in ("override", "revert", "drain", "resume"):
                self.assertIn(word, events)
            self.assertIn("checkout", demo.run("top", "--once").stdout)

    def test_what_goes_wrong_has_its_exit_code(self):
        with Demo() as demo:
            def code(*arguments, **more):
                result = demo.run(*arguments, **more)
                self.assertNotEqual(result.stderr, "")
                return result.returncode
            self.assertEqual(code("status", "chekout"), 1)
            self.assertIn('did you mean "checkout"?', demo.run("status", "chekout").stderr)
            self.assertEqual(code("set", "checkout", "--limit", "5"), 2)  # no reason
            self.assertEqual(code("set", "checkout", "--limit", "5", "--for", "25h", "--reason", "r"), 3)
            self.assertEqual(code("breaker", "open", "browse", "--reason", "r"), 5)
            self.assertEqual(code("set", "checkout", "--limit", "5", "--reason", "r", admin=demo.url), 6)
            self.assertEqual(demo.run("set", "checkout", "--limit", "5", "--reason", "r", admin=demo.url, BULKHEAD_TOKEN=demo.token).returncode, 0)
            self.assertEqual(code("diff"), 1)
            self.assertEqual(code("status", admin="/nowhere.sock"), 4)
            self.assertEqual(code("status", admin="ftp://x"), 2)

    def test_completion_knows_every_command(self):
        script = program.run("completion", "bash").stdout
        result = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(bulkhead ""); COMP_CWORD=1; _bulkhead; echo "${COMPREPLY[@]}"'],
                                capture_output=True, text=True, timeout=20)
        self.assertEqual(result.stderr, "")
        for command in ("demo", "status", "top", "set", "reset", "breaker", "drain", "events", "diff", "reload"):
            self.assertIn(command, result.stdout.split())
        self.assertEqual(json.loads(program.run("version", "--json").stdout)["name"], "bulkhead")


@unittest.skipUnless(shutil.which("tmux"), "needs tmux")
class Top(unittest.TestCase):
    def test_keys_sort_filter_resize_and_quit(self):
        with Demo() as demo:
            server = ["tmux", "-L", "bulkhead-" + str(os.getpid())]

            def tmux(*arguments):
                return subprocess.run([*server, *arguments], capture_output=True, text=True, timeout=20)

            def screen_with(text, without=None):
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    screen = tmux("capture-pane", "-p").stdout
                    if text in screen and (without is None or without not in screen):
                        return screen
                    time.sleep(0.1)
                self.fail(f"{text!r} does not appear:\n{screen}")

            try:
                tmux("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "30", f"{program.PROGRAM} top --admin {demo.socket}; echo left; sleep 30")
                screen_with("analytics")
                tmux("send-keys", "s")
                screen_with("sort: utilization")
                tmux("send-keys", "/", "check", "Enter")
                screen_with("checkout", without="analytics")
                tmux("send-keys", "+")
                screen_with("limit 50 -> 55 for 15m; reason:")
                tmux("send-keys", "busy", "Enter")
                screen_with("checkout: limit 50 -> 55", without="reason:")
                self.assertEqual(demo.get("/v1/bulkheads/checkout")["limit"], 55)
                tmux("send-keys", "q")
                screen_with("left")
            finally:
                tmux("kill-server")


if __name__ == "__main__":
    program.main()
