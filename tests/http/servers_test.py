"""The example servers under real clients: servers_test.py <program> <TestCase>.

Each has the bulkheads shop (64 at once, 256 in line) and reports (2 at once, 2 in line); /reports/<ms> takes that long,
/large/<bytes> is that large, everything else is quick."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

PROGRAM = os.path.abspath(sys.argv[1])
HEADERS = "Host: x\r\n\r\n"


class ServerTest(unittest.TestCase):
    def setUp(self):
        self.server = subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)$", self.server.stdout.readline().strip())[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def tearDown(self):
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(timeout=60), 0)
        self.server.stdout.close()

    def now(self, name):
        with urllib.request.urlopen(self.url + "/health/bulkheads", timeout=20) as page:
            document = json.load(page)
        found = [b for b in document["bulkheads"] if b["name"] == name]
        self.assertTrue(found, document)
        return found[0]

    def becomes(self, name, condition):
        """Waits for something that is bound to happen."""
        end = time.monotonic() + 30
        while not condition(self.now(name)):
            self.assertLess(time.monotonic(), end, self.now(name))
            time.sleep(0.01)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask(self, path, headers=""):
        s = self.connect()
        s.sendall(f"GET {path} HTTP/1.1\r\n{headers}{HEADERS}".encode())
        return s

    def curl(self, *arguments):
        return subprocess.run(["curl", "-sS", "-i", "--max-time", "30", *arguments], capture_output=True, text=True, check=True).stdout


class Curl(ServerTest):
    def test_pages_and_rejections(self):
        self.assertIn("hello", self.curl(self.url + "/"))
        self.assertIn("the report", self.curl(self.url + "/reports/1"))
        self.assertIn("bulkhead_", self.curl(self.url + "/metrics"))
        held = [self.ask("/reports/60000") for _ in range(4)]  # two run, two wait
        self.becomes("reports", lambda b: in_flight(b) == 2 and waiting(b) == 2)
        rejected = self.curl(self.url + "/reports/1")
        self.assertIn("HTTP/1.1 503", rejected)
        self.assertRegex(rejected, r"(?i)retry-after: [1-9]")
        self.assertRegex(rejected, r"(?i)x-bulkhead-reason: queue_limit")
        self.assertEqual(json.loads(rejected[rejected.index("{"):])["reason"], "queue_limit")
        self.assertIn("hello", self.curl(self.url + "/"))  # the shop does not notice
        for s in held:
            s.close()
        self.becomes("reports", lambda b: in_flight(b) == 0 and waiting(b) == 0)
        late = self.curl("-H", "X-Request-Timeout-Ms: 50", self.url + "/reports/2000")
        self.assertIn("HTTP/1.1 504", late)
        self.becomes("reports", lambda b: in_flight(b) == 0)


class Wrk(ServerTest):
    def test_every_request_is_answered_and_every_place_comes_back(self):
        out = subprocess.run(["wrk", "-t1", "-c16", "-d2s", self.url + "/"], capture_output=True, text=True, check=True).stdout
        self.assertGreater(int(re.search(r"(\d+) requests in", out)[1]), 100, out)
        self.assertNotIn("Non-2xx", out)
        self.becomes("shop", lambda b: in_flight(b) == 0)

    def test_an_overloaded_route_leaves_the_other_alone(self):
        flood = subprocess.Popen(["wrk", "-t1", "-c20", "-d3s", self.url + "/reports/20"], stdout=subprocess.PIPE, text=True)
        shop = subprocess.run(["wrk", "-t1", "-c4", "-d2s", self.url + "/"], capture_output=True, text=True, check=True).stdout
        reports = flood.communicate()[0]
        self.assertNotIn("Non-2xx", shop)
        self.assertIn("Non-2xx", reports)
        self.becomes("reports", lambda b: in_flight(b) == 0 and waiting(b) == 0)


class Disconnects(ServerTest):
    def test_in_every_phase_the_place_comes_back(self):
        for phase in ["sending", "queued", "running", "reading"] * 3:
            with self.subTest(phase):
                getattr(self, phase)()
                self.becomes("reports", lambda b: in_flight(b) == 0 and waiting(b) == 0)
                self.becomes("shop", lambda b: in_flight(b) == 0 and waiting(b) == 0)

    def sending(self):
        s = self.connect()
        s.sendall(b"POST /reports/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        s.close()

    def queued(self):
        running = [self.ask("/reports/60000") for _ in range(2)]
        self.becomes("reports", lambda b: in_flight(b) == 2)
        waiting_one = self.ask("/reports/60000")
        self.becomes("reports", lambda b: waiting(b) == 1)
        waiting_one.close()
        self.becomes("reports", lambda b: waiting(b) == 0)
        self.assertEqual(in_flight(self.now("reports")), 2)  # the others run on
        for s in running:
            s.close()

    def running(self):
        s = self.ask("/reports/60000")
        self.becomes("reports", lambda b: in_flight(b) == 1)
        s.close()

    def reading(self):
        s = self.ask("/large/50000000")
        self.assertTrue(s.recv(1000))
        s.close()


class Deploy(ServerTest):
    def test_a_server_that_is_told_to_end_answers_what_it_has(self):
        running = [self.ask("/reports/1500") for _ in range(2)]
        self.becomes("reports", lambda b: in_flight(b) == 2)
        waiting_one = self.ask("/reports/1")
        self.becomes("reports", lambda b: waiting(b) == 1)
        self.server.send_signal(signal.SIGTERM)
        for s in running + [waiting_one]:
            answer = b""
            while part := s.recv(4096):
                answer += part
            self.assertIn(b"the report", answer)
            self.assertIn(b"Connection: close", answer)
        self.assertEqual(self.server.wait(timeout=60), 0)


class Bounds(ServerTest):
    def test_oversized_requests_are_rejected(self):
        body = b"x" * (2 << 20)
        posted = subprocess.run(["curl", "-sS", "-i", "--max-time", "30", "-H", "Expect:", "--data-binary", "@-", self.url + "/reports/1"],
                                input=body, capture_output=True, check=True).stdout
        self.assertIn(b"HTTP/1.1 413", posted)
        header = self.curl("-H", "X-Big: " + "x" * 20000, self.url + "/")
        self.assertRegex(header, r"HTTP/1.1 4\d\d")
        self.becomes("reports", lambda b: in_flight(b) == 0 and waiting(b) == 0)

    def test_slow_requests_hold_nobody_up(self):
        slow = [self.connect() for _ in range(100)]
        for n, byte in enumerate(b"GET / HTTP/1.1\r\n"):
            for s in slow[:]:
                try:
                    s.sendall(bytes([byte]))
                except OSError:  # no server need keep them: cpp-httplib's backlog is 5
                    slow.remove(s)
            if n % 4 == 0:
                self.assertIn("hello", self.curl(self.url + "/"))
        self.assertEqual(in_flight(self.now("shop")), 0)  # a request that is not there yet has no place
        self.assertTrue(slow)
        for s in slow:
            s.close()


def in_flight(bulkhead):
    return bulkhead["in_flight"]


def waiting(bulkhead):
    return bulkhead["waiting_calls"]


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
