"""`bulkhead run`: a file as a process. Reload by signal, by rename and by request; a bad file; stopping; being killed."""
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

import program
from servers import FILE, STARTED, Case, Running, ask


class Reload(Case):
    def test_a_file_is_followed_by_rename_signal_and_request_and_a_bad_one_changes_nothing(self):
        running = Running(self.directory)
        self.assertIn("2 bulkheads of", running.first)
        self.assertEqual(running.limit(), 20)
        running.write(30)  # a rename: the watch sees it
        running.until(lambda: running.limit() == 30, "the new file is not loaded")

        running.write(0, "version: 1\nbulkheads:\n  checkout: {max_concurent: 5}\n")
        running.until(lambda: running.ask("GET", "/v1/snapshot")[1]["config"]["state"] == "invalid", "the bad file is not told")
        self.assertEqual(running.limit(), 30)
        self.assertIn("b.yaml:3:14: bulkheads.checkout.max_concurent: unknown setting", running.ask("GET", "/v1/snapshot")[1]["config"]["error"])
        status, problem = running.ask("POST", "/v1/config/reload")
        self.assertEqual((status, problem["errors"][0]["line"]), (422, 3))
        self.assertEqual(running.run("reload").returncode, 3)

        running.write(40)
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: running.limit() == 40, "SIGHUP does not load the file")
        self.assertEqual(running.ask("GET", "/v1/snapshot")[1]["config"]["state"], "in_sync")
        self.assertEqual(running.stop(), 0)
        self.assertFalse(os.path.exists(self.directory + "/admin.sock"))

    def test_diff_tells_and_reload_does(self):
        running = Running(self.directory, arguments=["--no-watch"])
        self.assertEqual(running.run("diff").stdout, "No changes.\n")
        running.write(25)
        diff = running.run("diff")
        self.assertIn("bulkheads.checkout.max_concurrent: 20 -> 25", diff.stdout)
        self.assertEqual(running.limit(), 20)
        self.assertEqual(running.run("reload", "--dry-run").returncode, 0)
        self.assertEqual(running.limit(), 20)
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 25)
        text = running.ask("GET", "/v1/config")[1]["text"]
        self.assertIn("max_concurrent: 25", text)
        self.assertTrue(running.ask("POST", "/v1/config/validate", text)[1]["valid"])
        self.assertFalse(running.ask("POST", "/v1/config/validate", "version: 9\n")[1]["valid"])
        self.assertEqual(running.ask("POST", "/v1/config/reload", If_Match='"other"')[0], 412)
        running.stop()

    def test_what_is_wrong_is_told_also_if_it_is_one_thing(self):
        running = Running(self.directory, arguments=["--no-watch"])
        running.write(0, "version: 1\nbulkheads:\n  checkout: {max_concurrent: 0x10}\n")
        reload, dry, diff = running.run("reload"), running.run("reload", "--dry-run"), running.run("diff")
        self.assertEqual([reload.returncode, dry.returncode, diff.returncode], [3, 3, 3])
        for told in (reload.stderr, dry.stderr):
            self.assertRegex(told, r"b\.yaml is not valid; the previous configuration stays in force\n  line 3: bulkheads\.checkout\.max_concurrent: .*0x10")
        self.assertIn("line 3: bulkheads.checkout.max_concurrent: ", diff.stderr)
        for command in (["diff"], ["reload"], ["reload", "--dry-run"]):
            done = running.run(*command, "--json")
            self.assertEqual((done.returncode, json.loads(done.stdout)["errors"][0]["line"]), (3, 3), command)
        running.stop()

    def test_what_needs_a_restart_is_told_as_long_as_it_does(self):
        running = Running(self.directory, arguments=["--no-watch"])
        running.write(20, FILE + "  max_streams: 3\n")
        for command in ("diff", "reload", "reload", "diff", "reload --dry-run"):
            self.assertRegex(running.run(*command.split()).stdout, r"^~ control\.max_streams: .* \(needs restart\)\n$", command)
        running.write(25, FILE + "  max_streams: 3\n")
        for found in ("max_concurrent: 20 -> 25", "max_streams"):
            self.assertIn(found, running.run("diff").stdout)
        self.assertIn("max_concurrent", running.run("reload").stdout)
        self.assertRegex(running.run("reload").stdout, r"^~ control\.max_streams: .* \(needs restart\)\n$")
        running.write(25)
        running.run("reload")
        self.assertEqual(running.run("reload").stdout, "No changes.\n")
        running.stop()

    def test_status_tells_what_is_wrong_with_the_file_in_its_line(self):
        running = Running(self.directory)
        running.write(0, "version: 1\nbulkheads:\n  checkout: {max_concurrent: 0x10}\n")
        running.until(lambda: running.ask("GET", "/v1/snapshot")[1]["config"]["state"] == "invalid", "the bad file is not told")
        running.until(lambda: running.run("status").stdout.startswith(running.file + " is not valid: "), "the verdict does not lead")
        lines = running.run("status").stdout.splitlines()
        first, second = lines[lines.index("") + 1:][:2]
        self.assertRegex(first, r", config: invalid \(.*b\.yaml:3:\d+: bulkheads\.checkout\.max_concurrent: .*\)$")
        self.assertIn("BULKHEAD", second)
        running.stop()

    def test_an_override_outlives_a_reload_unless_the_file_changes_that_setting(self):
        running = Running(self.directory, arguments=["--no-watch"])
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "r").returncode, 0)
        running.write(20, FILE.replace("max_queue: 10", "max_queue: 11") % (20, self.directory, self.directory))
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 3)
        running.write(50)
        self.assertEqual(running.run("reload").returncode, 0)
        self.assertEqual(running.limit(), 50)
        self.assertEqual(running.ask("GET", "/v1/overrides")[1]["overrides"], [])
        self.assertIn("is dropped: the file now says", running.run("events").stdout)
        running.stop()


