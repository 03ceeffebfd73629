// run.h - `bulkhead run FILE`: the bulkheads of a file as a process, with its control plane.
#pragma once

#include <string>
#include <string_view>

namespace bulkhead::run {

struct RunOptions {
  std::string file{};
  std::string listen{}, unix_socket{};  // instead of the file's
  double grace = 0;                     // seconds between SIGTERM and the end, in which /readyz answers 503
  bool no_watch = false;                // reload the file only on request
  bool gateway = false;                 // the file has one: run nginx, too; or there is a board
  std::string board{};                  // of an nginx that runs already
  bool json = false;                    // lines of JSON on standard output instead of sentences
};

// The exit code: 0 after SIGTERM or SIGINT, 3 if the file is not valid, 1 if it cannot run.
int run_file(const RunOptions& options, std::string_view version);

// What the audit file says about a run that did not end by itself: its overrides are gone. "" if it ended well.
std::string explain_last_run(const std::string& audit_file);

}  // namespace bulkhead::run
