#!/usr/bin/env python3
"""Proofs that take too long for a test: aborts in every phase, event streams, a soak with reloads.

  tests/nginx/proofs.py aborts [--count 100000]     no permit is left after so many aborted requests
  tests/nginx/proofs.py streams [--count 10000]     so many event streams at once, counted exactly
  tests/nginx/proofs.py soak [--seconds 600]        requests and a reload every 5 s: none is lost, no permit is left
  tests/nginx/proofs.py memory                      bytes of a request that waits in line

From the environment: TEST_NGINX_MODULE (and TEST_NGINX). make soak-gateway and make prove-gateway call it.
"""

import argparse
import asyncio
import collections
import random
import resource
import socket
import struct
import sys
import time

from harness import Nginx, Upstream, free_port, wait_until
from lifetime_test import frame, h2_get

FILE = "version: 1\nbulkheads:\n  api: {max_concurrent: %d, max_queue: %d, max_wait: %s}\n  spare: {max_concurrent: 4}\n"
LOCATIONS = """
location /text/ { bulkhead api; bulkhead_fallback 200 none; proxy_pass http://service/; }
location /spare/ { bulkhead api; bulkhead_fallback @spare; proxy_pass http://service/; }
location /page/ { bulkhead api; bulkhead_fallback /text/status/200; proxy_request_buffering off; proxy_pass http://service/; }
location @spare { bulkhead spare; rewrite ^/spare(/.*)$ $1 break; proxy_pass http://service; }
location / { bulkhead api; proxy_pass http://service; }
location /stream { bulkhead api; proxy_buffering off; proxy_read_timeout 600s; proxy_pass http://service; }
location /written/ { bulkhead api; bulkhead_hold response; proxy_pass http://service/; }
"""


async def request(port, path, method="GET", headers="", body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode() + body)
    return reader, writer


async def abort_of_fallback(port, h2, kind, rng):
    """A request that may get a fallback of each kind, and streams of HTTP/2, of which one is reset."""
    if kind < 8:
        path = ("/text", "/spare", "/page")[kind - 5] + "/sleep/5"
        return (await request(port, path, "POST", "Content-Length: 4\r\n", b"half"[:rng.choice([2, 4])]))[1]
    _, writer = await asyncio.open_connection("127.0.0.1", h2)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + b"".join(h2_get(n, "/sleep/5") for n in (1, 3, 5)))
    await asyncio.sleep(rng.random() * 0.005)
    writer.write(frame(3, 0, 3, struct.pack(">I", 8)))
    return writer


async def abort_one(port, h2, rng):
    """Ends a request in a phase of its life: in its body, in line, before or in its response, while it is held back."""
    kind = rng.randrange(9)
    try:
        if kind >= 5:
            writer = await abort_of_fallback(port, h2, kind, rng)
            await asyncio.sleep(rng.random() * 0.01)
            return writer.transport.abort()
        if kind == 0:
            reader, writer = await request(port, "/status/200", "POST", "Content-Length: 9\r\n", b"half")
        elif kind == 1:
            reader, writer = await request(port, "/sleep/5")
        elif kind == 2:
            reader, writer = await request(port, "/written/body/200000")
            await asyncio.wait_for(reader.read(100), 20)
        elif kind == 3:
            reader, writer = await request(port, "/body/200000")
            await asyncio.wait_for(reader.read(1), 20)
        else:
            reader, writer = await request(port, "/sleep/2")
        await asyncio.sleep(rng.random() * 0.01)
        writer.transport.abort()
    except (OSError, asyncio.TimeoutError):
        pass


