#include <fmt/format.h>

#include "app/config/commands.h"
#include "app/config/reasons.h"
#include "app/config/words.h"
#include "app/gateway/gateway.h"
#include "config/lint.h"

namespace bulkhead::config {
namespace {

constexpr std::string_view kIntroduction = R"(# The configuration file

<!-- Made by `bulkhead explain --markdown` from the settings table; a test compares the two. Change src/config/settings.cc and policy_settings.cc instead. -->

For people who write or review the configuration file of a service. After reading this page you can write the file, check it, and look up every
setting, lint rule and rejection reason.

The file defines the bulkheads. [`examples/bulkhead.yaml`](../../examples/bulkhead.yaml) is a commented example; the shortest file:

```yaml
version: 1
bulkheads:
  payments:
    max_concurrent: 20
```

`bulkhead check FILE` reports all errors of a file at once; `bulkhead explain SETTING` describes a setting. For completion in an editor, start the
file with `# yaml-language-server: $schema=bulkhead.schema.json`; [the schema](bulkhead.schema.json) is also what
`bulkhead explain --schema` prints.

## Rules

The file is YAML or JSON. Its rules are strict, so that no value can be misread:

- A key given twice, a setting that does not exist, or one that has no effect where it stands is an error.
- Durations and sizes have units: `250ms`, `1m30s`, `64KiB`. Shares are `20%` or `0.2`.
- `true` and `false` are the only switches; `yes`, `no`, `on`, `off` are errors, and so are numbers such as `010`.
- No anchors, aliases, merge keys and tags: what bulkheads have in common is a `type`. One document, UTF-8 without a byte order mark, 1 MiB and 32
  levels at most.
- Names begin with a letter and consist of letters, digits, `-` and `_`.

A bulkhead with a `type` starts as a copy of the type; its own settings replace single ones, also inside `breaker`, `rate_limit`, `budgets`, `adaptive`, `holdback` and `pool`,
and `breaker: none` removes the breaker. The types `database` (20 at once, 50 in line, 5 s of waiting), `external-api` (10, 20, 10 s) and `cache` (50, 100,
1 s) are built in and can be redefined.

A problem is reported as `file:line:column: path: problem`, with the line, a caret and a hint:

```
bulkhead.yaml:5:15: bulkheads.payments.max_wait: "200" has no unit
        max_wait: 200
                  ^
  hint: write 200s or 200ms; units are ns, us, ms, s, m, h, d
```

`bulkhead check --json` gives the same as `{"file", "ok", "strict", "errors", "warnings", "problems": [{"severity", "line", "column", "path", "message",
"hint", "rule", "source"}], "series"}`. Exit codes: 0 good, 1 the file cannot be read, 2 wrong usage, 3 errors (with `--strict` also warnings).

`series` is the number of series of one scrape of `/metrics` with these bulkheads. `check` prints it, and warns above 10 000.

## The environment

A variable replaces a value of the file. Its name is `BULKHEAD_`, then the path in capitals, with `__` for each dot and `_` for `-`. So `BULKHEAD_CONTROL__LISTEN=127.0.0.1:9999` is `control.listen`, and
`BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE=5` is `bulkheads.external-api.max_queue`. Values are read and checked as in the file. A variable cannot set
a list, add a name, or set a value that the file does not have, except for the control plane. `bulkhead env FILE` lists the possible variables with their present values. A `BULKHEAD_`
variable that names no setting is an error, except `BULKHEAD_ADMIN`, `BULKHEAD_TOKEN`, `BULKHEAD_CERTIFICATE` and the variables that Kubernetes creates for a service called bulkhead.

From weak to strong: default, type, file, environment, command line (`--listen`, `--unix-socket`), override at run time.

In the tables, *live* settings take effect when the file is reloaded; the others need a restart.
)";

// A | would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) c == '|' ? escaped += "\\|" : escaped += c;
  return escaped;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", cell(text)); }

std::string table(const Section& section, std::span<const SettingRow> rows) {
  std::string text = "\n| setting | values | default | live | |\n|---|---|---|---|---|\n";
  for (const SettingRow& row : rows) {
    const std::string standard_text = row.required ? "required" : code(standard(row, section));
    text += fmt::format("| `{}` | {} | {} | {} | {} Example: `{}` |\n", row.name, cell(values_words(row)),
                        standard_text, row.live ? "yes" : "restart", cell(row.says), cell(row.example));
  }
  return text;
}

void add_sections(std::string& text, const std::string& prefix, const Section& section) {
  for (const SettingRow& row : section.rows) {
    if (row.kind != Kind::section && row.kind != Kind::map) continue;
    const std::string name = std::string(row.name) + (row.kind == Kind::map ? ".NAME" : "");
    const std::string path = prefix.empty() ? name : prefix + "." + name;
    text +=
        fmt::format("\n### `{}`\n\n{}\n{}", path, row.section->says, table(*row.section, row.section->rows));
    add_sections(text, path, *row.section);
  }
}

}  // namespace

// Made of the settings table only, so that docs/formats/config.md cannot differ from what is accepted.
std::string markdown_text() {
  std::string text(kIntroduction);
  const Section& root = gateway::root();
  text += "\n## The file\n" + table(root, root.rows);
  text += fmt::format("\n## Bulkhead settings\n\nIn each of `types`, `bulkheads` and `tenants`.\n{}",
                      table(common_section(), common_section().rows));
  add_sections(text, "", common_section());
  for (const SettingRow& row : root.rows) {
    if (!row.section || row.section->rows.empty()) continue;
    const bool map = row.kind == Kind::map;
    text += fmt::format("\n## `{}{}`\n\n{}{}\n{}", row.name, map ? ".NAME" : "", row.section->says,
                        row.section->base ? " Beside the bulkhead settings above:" : "",
                        table(*row.section, row.section->rows));
    add_sections(text, std::string(row.name) + (map ? ".NAME" : ""), *row.section);
  }
  text +=
      "\n## Lint rules\n\n`bulkhead check` warns of values that are allowed but known to cause trouble. "
      "`lint_allow: [rule]` in a bulkhead, a group, a "
      "resource or at\nthe top turns a rule off there.\n\n| rule | finds | why it matters | fix "
      "|\n|---|---|---|---|\n";
  for (const Rule& r : rules())
    text += fmt::format("| `{}` | {} | {} | {} |\n", r.name, cell(r.what), cell(r.why), cell(r.fix));
  text +=
      "\n## Reasons\n\nWhy a call is rejected: the same words in code, metrics, logs and HTTP.\n\n| reason | "
      "means | what to do |\n|---|---|---|\n";
  for (const ReasonText& r : reasons())
    text += fmt::format("| `{}` | {} | {} |\n", to_string(r.reason), cell(r.means), cell(r.what_to_do));
  return text;
}

}  // namespace bulkhead::config
