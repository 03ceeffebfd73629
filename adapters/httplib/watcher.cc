#include "watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

#include "bulkhead/detail/mutex.h"

namespace bulkhead::httplib {
namespace {

// For poll(): -1, for ever.
int milliseconds_until(TimePoint until) {
  if (until == no_deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace

Watcher::Watcher() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "httplib::Server: eventfd");
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (...) {
    ::close(wake_);
    throw;
  }
}

Watcher::~Watcher() {
  {
    const detail::MutexLock lock(mutex_);
    ending_ = true;
  }
  wake();
  thread_.join();
  ::close(wake_);
}

Watcher::Watch::Watch(Watcher& watcher, int socket, std::stop_source stop, TimePoint until)
    : watcher_(watcher), socket_(socket) {
  {
    const detail::MutexLock lock(watcher_.mutex_);
    watcher_.watched_.insert_or_assign(socket_, Watched{std::move(stop), until});
  }
  watcher_.wake();
}

Watcher::Watch::~Watch() {
  const detail::MutexLock lock(watcher_.mutex_);
  watcher_.watched_.erase(socket_);  // the thread may still poll it once, and finds it gone from here
}

void Watcher::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

void Watcher::loop() {
  std::vector<pollfd> fds;
  for (;;) {
    fds.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
    TimePoint first = no_deadline;
    {
      const detail::MutexLock lock(mutex_);
      if (ending_) return;
      for (const auto& [socket, watched] : watched_) {
        fds.push_back({.fd = socket, .events = POLLRDHUP, .revents = 0});
        first = std::min(first, watched.until);
      }
    }
    ::poll(fds.data(), fds.size(), milliseconds_until(first));
    std::uint64_t ignored = 0;
    while (::read(wake_, &ignored, sizeof ignored) > 0) {
    }
    std::vector<std::stop_source> over;
    {
      const detail::MutexLock lock(mutex_);
      for (std::size_t i = 1; i < fds.size(); ++i)
        if (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) {
          // The number may be another connection's by now: ask again, now that it cannot change.
          const auto found = watched_.find(fds[i].fd);
          pollfd again{.fd = fds[i].fd, .events = POLLRDHUP, .revents = 0};
          if (found == watched_.end() || ::poll(&again, 1, 0) <= 0) continue;
          over.push_back(std::move(found->second.stop));
          watched_.erase(found);
        }
      const TimePoint now = first == no_deadline ? TimePoint{} : std::chrono::steady_clock::now();
      for (auto i = watched_.begin(); i != watched_.end();)
        if (i->second.until <= now) {
          over.push_back(std::move(i->second.stop));
          i = watched_.erase(i);
        } else {
          ++i;
        }
    }
    for (std::stop_source& stop : over) stop.request_stop();
  }
}

}  // namespace bulkhead::httplib
