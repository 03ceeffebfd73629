#!/usr/bin/env python3
"""What the control plane costs: memory at rest, time to the first page, processor time with 200 bulkheads and 16 viewers.

  bench/control/figures.py build/release/app/bulkhead [--quick]

Runs `bulkhead run` on files it makes, reads /proc, and prints a table. Only the processor of the process itself is counted, not that of its viewers.
"""
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "control/web/index.html").read_text()
ASSETS = sorted(set(re.findall(r'(?:src|href)="([a-z]+\.(?:js|css|svg))"', PAGE)))
TICKS = os.sysconf("SC_CLK_TCK")
VIEWERS = 16


class Running:
    def __init__(self, program, directory, bulkheads):
        file = os.path.join(directory, "figures.yaml")
        with open(file, "w") as out:
            out.write("version: 1\nbulkheads:\n")
            for i in range(bulkheads):
                out.write(f"  service-{i:03}: {{max_concurrent: 20, max_queue: 40, max_wait: 50ms, breaker: {{}}}}\n")
            out.write("control: {listen: '127.0.0.1:0'}\n")
        self.began = time.monotonic()
        self.process = subprocess.Popen([program, "run", file], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline()).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        self.process.stdout.close()

    def ask(self, path, stream=False):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        if stream:
            return client
        answer = b""
        while more := client.recv(1 << 20):
            answer += more
        client.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        return answer.split(b"\r\n\r\n", 1)[1]

    def memory(self):  # resident, in MB
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024

    def seconds_of_processor(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def time_to_first_page(program, directory, runs):
    ready, page = [], []
    for _ in range(runs):
        with Running(program, directory, 20) as running:
            html = running.ask("/ui/index.html")
            ready.append(time.monotonic() - running.began)
            began = time.monotonic()
            running.ask("/ui/index.html")
            for path in ASSETS:
                running.ask("/ui/" + path)
            running.ask("/v1/snapshot")
            running.ask("/v1/history?seconds=300&step=1")
            page.append(time.monotonic() - began)
        assert html
    return statistics.median(ready), statistics.median(page)


def processor(running, viewers, seconds):
    """Share of one core, and bytes a second for each viewer."""
    got, stop = [0] * viewers, threading.Event()

    def view(i):
        client = running.ask("/v1/stream", stream=True)
        while not stop.is_set() and (more := client.recv(1 << 20)):
            got[i] += len(more)
        client.close()
    threads = [threading.Thread(target=view, args=(i,)) for i in range(viewers)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    before, bytes_before, began = running.seconds_of_processor(), sum(got), time.monotonic()
    time.sleep(seconds)
    spent, took = running.seconds_of_processor() - before, time.monotonic() - began
    rate = (sum(got) - bytes_before) / took / max(1, viewers)
    stop.set()
    for thread in threads:
        thread.join()
    return 100 * spent / took, rate


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, quick = os.path.abspath(sys.argv[1]), "--quick" in sys.argv[2:]
    rows = []
    with tempfile.TemporaryDirectory(prefix="bulkhead-figures-") as directory:
        for bulkheads in (1, 200):
            with Running(program, directory, bulkheads) as running:
                time.sleep(3)
                rows.append((f"memory at rest, {bulkheads} bulkhead{'s' if bulkheads > 1 else ''}", f"{running.memory():.1f} MB"))
        ready, page = time_to_first_page(program, directory, 3 if quick else 15)
        rows.append(("from exec to the first page served, 20 bulkheads", f"{1000 * ready:.0f} ms"))
        rows.append(("the whole dashboard with snapshot and history, one request after the other", f"{1000 * page:.0f} ms"))
        with Running(program, directory, 200) as running:
            seconds = 3 if quick else 30
            alone, _ = processor(running, 0, seconds)
            streaming, rate = processor(running, VIEWERS, seconds)
            rows.append(("processor, 200 bulkheads, no viewer", f"{alone:.1f} % of one core"))
            rows.append((f"processor, 200 bulkheads, {VIEWERS} viewers of the stream", f"{streaming:.1f} % of one core"))
            rows.append(("for each viewer", f"{rate / 1000:.0f} KB/s"))
            rows.append(("memory then", f"{running.memory():.1f} MB"))
    print("| What | Figure |\n|---|---|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
