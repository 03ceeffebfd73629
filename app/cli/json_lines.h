// json_lines.h - lines of JSON on standard output while a program runs, for a reader that may be slow, stuck or gone.
//
//   JsonLines out;
//   out.add(R"({"kind":"ready"})");   // from any thread
//   out.flush();                      // now and then, from one thread
//
// Neither waits: what the reader does not take stays, up to a megabyte. Beyond that lines are left out, and a line
// {"kind":"lost","lines":n} stands where they were missing. SIGPIPE is to be ignored. The destructor gives the reader
// one more second.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::cli {

class JsonLines {
 public:
  explicit JsonLines(int fd = 1) noexcept : fd_(fd) {}
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  void add(std::string_view line);  // without its end
  void flush();

 private:
  static constexpr std::size_t kMost = 1024 * 1024;

  // False: nothing is left to write, or the reader has gone.
  bool write_some(int wait_ms);

  const int fd_;
  // Invariants: under mutex_. waiting_ are whole lines, but for the first, of which a part may be written.
  detail::StdMutex mutex_;
  std::string waiting_ BULKHEAD_GUARDED_BY(mutex_);
  std::size_t lost_ BULKHEAD_GUARDED_BY(mutex_) = 0;
};

}  // namespace bulkhead::cli