def aborts(count):
    h2 = free_port()
    http = f"bulkhead_storm rate=200 burst=20 hold=50ms; server {{ listen 127.0.0.1:{h2} http2; {LOCATIONS} }}"
    with Upstream() as up, Nginx(FILE % (8, 40, "20ms"), LOCATIONS, up, http=http) as ngx:
        async def client(n):
            rng = random.Random(n)
            for _ in range(count // 100):
                await abort_one(ngx.port, h2, rng)

        async def all():
            await asyncio.gather(*(client(n) for n in range(100)))
        begin = time.monotonic()
        asyncio.run(all())
        ngx.wait_for("api", in_flight=0, waiting_calls=0)
        ngx.wait_for("spare", in_flight=0)
        state = ngx.state("api")
        # Proves nothing unless requests came, and met each end.
        assert state["requests"] > count // 2 and state["rejected"] and ngx.state("spare")["requests"], state
        print(f"{count} requests aborted in {time.monotonic() - begin:.0f} s: {state['requests']} came to the bulkhead, "
              f"{state['rejected']} were rejected; now {state['in_flight']} in flight, {state['waiting_calls']} waiting")
        assert ngx.get("/status/200").status == 200


def streams(count):
    """A hundred on each connection of HTTP/2, so that one worker and this process have descriptors for all of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
    port = free_port()
    with Upstream() as up:
        ngx = Nginx(FILE % (count, 0, "1s"), LOCATIONS, up, main=f"worker_rlimit_nofile {hard};",
                    http=f"server {{ listen 127.0.0.1:{port} http2; {LOCATIONS} }}")
        # nginx closes connections whose request it has not read yet when a sixteenth is left.
        ngx.write("nginx.conf", ngx.read("nginx.conf").replace("worker_connections 4096", f"worker_connections {9 * count // 8 + 500}"))
        with ngx:
            opened = []
            for asked in range(100, count + 1, 100):
                opened.append(socket.create_connection(("127.0.0.1", port), 20))
                opened[-1].sendall(begin + b"".join(h2_get(1 + 2 * n, "/stream") for n in range(100)))
                ngx.wait_for("api", in_flight=asked)
            up.wait_running(asked)
            assert ngx.get("/stream").status == 503
            print(f"{asked} event streams at once: in_flight {asked}, the next one is rejected")
            half = len(opened) // 2
            for connection in opened[:half]:
                connection.close()
            ngx.wait_for("api", in_flight=asked - 100 * half)
            print(f"the clients of {100 * half} have gone: in_flight {asked - 100 * half}")
            for connection in opened[half:]:
                connection.close()
            ngx.wait_for("api", in_flight=0)
            up.release(count)


def soak(seconds):
    file = FILE % (8, 200, "10s")
    with Upstream() as up, Nginx(file, LOCATIONS, up) as ngx:
        statuses = collections.Counter()
        end = time.monotonic() + seconds

        async def client(n):
            rng = random.Random(n)
            while time.monotonic() < end:
                try:
                    reader, writer = await request(ngx.port, f"/sleep/{rng.randrange(8)}", headers="Connection: close\r\n")
                    answer = await asyncio.wait_for(reader.read(-1), 30)
                    statuses[answer.split(b" ")[1].decode() if answer else "cut"] += 1
                    writer.close()
                except (OSError, asyncio.TimeoutError) as error:
                    statuses[type(error).__name__] += 1

        async def reloads():
            done = 0
            while time.monotonic() + 5 < end:
                await asyncio.sleep(5)
                await asyncio.get_running_loop().run_in_executor(None, ngx.reload)
                done += 1
            return done

        async def all():
            return (await asyncio.gather(reloads(), *(client(n) for n in range(32))))[0]
        done = asyncio.run(all())
        wait_until(lambda: len(ngx.workers()) == 1, "the old workers end")
        ngx.wait_for("api", in_flight=0, waiting_calls=0)
        state = ngx.state("api")
        print(f"{seconds} s, {done} reloads: {dict(statuses)}; {state['requests']} requests counted over all workers, 0 permits left")
        assert set(statuses) == {"200"}, statuses
        assert state["requests"] == statuses["200"], state


def memory():
    def size(ngx):
        with open(f"/proc/{next(iter(ngx.workers()))}/smaps_rollup") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Private_Dirty")) * 1024
    count = 1000
    for bulkhead, locations in (("nginx alone", LOCATIONS.replace("bulkhead api;", "")), ("in line", LOCATIONS)):
        with Upstream() as up, Nginx(FILE % (1, 4000, "600s"), locations, up) as ngx:
            async def all():
                first = await request(ngx.port, "/hold")
                up.wait_running(1)
                before = size(ngx)
                opened = [await request(ngx.port, "/hold") for _ in range(count)]
                loop = asyncio.get_running_loop()
                if locations is LOCATIONS:
                    await loop.run_in_executor(None, lambda: ngx.wait_for("api", waiting_calls=count))
                else:
                    await loop.run_in_executor(None, lambda: up.wait_running(count + 1))
                print(f"{bulkhead}: {(size(ngx) - before) / count:.0f} bytes for each of {count} requests")
                for _, writer in opened + [first]:
                    writer.transport.abort()
            asyncio.run(all())
            up.release(count + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["aborts", "streams", "soak", "memory"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=int, default=600)
    o = parser.parse_args()
    if o.what == "soak":
        soak(o.seconds)
    elif o.what == "memory":
        memory()
    else:
        {"aborts": aborts, "streams": streams}[o.what](o.count or {"aborts": 100_000, "streams": 10_000}[o.what])
    sys.exit(0)
