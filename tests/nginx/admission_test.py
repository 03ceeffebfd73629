"""Who is admitted, in which order, and what the others are told."""

import asyncio
import json
import random
import select
import time
import unittest

from harness import Nginx, Upstream, wait_until

PROXY = "location / { bulkhead api; %s proxy_pass http://service; }"


def file_of(settings, rest=""):
    return f"version: 1\nbulkheads:\n  api: {{{settings}}}\n{rest}"


class Admission(unittest.TestCase):
    def test_TheCapIsExactAtTheUpstreamInAStormWithAborts(self):
        async def client(ngx, seed):
            choose, results = random.Random(seed), []
            for _ in range(12):
                reader, writer = await asyncio.open_connection("127.0.0.1", ngx.port)
                writer.write(f"GET /sleep/{choose.randrange(8)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                if choose.random() < 0.3:
                    await asyncio.sleep(choose.random() * 0.02)
                    writer.close()
                    continue
                results.append((await reader.read(-1)).split(b" ")[1])
                writer.close()
            return results

        async def storm(ngx):
            return sum(await asyncio.gather(*(client(ngx, seed) for seed in range(100))), [])

        file = file_of("max_concurrent: 5, max_queue: 40, max_wait: 300ms")
        with Upstream() as up, Nginx(file, PROXY % "proxy_ignore_client_abort on;", up,
                                     http="bulkhead_storm rate=100000;") as ngx:
            statuses = asyncio.run(storm(ngx))
            self.assertEqual(set(statuses), {b"200", b"503"})
            ngx.wait_for("api", in_flight=0, waiting_calls=0)
            self.assertEqual(up.most, 5)

    def test_RequestsAreServedInTheOrderTheyCame(self):
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, max_queue: 20"), PROXY % "", up) as ngx:
            all = []
            for i in range(10):
                all.append(ngx.begin(f"/hold?{i}"))
                ngx.wait_for("api", in_flight=1, waiting_calls=i)
            for i in range(10):
                up.wait_running(1)
                up.release()
                self.assertEqual(all[i].result().status, 200)
            self.assertEqual(up.order, [str(i) for i in range(10)])

    def test_CriticalRequestsGoFirstAndBestEffortLast(self):
        locations = PROXY % "bulkhead_priority $http_x_priority;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, max_queue: 20"), locations, up) as ngx:
            all = [ngx.begin("/hold?first")]
            up.wait_running(1)
            for n, priority in enumerate(["best_effort", "u=7", "normal", "", "u=0", "critical"]):
                all.append(ngx.begin(f"/hold?{priority}", headers={"X-Priority": priority}))
                ngx.wait_for("api", waiting_calls=n + 1)
            for n in range(7):
                up.wait_running(1)
                up.release()
                up.wait_served(n + 1)
            for one in all:
                self.assertEqual(one.result().status, 200)
            self.assertEqual(up.order, ["first", "u=0", "critical", "normal", "", "best_effort", "u=7"])
            ngx.wait_for("api", in_flight=0)

    def test_AReserveIsForCriticalRequestsOnly(self):
        locations = PROXY % "bulkhead_priority $http_x_priority;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 4, critical_reserve: 50%"), locations, up) as ngx:
            all = [ngx.begin("/hold") for _ in range(2)]
            up.wait_running(2)
            self.assertEqual(ngx.get("/hold").reason, "concurrency_limit")
            all += [ngx.begin("/hold", headers={"X-Priority": "critical"}) for _ in range(2)]
            up.wait_running(4)
            self.assertEqual(ngx.get("/hold", headers={"X-Priority": "critical"}).reason, "concurrency_limit")
            up.release(4)
            self.assertEqual([one.result().status for one in all], [200] * 4)

    def test_MembersOfAGroupShareItsTotalAndKeepTheirGuarantee(self):
        file = ("version: 1\ngroups: {service: {total: 4, lend: none}}\nbulkheads:\n"
                "  fast: {group: service, guaranteed: 1}\n  slow: {group: service}\n")
        locations = "location /hold { bulkhead slow; proxy_pass http://service; }" \
                    "location / { bulkhead fast; proxy_pass http://service; }"
        with Upstream() as up, Nginx(file, locations, up) as ngx:
            all = [ngx.begin("/hold") for _ in range(3)]
            up.wait_running(3)
            self.assertEqual(ngx.get("/hold").status, 503)
            self.assertEqual(ngx.get("/status/200").status, 200)
            up.release(3)
            self.assertEqual([one.result().status for one in all], [200] * 3)
            self.assertEqual(up.most, 4)

    def test_ACostlyRequestTakesSeveralPlaces(self):
        locations = PROXY % "bulkhead_cost $http_x_cost;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 4"), locations, up) as ngx:
            one = ngx.begin("/hold", headers={"X-Cost": "3"})
            up.wait_running(1)
            self.assertEqual(ngx.state("api")["in_flight"], 3)
            self.assertEqual(ngx.get("/status/200", headers={"X-Cost": "2"}).reason, "concurrency_limit")
            self.assertEqual(ngx.get("/status/200").status, 200)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_ACostAboveAllNumbersIsTheLargestAndNotOne(self):
        locations = PROXY % "bulkhead_cost $http_x_cost;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 4"), locations, up) as ngx:
            for cost in ("99999999999", "9" * 40, " 5 "):
                self.assertEqual(ngx.get("/status/200", headers={"X-Cost": cost}).reason, "concurrency_limit", cost)
            for cost in ("4", "0", "-1", "many", "5x"):
                self.assertEqual(ngx.get("/status/200", headers={"X-Cost": cost}).status, 200, cost)

    def test_ARequestTakesUnitsOfABudget(self):
        file = file_of("max_concurrent: 4, budgets: {tokens: {max: 100, per_call_max: 60}}")
        locations = PROXY % "bulkhead_budget tokens $http_x_tokens;"
        with Upstream() as up, Nginx(file, locations, up) as ngx:
            one = ngx.begin("/hold", headers={"X-Tokens": "60"})
            up.wait_running(1)
            full = ngx.get("/status/200", headers={"X-Tokens": "41"})
            self.assertEqual((full.status, full.reason), (503, "budget_limit"))
            self.assertEqual(ngx.get("/status/200", headers={"X-Tokens": "40"}).status, 200)
            self.assertEqual(ngx.get("/status/200").status, 200)
            self.assertEqual(ngx.get("/status/200", headers={"X-Tokens": "61"}).status, 413)
            self.assertEqual(ngx.state("api")["in_flight"], 1)
            up.release()
            self.assertEqual(one.result().status, 200)
            self.assertEqual(ngx.get("/status/200", headers={"X-Tokens": "60"}).status, 200)

    def test_ABudgetThatTheFileDoesNotHaveIsAnError(self):
        with self.assertRaises(Exception) as wrong, Upstream() as up, \
                Nginx(file_of("max_concurrent: 4"), PROXY % "bulkhead_budget tokens 5;", up):
            pass
        self.assertIn('has no budget "tokens"', str(wrong.exception))

    def test_FlowsShareTheLine(self):
        file = file_of("max_concurrent: 1, max_queue: 50, flow_queues: 64")
        with Upstream() as up, Nginx(file, PROXY % "bulkhead_flow $http_x_user;", up) as ngx:
            all = [ngx.begin("/hold?first")]
            up.wait_running(1)
            for n, user in enumerate(["noisy"] * 8 + ["quiet"]):
                all.append(ngx.begin(f"/hold?{user}", headers={"X-User": user}))
                ngx.wait_for("api", waiting_calls=n + 1)
            for n in range(len(all)):
                up.wait_running(1)
                up.release()
                up.wait_served(n + 1)
            self.assertLessEqual(up.order.index("quiet"), 3)

    def test_EachTenantHasItsOwnBulkhead(self):
        file = "version: 1\ntenants:\n  orders: {max_concurrent: 1, max_tenants: 10}\n"
        locations = "location / { bulkhead orders; bulkhead_tenant $http_x_tenant; proxy_pass http://service; }"
        with Upstream() as up, Nginx(file, locations, up) as ngx:
            one = ngx.begin("/hold", headers={"X-Tenant": "a"})
            up.wait_running(1)
            rejected = ngx.get("/status/200", headers={"X-Tenant": "a"})
            self.assertEqual((rejected.status, rejected.reason), (429, "concurrency_limit"))
            self.assertEqual(ngx.get("/status/200", headers={"X-Tenant": "b"}).status, 200)
            up.release()
            self.assertEqual(one.result().status, 200)
            wait_until(lambda: "[orders/b]" in ngx.read("access.log"), "the tenant in the log")

    def test_ARejectionSaysWhyAndWhenToComeBack(self):
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, max_queue: 1"), PROXY % "", up) as ngx:
            held = [ngx.begin("/hold") for _ in range(2)]
            ngx.wait_for("api", in_flight=1, waiting_calls=1)
            reply = ngx.get("/status/200")
            self.assertEqual((reply.status, reply.reason), (503, "queue_limit"))
            self.assertGreaterEqual(int(reply.headers["retry-after"]), 1)
            self.assertEqual(reply.headers["content-type"], "application/problem+json")
            self.assertEqual(json.loads(reply.body)["reason"], "queue_limit")
            self.assertEqual(ngx.get("/status/200", method="HEAD").body, b"")
            wait_until(lambda: "503 [api] [queue_limit] [0.000] [normal] /status/200" in ngx.read("access.log"), "the log")
            up.wait_running(1)
            up.release()
            up.wait_served(1)
            up.wait_running(1)
            up.release()
            self.assertEqual([h.result().status for h in held], [200, 200])

    def test_RejectionsAreHeldWhileTheyStormAndOnlySoMany(self):
        storm = "bulkhead_storm rate=1 burst=1 hold=10s held=20;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 1"), PROXY % "", up, http=storm) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            self.assertEqual(ngx.get("/status/200").status, 503)  # the burst
            held = [ngx.send("/status/200") for _ in range(20)]
            wait_until(lambda: ngx.state("api")["rejected"] == 21, "twenty rejections")
            for _ in range(5):  # beyond the bound: at once
                self.assertEqual(ngx.get("/status/200").reason, "concurrency_limit")
            self.assertEqual(select.select(held[5:], [], [], 0)[0], [])  # the first ones' time may be over by now
            for s in held:
                s.close()
            up.release()
            self.assertEqual(one.result().status, 200)
            ngx.wait_for("api", in_flight=0)

    def test_AHeldRejectionIsSentWhenItsTimeIsOver(self):
        storm = "bulkhead_storm rate=100 burst=1 hold=100ms;"
        with Upstream() as up, Nginx(file_of("max_concurrent: 1"), PROXY % "", up, http=storm) as ngx:
            one = ngx.begin("/hold")
            up.wait_running(1)
            began = time.monotonic()
            replies = [r.result() for r in [ngx.begin("/status/200") for _ in range(40)]]
            self.assertEqual({r.reason for r in replies}, {"concurrency_limit"})
            self.assertGreaterEqual(time.monotonic() - began, 0.05)
            up.release()
            self.assertEqual(one.result().status, 200)

    def test_ShadowModeCountsAndRejectsNothing(self):
        with Upstream() as up, Nginx(file_of("max_concurrent: 1, shadow: true"), PROXY % "", up) as ngx:
            all = [ngx.begin("/hold") for _ in range(3)]
            up.wait_running(3)
            up.release(3)
            self.assertEqual([a.result().status for a in all], [200] * 3)


if __name__ == "__main__":
    unittest.main()
