#!/usr/bin/env python3
"""What the design pages name in backticks exists: every identifier occurs in the sources, and `Type::member` in a file that has the type.
A page that keeps the name of a member after a rename sends its reader to nothing."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("include", "src", "adapters", "control", "app", "bench", "examples", "tests", "cmake", "scripts", "packaging", "ops")
ENDINGS = (".h", ".cc", ".c", ".py", ".js", ".mjs", ".txt", ".cmake", ".in", ".yml", ".yaml", ".json", ".lua", ".html")

# Names of other systems, and of what was considered and not built.
ELSEWHERE = {"AuthMetadataProcessor", "ResourceQuota", "LoadCredential", "ARGS", "gtest_filter", "ngx_notify", "strace", "min_share"}


def spans_of(page):
    """(line, span) of each `span` outside code blocks."""
    page = re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), page, flags=re.S | re.M)
    return [(number, span) for number, line in enumerate(page.splitlines(), 1) for span in re.findall(r"`([^`\n]+)`", line)]


def wrong_in(name, page, sources):
    """`sources`: the texts of the files."""
    known = {word for text in sources for word in re.findall(r"[A-Za-z_]\w*", text)}
    for number, span in spans_of(page):
        for word in re.findall(r"(?<![\w/.-])[A-Za-z_]\w{2,}(?![\w/-])", re.sub(r"[\w/-]+\.(?:cc|h)\b|[\w/-]+/[\w/-]+", "", span)):
            if word not in known and word not in ELSEWHERE:
                yield f"{name}:{number}: `{span}`: no source has {word}"
        if (member := re.match(r"([A-Z]\w+)::~?(\w+)", span)) and member[1] not in ELSEWHERE:
            type_of = re.compile(rf"\b(?:class|struct|enum|using)\b[^;{{=]*\b{member[1]}\b|\b{member[1]}(?:<[\w, ]*>)?::")
            if not any(re.search(rf"\b{member[2]}\b", re.sub("//.*", "", text)) for text in sources if type_of.search(text)):
                yield f"{name}:{number}: `{span}`: no file that has {member[1]} has {member[2]}"


def self_test():
    sources = ["class Door {\n  void open();\n  bool shut_;\n};\n", "int window() { return pane; }\n"]
    page = "`Door::open`, `shut_`\n```\n`nothing`\n```\n`a/b.cc`, `window()`\n`Door::pane`\n`well_`\n"
    assert list(wrong_in("p", page, sources)) == ["p:6: `Door::pane`: no file that has Door has pane", "p:7: `well_`: no source has well_"]


def main():
    self_test()
    sources = [file.read_text(errors="replace") for room in ROOMS for file in sorted((ROOT / room).rglob("*"))
               if file.is_file() and (file.suffix in ENDINGS or room == "scripts") and "node_modules" not in file.parts and file.name != "names_test.py"]
    pages = sorted((ROOT / "docs/design").glob("*.md"))
    spans = sum(len(spans_of(page.read_text())) for page in pages)
    wrong = [line for page in pages for line in wrong_in(page.name, page.read_text(), sources)]
    if spans < 1000:
        wrong.append(f"only {spans} names found")
    print("\n".join(wrong) or f"{spans} names of {len(pages)} pages, all of them exist")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
