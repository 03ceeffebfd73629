#include "connection_holder.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::httplib {

ConnectionHolder::ConnectionHolder() : thread_([this] { loop(); }) {}

ConnectionHolder::~ConnectionHolder() {
  {
    const detail::MutexLock lock(mutex_);
    ending_ = true;
  }
  earlier_.notify_one();
  thread_.join();
  for (const auto& [until, held] : held_) answer(held);
}

void ConnectionHolder::hold(int socket, std::string response, TimePoint until) noexcept {
  Held held{socket, std::move(response)};
  bool first = false;
  try {
    std::multimap<TimePoint, Held> one;
    one.emplace(until, std::move(held));
    const detail::MutexLock lock(mutex_);
    const auto place = held_.insert(one.extract(one.begin()));
    first = place == held_.begin();
  } catch (const std::bad_alloc&) {
    answer(held);
  }
  if (first) earlier_.notify_one();
}

void ConnectionHolder::release() {
  std::multimap<TimePoint, Held> all;
  {
    const detail::MutexLock lock(mutex_);
    all.swap(held_);
  }
  for (const auto& [until, held] : all) answer(held);
}

// Does not wait: a rejection is small, and a client whose buffer is full has not read earlier responses. Bytes that the
// client has sent are read and discarded, because a connection that is closed with unread bytes is reset, and the client
// may lose the response.
void ConnectionHolder::answer(const Held& held) noexcept {
  ::send(held.socket, held.response.data(), held.response.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(held.socket, SHUT_WR);
  char unread[4096];
  for (int i = 0; i < 256 && ::recv(held.socket, unread, sizeof unread, MSG_DONTWAIT) > 0; ++i) {
  }
  ::close(held.socket);
}

// Answers without the lock, because writing to a socket may take long.
void ConnectionHolder::loop() {
  std::vector<Held> due;
  detail::UniqueLock lock(mutex_);
  while (!ending_) {
    if (held_.empty()) {
      earlier_.wait(lock);
      continue;
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (const TimePoint first = held_.begin()->first; now < first) {
      earlier_.wait_until(lock, first);
      continue;
    }
    const auto end = held_.upper_bound(now);
    for (auto i = held_.begin(); i != end; ++i) due.push_back(std::move(i->second));
    held_.erase(held_.begin(), end);
    lock.unlock();
    for (const Held& held : due) answer(held);
    due.clear();
    lock.lock();
  }
}

}  // namespace bulkhead::httplib
