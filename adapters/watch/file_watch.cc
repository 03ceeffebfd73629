#include "file_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::watch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSigns = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE |
                                 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// Where the way to a file leads: each directory, and the names in it that decide.
using Way = std::map<std::string, std::set<std::string>>;

// Step by step, because each step may be a link that is exchanged later. What does not exist yet is waited for where it
// will be.
Way way_to(const fs::path& path) {
  Way way;
  std::error_code error;
  fs::path at = "/";
  std::list<fs::path> rest;
  for (const fs::path& part : fs::absolute(path, error).relative_path()) rest.push_back(part);
  for (int links = 0; !rest.empty();) {
    const fs::path part = rest.front();
    rest.pop_front();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      at = at.parent_path();
      continue;
    }
    const fs::path next = at / part;
    const fs::file_status is = fs::symlink_status(next, error);
    if (fs::is_symlink(is) && ++links <= 40) {
      way[at.string()].insert(part.string());
      const fs::path target = fs::read_symlink(next, error);
      if (target.is_absolute()) at = "/";
      auto before = rest.begin();
      for (const fs::path& step : target.relative_path()) rest.insert(before, step);
      continue;
    }
    if (rest.empty() || !fs::is_directory(is)) {
      way[at.string()].insert(part.string());
      break;
    }
    at = next;
  }
  return way;
}

// A descriptor for as long as this lives.
struct Descriptor {
  explicit Descriptor(int its_number) : number(its_number) {}
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int number;
};

// What is there instead of a file; empty: a file, or nothing.
std::string_view not_a_file(const struct stat& there) {
  if (S_ISREG(there.st_mode)) return "";
  if (S_ISDIR(there.st_mode)) return "is a directory";
  if (S_ISFIFO(there.st_mode)) return "is a FIFO";
  if (S_ISSOCK(there.st_mode)) return "is a socket";
  return "is a device";
}

std::string_view not_a_file(const std::string& path) {
  struct stat there{};
  return ::stat(path.c_str(), &there) == 0 ? not_a_file(there) : "";
}

