"""The REST interface of running processes against their own OpenAPI document: every answer it documents, every role, races."""
import hashlib
import json
import os
import signal
import socket
import threading

import jsonschema
import program
from servers import Case, Demo, Running, ask

FILE = """version: 1
groups:
  shared: {total: 10, adaptive: {floor: 2, ceiling: 40}}
bulkheads:
  checkout: {max_concurrent: 20, max_queue: 10, breaker: {}}
  plain: {max_concurrent: 20}
  moving: {max_concurrent: 10, adaptive: {}}
  member: {group: shared, guaranteed: 50%%}
control:
  listen: 127.0.0.1:0
  unix_socket: %s/admin.sock
  tokens_file: %s/tokens
  anonymous: %s
  max_streams: 2
  allow_faults: true
"""
WHY = {"reason": "test"}
HEADERS = ("ETag", "WWW-Authenticate")  # told by the document where they are sent
CHANGES = {"/v1/overrides/{name}": {"max_concurrent": 7, "ttl": 60, **WHY}, "/v1/breakers/{name}": {"state": "open", **WHY},
           "/v1/drains/{name}": {"ttl": "5m", **WHY}, "/v1/faults/{name}": {"latency": "10ms", "ttl": "5m", **WHY}}


def operations_of(document):
    return {(method.upper(), path): o for path, methods in document["paths"].items() for method, o in methods.items()}


def batch_of(path, body, **more):
    return {"operations": [{"method": "PUT", "path": path, "body": body, **more}]}


class ApiCase(Case):
    def start(self, anonymous="viewer", **options):
        with open(self.directory + "/tokens", "w") as out:
            for role in ("viewer", "operator", "admin"):
                out.write(f"{role}-token {role} {hashlib.sha256(role.encode()).hexdigest()}\n")
        os.chmod(self.directory + "/tokens", 0o600)  # whatever the umask
        return Running(self.directory, text=FILE % (self.directory, self.directory, anonymous), **options)


