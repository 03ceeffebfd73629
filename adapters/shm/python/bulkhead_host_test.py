"""Pre-fork workers under one limit, as gunicorn runs them: the master opens it, workers come, go and are killed."""
import mmap
import os
import signal
import struct
import tempfile
import threading
import time
import unittest

from bulkhead_host import CRITICAL, Limit, Rejected


def fork(body):
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid


def told(read_end):
    return os.read(read_end, 1).decode()


class Workers(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.region = os.path.join(self.directory.name, "region")
        self.children = []

    def tearDown(self):
        for pid in self.children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self.directory.cleanup()

    def worker(self, body):
        pid = fork(body)
        self.children.append(pid)
        return pid

    def test_the_limit_counts_all_workers(self):
        limit = Limit(None, "gpu", max_concurrent=2)  # before the fork, as a master does
        read_end, write_end = os.pipe()

        def work():
            limit.acquire(timeout=5)
            os.write(write_end, b"y")
            signal.pause()

        first, second = self.worker(work), self.worker(work)
        self.assertEqual(told(read_end) + told(read_end), "yy")
        with self.assertRaises(Rejected) as rejected:
            limit.acquire(timeout=0.01)
        self.assertEqual(rejected.exception.reason, "timeout")
        self.assertEqual(limit.stat()["in_flight"], 2)
        os.kill(first, signal.SIGKILL)
        with limit.acquire(timeout=10):  # what the killed worker held
            self.assertEqual(limit.stat()["own_in_flight"], 1)
        os.kill(second, signal.SIGKILL)

    def test_a_child_cannot_release_what_its_parent_holds(self):
        limit = Limit(self.region, "gpu", max_concurrent=1)
        permit = limit.acquire()
        read_end, write_end = os.pipe()

        def work():
            released = permit.release()
            try:
                limit.acquire(timeout=0)
                admitted = True
            except Rejected:
                admitted = False
            os.write(write_end, b"n" if released or admitted else b"y")

        self.worker(work)
        self.assertEqual(told(read_end), "y")
        self.assertTrue(permit.release())
        self.assertFalse(permit.release())

    def test_workers_never_exceed_the_limit_while_some_are_killed(self):
        most, workers = 3, 6
        # A word for each worker: is it inside? It is set after the admission and cleared before the release.
        oracle = mmap.mmap(-1, 4 * workers)
        limit = Limit(self.region, "db", max_concurrent=most, max_queue=50)

        def work(index):
            while True:
                try:
                    with limit.acquire(timeout=1):
                        struct.pack_into("i", oracle, 4 * index, 1)
                        time.sleep(0.0005)
                        struct.pack_into("i", oracle, 4 * index, 0)
                except Rejected:
                    pass

        pids = [self.worker(lambda i=i: work(i)) for i in range(workers)]
        for turn in range(40):
            time.sleep(0.005)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            for pid in pids:
                os.waitpid(pid, os.WUNTRACED)
            self.assertLessEqual(sum(struct.unpack_from(f"{workers}i", oracle)), most)
            victim = turn % workers
            os.kill(pids[victim], signal.SIGKILL)
            os.waitpid(pids[victim], 0)
            struct.pack_into("i", oracle, 4 * victim, 0)
            pids[victim] = self.worker(lambda i=victim: work(i))
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        permits = [limit.acquire(timeout=10) for _ in range(most)]
        for permit in permits:
            permit.release()
        self.assertEqual(limit.stat()["in_flight"], 0)

    def test_waiting_lets_other_threads_run(self):
        limit = Limit(self.region, "gpu", max_concurrent=1)
        first = limit.acquire()
        got = []
        waiter = threading.Thread(target=lambda: got.append(limit.acquire(timeout=20)))
        waiter.start()
        while limit.stat()["own_waiting"] == 0:
            time.sleep(0.001)
        first.release()
        waiter.join()
        self.assertTrue(got[0].release())

    def test_resize_priority_cost_and_errors(self):
        limit = Limit(self.region, "gpu", max_concurrent=2)
        limit.resize(4)
        permit = limit.acquire(cost=4, priority=CRITICAL)
        self.assertEqual(limit.stat()["in_flight"], 4)
        permit.release()
        with self.assertRaises(Rejected) as rejected:
            limit.acquire(cost=5)
        self.assertEqual(rejected.exception.reason, "concurrency_limit")
        with self.assertRaises(ValueError):
            limit.resize(5000)
        with self.assertRaisesRegex(ValueError, "/nowhere/region"):
            Limit("/nowhere/region", "gpu", max_concurrent=1)
        limit.close()

    def test_a_closed_limit_says_so(self):
        limit = Limit(None, "gpu", max_concurrent=2)
        permit = limit.acquire()
        limit.close()
        limit.close()
        self.assertFalse(permit.release())  # close() gave it back
        for use in (limit.acquire, limit.stat, lambda: limit.resize(3)):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_close_while_a_thread_waits(self):
        limit = Limit(self.region, "gpu", max_concurrent=1)
        other = Limit(self.region, "gpu", max_concurrent=1)
        held, ends = other.acquire(), []

        def wait():
            try:
                limit.acquire(timeout=20)
            except (Rejected, ValueError) as why:
                ends.append(type(why))

        waiter = threading.Thread(target=wait)
        waiter.start()
        while limit.stat()["own_waiting"] == 0:
            time.sleep(0.001)
        limit.close()
        held.release()
        waiter.join()
        self.assertEqual(ends, [ValueError])
        other.acquire(timeout=10).release()  # the unit that the thread got at last went back

    def test_numbers_out_of_range_are_errors(self):
        for most, queue in ((2**32 + 4, 1), (-1, 1), (0, 1), (4097, 1), (4, 2**32), (4, -1)):
            with self.assertRaises(ValueError, msg=f"{most}, {queue}"):
                Limit(None, "gpu", max_concurrent=most, max_queue=queue)
        with self.assertRaisesRegex(ValueError, "name"):
            Limit(None, "g\0pu", max_concurrent=1)
        with self.assertRaisesRegex(ValueError, "name"):
            Limit(self.region + "\0", "gpu", max_concurrent=1)
        limit = Limit(None, "gpu", max_concurrent=4)
        for cost in (0, -1, 2**32 + 1):
            with self.assertRaises(ValueError, msg=str(cost)):
                limit.acquire(cost=cost)
        for wrong in ({"timeout": float("nan")}, {"priority": 3}, {"priority": -1}):
            with self.assertRaises(ValueError, msg=str(wrong)):
                limit.acquire(**wrong)
        with self.assertRaises(ValueError):
            limit.resize(2**32 + 1)
        for timeout in (float("inf"), 1e30, -1, -float("inf")):  # for ever, for ever, not at all, not at all
            limit.acquire(timeout=timeout).release()
        self.assertEqual(limit.stat()["in_flight"], 0)


if __name__ == "__main__":
    unittest.main()
