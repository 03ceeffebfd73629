#include "loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "nginx.h"

namespace bulkhead::nginx {
namespace {

struct Loop {
  LoopHandlers handlers{};
  std::thread::id thread;
  ngx_event_t timer{}, posted{}, ticks{};
  ngx_connection_t* wakes = nullptr;
  // Of wakes. It stays open until the process ends: the threads of others may wake the loop while it ends.
  std::atomic<int> wake_fd{-1};
};
Loop the_loop;

void on_timer(ngx_event_t*) { the_loop.handlers.ring(); }
void on_posted(ngx_event_t*) { the_loop.handlers.run(); }
void on_tick(ngx_event_t*) { the_loop.handlers.tick(); }

// nginx calls the read handler of an idle connection with `close` set when the worker is to leave.
void on_wake(ngx_event_t* event) {
  auto* const connection = static_cast<ngx_connection_t*>(event->data);
  if (connection->close) {
    connection->close = 0;
    connection->idle = 0;
    the_loop.handlers.leaving();
    return;
  }
  std::uint64_t count = 0;
  while (::read(connection->fd, &count, sizeof count) > 0) {
  }
  the_loop.handlers.run();
}

}  // namespace

bool start_loop(void* cycle_of, const LoopHandlers& handlers) {
  auto* const cycle = static_cast<ngx_cycle_t*>(cycle_of);
  the_loop.handlers = handlers;
  the_loop.thread = std::this_thread::get_id();
  the_loop.timer.handler = on_timer;
  the_loop.posted.handler = on_posted;
  the_loop.ticks.handler = on_tick;
  the_loop.ticks.cancelable = 1;
  the_loop.timer.log = the_loop.posted.log = the_loop.ticks.log = cycle->log;
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno, "bulkhead: eventfd() failed");
    return false;
  }
  ngx_connection_t* const connection = ngx_get_connection(fd, cycle->log);
  if (!connection) {
    ::close(fd);
    return false;
  }
  connection->read->handler = on_wake;
  connection->read->log = connection->write->log = cycle->log;
  connection->idle = 1;  // so that on_wake() is called when the worker is to leave
  // Watched only for reading, and read until it is empty, as edge-triggered epoll requires.
  ngx_uint_t flags = NGX_LEVEL_EVENT;
  if (ngx_event_flags & NGX_USE_CLEAR_EVENT) flags = NGX_CLEAR_EVENT;
  if (ngx_add_event(connection->read, NGX_READ_EVENT, flags) != NGX_OK) {
    ngx_close_connection(connection);
    return false;
  }
  the_loop.wakes = connection;
  the_loop.wake_fd = fd;
  return true;
}

void end_loop() noexcept {
  if (!the_loop.wakes) return;
  ngx_connection_t* const connection = std::exchange(the_loop.wakes, nullptr);
  ngx_del_event(connection->read, NGX_READ_EVENT, 0);
  if (connection->read->posted) {
    ngx_delete_posted_event(connection->read);  // a macro of several statements
  }
  ngx_free_connection(connection);
  connection->fd = -1;  // nginx has no open connection left
}

bool on_loop() noexcept { return std::this_thread::get_id() == the_loop.thread; }

void ring_at(TimePoint at) noexcept {
  // Deleted first: nginx leaves a timer that is set as it is, if the new time is within 300 ms of the old one.
  if (the_loop.timer.timer_set) ngx_del_timer(&the_loop.timer);
  if (at == no_deadline) return;
  // Rounded up: nginx counts in milliseconds, and an alarm that rings early would have to be set again.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - std::chrono::steady_clock::now());
  const auto ms = std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 24 * 3600 * 1000);
  ngx_add_timer(&the_loop.timer, static_cast<ngx_msec_t>(ms));
}

void tick_in(std::chrono::milliseconds time) noexcept {
  ngx_add_timer(&the_loop.ticks, static_cast<ngx_msec_t>(time.count()));
}

void post() noexcept { ngx_post_event(&the_loop.posted, &ngx_posted_events); }

void wake() noexcept {
  const std::uint64_t one = 1;
  const int fd = the_loop.wake_fd;
  if (fd >= 0 && ::write(fd, &one, sizeof one) < 0) {
    // EAGAIN: the counter is full, so the loop is about to wake up anyway.
  }
}

}  // namespace bulkhead::nginx
