#include "watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace bulkhead::httplib {

Watcher::Watcher() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  ::close(wake_);
}

Watcher::Watch::Watch(Watcher& watcher, int socket, std::stop_source stop)
    : watcher_(watcher), socket_(socket) {
  {
    const std::lock_guard lock(watcher_.mutex_);
    watcher_.watched_.insert_or_assign(socket_, std::move(stop));
    if (!watcher_.thread_.joinable()) watcher_.thread_ = std::thread([&w = watcher_] { w.loop(); });
  }
  watcher_.wake();
}

Watcher::Watch::~Watch() {
  const std::lock_guard lock(watcher_.mutex_);
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
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      for (const auto& [socket, stop] : watched_)
        fds.push_back({.fd = socket, .events = POLLRDHUP, .revents = 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    std::uint64_t ignored = 0;
    while (::read(wake_, &ignored, sizeof ignored) > 0) {
    }
    std::vector<std::stop_source> gone;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = 1; i < fds.size(); ++i) {
        if (!(fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR))) continue;
        const auto found = watched_.find(fds[i].fd);
        if (found == watched_.end()) continue;
        // The number may be another connection's by now: ask again, now that it cannot change.
        pollfd again{.fd = found->first, .events = POLLRDHUP, .revents = 0};
        if (::poll(&again, 1, 0) <= 0) continue;
        gone.push_back(std::move(found->second));
        watched_.erase(found);
      }
    }
    for (std::stop_source& stop : gone) stop.request_stop();
  }
}

}  // namespace bulkhead::httplib
