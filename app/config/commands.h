// commands.h - the commands about configuration: check a file, list its variables, explain a word, size a bulkhead, write and
// format a file, show where its values come from.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace bulkhead::config {

// Each adds its command to the program and gives what to run if it was chosen: the exit code.
std::function<int()> add_check(CLI::App& app);
std::function<int()> add_env(CLI::App& app);
std::function<int()> add_explain(CLI::App& app);
std::function<int()> add_size(CLI::App& app);
std::function<int()> add_init(CLI::App& app);
std::function<int()> add_fmt(CLI::App& app);
std::function<int()> add_config(CLI::App& app);

std::string normalised(const std::string& text);  // as bulkhead fmt writes it

std::string schema_text();    // JSON Schema, draft 2020-12
std::string markdown_text();  // docs/formats/config.md

}  // namespace bulkhead::config
