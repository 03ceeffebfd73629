#include "app/cli/json_lines.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::cli {

JsonLines::~JsonLines() {
  using Clock = std::chrono::steady_clock;
  for (const auto until = Clock::now() + std::chrono::seconds(1); Clock::now() < until;)
    if (!write_some(100)) return;
}

void JsonLines::add(std::string_view line) {
  const detail::MutexLock lock(mutex_);
  if (waiting_.size() + line.size() > kMost) {
    ++lost_;
    return;
  }
  if (lost_ > 0) waiting_ += fmt::format("{{\"kind\":\"lost\",\"lines\":{}}}\n", std::exchange(lost_, 0));
  waiting_.append(line) += '\n';
}

void JsonLines::flush() {
  while (write_some(0)) {
  }
}

bool JsonLines::write_some(int wait_ms) {
  std::string part;
  {
    const detail::MutexLock lock(mutex_);
    part = waiting_.substr(0, PIPE_BUF);
  }
  if (part.empty()) return false;
  // A pipe that can be written to takes that much at once: this cannot block.
  pollfd one{fd_, POLLOUT, 0};
  if (::poll(&one, 1, wait_ms) <= 0) return wait_ms > 0;
  const ssize_t written = ::write(fd_, part.data(), part.size());
  const bool gone = written < 0 && errno != EINTR && errno != EAGAIN;
  const detail::MutexLock lock(mutex_);
  waiting_.erase(0, gone ? waiting_.size() : static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  return !gone;
}

}  // namespace bulkhead::cli
