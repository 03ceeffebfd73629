#include "journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <system_error>
#include <utility>

#include "message.h"

namespace bulkhead::control {
namespace json = boost::json;

double unix_seconds(WallTime time) noexcept {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return static_cast<double>(ms) / 1000;
}

std::string rfc3339(WallTime time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(ms % 1000));
  return text;
}

namespace {

int open_to_append(const std::string& path) noexcept {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
}

// False also if nobody can tell: then what is open is written to.
bool is_elsewhere(int file, const std::string& path) noexcept {
  struct stat open{}, there{};
  if (::fstat(file, &open) != 0) return false;
  if (::stat(path.c_str(), &there) != 0) return errno == ENOENT;
  return open.st_ino != there.st_ino || open.st_dev != there.st_dev;
}

}  // namespace

json::object Entry::event() const {
  return {{"id", id},    {"time", unix_seconds(at)}, {"kind", kind}, {"bulkhead", bulkhead}, {"actor", actor},
          {"text", text}};
}

json::object Entry::audited() const {
  json::object o{{"id", id},           {"time", unix_seconds(at)}, {"at", rfc3339(at)}, {"actor", actor},
                 {"role", role},       {"transport", transport},   {"kind", kind},      {"action", action},
                 {"target", bulkhead}, {"before", before},         {"after", after},    {"reason", reason},
                 {"ttl", nullptr},     {"result", result},         {"text", text},      {"request", request}};
  if (ttl_s > 0) o["ttl"] = ttl_s;
  return o;
}

json::object Entry::all() const {
  json::object o = event();
  if (!audit) return o;
  for (auto& field : audited())
    if (field.key() != "target") o.emplace(field.key(), std::move(field.value()));
  return o;
}

Journal::Journal(const std::string& audit_file, Tell tell) : path_(audit_file), tell_(std::move(tell)) {
  if (audit_file.empty()) return;
  file_ = open_to_append(path_);
  if (file_ < 0)
    throw std::system_error(errno, std::generic_category(),
                            "control: cannot open audit_file \"" + audit_file + '"');
  // A line that the end of another process has torn off stays one line.
  char last = '\n';
  const off_t size = ::lseek(file_, 0, SEEK_END);
  if (size > 0 && ::pread(file_, &last, 1, size - 1) == 1 && last != '\n') [[maybe_unused]]
    const auto ended = ::write(file_, "\n", 1);
}

Journal::~Journal() {
  if (file_ >= 0) ::close(file_);
}

bool Journal::write(const Entry& entry, bool to_disk) {
  if (file_ < 0 || !entry.audit) return true;
  if (is_elsewhere(file_, path_)) {  // rotated
    if (const int fresh = open_to_append(path_); fresh >= 0) ::close(std::exchange(file_, fresh));
  }
  const std::string line = (unwritten_ ? "\n" : "") + text_of(entry.audited()) + '\n';
  // One write for one line: with O_APPEND lines do not mix, and one that is torn off ends before the next.
  errno = ENOSPC;  // of a write that comes to an end halfway
  if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return false;
  if (to_disk) ::fdatasync(file_);
  return true;
}

void Journal::keep(Entry entry, bool to_disk) {
  entry.id = ++last_id_;
  entry.at = std::chrono::system_clock::now();
  const bool written = write(entry, to_disk);
  const int why = errno;
  try {
    if (tell_) tell_(text_of(entry.all()));
  } catch (...) {  // whoever listens cannot keep others from knowing
  }
  const bool audited = entry.audit;
  entries_.push_back(std::move(entry));
  if (entries_.size() > kKept) entries_.pop_front();
  if (!audited || written != unwritten_) return;
  unwritten_ = !written;  // told once, not for every line
  const std::string what = "audit_file \"" + path_ + '"';
  keep({.kind = "error",
        .text = written ? what + " is written again"
                        : what + " cannot be written, lines are missing there: " +
                              std::generic_category().message(why)},
       false);
}

void Journal::add(Entry entry) {
  std::lock_guard lock(mutex_);
  keep(std::move(entry), true);
}

void Journal::deny(Entry entry) {
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - denial_second_ >= std::chrono::seconds(1)) {
    denial_second_ = now;
    denials_ = 0;
  }
  if (++denials_ > kDenialsPerSecond) {
    ++suppressed_;
    return;
  }
  if (suppressed_ > 0)
    entry.text += " (and " + std::to_string(std::exchange(suppressed_, 0)) + " more before it)";
  entry.kind = "denied";
  entry.result = "denied";
  entry.audit = true;
  keep(std::move(entry), false);
}

std::vector<Entry> Journal::list(const Filter& filter) const {
  std::lock_guard lock(mutex_);
  std::vector<Entry> found;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && found.size() < filter.limit; ++entry) {
    if (entry->id <= filter.after) break;
    // A denial is the auditor's business, and would drown the events.
    if (filter.audit_only ? entry->audit : entry->kind != "denied") found.push_back(*entry);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::uint64_t Journal::last_id() const noexcept {
  std::lock_guard lock(mutex_);
  return last_id_;
}

}  // namespace bulkhead::control
