#!/usr/bin/env python3
"""Loads the example service for some seconds, while its payment provider is slow: the other routes must not notice.

  load_test.py PROGRAM service.yaml
"""
import concurrent.futures
import http.client
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SECONDS = 2


def main():
    program, config = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        settings = pathlib.Path(directory) / "service.yaml"
        settings.write_text(pathlib.Path(config).read_text())
        service = subprocess.Popen([program, settings, f"{directory}/shop.db"], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r":(\d+)", service.stdout.readline()).group(1))
            check(port, settings, dashboard=service.stdout.readline().split()[1])
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=30) == 0, "ends with 0 on SIGTERM"
        finally:
            service.kill()


def ask(connection, method, path, tenant="ann"):
    connection.request(method, path, headers={"X-Tenant-Id": tenant})
    response = connection.getresponse()
    return response.status, response.read().decode(errors="replace")  # the dashboard is compressed


def once(port, method, path, tenant="ann"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        return ask(connection, method, path, tenant)
    finally:
        connection.close()


def load(port, method, path, clients, tenant="ann"):
    """Statuses and times of closed-loop clients during SECONDS."""
    def client():
        answers, end = [], time.monotonic() + SECONDS
        while (begin := time.monotonic()) < end:
            status, _ = once(port, method, path, tenant)
            answers.append((status, time.monotonic() - begin))
        return answers
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return [a for f in [pool.submit(client) for _ in range(clients)] for a in f.result()]


def p90(answers):
    return sorted(t for _, t in answers)[int(len(answers) * 0.9)]


def metric(port, name, labels):
    page = once(port, "GET", "/metrics")[1]
    found = [line for line in page.splitlines() if line.startswith(name + "{") and all(part in line for part in labels)]
    return sum(float(line.split()[-1]) for line in found)


def check(port, settings, dashboard):
    status, text = once(port, "POST", "/orders?item=rope")
    assert status == 201 and "receipt" in text, (status, text)
    assert once(port, "GET", "/orders/1")[1].startswith("rope receipt"), "the order is in the database"
    assert once(port, "GET", "/orders/999")[0] == 404
    assert once(port, "POST", "/orders")[0] == 400
    assert once(port, "POST", "/images?pixels=100") == (200, "2500 bytes\n")
    host = re.search(r"//([^/]+)", dashboard).group(1)
    assert once(int(host.split(":")[1]), "GET", "/ui/")[0] == 200, "the dashboard"

    quiet = load(port, "GET", "/orders/1", 2)
    assert {s for s, _ in quiet} == {200}, quiet

    # The provider takes 2 s. 12 clients order; 8 of one tenant send pictures. Readers and another tenant go on.
    once(port, "POST", "/provider?ms=2000")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ordering = pool.submit(load, port, "POST", "/orders?item=bell", 12)
        flooding = pool.submit(load, port, "POST", "/images?pixels=1500", 8, "noisy")
        reading = pool.submit(load, port, "GET", "/orders/1", 2)
        other = pool.submit(load, port, "POST", "/images?pixels=50", 1, "calm")
        orders, floods, reads, calm = (f.result() for f in (ordering, flooding, reading, other))
    print(f"reads p90: quiet {p90(quiet) * 1e3:.1f} ms, while the provider is slow {p90(reads) * 1e3:.1f} ms ({len(reads)} reads)")
    print(f"orders: {len(orders)}, p90 {p90(orders) * 1e3:.1f} ms; pictures: {len(floods)}, rejected {sum(s != 200 for s, _ in floods)}")
    assert {s for s, _ in reads} == {200}, "readers do not notice the slow provider"
    # 12 ordering clients, 4 places of 2 s: without a bulkhead the readers would wait for seconds.
    assert p90(reads) < 1, p90(reads)
    assert {s for s, _ in orders} == {202}, "every order is accepted, none is lost"
    assert p90(orders) < 1.8, p90(orders)
    assert {s for s, _ in calm} == {200}, "another tenant's pictures are made"
    assert any(s in (429, 503) for s, _ in floods), "the noisy tenant is limited"
    assert metric(port, "bulkhead_rejected_total", ['bulkhead="payments"']) > 0, "payments are rejected, not queued"

    # The provider recovers, and the breaker finds it out by itself.
    once(port, "POST", "/provider?ms=5")
    end = time.monotonic() + 20
    while once(port, "POST", "/orders?item=anchor")[0] != 201:
        assert time.monotonic() < end, "payments work again"
        time.sleep(0.1)

    # The file is followed.
    settings.write_text(settings.read_text().replace("max_concurrent: 32", "max_concurrent: 33"))
    while metric(port, "bulkhead_max_concurrent", ['bulkhead="orders"']) != 33:
        assert time.monotonic() < end + 20, "the new limit is in force"
        time.sleep(0.1)


main()
