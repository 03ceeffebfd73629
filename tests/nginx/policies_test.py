"""Timeouts, breaker, rate limit and fallbacks."""

import json
import re
import unittest

from harness import Nginx, Upstream, free_port, wait_until

PROXY = "location / { bulkhead api; %s proxy_pass http://service; }"


def file_of(settings):
    return f"version: 1\nbulkheads:\n  api: {{{settings}}}\n  spare: {{max_concurrent: 5}}\n"


class Policies(unittest.TestCase):
    def test_ARequestWaitsNoLongerThanMaxWait(self):
        file = file_of("max_concurrent: 1, max_queue: 5, max_wait: 50ms")
        with Upstream() as up, Nginx(file, PROXY % "", up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            reply = ngx.get("/status/200")
            self.assertEqual((reply.status, reply.reason), (503, "timeout"))
            waited = wait_until(lambda: re.search(r"\[timeout\] \[([0-9.]+)\]", ngx.read("access.log")), "the wait in the log")
            self.assertGreaterEqual(float(waited[1]), 0.05)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_ADeadlineBoundsTheWaitAndTheCall(self):
        file = file_of("max_concurrent: 1, max_queue: 5")
        locations = PROXY % "bulkhead_deadline $http_x_timeout; proxy_set_header X-Left $bulkhead_time_left;"
        with Upstream() as up, Nginx(file, locations, up) as ngx:
            self.assertEqual(ngx.get("/status/200", headers={"X-Timeout": "5000"}).status, 200)
            self.assertTrue(4000 < int(up.headers[-1]["x-left"]) <= 5000)
            late = ngx.get("/hold", headers={"X-Timeout": "40"})  # while it runs
            self.assertEqual(late.status, 504)
            ngx.wait_for("api", in_flight=0)
            one = ngx.begin("/hold")
            ngx.wait_for("api", in_flight=1)
            late = ngx.get("/hold", headers={"X-Timeout": "40m"})  # in line; as gRPC writes it
            self.assertIn(late.status, (503, 504))
            self.assertIn(late.reason, ("timeout", "deadline"))
            up.release(10)
            self.assertEqual(one.result().status, 200)

    def test_AClientsDeadlineOpensNoBreakerAndCutsNothingInShadowMode(self):
        limits = "max_concurrent: 5, breaker: {failure_rate: 0.5, minimum_calls: 2}"
        with Upstream() as up, Nginx(file_of(limits), PROXY % "bulkhead_deadline $http_x_timeout;", up) as ngx:
            for n in range(4):
                self.assertEqual(ngx.get("/hold", headers={"X-Timeout": "5"}).status, 504)
            ngx.wait_for("api", in_flight=0, failed=0)
            self.assertEqual(ngx.get("/status/200").status, 200)  # of another client
            ngx.write("bulkhead.yaml", file_of(limits + ", execution_timeout: 5ms"))
            wait_until(lambda: ngx.get("/hold", headers={"X-Timeout": "5000"}).reason == "breaker_open", "the service's own lateness")
            up.release(100)
            ngx.wait_for("api", in_flight=0)
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, shadow: true, execution_timeout: 5ms"),
                                     PROXY % "bulkhead_deadline $http_x_timeout;", up) as ngx:
            self.assertEqual(ngx.get("/sleep/20", headers={"X-Timeout": "5"}).status, 200)
            one = ngx.begin("/hold")
            up.wait_running(1)
            self.assertEqual(ngx.get("/sleep/20", headers={"X-Timeout": "5"}).status, 200)  # without a place
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AShortWaitIsNotDelayedByALongerOne(self):
        file = file_of("max_concurrent: 1, max_queue: 5")
        with Upstream() as up, Nginx(file, PROXY % "bulkhead_deadline $http_x_timeout;", up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)

            def short_wait():
                long = ngx.begin("/long", headers={"X-Timeout": "280"})
                ngx.wait_for("api", waiting_calls=1)
                ngx.get("/short", headers={"X-Timeout": "20"})
                long.result()
                return float(re.findall(r"\[([0-9.]+)\] \[normal\] /short", ngx.read("access.log"))[-1])

            # A machine that is busy may be late once, but not always.
            self.assertLess(min(short_wait() for _ in range(4)), 0.15)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AnExecutionTimeoutCutsTheUpstreamOffAndAnswers(self):
        file = file_of("max_concurrent: 1, execution_timeout: 50ms")
        with Upstream() as up, Nginx(file, PROXY % "", up) as ngx:
            reply = ngx.get("/hold")
            self.assertEqual(reply.status, 504)
            self.assertEqual(reply.headers["content-type"], "application/problem+json")
            ngx.wait_for("api", in_flight=0, timed_out=1)
            s = ngx.send("/stream")  # its response has begun: all that is left is to cut it
            while s.recv(1000):
                pass
            s.close()
            ngx.wait_for("api", in_flight=0, timed_out=2)
            self.assertEqual(ngx.get("/status/200").status, 200)
            wait_until(lambda: "504 [api] [execution_timeout]" in ngx.read("access.log"), "the reason in the log")

    def test_TheBreakerOpensByTheUpstreamsStatusAndNotByRejections(self):
        file = file_of("max_concurrent: 1, breaker: {failure_rate: 50%, minimum_calls: 4, window_calls: 10, half_open_calls: 1, open_for: 300ms}")
        with Upstream() as up, Nginx(file, PROXY % "", up, http="bulkhead_storm rate=100000;") as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            for _ in range(20):
                self.assertEqual(ngx.get("/status/200").reason, "concurrency_limit")
            up.release()
            self.assertEqual(one.result().status, 200)
            for _ in range(4):
                self.assertEqual(ngx.get("/status/404").status, 404)  # the upstream works
            for _ in range(6):
                last = ngx.get("/status/500")
            reply = ngx.get("/status/200")
            self.assertEqual((reply.status, reply.reason), (503, "breaker_open"), last.status)
            served = up.served
            self.assertEqual(ngx.get("/status/200").reason, "breaker_open")
            self.assertEqual(up.served, served)
            wait_until(lambda: ngx.get("/status/200").status == 200, "the breaker closes")

    def test_TheBreakerOpensWhenTheUpstreamIsNotThere(self):
        file = file_of("max_concurrent: 1, breaker: {failure_rate: 50%, minimum_calls: 4, window_calls: 10, half_open_calls: 1, open_for: 1h}")
        locations = "location / { bulkhead api; proxy_pass http://127.0.0.1:%d; }" % free_port()
        with Nginx(file, locations) as ngx:
            for _ in range(4):
                self.assertEqual(ngx.get("/").status, 502)
            self.assertEqual(ngx.get("/").reason, "breaker_open")

    def test_AClientThatGoesIsNoFailureOfTheUpstream(self):
        file = file_of("max_concurrent: 9, breaker: {failure_rate: 50%, minimum_calls: 2, window_calls: 10, half_open_calls: 1, open_for: 1h}")
        with Upstream() as up, Nginx(file, PROXY % "", up) as ngx:
            for path in ["/hold", "/stream"] * 4:
                s = ngx.send(path)
                ngx.wait_for("api", in_flight=1)
                s.close()
                ngx.wait_for("api", in_flight=0)
            self.assertEqual(ngx.get("/status/200").status, 200)
            up.release(100)

    def test_AClientThatReadsSlowlyIsNoFailureOfTheUpstream(self):
        """Its place stays taken, but the upstream was in time."""
        file = file_of("max_concurrent: 9, execution_timeout: 2s, breaker: {failure_rate: 50%, minimum_calls: 2}")
        with Upstream() as up:
            ngx = Nginx(file, "", up)
            ngx.write("large", "x" * 20_000_000)
            ngx.configure(PROXY % "bulkhead_hold response;" + "location /free/ { proxy_pass http://service/; }"
                          "location = /large { bulkhead api; root %s; }" % ngx.path)
            with ngx:
                slow = [ngx.send(path) for path in ("/body/20000000", "/large") * 2]
                up.wait_served(2)
                ngx.wait_for("api", in_flight=4)
                self.assertEqual(ngx.get("/free/sleep/2200").status, 200)
                self.assertEqual(ngx.state("api")["in_flight"], 4)
                for s in slow:
                    s.close()
                ngx.wait_for("api", in_flight=0)
                self.assertEqual((ngx.state("api")["failed"], ngx.state("api")["timed_out"]), (0, 0))
                self.assertEqual(ngx.get("/status/200").status, 200)

    def test_ATimeoutIsNotChargedToTheNextBulkhead(self):
        locations = PROXY % "error_page 504 = @again;" + \
            "location @again { bulkhead spare; rewrite ^ /status/200 break; proxy_pass http://service; }"
        with Upstream() as up, Nginx(file_of("max_concurrent: 9, execution_timeout: 20ms"), locations, up) as ngx:
            for _ in range(3):
                self.assertEqual(ngx.get("/hold").status, 200)
            ngx.wait_for("spare", in_flight=0, succeeded=3, failed=0, timed_out=0)
            ngx.wait_for("api", in_flight=0, timed_out=3)
            up.release(3)

    def test_ADeadlineBeginsWithTheRequest(self):
        """Not again with the time for the body, or in the bulkhead of a fallback."""
        locations = PROXY % "bulkhead_deadline $http_x_timeout; bulkhead_fallback @spare; proxy_set_header X-Left $bulkhead_time_left;" + \
            "location /free/ { proxy_pass http://service/; }" \
            "location @spare { bulkhead spare; bulkhead_deadline $http_x_timeout; proxy_set_header X-Left $bulkhead_time_left;" \
            " proxy_pass http://service; }"
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, max_queue: 5, max_wait: 300ms"), locations, up) as ngx:
            slow = ngx.send("/status/200", "POST", {"X-Timeout": "9000", "Content-Length": "8"}, "half")
            self.assertEqual(ngx.get("/free/sleep/300").status, 200)
            slow.sendall(b"done")
            self.assertTrue(slow.recv(100).startswith(b"HTTP/1.1 200"))
            slow.close()
            self.assertLess(int(up.headers[-1]["x-left"]), 8800)
            one = ngx.begin("/hold")
            ngx.wait_for("api", in_flight=1)
            self.assertEqual(ngx.get("/status/200", headers={"X-Timeout": "9000"}).status, 200)
            self.assertLess(int(up.headers[-1]["x-left"]), 8800)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AFallbackToAPageAnswersEveryMethod(self):
        with Upstream() as up:
            ngx = Nginx(file_of("max_concurrent: 1"), "", up)
            ngx.write("sorry.html", "sorry")
            ngx.configure(PROXY % "bulkhead_fallback /sorry.html;" + "location = /sorry.html { root %s; }" % ngx.path)
            with ngx:
                one = ngx.begin("/hold")
                up.wait_running(1)
                for method, body in (("GET", b"sorry"), ("HEAD", b""), ("POST", b"sorry"), ("PUT", b"sorry"), ("DELETE", b"sorry")):
                    reply = ngx.get("/x", method=method, body="some" if method in ("POST", "PUT") else None)
                    self.assertEqual((reply.status, reply.body), (200, body), method)
                up.release()
                self.assertEqual(one.result().status, 200)

    def test_ARateLimitIsAQuotaOfItsOwn(self):
        with Upstream() as up, Nginx(file_of("max_concurrent: 9, rate_limit: {rate: 1, burst: 3}"), PROXY % "", up) as ngx:
            self.assertEqual([ngx.get("/status/200").status for _ in range(4)], [200, 200, 200, 429])
            self.assertEqual(ngx.get("/status/200").reason, "rate_limit")

    def test_AnAdaptiveLimitLearnsFromTheUpstream(self):
        file = file_of("max_concurrent: 20, adaptive: {floor: 2, ceiling: 20}")
        with Upstream() as up, Nginx(file, PROXY % "", up) as ngx:
            for _ in range(50):
                self.assertEqual(ngx.get("/sleep/1").status, 200)
            state = ngx.state("api")
            self.assertEqual(state["succeeded"], 50)
            self.assertTrue(2 <= state["max_concurrent"] <= 20)

    def test_AFallbackIsATextALocationOrAnotherUpstream(self):
        locations = """
          location /text { bulkhead api; bulkhead_fallback 200 '{"items":[]}' application/json; proxy_pass http://service/hold; }
          location /page { bulkhead api; bulkhead_fallback /static; proxy_pass http://service/hold; }
          location /spare { bulkhead api; bulkhead_fallback @spare; proxy_pass http://service/hold; }
          location /same { bulkhead api; bulkhead_fallback /text/again; proxy_pass http://service/hold; }
          location = /static { return 200 "static"; }
          location @spare { bulkhead spare; rewrite ^ /status/203 break; proxy_pass http://service; }
        """
        with Upstream() as up, Nginx(file_of("max_concurrent: 1"), locations, up) as ngx:
            one = ngx.begin("/text")
            up.wait_running(1)
            reply = ngx.get("/text")
            self.assertEqual((reply.status, json.loads(reply.body)), (200, {"items": []}))
            self.assertEqual(reply.headers["content-type"], "application/json")
            self.assertEqual(reply.reason, "concurrency_limit")
            self.assertEqual(ngx.get("/page").body, b"static")
            self.assertEqual(ngx.get("/spare").status, 203)
            self.assertEqual(ngx.state("spare")["admitted"], 1)
            # A fallback into the bulkhead that has rejected: still a rejection, and no second one is counted.
            before = ngx.state("api")["rejected"]
            self.assertEqual(ngx.get("/same").reason, "concurrency_limit")
            self.assertEqual(ngx.state("api")["rejected"], before + 1)
            up.release()
            self.assertEqual(one.result().status, 200)
            ngx.wait_for("spare", in_flight=0)

    def test_AFallbackMayComeFromNginxsCache(self):
        cache = "proxy_cache_path %s/cache keys_zone=kept:1m; proxy_cache_key $request_uri; proxy_cache_valid 200 1m;"
        locations = """
          location / { bulkhead api; bulkhead_fallback @kept; proxy_cache kept; proxy_cache_bypass 1; proxy_pass http://service; }
          location @kept { bulkhead off; proxy_cache kept; proxy_pass http://nobody; }
        """
        with Upstream() as up:
            ngx = Nginx(file_of("max_concurrent: 1"), locations, up)
            ngx.http = cache % ngx.path + " upstream nobody { server 127.0.0.1:1; }"
            ngx.configure(locations)
            with ngx:
                self.assertEqual(ngx.get("/body/7").body, b"x" * 7)
                one = ngx.begin("/hold")
                up.wait_running(1)
                kept = ngx.get("/body/7")
                self.assertEqual((kept.status, kept.body, kept.reason), (200, b"x" * 7, "concurrency_limit"))
                self.assertEqual(ngx.get("/body/8").status, 502)  # it has never been there
                up.release()
                self.assertEqual(one.result().status, 200)


if __name__ == "__main__":
    unittest.main()
