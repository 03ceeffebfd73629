#include "app/run/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bulkhead::run {

bool sd_notify(std::string_view state) noexcept {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (!path || (path[0] != '/' && path[0] != '@')) return false;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof to.sun_path) return false;
  std::memcpy(to.sun_path, path, length);
  if (path[0] == '@') to.sun_path[0] = '\0';  // Linux's own name space of sockets
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent =
      ::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), size);
  ::close(fd);
  return sent == static_cast<ssize_t>(state.size());
}

bool sd_notify_reloading() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  char text[80];
  const int size = std::snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
                                 static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000);
  return sd_notify({text, static_cast<std::size_t>(size)});
}

}  // namespace bulkhead::run
