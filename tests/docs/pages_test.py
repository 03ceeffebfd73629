#!/usr/bin/env python3
"""The shape of the pages that a stranger reads first: README is short and links what is in the box, a design page opens with a picture
of its types and a summary, and CONTRIBUTING and the map name every room, adapter, label and lane that exists, and docs/index.md
links every page."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def folders(path):
    return sorted(f.name for f in (ROOT / path).iterdir() if f.is_dir())


def wrong_readme(text):
    if len(text.splitlines()) > 120:
        yield f"README.md: {len(text.splitlines())} lines, at most 120"
    box = text.partition("## What is in the box\n")[2].partition("\n\n[")[0]
    rows = re.findall(r"^\| ([^|\s][^|]*?) \|", box, re.M)
    if len(rows) != 10:
        yield f"README.md: {len(rows)} rows in the box, ten expected"
    yield from (f"README.md: no link: {row}" for row in rows if not row.startswith("["))


def wrong_design(name, text):
    opening, _, rest = text.partition("\n## Summary\n")
    if "\n```\n" not in opening:
        yield f"{name}: no picture of the types before the summary"
    if "\n## " in opening or not rest:
        yield f"{name}: its first section is not the summary"
    points = re.findall(r"^- ", rest.partition("\n## ")[0], re.M)
    if not 4 <= len(points) <= 12:
        yield f"{name}: {len(points)} points in the summary, 4 to 12 expected"


def unnamed(page, text, kind, names):
    return [f"{page} does not name the {kind} {name}" for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def unlinked(index, pages):
    """The pages that docs/index.md, the first page, does not link."""
    links = set(re.findall(r"\]\(([^)#]+)", index))
    return [f"docs/index.md does not link {page}" for page in pages if page not in links | {"index.md"}]


def labels():
    files = [f for f in ROOT.rglob("CMakeLists.txt") if not {"build", "examples"} & set(f.relative_to(ROOT).parts)] + [ROOT / "cmake/rooms.cmake"]
    return sorted({label for f in files for label in re.findall(r"\bLABELS? ([a-z]+)\b", f.read_text())} - {"is"})


def self_test():
    assert list(wrong_design("a.md", "# A\n\n```\nx\n```\n\n## Summary\n\n- a\n- b\n- c\n- d\n")) == []
    assert len(list(wrong_design("a.md", "# A\n\n## Parts\n\n## Summary\n\n- a\n"))) == 3
    box = "## What is in the box\n\n| | |\n|---|---|\n" + "| [A](a) | b |\n" * 10 + "\n[All]"
    assert list(wrong_readme(box)) == []
    assert len(list(wrong_readme(box.replace("[A](a)", "A", 1) + "\n" * 120))) == 2
    assert unlinked("[a](a.md), [b](c/b.md#d)", ["index.md", "a.md", "c/b.md", "b.md"]) == ["docs/index.md does not link b.md"]
    assert unnamed("p", "`gate`, asan-gcc", "room", ["gate", "asan"]) == ["p does not name the room asan"]


def main():
    self_test()
    contributing, index = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "docs/design/index.md").read_text()
    wrong = list(wrong_readme((ROOT / "README.md").read_text()))
    for page in sorted((ROOT / "docs/design").glob("*.md")):
        if page.name != "index.md":
            wrong += wrong_design(f"docs/design/{page.name}", page.read_text())
    docs = ROOT / "docs"
    wrong += unlinked((docs / "index.md").read_text(), sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md")))
    for name, page in (("CONTRIBUTING.md", contributing), ("docs/design/index.md", index)):
        wrong += unnamed(name, page, "room", folders("src")) + unnamed(name, page, "adapter", folders("adapters"))
    wrong += unnamed("docs/design/index.md", index, "part of app", folders("app"))
    wrong += unnamed("CONTRIBUTING.md", contributing, "label", labels())
    wrong += unnamed("CONTRIBUTING.md", contributing, "lane", re.findall(r"^lane_([\w-]+)\(\)", (ROOT / ".ci/run").read_text(), re.M))
    print("\n".join(wrong) or "all pages are in shape")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