class Document(ApiCase):
    """Of the demo and of `bulkhead run`: they serve the same document, and between them every answer in it can be had."""

    def setUp(self):
        super().setUp()
        self.seen = set()

    def read(self, where):
        self.document = json.loads(ask(where, "GET", "/v1/openapi.json")[1])
        self.operations = operations_of(self.document)
        self.where = where

    def call(self, method, template, name="checkout", query="", where=None, **options):
        """Asks, and checks that the answer is one of those documented for it, of the type and the schema and with the headers that stand there."""
        path = template.replace("{name}", name) + query
        response, body = ask(where or self.where, method, path, **options)
        answer = self.operations[(method, template)]["responses"].get(str(response.status))
        self.assertIsNotNone(answer, f"{method} {path} answered {response.status}, which is not documented: {body[:300]}")
        self.seen.add((method, template, response.status))
        self.assertEqual({h for h in HEADERS if response.getheader(h)}, set(answer.get("headers", {})), (method, path, response.status))
        for kind, content in answer.get("content", {}).items():
            self.assertTrue(response.getheader("Content-Type").startswith(kind), (method, path, response.getheader("Content-Type")))
            if kind.endswith("json"):
                jsonschema.Draft202012Validator({**content["schema"], "components": self.document["components"]}).validate(json.loads(body))
        return response

    def ask_everything(self, demo):
        for (method, path), operation in self.operations.items():
            if operation["x-role"] != "none":
                self.call(method, path, token="wrong")  # 401
                self.call(method, path, headers={"Origin": "http://elsewhere.example"})  # 403
            if "requestBody" in operation:
                self.call(method, path, headers={"Content-Length": "70000"})  # 413
            if method == "GET":
                self.call(method, path, where=demo.socket)
            if method == "GET" and "{name}" in path:
                self.call(method, path, "nobody")
        for path in ("/v1/history", "/v1/events", "/v1/audit"):
            self.call("GET", path, query="?seconds=x&newest=x")
        self.call("GET", "/v1/history", query="?seconds=60&step=2&bulkhead=checkout")
        self.call("GET", "/v1/history", query="?bulkhead=nobody")

    def change_everything(self, local):
        for path, body in CHANGES.items():
            etag = self.call("GET", path).getheader("ETag")
            for _ in range(2):  # done, and then 412
                self.call("PUT", path, body=body, where=local, headers={"If-Match": etag})
            self.call("DELETE", path, where=local, headers={"If-Match": etag})
            for method in ("PUT", "DELETE"):
                self.call(method, path, body="{", where=local)
                self.call(method, path, body=body, where=local, kind="text/plain")
                self.call(method, path, body={"colour": "red"}, where=local)
                self.call(method, path, "nobody", body=body if method == "PUT" else None, where=local)
            self.call("DELETE", path, where=local)
        self.call("PUT", "/v1/breakers/{name}", "browse", body=CHANGES["/v1/breakers/{name}"], where=local)  # 409: has none
        self.call("DELETE", "/v1/breakers/{name}", "browse", where=local)  # and nothing to take back
        self.call("PUT", "/v1/faults/{name}", "browse", body={"error": 0, "ttl": 60, **WHY}, where=local)  # 409: does nothing

    def switch_everything(self, token):
        switch = "/v1/switches/{name}"
        self.call("PUT", switch, "slow-analytics", body={"on": True}, token=token)
        self.call("PUT", switch, "nothing", body={"on": True}, token=token)
        self.call("PUT", switch, "bulkheads", body="{", token=token)
        self.call("PUT", switch, "bulkheads", body={"on": 1}, token=token)
        self.call("PUT", switch, "bulkheads", body={"on": True}, token=token, kind="text/plain")

    def batch_everything(self, token):
        size = {"max_concurrent": 9, **WHY}
        for body in (batch_of("/v1/overrides/browse", size), batch_of("/v1/overrides/browse", size, if_match='"old"'), batch_of("/v1/overrides/nobody", size),
                     batch_of("/v1/breakers/browse", {"state": "open", **WHY}), {"operations": []}, "["):
            self.call("POST", "/v1/batch", body=body, token=token)
        self.call("POST", "/v1/batch", body="{}", token=token, kind="text/plain")

    def configure_everything(self, running):
        self.call("GET", "/v1/config")
        self.call("GET", "/v1/config/diff")
        for text in (FILE % (self.directory, self.directory, "viewer"), "version: 9\n"):
            self.call("POST", "/v1/config/validate", body=text, kind="application/yaml")
        accepted = self.operations[("POST", "/v1/config/validate")]["requestBody"]["content"]
        self.assertEqual(set(accepted), {"application/json", "application/yaml"})
        for kind in accepted:
            self.assertEqual(self.call("POST", "/v1/config/validate", body='{"version": 1}', kind=kind).status, 200)
        self.call("POST", "/v1/config/validate", body="x", kind="text/plain")
        reload = "/v1/config/reload"
        self.call("POST", reload, where=running.socket, query="?dry_run=true")
        self.call("POST", reload, where=running.socket, query="?dryrun=true")
        self.call("POST", reload, where=running.socket, headers={"If-Match": '"other"'})
        self.call("POST", reload, where=running.socket, body={"reason": "r"}, kind="text/plain")
        self.call("POST", reload, where=running.socket)
        running.write(0, "version: 1\nbulkheads: {checkout: {max_concurent: 1}}\n")
        self.call("POST", reload, where=running.socket)
        self.call("GET", "/v1/snapshot")  # with an invalid file

    def test_every_answer_is_given_at_least_once_and_is_as_documented(self):
        with Demo() as demo:
            self.read(demo.port)
            self.ask_everything(demo)
            self.change_everything(demo.socket)
            self.switch_everything(demo.token)
            self.batch_everything(demo.token)
            for path in ("/v1/config/validate", "/v1/config/reload"):
                self.call("POST", path, body="version: 1", kind="application/yaml", where=demo.socket)  # 404: the demo has no file
            of_demo = self.document
            ids = [o["operationId"] for o in self.operations.values()]
            self.assertEqual(len(set(ids)), len(ids), ids)
            self.assertTrue(all(i.isidentifier() for i in ids), ids)
        self.assertEqual(demo.code, 0)

        running = self.start(arguments=["--no-watch", "--grace", "30"])
        self.read(running.port)
        self.assertEqual(self.document, of_demo)
        self.configure_everything(running)
        for name in ("moving", "member"):
            self.call("PUT", "/v1/overrides/{name}", name, body={"max_concurrent": 7, **WHY}, where=running.socket)  # 409: moved by others
        streams = []
        for _ in range(2):
            streams.append(self.open_stream(running.port))
        self.call("GET", "/v1/stream")  # 503
        running.process.send_signal(signal.SIGTERM)
        running.until(lambda: ask(running.port, "GET", "/readyz")[0].status == 503, "it is not stopping")
        self.call("GET", "/readyz")
        for stream in streams:
            stream.close()
        self.assertEqual(running.stop(), 0)  # the second signal: without more ado
        documented = {(m, p, int(s)) for (m, p), o in self.operations.items() for s in o["responses"]}
        self.assertEqual(documented - self.seen, set())

    def test_what_is_a_body_to_the_schema_is_one_to_the_server(self):
        with Demo() as demo:
            self.read(demo.port)
            schema = self.document["components"]["schemas"]["SizeOverride"]
            for field, values in {"ttl": ("90s", "1.5h", "90.s", "1h30m", "1d", "1500ms", "1s5us", "1s5µs", "1m5ns", "30m1h", "1h1h", ".5m", "", "s", "90", "1e3s",
                                          "-5s", "1h ", "1H", 90, 1.5, 0, True, None),
                                  "max_concurrent": (10, 10.0, 10.5, 0, "10", True, None)}.items():
                for value in values:
                    body = {"max_concurrent": 5, **WHY, field: value}
                    status = ask(demo.socket, "PUT", "/v1/overrides/browse?dry_run=true", body=body)[0].status
                    self.assertEqual(status == 200, jsonschema.Draft202012Validator(schema).is_valid(body), (field, value, status))

    def open_stream(self, port):
        stream = socket.create_connection(("127.0.0.1", port), timeout=20)
        stream.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b""
        while b"event: snapshot" not in text:
            text += stream.recv(65536)
        return stream