class Life(Case):
    def test_metrics_and_health(self):
        running = Running(self.directory)
        text = running.ask("GET", "/metrics")[1]
        self.assertIn('bulkhead_max_concurrent{bulkhead="checkout"} 20', text)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        health = running.ask("GET", "/health/bulkheads")
        self.assertEqual(health[0], 200)
        self.assertIn("checkout", json.dumps(health[1]))
        running.stop()

    def test_as_json_it_tells_a_line_for_everything_and_nothing_else(self):
        running = Running(self.directory, arguments=["--json", "--grace", "0.1"])
        lines = [running.first]

        def until(kind):
            while json.loads(lines[-1])["kind"] != kind:
                lines.append(running.process.stdout.readline())
            return json.loads(lines[-1])
        ready = until("ready")
        self.assertEqual((ready["bulkheads"], ready["file"], ready["unix_socket"], ready["url"], ready["pid"]),
                         (2, running.file, running.socket, None, running.process.pid))
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "r").returncode, 0)
        self.assertEqual((until("override")["bulkhead"], json.loads(lines[-1])["reason"]), ("checkout", "r"))
        running.write(30)
        loaded = until("loaded")
        self.assertEqual((loaded["ok"], loaded["actor"], loaded["problems"]), (True, "watch", []))
        self.assertIn("max_concurrent", "".join(loaded["changes"]))
        running.write(0, "version: 1\nbulkheads:\n  checkout: {max_concurent: 5}\n")
        while (loaded := until("loaded"))["ok"]:
            lines.append(running.process.stdout.readline())
        self.assertEqual(loaded["problems"][0]["line"], 3)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual((until("stopping")["signal"], json.loads(lines[-1])["grace"]), ("SIGTERM", 0.1))
        until("stop")
        self.assertEqual(running.process.stdout.read(), "")
        running.process.stdout.close()
        self.assertEqual(running.process.wait(20), 0)
        self.assertEqual(self.stderr(), "")
        invalid = program.run("run", running.file, "--json")
        self.assertEqual((invalid.returncode, json.loads(invalid.stdout)["kind"]), (3, "invalid"))
        self.assertIn("is not valid", invalid.stderr)

    def test_a_reader_of_its_lines_who_goes_away_does_not_take_it_along(self):
        running = Running(self.directory, arguments=["--json"])
        running.process.stdout.close()
        for limit in (5, 6, 7):
            self.assertEqual(running.run("set", "checkout", "--max-concurrent", str(limit), "--reason", "r").returncode, 0)
        time.sleep(0.5)  # two rounds of its loop: they write what happened
        self.assertEqual(running.limit(), 7)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.process.wait(20), 0)

    def test_a_bulkhead_may_have_the_name_of_a_command(self):
        running = Running(self.directory, text=FILE.replace("reports", "top"))
        self.assertIn("max_concurrent", running.run("status", "top").stdout)
        self.assertEqual(running.run("set", "top", "--max-concurrent", "3", "--reason", "set").returncode, 0)
        self.assertEqual(running.limit("top"), 3)
        running.stop()

    def test_the_service_manager_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(self.directory + "/notify")
            manager.settimeout(20)
            running = Running(self.directory, arguments=["--grace", "0.2"], environment={"NOTIFY_SOCKET": self.directory + "/notify"})
            self.assertIn(b"READY=1", manager.recv(1000))
            running.process.send_signal(signal.SIGHUP)
            self.assertRegex(manager.recv(1000).decode(), r"RELOADING=1\nMONOTONIC_USEC=\d+")
            self.assertIn(b"READY=1", manager.recv(1000))
            self.assertEqual(running.stop(), 0)
            self.assertIn(b"STOPPING=1", manager.recv(1000))

    def test_an_audit_file_that_is_full_and_has_no_end_is_told_and_keeps_nobody_waiting(self):
        running = Running(self.directory, text=FILE.replace("%s/audit.jsonl", "/dev/full%.0s"))
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "r").returncode, 0)
        told = [e["text"] for e in running.ask("GET", "/v1/events")[1]["events"] if e["kind"] == "error"]
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], 'audit_file "/dev/full" cannot be written, .*No space left on device')
        self.assertEqual(running.stop(), 0)

    def test_what_a_killed_process_leaves_is_explained_by_the_next(self):
        running = Running(self.directory)
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "incident").returncode, 0)
        self.assertEqual(running.stop(signal.SIGKILL), -signal.SIGKILL)
        with open(self.directory + "/audit.jsonl", "a") as torn:
            torn.write('{"id": 99, "kind": "over')
        running = Running(self.directory, limit=None)  # the socket's file is still there
        self.assertEqual(running.limit(), 20)
        self.assertIn("the last run did not stop cleanly", self.stderr())
        self.assertIn("checkout: max_concurrent 20 -> 3 for 15 m: incident", self.stderr())
        told = [e["text"] for e in running.ask("GET", "/v1/events")[1]["events"] if e["kind"] == "last_run"]
        self.assertEqual(len(told), 2, told)
        self.assertIn("the last run did not stop cleanly", told[0])
        self.assertRegex(told[1], "^an override ended with it: checkout: max_concurrent 20 -> 3 for 15 m: incident")
        self.assertEqual(running.stop(), 0)
        before = self.stderr()
        self.assertEqual(Running(self.directory, limit=None).stop(), 0)
        self.assertNotIn("did not end", self.stderr()[len(before):])

    def test_a_second_one_by_mistake_does_not_bury_the_first(self):
        running = Running(self.directory)
        second = program.run("run", running.file)
        self.assertEqual((second.returncode, second.stdout), (1, ""))
        self.assertNotIn("did not end", second.stderr)
        self.assertEqual(running.stop(), 0)

    def test_who_follows_the_events_sees_those_of_the_next_process_too(self):
        running = Running(self.directory)
        for limit in ("3", "4"):
            self.assertEqual(running.run("set", "checkout", "--max-concurrent", limit, "--reason", "before").returncode, 0)
        with open(self.directory + "/told", "w") as told:
            follower = subprocess.Popen([program.PROGRAM, "events", "-f", "--json", "--admin", running.socket], stdout=subprocess.PIPE, stderr=told, text=True)
        STARTED.append(follower)
        lines = (json.loads(line) for line in follower.stdout)

        def kinds(n):
            return [next(lines)["kind"] for _ in range(n)]
        self.assertEqual(kinds(3), ["start", "override", "override"])
        running.stop(signal.SIGKILL)

        def complaints():
            with open(self.directory + "/told") as text:
                return text.read().splitlines()
        running.until(complaints, "nothing is told")
        time.sleep(1.2)  # it tries two more times
        self.assertEqual(len(complaints()), 1, complaints())
        self.assertRegex(complaints()[0], r"admin\.sock: Connection refused; trying again$")
        running = Running(self.directory, limit=None)
        self.assertEqual(running.run("set", "reports", "--max-concurrent", "3", "--reason", "after").returncode, 0)
        self.assertEqual(kinds(4), ["start", "last_run", "last_run", "override"])

        follower.send_signal(signal.SIGSTOP)  # so that the next one has as many events before it is asked
        self.assertEqual(running.stop(), 0)
        running = Running(self.directory, limit=None)
        for limit in "34567":
            self.assertEqual(running.run("set", "reports", "--max-concurrent", limit, "--reason", "later").returncode, 0)
        follower.send_signal(signal.SIGCONT)
        self.assertEqual(kinds(6), ["start"] + 5 * ["override"])
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20), 0)
        follower.stdout.close()
        self.assertEqual(program.run("events", "-f", "--admin", "/nowhere.sock").returncode, 4)
        running.stop()

    def test_killed_in_the_middle_of_reloads_and_overrides_it_starts_as_the_file_says_and_tells_what_ended(self):
        choose = random.Random(11)
        explained = 0
        for round in range(8):
            running = Running(self.directory, limit=20 + round)
            done, stop, reloads = {}, threading.Event(), []

            def override():  # one after the other: the last answer is what is in force
                for n in range(1, 10_000):
                    try:
                        answer = ask(running.socket, "PUT", "/v1/overrides/reports", body={"max_concurrent": n, "reason": f"round {round}"})[0]
                    except OSError:
                        return
                    done["reports"] = n if answer.status == 200 else None

            def reload():
                for n in range(30, 10_000):
                    if stop.is_set():
                        return
                    try:
                        running.write(n)
                        reloads.append(ask(running.socket, "POST", "/v1/config/reload")[0].status)
                    except OSError:
                        return
            threads = [threading.Thread(target=f) for f in (override, reload)]
            for thread in threads:
                thread.start()
            running.until(lambda: "reports" in done and reloads, "nothing happens")
            time.sleep(choose.random() * 0.1)
            self.assertEqual(running.stop(signal.SIGKILL), -signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join()
            self.assertEqual(set(reloads), {200})

            with open(running.file) as file:
                wanted = int(re.search(r"max_concurrent: (\d+)", file.read()).group(1))
            before = len(self.stderr())
            following = Running(self.directory, limit=None)
            self.assertEqual((following.limit(), following.limit("reports")), (wanted, 4))
            self.assertEqual(following.ask("GET", "/v1/overrides")[1]["overrides"], [])
            told = self.stderr()[before:]
            self.assertIn("the last run did not stop cleanly; the file is in force", told)
            ended = re.search(r"an override ended with it: reports: max_concurrent \d+ -> (\d+) for 15 m: round (\d+)", told)
            # The last one that was answered, or the one after it, whose answer the kill came before.
            self.assertIn(int(ended.group(1)) - done["reports"], (0, 1))
            self.assertEqual(int(ended.group(2)), round)
            explained += 1
            self.assertEqual(following.stop(), 0)
        self.assertEqual(explained, 8)

    def test_each_kind_of_override_that_ended_with_a_killed_process_is_told(self):
        running = Running(self.directory)
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "first").returncode, 0)
        self.assertEqual(running.run("breaker", "open", "checkout", "--reason", "second").returncode, 0)
        self.assertEqual(running.run("drain", "checkout", "--reason", "third").returncode, 0)
        self.assertEqual(running.run("set", "reports", "--max-concurrent", "3", "--reason", "fourth").returncode, 0)
        self.assertEqual(running.run("reset", "reports").returncode, 0)
        self.assertEqual(running.run("breaker", "auto", "checkout").returncode, 0)
        running.stop(signal.SIGKILL)
        self.assertEqual(Running(self.directory, limit=None).stop(), 0)
        told = self.stderr()
        for word, there in (("first", True), ("second", False), ("third", True), ("fourth", False)):
            self.assertEqual(word in told, there, told)

    def test_an_override_that_the_new_file_leaves_no_room_for_ends_and_says_so(self):
        running = Running(self.directory, arguments=["--no-watch"])
        self.assertEqual(running.run("set", "checkout", "--max-concurrent", "3", "--reason", "r").returncode, 0)
        self.assertEqual(running.run("set", "reports", "--max-queue", "1", "--reason", "r").returncode, 0)
        self.assertEqual(running.run("breaker", "open", "checkout", "--reason", "r").returncode, 0)
        running.write(0, FILE.replace(", breaker: {open_for: 5s}", "") % (25, self.directory, self.directory))
        self.assertEqual(running.ask("POST", "/v1/config/reload")[0], 200)
        left = running.ask("GET", "/v1/overrides")[1]["overrides"]
        self.assertEqual([o["name"] for o in left], ["reports"])
        running.write(0, FILE.replace("reports", "other") % (20, self.directory, self.directory))
        self.assertEqual(running.ask("POST", "/v1/config/reload")[0], 200)
        self.assertEqual(running.ask("GET", "/v1/overrides")[1]["overrides"], [])
        events = running.run("events").stdout
        for text in ("is dropped: the file now says 25", "the bulkhead has no breaker any more", "is dropped: the file no longer has it"):
            self.assertIn(text, events)
        self.assertEqual(running.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertEqual(Running(self.directory, limit=None).stop(), 0)
        self.assertNotIn("an override ended", self.stderr())

    def test_elsewhere_than_on_the_loopback_address_it_speaks_tls_and_asks_for_a_token(self):
        key, certificate = self.directory + "/key.pem", self.directory + "/cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True, timeout=30)
        with open(self.directory + "/tokens", "w") as out:
            out.write("ann operator " + hashlib.sha256(b"secret").hexdigest() + "\n")
        os.chmod(self.directory + "/tokens", 0o600)
        with open(self.directory + "/b.yaml", "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol:\n  listen: 0.0.0.0:0\n"
                      f"  tokens_file: {self.directory}/tokens\n  tls: {{certificate: {certificate}, private_key: {key}}}\n")
        running = Running(self.directory, limit=None)
        port = re.search(r"https://0\.0\.0\.0:(\d+)", running.first).group(1)

        def curl(*arguments):
            return subprocess.run(["curl", "-sS", "--cacert", certificate, "-w", "%{http_code}", "-o", "/dev/null", *arguments,
                                   f"https://localhost:{port}/v1/session"], capture_output=True, text=True, timeout=30).stdout
        self.assertEqual(curl(), "401")
        self.assertEqual(curl("-H", "Authorization: Bearer secret"), "200")
        plain = subprocess.run(["curl", "-sS", f"http://localhost:{port}/livez"], capture_output=True, text=True, timeout=30)
        self.assertNotEqual(plain.returncode, 0)

        def status(host="localhost", token="secret", trusted=certificate):
            return program.run("status", "--admin", f"https://{host}:{port}", SSL_CERT_FILE=trusted, BULKHEAD_TOKEN=token)
        self.assertEqual(status().returncode, 0, status().stderr)
        self.assertIn("db", status().stdout)
        self.assertEqual(status(token="other").returncode, 6)
        for untrusted in (status(trusted="/dev/null"), status(host="127.0.0.1")):  # nobody vouches for it; it is another's
            self.assertEqual((untrusted.returncode, untrusted.stdout), (4, ""))
            self.assertIn("its certificate is not trusted", untrusted.stderr)
        self.assertEqual(running.stop(), 0)
        gone = program.run("status", "--json", "--admin", f"https://localhost:{port}")
        self.assertEqual((gone.returncode, json.loads(gone.stdout)["type"]), (4, "urn:bulkhead:problem:unreachable"))

    def test_mutual_tls_asks_for_a_certificate_before_it_asks_for_a_token(self):
        def certificate(name):
            key, path = f"{self.directory}/{name}.key", f"{self.directory}/{name}.crt"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", path,
                            "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True, timeout=30)
            return key, path
        (key, own), (client_key, client), (other_key, other) = certificate("server"), certificate("client"), certificate("other")
        with open(self.directory + "/tokens", "w") as out:
            out.write("ann operator " + hashlib.sha256(b"secret").hexdigest() + "\n")
        os.chmod(self.directory + "/tokens", 0o600)
        with open(self.directory + "/b.yaml", "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol:\n  listen: 127.0.0.1:0\n  anonymous: none\n"
                      f"  tokens_file: {self.directory}/tokens\n  tls: {{certificate: {own}, private_key: {key}, client_authorities: {client}}}\n")
        running = Running(self.directory, limit=None)
        port = re.search(r"https://127\.0\.0\.1:(\d+)", running.first).group(1)

        def curl(*arguments):
            return subprocess.run(["curl", "-sS", "--cacert", own, "-w", "%{http_code}", "-o", "/dev/null", *arguments, f"https://localhost:{port}/v1/session"],
                                  capture_output=True, text=True, timeout=30).stdout
        token = ["-H", "Authorization: Bearer secret"]
        self.assertEqual(curl(*token), "000", "without a certificate")
        self.assertEqual(curl(*token, "--cert", other, "--key", other_key), "000", "with a certificate of another authority")
        self.assertEqual(curl("--cert", client, "--key", client_key), "401", "a certificate is no token")
        self.assertEqual(curl(*token, "--cert", client, "--key", client_key), "200")

        def status(*more):
            return program.run("status", "--admin", f"https://localhost:{port}", *more, SSL_CERT_FILE=own, BULKHEAD_TOKEN="secret")
        without = status()
        self.assertEqual((without.returncode, without.stdout), (4, ""))
        self.assertIn("give --certificate FILE", without.stderr)
        self.assertIn("cannot use the certificate", status("--certificate", self.directory + "/none.pem").stderr)
        both = self.directory + "/both.pem"
        with open(both, "w") as out:
            out.write(pathlib.Path(client).read_text() + pathlib.Path(client_key).read_text())
        self.assertEqual(status("--certificate", both).returncode, 0, status("--certificate", both).stderr)
        self.assertEqual(running.stop(), 0)

    def test_what_cannot_run_says_why(self):
        path = self.directory + "/bad.yaml"
        with open(path, "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: many}\n")
        bad = program.run("run", path)
        self.assertEqual(bad.returncode, 3)
        self.assertIn("bad.yaml:3:", bad.stderr)
        with open(path, "w") as out:
            out.write("version: 1\nbulkheads:\n  db: {max_concurrent: 2}\ncontrol: {listen: '0.0.0.0:0'}\n")
        self.assertIn(program.run("run", path).returncode, (1, 3))
        self.assertEqual(program.run("run", self.directory + "/none.yaml").returncode, 1, "as bulkhead check")


if __name__ == "__main__":
    program.main()
