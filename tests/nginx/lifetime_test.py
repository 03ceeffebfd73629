"""How long a request keeps its place, and that no place is lost, however a request ends."""

import http.client
import socket
import struct
import unittest

from harness import Nginx, Upstream, free_port, wait_until

FILE = "version: 1\nbulkheads:\n  api: {max_concurrent: 1, max_queue: 20}\n  other: {max_concurrent: 1}\n"
PROXY = "location / { bulkhead api; %s proxy_pass http://service; }"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def h2_get(stream, path):
    def text(s):
        return bytes([len(s)]) + s.encode()
    # :method GET and :scheme http of the static table; :path and :authority with their values as they are.
    return frame(1, 0x5, stream, b"\x82\x86\x04" + text(path) + b"\x01" + text("x"))


class Lifetimes(unittest.TestCase):
    def test_AClientThatGoesLeavesTheLineAtOnce(self):
        with Upstream() as up, Nginx(FILE, PROXY % "", up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            waiting = [ngx.send("/hold") for _ in range(5)]
            ngx.wait_for("api", waiting_calls=5)
            for s in waiting:
                s.close()
            ngx.wait_for("api", waiting_calls=0, in_flight=1)
            up.release()
            self.assertEqual(one.result().status, 200)
            self.assertEqual(up.served, 1)

    def test_AClientThatIsGoneBeforeItsRequestIsReadDoesNotStayInLine(self):
        with Upstream() as up, Nginx(FILE, PROXY % "", up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            for _ in range(20):
                ngx.send("/hold").close()  # request and end arrive together
            wait_until(lambda: ngx.read("access.log").count("499") == 20, "twenty gone")
            ngx.wait_for("api", waiting_calls=0, in_flight=1)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AnHttp2StreamThatIsResetLeavesTheLine(self):
        with Upstream() as up, Nginx(FILE, PROXY % "", up, http="server { listen 127.0.0.1:%d http2; location / "
                                     "{ bulkhead api; proxy_pass http://service; } }" % (port := free_port())) as ngx:
            s = socket.create_connection(("127.0.0.1", port), 10)
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            for stream in (1, 3, 5):
                s.sendall(h2_get(stream, "/hold"))
            ngx.wait_for("api", in_flight=1, waiting_calls=2)
            s.sendall(frame(3, 0, 3, struct.pack(">I", 8)))  # one stream
            ngx.wait_for("api", in_flight=1, waiting_calls=1)
            s.close()  # and with the connection all of them
            ngx.wait_for("api", in_flight=0, waiting_calls=0)
            up.release()

    def test_AnAbortInAnyPhaseLeavesNoPlaceTaken(self):
        locations = PROXY % "" + "location /stream { bulkhead api; proxy_buffering off; proxy_pass http://service; }" \
                                 "location /written { bulkhead api; bulkhead_hold response; proxy_pass http://service/body; }"
        with Upstream() as up, Nginx(FILE, locations, up, http="bulkhead_storm rate=1 burst=1 hold=10s;") as ngx:
            def aborts(path, state, **options):
                for _ in range(5):
                    s = ngx.send(path, **options)
                    state(s)
                    s.close()
                    ngx.wait_for("api", in_flight=0, waiting_calls=0)
                    up.release(100)

            # While the body is read, before there is a response, and in the middle of one.
            before = ngx.state("api")["requests"]
            aborts("/hold", lambda s: None, method="POST", headers={"Content-Length": "10"}, body="half")
            self.assertEqual(ngx.state("api")["requests"], before)
            aborts("/hold", lambda s: ngx.wait_for("api", in_flight=1))
            aborts("/stream", lambda s: self.assertIn(b"200 OK", s.recv(4096)))
            # While the client does not read its response.
            aborts("/written/20000000", lambda s: ngx.wait_for("api", in_flight=1))
            # In line, and while the rejection is held.
            one = ngx.begin("/hold")
            ngx.wait_for("api", in_flight=1)
            line = [ngx.send("/hold") for _ in range(20)]
            ngx.wait_for("api", waiting_calls=20)
            held = [ngx.send("/hold") for _ in range(20)]
            wait_until(lambda: ngx.state("api")["rejected"] >= 20, "rejections")
            for s in line + held:
                s.close()
            ngx.wait_for("api", in_flight=1, waiting_calls=0)
            # Requests that were aborted may still arrive at the upstream.
            wait_until(lambda: up.release(100) or one.done(), "the response")
            self.assertEqual(one.result().status, 200)
            ngx.wait_for("api", in_flight=0, waiting_calls=0)
            self.assertEqual(ngx.get("/status/200").status, 200)

    def test_ThePlaceIsGivenBackWhenTheUpstreamIsDoneOrWhenTheResponseIsOut(self):
        locations = """
          location /upstream/ { bulkhead api; proxy_pass http://service/; }
          location /response/ { bulkhead api; bulkhead_hold response; proxy_pass http://service/; }
        """
        with Upstream() as up, Nginx(FILE, locations, up) as ngx:
            s = ngx.send("/upstream/body/20000000")  # the client reads nothing of it
            up.wait_served(1)
            ngx.wait_for("api", in_flight=0)
            s.close()
            s = ngx.send("/response/body/20000000")
            up.wait_served(2)
            ngx.wait_for("api", in_flight=1)
            other = ngx.begin("/upstream/status/200")
            ngx.wait_for("api", in_flight=1, waiting_calls=1)
            s.close()
            self.assertEqual(other.result().status, 200)
            ngx.wait_for("api", in_flight=0)

    def test_ABodyThatArrivesSlowlyTakesNoPlace(self):
        with Upstream() as up, Nginx(FILE, PROXY % "", up) as ngx:
            for kind in ("text/plain", "application/grpc"):  # whatever the client says of it
                slow = ngx.send("/status/200", method="POST", headers={"Content-Length": "8", "Content-Type": kind}, body="half")
                self.assertEqual(ngx.get("/status/200").status, 200)
                self.assertEqual(ngx.state("api")["in_flight"], 0)
                slow.sendall(b"done")
                self.assertTrue(slow.recv(100).startswith(b"HTTP/1.1 200"))
                slow.close()

    def test_ABodyThatCannotBeReadGetsItsErrorPage(self):
        locations = "bulkhead api; client_max_body_size 10; error_page 400 413 /page.html; location / { proxy_pass http://service; }" \
                    "location = /page.html { root %s; }"
        with Upstream() as up:
            ngx = Nginx(FILE, "", up)
            ngx.write("page.html", "sorry")
            ngx.configure(locations % ngx.path)
            with ngx:
                for body, status in (("14\r\n" + "x" * 20 + "\r\n0\r\n\r\n", b"413"), ("zz\r\n", b"400")):
                    s = ngx.send("/status/200", "POST", {"Transfer-Encoding": "chunked"}, body)
                    answer = b""
                    while part := s.recv(65536):
                        answer += part
                    s.close()
                    self.assertTrue(answer.startswith(b"HTTP/1.1 " + status) and answer.endswith(b"sorry"), answer)
                ngx.wait_for("api", in_flight=0)

    def test_ABodyIsNotReadFirstWhereNginxPassesItOnAsItArrives(self):
        with Upstream() as up, Nginx(FILE, PROXY % "proxy_request_buffering off;", up) as ngx:
            s = ngx.send("/status/200", method="POST", headers={"Content-Length": "8"}, body="half")
            ngx.wait_for("api", in_flight=1)
            s.sendall(b"done")
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200"))
            s.close()
            ngx.wait_for("api", in_flight=0)

    def test_AConnectionIsKeptAliveThroughRejections(self):
        with Upstream() as up, Nginx(FILE, "location / { bulkhead other; proxy_pass http://service; }", up) as ngx:
            c = http.client.HTTPConnection("127.0.0.1", ngx.port, timeout=10)
            for _ in range(5):
                self.assertEqual(ngx.get("/status/200", connection=c).status, 200)
                local = c.sock
                one = ngx.begin("/hold")
                up.wait_running(1)
                self.assertEqual(ngx.get("/status/200", connection=c).status, 503)
                self.assertEqual(ngx.get("/x", "POST", body="some", connection=c).status, 503)
                up.release()
                self.assertEqual(one.result().status, 200)
                ngx.wait_for("other", in_flight=0)
                self.assertIs(c.sock, local)
            c.close()

    def test_AWebSocketKeepsItsPlaceUntilItIsClosed(self):
        upgrade = "location / { bulkhead other; proxy_set_header Upgrade $http_upgrade;" \
                  "proxy_set_header Connection upgrade; proxy_pass http://service; }"
        with Upstream() as up, Nginx(FILE, upgrade, up) as ngx:
            s = ngx.send("/upgrade", headers={"Upgrade": "echo", "Connection": "Upgrade"})
            self.assertTrue(s.recv(1000).startswith(b"HTTP/1.1 101"))
            s.sendall(b"hello")
            self.assertEqual(s.recv(100), b"hello")
            self.assertEqual(ngx.get("/status/200").reason, "concurrency_limit")
            s.close()
            ngx.wait_for("other", in_flight=0)
            self.assertEqual(ngx.get("/status/200").status, 200)


if __name__ == "__main__":
    unittest.main()
