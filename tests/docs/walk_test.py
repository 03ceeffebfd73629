#!/usr/bin/env python3
"""Every station of the walks in docs/design/index.md exists: `FILE: FUNCTION` names a file and a function that it declares or
defines, further functions of the same file follow as `, `FUNCTION``, and no walk visits a function twice."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = r"~?[A-Za-z_]\w*(?:::~?\w+)*"
STATION = re.compile(rf"`([\w/.-]+\.(?:h|cc)): ({NAME})`((?:, `{NAME}`)*)")
NOT_A_TYPE = re.compile(r"\b(return|co_return|co_await|else|throw|new|delete|case|if|while|for)\b")


def walks_of(page):
    """(title, [(file, function)]) of each section with a numbered list; a list item may continue on further lines."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        items = re.findall(r"^\d+\. .*(?:\n   .*)*", text, re.M)
        stations = [(file, name) for item in items for file, first, more in STATION.findall(item)
                    for name in [first, *re.findall(NAME, more)]]
        if stations:
            yield title, stations


def declares(source, function):
    """Whether a line of `source` declares or defines the function: types, then its name and a parenthesis."""
    source = re.sub(r"\[\[.*?\]\] ?", "", source)  # attributes
    *scopes, name = function.split("::")
    for match in re.finditer(rf"^([^\n(]*?)((?:\w+(?:<[\w, ]*>)?::)*)({re.escape(name)})\(", source, re.M):
        before, scope, _ = match.groups()
        if re.search(r"[=.{;!?\"/]|->|<<|\|\||&&", before) or NOT_A_TYPE.search(before):
            continue  # a call
        if not before.strip() and not scope and name not in scopes:
            continue  # a call, as a statement
        inner = scopes[-1] if scopes else None
        if not inner or inner in scope.split("::") or re.search(rf"\b(?:class|struct)\b[^;{{]*\b{inner}\b", source):
            return True
    return False


def wrong_in(page, read):
    wrong = []
    for title, stations in walks_of(page):
        for number, (file, function) in enumerate(stations):
            if (file, function) in stations[:number]:
                wrong.append(f"{title}: {file}: {function} is visited twice")
            elif (source := read(file)) is None:
                wrong.append(f"{title}: there is no file {file}")
            elif not declares(source, function):
                wrong.append(f"{title}: {file} has no function {function}")
    return wrong


def read(file):
    path = ROOT / file
    return path.read_text() if path.is_file() else None


def self_test():
    source = "class A {\n  int f(int x) const;\n};\nint A::g() {\n  return f(h());\n}\nvoid B::k() {\n  go();\n}\n"
    sources = {"a.cc": source}
    for station, expected in {"a.cc: A::f": "", "a.cc: A::g": "", "a.cc: B::k": "", "a.cc: B::g": "has no function", "a.cc: h": "has no function",
                              "a.cc: go": "has no function", "b.cc: f": "no file"}.items():
        found = wrong_in(f"## A call\n\n1. `{station}`: text\n", sources.get)
        assert (expected in found[0]) if expected else not found, (station, found)
    assert wrong_in("## A call\n\n1. `a.cc: A::f`, `A::g`\n2. `a.cc: A::f`\n", sources.get) == ["A call: a.cc: A::f is visited twice"]


def main():
    self_test()
    page = (ROOT / "docs/design/index.md").read_text()
    walks = dict(walks_of(page))
    wrong = wrong_in(page, read)
    for title in ("A call", "A line of YAML", "A REST override", "A lease", "A scrape"):
        if len(walks.get(title, [])) < 10:
            wrong.append(f"{title}: {len(walks.get(title, []))} stations, at least 10 expected")
    print("\n".join(wrong) or f"{sum(map(len, walks.values()))} stations, all of them exist")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
