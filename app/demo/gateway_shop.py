"""A shop that knows nothing of bulkheads, and the people who use it. Only the standard library.

  gateway_shop.py serve PORT                             the shop
  gateway_shop.py story PORT ADMIN SECONDS [--json]      its clients, through the gateway at PORT; a table at the end

Both pages of the shop use its 16 database connections. When analytics is slow, /reports keeps each for two seconds.
"""

import http.client
import http.server
import json
import socketserver
import sys
import threading
import time

database = threading.Semaphore(16)
slow = threading.Event()


class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/slow/"):
            (slow.set if self.path.endswith("on") else slow.clear)()
        elif self.path != "/healthz":
            with database:
                time.sleep(2 if slow.is_set() and self.path.startswith("/reports") else 0.005)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_):
        pass  # a client has gone


def get(port, path, host="shop", timeout=10):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("GET", path, headers={"Host": host})
        response = c.getresponse()
        response.read()
        return response.status, response.getheader("X-Bulkhead-Reason") or ""
    except OSError:
        return 0, "timeout"
    finally:
        c.close()


class Clients:
    """Open loop: a request is due at its time, whether others have ended or not."""

    def __init__(self, port, host, path, rate, patience):
        self.port, self.host, self.path, self.rate, self.patience = port, host, path, rate, patience
        self.times, self.reasons, self.asked = [], {}, 0

    def one(self):
        begin = time.monotonic()
        status, reason = get(self.port, self.path, self.host, self.patience)
        if status == 200:
            self.times.append(time.monotonic() - begin)
        else:
            why = reason or f"status {status}"
            self.reasons[why] = self.reasons.get(why, 0) + 1

    def run(self, seconds):
        begin, threads = time.monotonic(), []
        while (due := begin + self.asked / self.rate) < begin + seconds:
            time.sleep(max(0, due - time.monotonic()))
            self.asked += 1
            threads.append(threading.Thread(target=self.one, daemon=True))
            threads[-1].start()
        for t in threads:
            t.join(self.patience + 1)

    def row(self):
        times = sorted(self.times)
        at = lambda q: round(1000 * times[min(len(times) - 1, int(q * len(times)))], 1) if times else None
        return {"path": self.path, "requests": self.asked, "served": len(times), "p50_ms": at(0.5), "p99_ms": at(0.99),
                "rejected": self.reasons}


def act(port, host, seconds):
    all = [Clients(port, host, "/checkout", 60, 1), Clients(port, host, "/reports", 30, 3)]
    threads = [threading.Thread(target=c.run, args=(seconds,)) for c in all]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [c.row() for c in all]


def story(port, admin, seconds, as_json):
    say = (lambda *_: None) if as_json else lambda text: print(text, flush=True)
    each = max(1.0, seconds / 3)
    say(f"The shop is a Python program that knows nothing of bulkheads. nginx passes its requests on.\nDashboard: {admin}\n")
    acts = []
    for title, host, is_slow in (("analytics is fast", "open", False), ("analytics is slow, no bulkheads", "open", True),
                                 ("analytics is slow, with bulkheads", "shop", True)):
        get(port, "/slow/on" if is_slow else "/slow/off")
        acts.append({"act": title, "routes": act(port, host, each)})
        get(port, "/slow/off")
        time.sleep(0 if acts[2:] else 2.1)  # the shop's old requests end
        for r in acts[-1]["routes"]:
            why = ", ".join(f"{n} {reason}" for reason, n in sorted(r["rejected"].items())) or "none"
            shown = lambda ms: "-" if ms is None else f"{ms:.0f}"
            say(f"{title if r['path'] == '/checkout' else '':<36}{r['path']:<11}{r['served']:>4} of {r['requests']:>4} served   "
                f"p50 {shown(r['p50_ms']):>5} ms   p99 {shown(r['p99_ms']):>5} ms   not served: {why}")
    if as_json:
        print(json.dumps({"acts": acts}))
    good = acts[2]["routes"][0]
    return 0 if good["served"] >= 0.95 * good["requests"] else 1


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Server(("127.0.0.1", int(sys.argv[2])), Shop).serve_forever()
    else:
        sys.exit(story(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), "--json" in sys.argv))
