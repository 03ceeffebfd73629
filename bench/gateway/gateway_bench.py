#!/usr/bin/env python3
"""nginx with bulkheads beside plain nginx, limit_conn and HAProxy, in one run.

  bench/gateway/gateway_bench.py --module build/release/adapters/nginx/ngx_http_bulkhead_module.so [--rounds 10] [--seconds 3]
                                 [--instructions]

storm: the fast route's latency while 450 connections ask for a slow route (1 s each, 50 at once) and ask again at once when
they are rejected. shared: both routes lead to one service with 64 threads; 300 fast requests (2 ms each) a second, sent at
their time whatever came of the others, and 450 connections that ask for the slow route again 20 ms after each response.
cost: CPU time of the proxy for each request on a route that is never full, as a ratio to plain nginx of the same round; the
proxy has a core of its own, and each round measures all of them forwards and backwards. Configurations take turns in every
round; the medians are over the rounds. Needs nginx, haproxy and wrk.

--instructions: instead, what a request costs outside of the kernel, as callgrind counts it; the same on a busy machine. Needs
valgrind.
"""
import argparse
import asyncio
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# argv: port, threads that it has (0: no limit). A request keeps its thread to its end, also if its client has gone.
SLOW = r"""
import asyncio, sys
threads = asyncio.Semaphore(int(sys.argv[2]) or 100_000)
async def work(seconds):
    async with threads:
        await asyncio.sleep(seconds)
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await asyncio.shield(asyncio.ensure_future(work(1 if b"/slow" in head[:64] else 0.002)))
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
        self.fast, self.slow, self.shared = port(), port(), port()

    def start(self, command, listens):
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(p)
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", listens)):
            if time.monotonic() > end or p.poll() is not None:
                sys.exit(f"{command[0]} does not listen")
            time.sleep(0.01)
        return p

    def stop(self, p):
        p.send_signal(signal.SIGTERM)
        p.wait(10)
        self.processes.remove(p)

    def nginx(self, name, at, http, locations, module=False, fast=None, slow=None, under=()):
        conf = f"{self.path}/{name}.conf"
        temps = "".join(f"{t}_temp_path {self.path}/{name}-{t};" for t in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(conf, "w") as f:
            f.write(f"""
{'user root;' if os.geteuid() == 0 else ''} {'load_module ' + os.path.abspath(self.o.module) + ';' if module else ''}
{'master_process off;' if under else ''} daemon off; worker_processes 1; pid {self.path}/{name}.pid; error_log {self.path}/{name}.log crit;
worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{ {temps} access_log off; keepalive_requests 1000000; proxy_http_version 1.1; proxy_set_header Connection ""; {http}
  upstream fast {{ server 127.0.0.1:{fast or self.fast}; keepalive 512; }} upstream slow {{ server 127.0.0.1:{slow or self.slow}; keepalive 512; }}
  server {{ listen 127.0.0.1:{at} backlog=4096; {locations} }} }}""")
        return self.start([*under, "/usr/sbin/nginx", "-c", conf, "-e", f"{self.path}/{name}.log"], at)

    def haproxy(self, name, at, cap=50, fast=None, slow=None):
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
  server s 127.0.0.1:{fast or self.fast}
backend slow
  server s 127.0.0.1:{slow or self.slow} maxconn {cap}
""")
        return self.start(["/usr/sbin/haproxy", "-db", "-f", conf], at)

    def file(self, name, settings):
        with open(f"{self.path}/{name}.yaml", "w") as f:
            f.write(f"version: 1\nbulkheads:\n  slow: {{{settings}}}\n  fast: {{max_concurrent: 512, max_queue: 100}}\n")
        return f"bulkhead_config {self.path}/{name}.yaml watch=off;"

    def proxies(self):
        """name -> a function that starts it on a port."""
        plain = "location / { %s proxy_pass http://fast; } location /slow { %s proxy_pass http://slow; }"
        limit = "limit_conn_zone $server_port zone=all:1m; limit_conn_zone $server_port zone=fast:1m;"
        fast_limit = "limit_conn fast 512;"
        own = plain % ("bulkhead fast;", "bulkhead slow;")
        return {
            "no cap": lambda at, **o: self.nginx("plain", at, "", plain % ("", ""), **o),
            "nginx limit_conn": lambda at, **o: self.nginx("limit", at, limit, plain % (fast_limit, "limit_conn all 50;"), **o),
            "HAProxy, queue 200 ms": lambda at: self.haproxy("haproxy", at),
            "bulkhead, no queue": lambda at, **o: self.nginx("own", at, self.file("own", "max_concurrent: 50"), own, True, **o),
            "bulkhead, queue 50": lambda at: self.nginx(
                "queue", at, self.file("queue", "max_concurrent: 50, max_queue: 50, max_wait: 200ms"), own, True),
        }

    def shared_proxies(self):
        """In front of one service with 64 threads."""
        to = {"fast": self.shared, "slow": self.shared}
        plain = "location / { %s proxy_pass http://fast; } location /slow { %s proxy_pass http://slow; }"
        limit = "limit_conn_zone $server_port zone=all:1m;"

        def own(name, file, fast, slow):
            with open(f"{self.path}/{name}.yaml", "w") as f:
                f.write("version: 1\n" + file)
            config = f"bulkhead_config {self.path}/{name}.yaml watch=off;"
            return lambda at: self.nginx(name, at, config, plain % (fast, slow), True, **to)
        return {
            "no cap": lambda at: self.nginx("shared", at, "", plain % ("", ""), **to),
            "nginx limit_conn 32": lambda at: self.nginx("limit32", at, limit, plain % ("", "limit_conn all 32;"), **to),
            "HAProxy, slow route 32": lambda at: self.haproxy("haproxy32", at, 32, self.shared, self.shared),
            "bulkhead, slow route 32": own(
                "slow32", "bulkheads: {slow: {max_concurrent: 32, max_queue: 50, max_wait: 200ms}}\n", "", "bulkhead slow;"),
            "bulkhead, 8 of 64 guaranteed": own(
                "group", "groups: {service: {total: 64, lend: none}}\nbulkheads:\n"
                "  fast: {group: service, guaranteed: 8, max_queue: 50, max_wait: 200ms}\n"
                "  slow: {group: service, max: 56, max_queue: 50, max_wait: 200ms}\n",
                "bulkhead fast;", "bulkhead slow;"),
            "bulkhead, 8 of 64 for critical": own(
                "reserve", "bulkheads: {service: {max_concurrent: 64, critical_reserve: 12.5%, max_queue: 50, max_wait: 200ms}}\n",
                "bulkhead service; bulkhead_priority critical;", "bulkhead service;"),
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


def cost(proxy, at, seconds):
    before = cpu_seconds(proxy.pid)
    text = subprocess.run(wrk(at, "/", 64, seconds), capture_output=True, text=True).stdout
    return cpu_seconds(proxy.pid) - before, int(re.search(r"(\d+) requests in", text)[1])


def pin(pid, cores):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    for one in [pid, *map(int, children)]:
        os.sched_setaffinity(one, cores)


def costs(bench, proxies, rounds, seconds):
    """name -> microseconds of each round."""
    cores = sorted(os.sched_getaffinity(0))
    running = {name: (at := port(), start(at)) for name, start in proxies.items()}
    own, others = {cores[-1]}, set(cores[:-1]) or {cores[-1]}
    for _, proxy in running.values():
        pin(proxy.pid, own)
    pin(bench.processes[1].pid, others)  # the fast service
    os.sched_setaffinity(0, others)  # wrk inherits it
    for at, proxy in running.values():
        cost(proxy, at, 1)
    all = {name: [] for name in proxies}
    for _ in range(rounds):
        spent = {name: [0, 0] for name in proxies}
        for name in [*proxies, *reversed(proxies)]:
            at, proxy = running[name]
            cpu, requests = cost(proxy, at, seconds)
            spent[name][0] += cpu
            spent[name][1] += requests
        for name, (cpu, requests) in spent.items():
            all[name].append(cpu / requests * 1e6)
    os.sched_setaffinity(0, cores)
    for _, proxy in running.values():
        bench.stop(proxy)
    return all


def instructions(bench, start):
    """Of nginx and its modules for one request: the difference between two runs of different length. Not of what the module
    does ten times a second, which would be more on a slow machine: 100 000 instructions each time."""
    counted = {}
    callgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=bulkhead::nginx::Engine::tick*", "--collect-atstart=yes"]
    for requests in (500, 2500):
        at, out = port(), f"{bench.path}/callgrind.{requests}"
        proxy = start(at, under=[*callgrind, f"--callgrind-out-file={out}"])
        with socket.create_connection(("127.0.0.1", at)) as s:
            for _ in range(requests):
                s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while not answer.endswith(b"x" * 100):
                    answer += s.recv(4096)
        end = time.monotonic() + 60
        while proxy.poll() is None and time.monotonic() < end:
            proxy.send_signal(signal.SIGQUIT)  # again: nginx misses one that comes just before it waits for events
            time.sleep(0.2)
        bench.processes.remove(proxy)
        with open(out) as f:
            counted[requests] = int(re.search(r"^totals: (\d+)", f.read(), re.M)[1])
    return (counted[2500] - counted[500]) / 2000


async def fast_requests(at, seconds, rate):
    """The milliseconds of each, from its time; None: not answered, or not with 200."""
    idle = []

    async def one(due):
        try:
            reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", at)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head)[1]))
            if not head.startswith(b"HTTP/1.1 200"):
                writer.close()
                return None
            took = (time.monotonic() - due) * 1000
            idle.append((reader, writer))
            return took
        except (OSError, asyncio.IncompleteReadError, TypeError):
            return None

    begin = time.monotonic()
    tasks = []
    for n in range(int(seconds * rate)):
        due = begin + n / rate
        await asyncio.sleep(max(0, due - time.monotonic()))
        tasks.append(asyncio.ensure_future(asyncio.wait_for(one(due), 5)))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for _, writer in idle:
        writer.close()
    return [a if isinstance(a, float) else None for a in answers]


def shared(bench, start, seconds, flood):
    at = port()
    # A service of its own: what the last one left at work is not this one's.
    service = bench.start([sys.executable, "-c", SLOW, str(bench.shared), "64"], bench.shared)
    proxy = start(at)
    script = f"{bench.path}/pause.lua"
    with open(script, "w") as f:
        f.write("function delay() return 20 end\n")
    command = wrk(at, "/slow", 450, seconds + 2)
    crowd = subprocess.Popen([*command[:-1], "-s", script, command[-1]], stdout=subprocess.PIPE, text=True) if flood else None
    if flood:
        time.sleep(1)
    answers = asyncio.run(fast_requests(at, seconds, 300))
    served = 0
    if crowd:
        text = crowd.communicate()[0]
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        served = (int(re.search(r"(\d+) requests in", text)[1]) - int(bad[1] if bad else 0)) / (seconds + 2)
    bench.stop(proxy)
    bench.stop(service)
    good = sorted(a for a in answers if a is not None)
    at_part = lambda part: good[min(len(good) - 1, int(part * len(good)))] if good else float("nan")
    return {"answered": 100 * len(good) / len(answers), "p50": at_part(0.5), "p90": at_part(0.9), "p99": at_part(0.99), "slow": served}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", required=True)
    parser.add_argument("--rounds", type=int, default=10, help="of cost three times as many, of storm and shared half as many")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead")
    options = parser.parse_args()
    bench = Bench(options)
    median = statistics.median
    try:
        bench.start([sys.executable, "-c", SLOW, str(bench.slow), "0"], bench.slow)
        bench.nginx("fast", bench.fast, "", 'location / { return 200 "' + "x" * 100 + '"; }')
        proxies = bench.proxies()
        if options.instructions:
            print("| | instructions for a request | more than plain nginx |\n|---|---|---|")
            plain = 0
            for name in ("no cap", "nginx limit_conn", "bulkhead, no queue"):
                count = instructions(bench, proxies[name])
                plain = plain or count
                print(f"| {name} | {count:.0f} | {count - plain:.0f} |")
            return

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

        half = max(1, options.rounds // 2)
        print(f"\none service with 64 threads, medians of {half} alternating rounds of {options.seconds} s")
        proxies_of_one = bench.shared_proxies()
        runs = {"no cap, quiet": []} | {name: [] for name in proxies_of_one}
        for _ in range(half):
            runs["no cap, quiet"].append(shared(bench, proxies_of_one["no cap"], options.seconds, False))
            for name, start in proxies_of_one.items():
                runs[name].append(shared(bench, start, options.seconds, True))
        print("| | fast answered | p50 ms | p90 ms | p99 ms | slow answered/s |\n|---|---|---|---|---|---|")
        for name, all in runs.items():
            answered, slow = median(r["answered"] for r in all), median(r["slow"] for r in all)
            cells = [f"{median(r[k] for r in all):.2f}" for k in ("p50", "p90", "p99")]
            print(f"| {name} | {answered:.1f} % | " + " | ".join(cells) + f" | {slow:.0f} |")

        # A round varies by a tenth or more; the median of many is what differs from plain nginx by a few hundredths.
        many = 3 * options.rounds
        print(f"\nCPU for each request, {many} alternating rounds, ratio to plain nginx of the same round")
        all_costs = costs(bench, {n: p for n, p in proxies.items() if n != "bulkhead, queue 50"}, many,
                          max(1, options.seconds // 2))
        print("| | us | ratio, median (min to max) |\n|---|---|---|")
        for name, all in all_costs.items():
            ratios = [a / b for a, b in zip(all, all_costs["no cap"])]
            print(f"| {name} | {median(all):.1f} | {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
    finally:
        bench.close()


if __name__ == "__main__":
    main()
