#!/usr/bin/env python3
"""Compiles every C++ block of README.md and docs/, and the examples of all public headers.

  code_blocks_test.py COMPILER [FLAG...]       run in a build directory; FLAG: -std=..., include paths of third parties

What is compiled:
- each block fenced with ```cpp in README.md and docs/**/*.md;
- each example of a public header: lines that begin with three spaces, in the comment at its top, after an empty line.

How: nothing is run (-fsyntax-only). The blocks of one page continue each other: each is compiled inside the scope of the
blocks before it, so it sees their variables and may use a name again. A block that defines a function or a class stands
at namespace scope instead. #include lines are hoisted; a page includes what it shows and nothing else, so that a
reader can copy it. Headers are compiled together, and each example sees its own header.

What an example assumes (the reader's own functions, types and objects) stands in context/<path with dots>.h for a page, for
example context/docs.index.md.h, and in context/headers.h for all headers. A line `// body of PATH: TYPE` in it gives
the function around the blocks another return type than void: int, or that of a coroutine.

Placeholders: a line with nothing but `...` is left out, and so is `...` between braces: { ... }. Nothing else is.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXT = pathlib.Path(__file__).resolve().parent / "context"
FENCE = re.compile(r"^```cpp\n(.*?)^```", re.S | re.M)
INCLUDE = re.compile(r"^#include .*$", re.M)
USING = re.compile(r"^(?:using namespace std::\w+;|namespace \w+ = .*;)(?: *//.*)?$", re.M)
DEFINITION = re.compile(r"^(?:class|struct|int main|[\w:]*awaitable<.*> \w+\(|[\w:]+::Response \w+\()")


def public_headers():
    adapters = (ROOT / "cmake/install_adapters.cmake").read_text()
    named = re.findall(r"^bulkhead_install_adapter\((\w+) HEADERS ([\w./ ]+?)(?= [A-Z]|\)|\n)", adapters, re.M)
    core = sorted(h for h in (ROOT / "include/bulkhead").glob("*.h") if "extern \"C\"" not in h.read_text())  # C has tests of its own
    folder = {name: ROOT / "adapters" / name for name, _ in named} | {"control": ROOT / "control"}
    return core + [folder[name] / file for name, files in named for file in files.split() if "/" not in file]


def blocks_of_page(text):
    return [(text.count("\n", 0, m.start()) + 2, m.group(1)) for m in FENCE.finditer(text)]


def blocks_of_header(text):
    """Runs of lines with an indented comment that follow an empty comment line."""
    blocks, before = [], ""
    for number, line in enumerate(text.split("#pragma once")[0].splitlines(), 1):
        if line.startswith("//   "):
            if before == "//":
                blocks.append((number, ""))
            if before == "//" or (blocks and before.startswith("//   ") and number == blocks[-1][0] + blocks[-1][1].count("\n")):
                blocks[-1] = (blocks[-1][0], blocks[-1][1] + line[5:] + "\n")
        before = line
    return blocks


def without_placeholders(code):
    code = re.sub(r"^ *\.\.\. *(//.*)?$", "", code, flags=re.M)
    return re.sub(r"\{ *\.\.\. *\}", "{ }", code)


class Source:
    """A page or a header, as C++."""

    def __init__(self, path, number):
        self.name = str(path.relative_to(ROOT))
        text = path.read_text()
        self.is_page = path.suffix == ".md"
        self.blocks = blocks_of_page(text) if self.is_page else blocks_of_header(text)
        context = CONTEXT / (self.name.replace("/", ".") + ".h" if self.is_page else "headers.h")
        self.context = context if context.exists() else None
        self.number = number

    def body(self):
        found = self.context and re.search(rf"^// body of {re.escape(self.name)}: (.*)$", self.context.read_text(), re.M)
        return found.group(1) if found else "void"

    def includes(self):
        lines = INCLUDE.findall(self.context.read_text()) if self.context else []
        lines += [line for _, code in self.blocks for line in INCLUDE.findall(code)]
        if not self.is_page:
            lines += [f'#include "bulkhead/{self.name.removeprefix("include/bulkhead/")}"']
        return lines

    def code(self):
        """Its blocks, in a namespace of their own."""
        top, body, depth, usings = [], [], 0, []
        for line, code in self.blocks:
            code = without_placeholders(INCLUDE.sub("", code))
            place = f'#line {line} "{self.name}"\n'
            usings += USING.findall(code)
            code = USING.sub("", code)
            if DEFINITION.match(code.lstrip()):
                top.append(place + code)
            else:
                body.append("{\n" + place + code)
                depth += 1
        result = self.body()
        end = "co_return;" if "awaitable" in result or "Coroutine" in result else "return 0;" if result == "int" else ""
        own = ["using namespace std::chrono_literals;", "using namespace context;"] if not self.is_page else [self.assumed()]
        return "\n".join([f"namespace doc_{self.number} {{", *usings, *own, *top, f"{result} body() {{", *body, "}" * depth,
                          end, "}", "}"])

    def assumed(self):
        return f'#line 1 "{self.context}"\n{INCLUDE.sub("", self.context.read_text())}' if self.context else ""


def compile_all(command, name, sources):
    """What the compiler has to say about them; empty: nothing."""
    text = "\n".join(dict.fromkeys(line for s in sources for line in s.includes())) + "\n"
    if not sources[0].is_page:
        text += "namespace context {\n" + sources[0].assumed() + "\n}\n"
    text += "\n".join(s.code() for s in sources) + "\n"
    file = pathlib.Path("docs_code") / f"{name}.cc"
    file.write_text(text)
    run = subprocess.run([*command, str(file)], capture_output=True, text=True)
    return run.stderr if run.returncode else ""


def include_tree():
    """The headers where an installation has them."""
    tree = pathlib.Path("docs_code/include/bulkhead").absolute()
    tree.mkdir(parents=True, exist_ok=True)
    for target in [*(ROOT / "include/bulkhead").iterdir(), ROOT / "adapters", ROOT / "control"]:
        link = tree / target.name
        if not link.exists():
            link.symlink_to(target)
    return tree.parent


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    command = [sys.argv[1], "-fsyntax-only", "-I", str(include_tree()), "-I", str(ROOT), "-Werror=unused-result", *sys.argv[2:]]
    pages = [Source(p, i) for i, p in enumerate([ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])]
    headers = [Source(h, i) for i, h in enumerate(public_headers(), len(pages))]
    pages = [p for p in pages if p.blocks]
    silent = [h.name for h in headers if not h.blocks]
    if silent:
        sys.exit(f"no example in the comment at the top of {', '.join(silent)}")
    known = {s.context for s in pages + headers}
    unused = [c.name for c in CONTEXT.iterdir() if c not in known]
    if unused:
        sys.exit(f"nothing needs context/{', '.join(unused)}")
    units = {p.name.replace("/", "."): [p] for p in pages}
    units["headers"] = headers
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda unit: compile_all(command, *unit), units.items()))
    for text in filter(None, said):
        print(text, file=sys.stderr)
    count = sum(len(s.blocks) for s in pages + headers)
    print(f"{count} blocks of {len(pages)} pages and {len(headers)} headers, {len(list(filter(None, said)))} of {len(units)} units wrong")
    sys.exit(any(said))


main()
