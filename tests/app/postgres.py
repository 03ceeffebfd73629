"""A PostgreSQL server of a test's own: in a temporary directory, on a free loopback port, gone at the end of the with-block."""
import glob
import os
import shutil
import socket
import subprocess
import tempfile


def binaries():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    assert found, "no PostgreSQL server below /usr/lib/postgresql: scripts/setup test"
    return found[-1]


class Server:
    def __init__(self, **settings):
        self.settings = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_parallel_workers_per_gather": "0", **settings}

    def command(self, *arguments):
        owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []  # it refuses to be root
        subprocess.run([*owner, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bulkhead-pg-")
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres")
        self.data = f"{self.directory}/data"
        self.command(f"{binaries()}/initdb", "-N", "-A", "trust", "-U", "postgres", "-D", self.data)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = {"port": self.port, "unix_socket_directories": self.directory, **self.settings}
        with open(f"{self.data}/postgresql.conf", "a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.command(f"{binaries()}/pg_ctl", "-w", "-t", "60", "-l", "/dev/null", "-D", self.data, "start")
        return self

    def __exit__(self, *_):
        self.command(f"{binaries()}/pg_ctl", "-w", "-m", "fast", "-D", self.data, "stop")
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def url(self):
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def ask(self, sql):
        """The rows as lines of text."""
        return subprocess.run([f"{binaries()}/psql", "-Atqc", sql, self.url], check=True, capture_output=True, text=True,
                              timeout=60).stdout.splitlines()
