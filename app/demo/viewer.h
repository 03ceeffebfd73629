// viewer.h - how a running demo is shown: a live table in a terminal, lines elsewhere, or not at all.
#pragma once

#include <chrono>
#include <memory>

#include "app/cli/text.h"
#include "app/demo/scene.h"

namespace bulkhead::demo {

class Viewer {
 public:
  virtual ~Viewer() = default;
  virtual void show(const Scene& scene) = 0;
  // Until the next scene; false when the user has quit.
  virtual bool pause(std::chrono::milliseconds at_most);
};

std::unique_ptr<Viewer> live_table(int fd, const cli::Style& style);
std::unique_ptr<Viewer> plain_lines(int fd);    // one line a second, no escape sequences
std::unique_ptr<Viewer> progress_line(int fd);  // one line that is redrawn and wiped at the end
std::unique_ptr<Viewer> no_viewer();

// The text of the live table, as wide as `columns` allows.
std::string table_text(const cli::Style& style, const Scene& scene, std::size_t columns);

}  // namespace bulkhead::demo
