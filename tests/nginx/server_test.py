"""The module among nginx's other means: redirects, subrequests, error pages, reloads, configuration."""

import os
import re
import signal
import unittest

from harness import Nginx, Upstream, wait_until

FILE = "version: 1\nbulkheads:\n  api: {max_concurrent: %s, max_queue: 20}\n  other: {max_concurrent: 5}\n"
PROXY = "location / { bulkhead api; proxy_pass http://service; }"


class Server(unittest.TestCase):
    def test_SubrequestsAndInternalRedirectsAreCountedOnce(self):
        locations = """
          bulkhead api;
          location / { proxy_pass http://service; }
          location /guarded/ { auth_request /auth; proxy_pass http://service/status/200?; }
          location = /auth { internal; proxy_pass http://service/status/200; }
          location /mirrored/ { mirror /copy; proxy_pass http://service/status/200?; }
          location = /copy { internal; proxy_pass http://service/status/200?copy; }
          location /tried/ { try_files /none /status/201; }
          location /included { ssi on; ssi_types *; default_type text/html; alias %s/page; }
        """
        with Upstream() as up:
            ngx = Nginx(FILE % 1, "", up)
            ngx.write("page", '<!--#include virtual="/status/200" --><!--#include virtual="/status/200" -->')
            ngx.configure(locations % ngx.path)
            with ngx:
                for n, path in enumerate(["/guarded/x", "/mirrored/x", "/tried/x", "/accel/status/202", "/included"]):
                    self.assertIn(ngx.get(path).status, (200, 201, 202), path)
                    ngx.wait_for("api", in_flight=0, admitted=n + 1)
                self.assertEqual(ngx.get("/included").body, b"ok\nok\n")

    def test_AuthRequestComesBeforeThePlace(self):
        locations = """
          location / { bulkhead api; auth_request /auth; proxy_pass http://service/status/200?; }
          location = /auth { internal; bulkhead other; proxy_pass http://service$request_uri; }
        """
        with Upstream() as up, Nginx(FILE % 1, locations, up) as ngx:
            self.assertEqual(ngx.get("/status/403").status, 403)  # denied: neither counted nor queued
            all = [ngx.begin("/hold") for _ in range(3)]
            up.wait_running(3)
            self.assertEqual([ngx.state(name)["requests"] for name in ("api", "other")], [0, 0])
            left = [ngx.send("/hold") for _ in range(2)]
            up.wait_running(5)
            for s in left:
                s.close()
            up.release(5)
            self.assertEqual([one.result().status for one in all], [200] * 3)
            ngx.wait_for("api", in_flight=0, waiting_calls=0, admitted=3)
            self.assertEqual(ngx.state("other")["requests"], 0)

    def test_AnErrorPageIsSentForARejection(self):
        locations = """
          error_page 503 = @sorry;
          location / { bulkhead api; proxy_pass http://service; }
          location /plain { bulkhead api; error_page 503 /sorry.html; proxy_pass http://service; }
          location = /sorry.html { return 200 "plain"; }
          location @sorry { return 200 "sorry"; }
        """
        with Upstream() as up, Nginx("version: 1\nbulkheads:\n  api: {max_concurrent: 1}\n", locations, up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            reply = ngx.get("/x")
            self.assertEqual((reply.status, reply.body, reply.reason), (200, b"sorry", "concurrency_limit"))
            self.assertTrue(reply.headers["retry-after"])
            reply = ngx.get("/plain")
            self.assertEqual(reply.body, b"plain")
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AnErrorPageOfTheUpstreamsErrorGivesThePlaceBackFirst(self):
        locations = """
          location / { bulkhead api; proxy_intercept_errors on; error_page 500 = @again; proxy_pass http://service; }
          location @again { bulkhead other; rewrite ^ /hold break; proxy_pass http://service; }
        """
        with Upstream() as up, Nginx(FILE % 1, locations, up) as ngx:
            one = ngx.begin("/status/500")
            ngx.wait_for("other", in_flight=1)
            ngx.wait_for("api", in_flight=0, failed=1)
            up.wait_running(1)
            up.release()
            self.assertEqual(one.result().status, 200)
            ngx.wait_for("other", in_flight=0)

    def test_AStatusPageDoesNotWaitForTheBulkheadOfItsServer(self):
        locations = "bulkhead api; location / { proxy_pass http://service; } location = /status { bulkhead_status json; }"
        with Upstream() as up, Nginx("version: 1\nbulkheads:\n  api: {max_concurrent: 1}\n", locations, up) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            self.assertEqual(ngx.get("/x").reason, "concurrency_limit")
            self.assertEqual(ngx.get("/status").status, 200)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_AReloadLosesNoRequest(self):
        with Upstream() as up, Nginx(FILE % 1, PROXY, up, watch="off") as ngx:
            all = [ngx.begin("/hold") for _ in range(4)]
            ngx.wait_for("api", in_flight=1, waiting_calls=3)
            old = ngx.workers()
            ngx.write("bulkhead.yaml", FILE % 2)
            ngx.reload()
            # The old worker and the new one, whose limits are their own.
            ngx.wait_for("api", max_concurrent=3, in_flight=1, waiting_calls=3)
            self.assertTrue(old <= ngx.workers())  # the old one waits for its requests
            for n in range(4):
                up.wait_running(1)
                up.release()
                up.wait_served(n + 1)
            self.assertEqual([a.result().status for a in all], [200] * 4)
            wait_until(lambda: not old & ngx.workers(), "the old worker ends")
            # Not earlier: until then the old worker may accept a connection, and the request would stand in its line.
            self.assertEqual(ngx.get("/status/200").status, 200)

    def test_ReloadsUnderLoadLoseNoRequest(self):
        with Upstream() as up, Nginx(FILE % 4, PROXY, up) as ngx:
            for _ in range(4):
                all = [ngx.begin("/sleep/20") for _ in range(16)]
                ngx.reload()
                self.assertEqual([a.result().status for a in all], [200] * 16)
            ngx.wait_for("api", in_flight=0, waiting_calls=0)

    def test_AGracefulQuitServesTheLine(self):
        with Upstream() as up, Nginx(FILE % 1, PROXY, up) as ngx:
            all = [ngx.begin("/hold") for _ in range(3)]
            ngx.wait_for("api", in_flight=1, waiting_calls=2)
            ngx.process.send_signal(signal.SIGQUIT)
            for n in range(3):
                up.wait_running(1)
                up.release()
                up.wait_served(n + 1)
            self.assertEqual([a.result().status for a in all], [200] * 3)
            wait_until(lambda: ngx.process.poll() is not None, "nginx ends")

    def test_AKilledWorkerIsReplacedWithAllPlacesFree(self):
        with Upstream() as up, Nginx(FILE % 1, PROXY, up) as ngx:
            ngx.may_alert = "exited on signal 9"
            s = ngx.send("/hold")
            ngx.wait_for("api", in_flight=1)
            [worker] = ngx.workers()
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: ngx.workers() - {worker}, "another worker")
            s.close()
            up.release()
            self.assertEqual(ngx.get("/status/200").status, 200)
            ngx.wait_for("api", in_flight=0)

    def test_AChangedFileIsInForceWithoutAReload(self):
        with Upstream() as up, Nginx(FILE % 1, PROXY, up) as ngx:
            all = [ngx.begin("/hold") for _ in range(3)]
            ngx.wait_for("api", in_flight=1, waiting_calls=2)
            ngx.write("bulkhead.yaml", FILE % 3)
            up.wait_running(3)  # the new places go to those in line
            ngx.write("bulkhead.yaml", "nonsense: [")
            wait_until(lambda: "the last valid file stays in force" in ngx.read("error.log"), "the problem in the log")
            self.assertEqual(ngx.state("api")["max_concurrent"], 3)
            up.release(3)
            self.assertEqual([a.result().status for a in all], [200] * 3)

    def test_AChangedFileThatLacksANameInUseChangesNothing(self):
        with Upstream() as up, Nginx(FILE % 1, PROXY, up) as ngx:
            for wrong in ("bulkheads:\n  other: {max_concurrent: 5}\n", "tenants:\n  api: {each: {max_concurrent: 5}}\n"):
                before = ngx.read("error.log").count("the last valid file stays in force")
                ngx.write("bulkhead.yaml", "version: 1\n" + wrong)
                wait_until(lambda: ngx.read("error.log").count("the last valid file stays in force") > before, "the problem in the log")
                self.assertEqual(ngx.get("/status/200").status, 200)
            self.assertIn('there is no bulkhead "api" in the file, which has: other', ngx.read("error.log"))
            ngx.write("bulkhead.yaml", FILE % 3)
            ngx.wait_for("api", max_concurrent=3)

    def test_TheReferenceNamesEveryDirectiveAndVariable(self):
        top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")

        def words(file, pattern):
            with open(os.path.join(top, file)) as f:
                return set(re.findall(pattern, f.read(), re.M))
        page = "docs/how-to/protect-any-service.md"
        self.assertEqual(words(page, r"^\| `(bulkhead\w*)"), words("adapters/nginx/directives.cc", r'literal\("(bulkhead\w*)"\)'))
        self.assertLessEqual(words("adapters/nginx/variables.cc", r'literal\("(bulkhead\w*)"\)'), words(page, r"`\$(bulkhead\w*)`"))

    def test_MistakesInTheConfigurationNameThePlaceAndTheFix(self):
        for locations, http, text in [
            ("location / { bulkhead nobody; }", "", 'there is no bulkhead "nobody" in the file, which has: api, other'),
            ("location / { bulkhead api; bulkhead_tenant $arg_t; }", "", "bulkhead_tenant needs a set of tenants"),
            ("location / { bulkhead api; bulkhead_hold forever; }", "", 'invalid value "forever"'),
            ("location / { bulkhead api; bulkhead_fallback 99; }", "", "is not a location"),
            ("location / { bulkhead api; bulkhead_fallback 200; }", "", "write the text"),
            ("", "bulkhead_storm speed=1;", "one of rate="),
            ("location / { bulkhead api; bulkhead off; }", "", "is duplicate"),
        ]:
            ngx = Nginx(FILE % 1, locations, http=http)
            result = ngx.command("-t")
            self.assertEqual(result.returncode, 1, text)
            self.assertIn(text, result.stderr)
            ngx.directory.cleanup()
        ngx = Nginx("version: 1\nbulkheads:\n  api: {max_concurrent: none}\n", "")
        self.assertIn("bulkhead.yaml:3", ngx.command("-t").stderr)
        ngx.directory.cleanup()


if __name__ == "__main__":
    unittest.main()
