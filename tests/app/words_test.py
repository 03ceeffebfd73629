"""One word for each thing: the names and texts of the settings, the metrics, the REST interface, the command line, the manual page, the dashboard,
the headers and the pages of docs/ keep to the table below."""
import html
import json
import pathlib
import re
import unittest

import program
from servers import Case, Running

# The thing; the word for it; what it must not be called. A name is a setting, a property, an enum value or a metric; each of its parts counts
# (of a metric called a_b_c: a, b and c). A text is a description, a help text or an error message of one of these.
TABLE = [
    # thing, word, names that are wrong, parts of names that are wrong, texts that are wrong
    ("most calls at once", "max_concurrent", ["limit", "configured_limit", "max_concurrency", "concurrency"], [], r"\bcalls at once at most\b"),
    ("calls running now", "in_flight", ["active", "running"], [], r"\bactive (call|request)"),
    ("most calls in line; calls in line now", "max_queue; waiting", ["queue", "queue_limit", "queue_size"], ["pending", "inqueue"], r"\bpending\b"),
    ("longest wait in line", "max_wait; timeout", [], ["queue_timeout"], r"\bqueue[_ ]timeout\b"),
    ("longest run of a call", "execution_timeout", ["timeout"], [], r"\bexecution timeout\b"),
    ("said no", "reject", [], ["refuse", "refused", "refusal", "deny"], r"\b(refus\w*|turn(s|ed)? away)\b"),
    ("drained for maintenance", "draining", [], [], r"\b(shut ?down for|new calls .*\bshutdown)\b"),
    ("what a pool of things lends", "resource", [], ["thing", "things"], r"\bthings?\b"),
    ("a temporary change by an operator", "override", ["clamp"], ["clamp"], r"\bclamp\w*\b"),
    # Prose that needs a second reading.
    ("a number", "the number", [], [], r"\bso many\b"),
    ("a person", "name the subject", [], ["beyond"], r"\b(whoever|nobody|told of|of today|in vain)\b"),
]

# Where a word means something else, or a common name of other systems is kept: (what it is, name).
ALLOWED = {
    ("setting", "timeout"): "of the algorithm aimd, which compares with the published one",
    ("setting", "queue_size"): "of the algorithm gradient2: calls that queue at the dependency",
    ("metric", "bulkhead_active_calls"): "the usual name of this metric",
    ("metric", "bulkhead_tenant_active_calls"): "as bulkhead_active_calls",
    ("metric", "bulkhead_timeout_total"): "the usual name of this metric",
    ("value", "timeout"): "the reason: a wait",
    ("value", "queue_limit"): "the reason",
}

# Sentences of pages that may say a word of the table's last column: (page, a regular expression that the line must match, why).
ALLOWED_LINES = [
    ("CONTRIBUTING.md", r"reject, not refuse", "quotes the table"),
    ("CHANGELOG.md", r"[Rr]efus", "lists the old names"),
    ("CHANGELOG.md", r"One word for each thing", "the heading of that list"),
    ("docs/design/asio.md", r"a pending (``|timer)", "Asio's word for an operation that has begun"),
    ("docs/migrate/from-envoy-haproxy.md", r"pending", "Envoy's word"),
    ("docs/how-to/split-a-database-pool.md", r"^ *refused \(", "the operating system's: connection refused"),
    ("docs/design/pool.md", r"`?refused`?", "the name of a flag in src/pool/task_state.h"),
    ("docs/operate/alerts.md", r"Connection refused|refused the connection", "the operating system's"),
]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def wrong_name(kind, name):
    """What the table says against this name, or None."""
    if (kind, name) in ALLOWED:
        return None
    parts = name.lower().split("_")
    for thing, word, names, segments, _ in TABLE:
        if name in names or any(segment in parts or (("_" in segment) and segment in name) for segment in segments):
            return f"{kind} {name}: {thing} is called {word}"
    return None


def wrong_text(where, text):
    for thing, word, _, _, pattern in TABLE:
        if found := re.search(pattern, text, re.IGNORECASE):
            return f"{where}: \"{found.group()}\" in \"{text}\": {thing} is called {word}"
    return None


