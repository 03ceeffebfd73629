// file_watch.h - calls a function when the content of a file has changed, however it was replaced.
//
//   bulkhead::watch::FileWatch watch({.path = "/etc/shop/bulkhead.yaml", .on_change = [&] { live.reload("watch"); }});
//   std::signal(SIGHUP, [](int) { the_watch->poke(); });
//
// Written in place, replaced by a rename (editors, deployment), or by a swap of a symbolic link on the way to it
// (Kubernetes' ConfigMaps): the directories of all of these are watched, not the file, because a watch of a file ends when
// the file is replaced. Where the system reports nothing (network file systems), a periodic look finds the change.
//
// Threads: one of its own, on which the functions are called, one at a time. They may call poke(), and must not destroy
//   the watch, whose destructor waits for them.
// Promises: on_change comes once the file has been quiet for `debounce` (at most four times as long after the first sign),
//   and only if its content differs from when on_change came last, or from the beginning. A file that is gone is a change, too.
// Not promised: that a file which is a mount of its own ever changes. A ConfigMap that is mounted by `subPath` is one, and
//   Kubernetes does not update it; status().warning says so.
// Cost: asleep until something happens in those directories, or it is time for a tick or a look.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::watch {

struct FileWatchOptions {
  std::string path{};
  std::function<void()> on_change{};
  std::chrono::milliseconds debounce{250};
  std::chrono::milliseconds poll{30'000};  // between looks that nothing called for
  std::function<void()> on_tick{};         // about every `tick`, for what else has to be done now and then
  std::chrono::milliseconds tick{1'000};
  bool notify = true;  // false: only looks
};

struct FileWatchStatus {
  std::vector<std::string> directories;  // that are watched now
  // Why some are not, so that only looks help; or that the path no longer leads to a file; empty: none.
  std::string problem;
  std::string warning;  // why the file may never change, although all is well here; empty: it may
  std::uint64_t changes = 0, looks = 0;
};

// Whether a file is a mount of its own, by the text of /proc/self/mountinfo.
bool is_own_mount(const std::string& path, std::string_view mountinfo);

class FileWatch {
 public:
  // std::invalid_argument naming the option, also if the path is no regular file (a FIFO, a directory, a device). One that
  // does not exist yet is waited for. std::system_error: no thread or no file descriptor for it. Where only inotify has none,
  // status().problem says so, and looks find changes.
  explicit FileWatch(FileWatchOptions options);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // on_change comes soon, whatever the file says. May be called from a signal handler.
  void poke() noexcept;
  FileWatchStatus status() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bulkhead::watch