// Of what the file says; nothing: it cannot be read, or is no file. Without O_NONBLOCK a FIFO would be waited for.
std::optional<std::uint64_t> content_of(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat there{};
  if (file.number < 0 || ::fstat(file.number, &there) != 0 || !not_a_file(there).empty()) return std::nullopt;
  std::uint64_t hash = base::kEmptyHash;
  char block[4096];
  for (ssize_t n; (n = ::read(file.number, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    hash = base::hash_of({block, static_cast<std::size_t>(n)}, hash);
  }
  return hash;
}

std::string contents_of(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// mountinfo writes a space as \040, and so on.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t n) {
      return i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7';
    };
    if (text[i] == '\\' && digit(1) && digit(2) && digit(3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

const FileWatchOptions& checked(const FileWatchOptions& o) {
  const auto wrong = [&](const char* what) {
    throw std::invalid_argument("watch of \"" + o.path + "\": " + what);
  };
  if (o.path.empty()) wrong("path is empty: give the file's");
  if (const std::string_view kind = not_a_file(o.path); !kind.empty())
    wrong((std::string(kind) + ": give a regular file, or leave out the watch").c_str());
  if (!o.on_change) wrong("on_change is empty: say what to do");
  if (o.debounce.count() < 0) wrong("debounce is negative: give 0 or more");
  if (o.poll.count() <= 0) wrong("poll is not positive: give more than 0");
  if (o.tick.count() <= 0) wrong("tick is not positive: give more than 0");
  return o;
}

}  // namespace

bool is_own_mount(const std::string& path, std::string_view mountinfo) {
  std::error_code error;
  const fs::path file = fs::weakly_canonical(path, error);
  if (error || fs::is_directory(file, error)) return false;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, mount_point;
    if (fields >> id >> parent >> device >> root >> mount_point && unescaped(mount_point) == file.string())
      return true;
  }
  return false;
}

class FileWatch::Impl {
 public:
  explicit Impl(FileWatchOptions options)
      : options_(checked(options)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        notify_(options_.notify ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1) {
    if (options_.notify && notify_.number < 0) problem_ = std::string("inotify: ") + std::strerror(errno);
    // Without it, neither poke() nor the destructor could wake the thread.
    if (wake_.number < 0) throw std::system_error(errno, std::generic_category(), "watch: eventfd");
    if (is_own_mount(options_.path, contents_of("/proc/self/mountinfo")))
      warning_ =
          options_.path +
          " is a mount of its own, as a ConfigMap mounted by subPath is: it is never updated; mount the "
          "directory instead";
    // Before the first look, so that nothing comes in between.
    follow();
    content_ = content_of(options_.path);
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() {
    stopping_.store(true);
    ring();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void poke() noexcept {
    poked_.store(true);
    ring();
  }

  FileWatchStatus status() const {
    const detail::MutexLock lock(mutex_);
    FileWatchStatus s{.directories = {},
                      .problem = not_a_file_.empty() ? problem_ : not_a_file_,
                      .warning = warning_,
                      .changes = changes_,
                      .looks = looks_};
    for (const auto& [directory, names] : way_) s.directories.push_back(directory);
    if (notify_.number < 0) s.directories.clear();
    return s;
  }

 private:
  void ring() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = write(wake_.number, &one, sizeof one);
  }

  // Watches the way as it is now. Again if it has changed meanwhile: a link may be exchanged between look and watch.
  void follow() {
    Way way = way_to(options_.path);
    std::string problem;
    {
      const detail::MutexLock lock(mutex_);
      problem = problem_;
    }
    for (int tries = 0; notify_.number >= 0 && tries < 10; ++tries) {
      std::map<int, std::set<std::string>> watched;
      problem.clear();
      for (const auto& [directory, names] : way) {
        const int id = inotify_add_watch(notify_.number, directory.c_str(), kSigns);
        if (id < 0)
          problem = directory + ": " + std::strerror(errno);
        else
          watched[id].insert(names.begin(), names.end());
      }
      for (const auto& [id, names] : watched_)
        if (!watched.contains(id)) inotify_rm_watch(notify_.number, id);
      watched_ = std::move(watched);
      Way again = way_to(options_.path);
      if (again == way) break;
      way = std::move(again);
    }
    const detail::MutexLock lock(mutex_);
    way_ = std::move(way);
    problem_ = std::move(problem);
  }

  // Whether something happened that may concern the file.
  bool read_signs() {
    alignas(inotify_event) char buffer[16 * 1024];
    bool concerned = false;
    for (ssize_t n; (n = read(notify_.number, buffer, sizeof buffer)) > 0;)
      for (const char* at = buffer; at < buffer + n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        at += sizeof *event + event->len;
        if (event->mask & (IN_Q_OVERFLOW | IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) concerned = true;
        const auto names = watched_.find(event->wd);
        if (event->len > 0 && names != watched_.end() && names->second.contains(event->name))
          concerned = true;
      }
    return concerned;
  }

  void look(bool whatever) {
    if (options_.notify) follow();
    const auto content = content_of(options_.path);
    const std::string_view kind = not_a_file(options_.path);
    const bool changed = content != content_ || whatever;
    {
      const detail::MutexLock lock(mutex_);
      ++looks_;
      changes_ += changed;
      not_a_file_ = kind.empty() ? "" : options_.path + " " + std::string(kind) + ", not a file";
    }
    content_ = content;
    if (changed) options_.on_change();
  }

  // A look follows the last sign by `debounce`, at most four times that after the first, and comes every `poll` in any
  // case.
  void run() {
    Clock::time_point next_look = saturating_add(Clock::now(), options_.poll),
                      next_tick = saturating_add(Clock::now(), options_.tick);
    auto first_sign = Clock::time_point::max();
    while (!stopping_.load()) {
      const Clock::time_point next = options_.on_tick ? std::min(next_look, next_tick) : next_look;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      pollfd fds[2] = {{.fd = wake_.number, .events = POLLIN, .revents = 0},
                       {.fd = notify_.number, .events = POLLIN, .revents = 0}};
      poll(fds, notify_.number >= 0 ? 2 : 1, static_cast<int>(std::clamp<long long>(left, 0, 3'600'000)));
      if (fds[0].revents) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto n = read(wake_.number, &count, sizeof count);
      }
      const Clock::time_point now = Clock::now();
      if (fds[1].revents && read_signs()) {
        first_sign = std::min(first_sign, now);
        next_look = std::min(now + options_.debounce, first_sign + 4 * options_.debounce);
      }
      const bool poked = poked_.exchange(false);
      if (stopping_.load()) break;
      if (poked || now >= next_look) {
        first_sign = Clock::time_point::max();
        next_look = saturating_add(now, options_.poll);
        look(poked);
      }
      if (options_.on_tick && now >= next_tick) {
        next_tick = saturating_add(now, options_.tick);
        options_.on_tick();
      }
    }
  }

  const FileWatchOptions options_;
  const Descriptor wake_, notify_;  // notify_: -1 if nothing notifies
  std::string warning_;             // the constructor's
  std::atomic<bool> stopping_{false}, poked_{false};
  // The watch's own thread, and the constructor before it.
  std::map<int, std::set<std::string>> watched_;  // names that matter, by the number of the watch
  std::optional<std::uint64_t> content_;

  mutable detail::StdMutex mutex_;
  Way way_ BULKHEAD_GUARDED_BY(mutex_);
  std::string problem_ BULKHEAD_GUARDED_BY(mutex_), not_a_file_ BULKHEAD_GUARDED_BY(mutex_);
  std::uint64_t changes_ BULKHEAD_GUARDED_BY(mutex_) = 0, looks_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

FileWatch::FileWatch(FileWatchOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
FileWatch::~FileWatch() = default;
void FileWatch::poke() noexcept { impl_->poke(); }
FileWatchStatus FileWatch::status() const { return impl_->status(); }

}  // namespace bulkhead::watch