def walk(document, path=""):
    """Names and texts of a JSON Schema or an OpenAPI document, as (kind, name) and (where, text)."""
    names, texts = set(), set()
    if isinstance(document, list):
        for i, item in enumerate(document):
            more = walk(item, f"{path}/{i}")
            names |= more[0]
            texts |= more[1]
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in ("properties", "paths") and isinstance(value, dict):
                names |= {("property" if key == "properties" else "path", part) for name in value for part in name.split("/") if part.isidentifier()}
            if key == "required" and isinstance(value, list):
                names |= {("property", name) for name in value}
            if key == "enum":
                names |= {("value", name) for name in value if isinstance(name, str)}
            if key in ("description", "summary", "title", "markdownDescription") and isinstance(value, str):
                texts.add((path, value))
            more = walk(value, f"{path}/{key}")
            names |= more[0]
            texts |= more[1]
    return names, texts


def commands_of_help():
    return re.findall(r"^  ([a-z]+) {2,}\S", program.run("--help").stdout.split("Try it:")[1], re.M)


def without_code(page):
    """The page with its blocks and spans of code left empty, line by line: code is checked by its own names."""
    page = re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), page, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "``", page)


class Words(Case):
    maxDiff = None

    def check(self, names, texts, at_least):
        self.assertGreater(len(names), at_least[0])
        self.assertGreater(len(texts), at_least[1])
        wrong = [w for kind, name in sorted(names) if (w := wrong_name(kind, name))] + [w for where, text in sorted(texts) if (w := wrong_text(where, text))]
        self.assertEqual(wrong, [])

    def test_settings_keep_to_the_table(self):
        topics = json.loads(program.run("explain", "--json").stdout)["topics"]
        names, texts = set(), set()
        for topic in topics:
            if topic["kind"] == "setting":
                names |= {("setting", part) for path in topic["paths"] for part in path.split(".") if part != "NAME"}
            else:
                names.add(("value" if topic["kind"] == "reason" else "rule", topic["name"]))
            texts |= {(topic.get("path", topic.get("name")), topic[key]) for key in ("says", "why", "fix", "what_to_do", "values") if key in topic}
        self.check(names, texts, (100, 150))

    def test_metrics_keep_to_the_table(self):
        # src/metrics has a test that this table is the catalogue.
        page = (ROOT / "docs/formats/metrics.md").read_text()
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \| (.*) \|$", page, re.MULTILINE)
        names = {("metric", name) for name, *_ in rows} | {("label", label) for _, _, labels, _ in rows for label in labels.split(", ") if label}
        self.check(names, {(name, text) for name, _, _, text in rows}, (100, 100))

    def test_the_interface_keeps_to_the_table(self):
        running = Running(self.directory)
        status, document = running.ask("GET", "/v1/openapi.json")
        self.assertEqual(status, 200)
        self.check(*walk(document), (100, 50))
        self.assertEqual(running.stop(), 0)

    def test_the_command_line_keeps_to_the_table(self):
        names, texts = set(), set()
        commands = commands_of_help()
        self.assertIn("set", commands)
        for command in ([], *([c] for c in commands)):
            page = program.run(*command, "--help").stdout
            names |= {("option", name.replace("-", "_")) for name in re.findall(r"(?<![\w-])--([a-z][\w-]+)", page)}
            texts |= {(" ".join(["bulkhead", *command, "--help"]), line.strip()) for line in page.splitlines() if line.strip()}
        texts |= {("bulkhead man", line) for line in program.run("man").stdout.splitlines() if line and not line.startswith(".")}
        self.check(names, texts, (30, 200))

    def test_the_dashboard_keeps_to_the_table(self):
        texts = set()
        folder = ROOT / "control/web"
        for file in sorted(folder.glob("*.js")):
            source = re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.M)
            literals = re.findall(r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`", source)
            # Texts for people have a blank or begin with a capital; the others are names of the interface, classes and keys.
            texts |= {(file.name, text) for one in literals for text in one if re.search(r"\w \w|^[A-Z]", text)}
        page = (folder / "index.html").read_text()
        texts |= {("index.html", html.unescape(text.strip())) for text in re.findall(r">([^<>{}]*\w[^<>{}]*)<", page)}
        texts |= {("index.html", html.unescape(text)) for text in re.findall(r"(?:title|aria-label|placeholder|content)=\"([^\"]+)\"", page)}
        self.check({("dashboard", "") for _ in texts}, texts, (0, 100))

    def test_the_pages_keep_to_the_table(self):
        texts = set()
        for page in self.pages():
            for number, line in enumerate(without_code(page.read_text()).splitlines(), 1):
                name = str(page.relative_to(ROOT))
                if not any(name == allowed and re.search(pattern, line) for allowed, pattern, _ in ALLOWED_LINES):
                    texts.add((f"{name}:{number}", line))
        self.check({("page", "") for _ in texts}, texts, (0, 1000))

    def test_the_pages_name_commands_that_exist(self):
        commands = set(commands_of_help())
        # A directive of nginx, error texts of find_package and of a compiler.
        other = ("bulkhead off;", "bulkhead has no component", "bulkhead needs C++20")
        spans = [(page, span) for page in self.pages() for span in re.findall(r"`(bulkhead [a-z]+\b[^`\n]*)", page.read_text())]
        self.assertGreater(len(spans), 80)
        wrong = [f"{page.relative_to(ROOT)}: {span}" for page, span in spans if span.split()[1] not in commands and not span.startswith(other)]
        self.assertEqual(wrong, [])
        self.assertEqual(commands - {span.split()[1] for _, span in spans}, set(), "commands that no page names")

    def test_the_headers_keep_to_the_table(self):
        names, texts = set(), set()
        for header in (*sorted((ROOT / "include/bulkhead").glob("*.h")), ROOT / "control/server.h", *sorted((ROOT / "adapters").glob("*/*.h"))):
            if header.stem.endswith("_test"):
                continue
            for number, line in enumerate(header.read_text().splitlines(), 1):
                code, _, comment = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).partition("//")
                # Of identifiers only the parts count: `limit` and `timeout` are good names of an argument.
                names |= {("identifier", f"_{name}") for name in re.findall(r"\b[a-z]\w+\b", code)}
                where = f"{header.relative_to(ROOT)}:{number}"
                if not re.search("connection refused", comment):
                    texts.add((where, re.sub(r"`[^`]*`", "", comment)))
        self.check(names, texts, (1000, 1000))

    def test_the_comments_of_the_sources_name_the_subject(self):
        words = "|".join(pattern for thing, *_, pattern in TABLE if thing in ("said no", "a number", "a person"))
        found, lines = [], 0
        for room in ("src", "adapters", "control", "app", "bench", "examples"):
            for file in sorted(f for ending in ("h", "cc", "js") for f in (ROOT / room).rglob(f"*.{ending}") if not f.stem.endswith("_test")):
                for number, line in enumerate(file.read_text().splitlines(), 1):
                    comment = line.partition("//")[2]
                    lines += bool(comment)
                    if re.search(words, comment, re.IGNORECASE) and not re.search("connection refused", comment, re.IGNORECASE):
                        found.append(f"{file.relative_to(ROOT)}:{number}: {comment}")
        self.assertGreater(lines, 3000)
        self.assertEqual(found, [])

    def test_the_alerts_and_boards_keep_to_the_table(self):
        texts = set()
        for file in sorted((ROOT / "ops").rglob("*")):
            if file.suffix == ".json":
                texts |= {(file.name, text) for text in re.findall(r'"(?:title|description|legendFormat)": "([^"]+)"', file.read_text())}
            elif file.suffix == ".yml":
                texts |= {(file.name, text) for text in re.findall(r"(?:summary|description): (.+)|# (.+)", file.read_text()) for text in text if text}
        self.check({("board", "") for _ in texts}, texts, (0, 60))

    def test_every_page_says_for_whom_it_is(self):
        for page in self.pages():
            if page.is_relative_to(ROOT / "docs"):
                opening = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.S).split("\n\n")[1:3]
                self.assertTrue(any(paragraph.strip().startswith("For ") for paragraph in opening), f"{page}: {opening}")

    def pages(self):
        return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted((ROOT / "docs").rglob("*.md"))]

    def test_a_wrong_word_is_found(self):
        for kind, name in (("setting", "limit"), ("setting", "queue_timeout"), ("property", "queue_limit"), ("property", "timeout"),
                           ("metric", "bulkhead_pg_pending_requests"), ("metric", "bulkhead_resource_things"), ("metric", "bulkhead_tenants_refused_total")):
            self.assertIsNotNone(wrong_name(kind, name), name)
        for text in ("Calls that were refused.", "Calls at once at most.", "Things that were opened.", "So many calls may begin.", "Whoever comes first."):
            self.assertIsNotNone(wrong_text("", text), text)
        names, texts = walk({"properties": {"limit": {"description": "Refuses."}}, "paths": {"/v1/drains/{name}": {}}, "enum": ["drain"], "required": ["queue"]})
        self.assertEqual(names, {("property", "limit"), ("path", "v1"), ("path", "drains"), ("value", "drain"), ("property", "queue")})
        self.assertEqual(texts, {("/properties/limit", "Refuses.")})


if __name__ == "__main__":
    program.main()