class Roles(ApiCase):
    def test_each_role_may_what_the_document_says_and_nothing_else(self):
        running = self.start(anonymous="none", arguments=["--no-watch"])
        operations = operations_of(json.loads(ask(running.socket, "GET", "/v1/openapi.json")[1]))
        ranks = ["none", "viewer", "operator", "admin"]
        checked = 0
        for (method, template), operation in operations.items():
            path = template.replace("{name}", "nobody")
            for rank, role in enumerate(ranks):
                status = ask(running.port, method, path, token=None if role == "none" else role)[0].status
                if rank < ranks.index(operation["x-role"]):
                    self.assertEqual(status, 401 if role == "none" else 403, (method, path, role))
                else:
                    self.assertNotIn(status, (401, 403, 500), (method, path, role))
                checked += 1
            self.assertNotIn(ask(running.socket, method, path)[0].status, (401, 403, 500), (method, path))
        self.assertEqual(checked, 4 * len(operations))
        denied = [e for e in json.loads(ask(running.socket, "GET", "/v1/audit?newest=1000")[1])["entries"] if e["result"] == "denied"]
        self.assertTrue({e["actor"] for e in denied} >= {"anonymous", "viewer-token", "operator-token"})
        self.assertEqual(running.stop(), 0)


class Races(ApiCase):
    def test_of_many_writers_with_the_same_etag_one_wins_and_the_others_are_told_what_it_is_now(self):
        running = self.start()
        for round in range(10):
            etag = ask(running.socket, "GET", "/v1/overrides/checkout")[0].getheader("ETag")
            answers, gate = [], threading.Barrier(8)

            def write(limit):
                gate.wait()
                response, body = ask(running.port, "PUT", "/v1/overrides/checkout", body={"max_concurrent": limit, **WHY}, token="operator", headers={"If-Match": etag})
                answers.append((response.status, response.getheader("ETag"), json.loads(body)))
            writers = [threading.Thread(target=write, args=(round * 10 + i + 1,)) for i in range(8)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            won = [(tag, body) for status, tag, body in answers if status == 200]
            self.assertEqual((len(won), [status for status, _, _ in answers].count(412)), (1, 7))
            for status, tag, body in answers:
                self.assertEqual(tag, won[0][0])
                if status == 412:
                    self.assertEqual(body["max_concurrent"], won[0][1]["after"]["max_concurrent"])
            self.assertEqual(running.limit(), won[0][1]["after"]["max_concurrent"])
        self.assertEqual(running.stop(), 0)


if __name__ == "__main__":
    program.main()
