#!/usr/bin/env python3
"""nginx with bulkheads beside plain nginx, limit_conn and HAProxy, in one run.

  bench/gateway/gateway_bench.py --module build/release/adapters/nginx/ngx_http_bulkhead_module.so [--rounds 10] [--seconds 3]

storm: the fast route's latency while 450 connections ask for a slow route (1 s each, 50 at once) and ask again at once when
they are rejected. cost: CPU time of the proxy for each request on a route that is never full, as a ratio to plain nginx of
the same round. Configurations take turns in every round; the medians are over the rounds. Needs nginx, haproxy and wrk.
"""
import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SLOW = r"""
import asyncio, sys
async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(1)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()
asyncio.run(main())
"""


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Bench:
    def __init__(self, options):
        self.o = options
        self.directory = tempfile.TemporaryDirectory(prefix="bulkhead-bench-")
        self.path = self.directory.name
        self.processes = []
        self.fast, self.slow = port(), port()

    def start(self, command, listens):
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(p)
        end = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", listens)):
            if time.monotonic() > end or p.poll() is not None:
                sys.exit(f"{command[0]} does not listen")
            time.sleep(0.01)
        return p

    def stop(self, p):
        p.send_signal(signal.SIGTERM)
        p.wait(10)
        self.processes.remove(p)

    def nginx(self, name, at, http, locations, module=False):
        conf = f"{self.path}/{name}.conf"
        temps = "".join(f"{t}_temp_path {self.path}/{name}-{t};" for t in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(conf, "w") as f:
            f.write(f"""
{'user root;' if os.geteuid() == 0 else ''} {'load_module ' + os.path.abspath(self.o.module) + ';' if module else ''}
daemon off; worker_processes 1; pid {self.path}/{name}.pid; error_log {self.path}/{name}.log crit;
worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{ {temps} access_log off; keepalive_requests 1000000; proxy_http_version 1.1; proxy_set_header Connection ""; {http}
  upstream fast {{ server 127.0.0.1:{self.fast}; keepalive 512; }} upstream slow {{ server 127.0.0.1:{self.slow}; keepalive 512; }}
  server {{ listen 127.0.0.1:{at} backlog=4096; {locations} }} }}""")
        return self.start(["/usr/sbin/nginx", "-c", conf, "-e", f"{self.path}/{name}.log"], at)

    def haproxy(self, name, at):
        conf = f"{self.path}/{name}.cfg"
        with open(conf, "w") as f:
            f.write(f"""
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout client 60s
  timeout connect 5s
  timeout server 60s
  timeout queue 200ms
  http-reuse always
frontend f
  bind 127.0.0.1:{at}
  use_backend slow if {{ path_beg /slow }}
  default_backend fast
backend fast
  server s 127.0.0.1:{self.fast}
backend slow
  server s 127.0.0.1:{self.slow} maxconn 50
""")
        return self.start(["/usr/sbin/haproxy", "-db", "-f", conf], at)

    def file(self, name, settings):
        with open(f"{self.path}/{name}.yaml", "w") as f:
            f.write(f"version: 1\nbulkheads:\n  slow: {{{settings}}}\n  fast: {{max_concurrent: 512, max_queue: 100}}\n")
        return f"bulkhead_config {self.path}/{name}.yaml watch=off;"

    def proxies(self):
        """name -> a function that starts it on a port."""
        plain = "location / { %s proxy_pass http://fast; } location /slow { %s proxy_pass http://slow; }"
        limit = "limit_conn_zone $server_port zone=all:1m;"
        own = plain % ("bulkhead fast;", "bulkhead slow;")
        return {
            "no cap": lambda at: self.nginx("plain", at, "", plain % ("", "")),
            "nginx limit_conn": lambda at: self.nginx("limit", at, limit, plain % ("", "limit_conn all 50;")),
            "HAProxy, queue 200 ms": lambda at: self.haproxy("haproxy", at),
            "bulkhead, no queue": lambda at: self.nginx("own", at, self.file("own", "max_concurrent: 50"), own, True),
            "bulkhead, queue 50": lambda at: self.nginx(
                "queue", at, self.file("queue", "max_concurrent: 50, max_queue: 50, max_wait: 200ms"), own, True),
        }

    def close(self):
        for p in list(self.processes):
            self.stop(p)
        self.directory.cleanup()


def cpu_seconds(pid):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    total = 0
    for one in [str(pid), *children]:
        with open(f"/proc/{one}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def wrk(at, path, connections, seconds):
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s", f"http://127.0.0.1:{at}{path}"]


def milliseconds(text, percentile):
    value, unit = re.search(rf"{percentile}%\s+([0-9.]+)(us|ms|s)", text).groups()
    return float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def storm(bench, start, seconds, flood):
    at = port()
    proxy = start(at)
    crowd = subprocess.Popen(wrk(at, "/slow", 450, seconds + 2), stdout=subprocess.PIPE, text=True) if flood else None
    if flood:
        time.sleep(1)  # the storm is at its height
    before = cpu_seconds(proxy.pid)
    text = subprocess.run(wrk(at, "/", 4, seconds), capture_output=True, text=True).stdout
    busy = (cpu_seconds(proxy.pid) - before) / seconds
    if crowd:
        crowd.wait()
    bench.stop(proxy)
    return {"p50": milliseconds(text, 50), "p90": milliseconds(text, 90), "p99": milliseconds(text, 99), "cpu": busy}


def cost(bench, start, seconds):
    at = port()
    proxy = start(at)
    before = cpu_seconds(proxy.pid)
    text = subprocess.run(wrk(at, "/", 64, seconds), capture_output=True, text=True).stdout
    used = cpu_seconds(proxy.pid) - before
    bench.stop(proxy)
    return used / int(re.search(r"(\d+) requests in", text)[1]) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", required=True)
    parser.add_argument("--rounds", type=int, default=10, help="of cost; storm has half as many")
    parser.add_argument("--seconds", type=int, default=3)
    options = parser.parse_args()
    bench = Bench(options)
    median = statistics.median
    try:
        bench.start([sys.executable, "-c", SLOW, str(bench.slow)], bench.slow)
        bench.nginx("fast", bench.fast, "", 'location / { return 200 "' + "x" * 100 + '"; }')
        proxies = bench.proxies()

        print(f"fast route in the storm, medians of {max(1, options.rounds // 2)} alternating rounds of {options.seconds} s")
        runs = {"no cap, quiet": []} | {name: [] for name in proxies}
        for _ in range(max(1, options.rounds // 2)):
            runs["no cap, quiet"].append(storm(bench, proxies["no cap"], options.seconds, False))
            for name, start in proxies.items():
                runs[name].append(storm(bench, start, options.seconds, True))
        print("| | p50 ms | p90 ms | p99 ms | proxy CPU |\n|---|---|---|---|---|")
        for name, all in runs.items():
            cells = [f"{median(r[k] for r in all):.2f}" for k in ("p50", "p90", "p99", "cpu")]
            print(f"| {name} | " + " | ".join(cells) + " |")

        print(f"\nCPU for each request, {options.rounds} alternating rounds, ratio to plain nginx of the same round")
        costs = {name: [] for name in proxies if name != "bulkhead, queue 50"}
        for _ in range(options.rounds):
            for name in costs:
                costs[name].append(cost(bench, proxies[name], options.seconds))
        print("| | us | ratio, median (min to max) |\n|---|---|---|")
        for name, all in costs.items():
            ratios = [a / b for a, b in zip(all, costs["no cap"])]
            print(f"| {name} | {median(all):.1f} | {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
    finally:
        bench.close()


if __name__ == "__main__":
    main()
