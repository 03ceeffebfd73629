#include "journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <system_error>
#include <utility>

#include "bulkhead/detail/mutex.h"
#include "json_text.h"

namespace bulkhead::control {
namespace json = boost::json;

WallTime wall_time(TimePoint time, Clock& clock) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::system_clock::now() +
                                                       (time - clock.now()));
}

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

// False also if the answer is unknown: then writing goes on in the open file.
bool is_elsewhere(int file, const std::string& path) noexcept {
  struct stat open{}, there{};
  if (::fstat(file, &open) != 0) return false;
  if (::stat(path.c_str(), &there) != 0) return errno == ENOENT;
  return open.st_ino != there.st_ino || open.st_dev != there.st_dev;
}

void add_times(json::object& o, const JournalEntry& entry) {
  if (!entry.automatic) return;
  o["began"] = unix_seconds(entry.began);
  o["ended"] = entry.ended == WallTime{} ? json::value() : json::value(unix_seconds(entry.ended));
  o["peak"] = std::round(entry.peak * 1000) / 1000;
}

}  // namespace

json::object JournalEntry::event() const {
  json::object o{{"id", id},       {"time", unix_seconds(at)},
                 {"kind", kind},   {"bulkhead", bulkhead},
                 {"actor", actor}, {"text", text}};
  add_times(o, *this);
  return o;
}

json::object JournalEntry::audited() const {
  json::object o{{"id", id},           {"time", unix_seconds(at)}, {"at", rfc3339(at)}, {"actor", actor},
                 {"role", role},       {"transport", transport},   {"kind", kind},      {"action", action},
                 {"target", bulkhead}, {"before", before},         {"after", after},    {"reason", reason},
                 {"ttl", nullptr},     {"result", result},         {"text", text},      {"request", request}};
  if (ttl_s > 0) o["ttl"] = ttl_s;
  add_times(o, *this);
  return o;
}

json::object JournalEntry::all() const {
  json::object o = event();
  if (!audit) return o;
  for (auto& field : audited())
    if (field.key() != "target") o.emplace(field.key(), std::move(field.value()));
  return o;
}

json::array events_json(const std::vector<JournalEntry>& entries) {
  json::array events;
  for (const JournalEntry& entry : entries) events.push_back(entry.event());
  return events;
}

Journal::Journal(const std::string& audit_file, Tell tell) : path_(audit_file), tell_(std::move(tell)) {
  if (audit_file.empty()) return;
  file_ = open_to_append(path_);
  if (file_ < 0)
    throw std::system_error(errno, std::generic_category(),
                            "control: cannot open audit_file \"" + audit_file + '"');
  // Ends a line that a killed process has left incomplete.
  char last = '\n';
  const off_t size = ::lseek(file_, 0, SEEK_END);
  if (size > 0 && ::pread(file_, &last, 1, size - 1) == 1 && last != '\n') [[maybe_unused]]
    const auto ended = ::write(file_, "\n", 1);
}

Journal::~Journal() {
  if (file_ >= 0) ::close(file_);
}

bool Journal::write(const JournalEntry& entry, bool to_disk) {
  if (file_ < 0 || !(entry.audit || entry.automatic)) return true;
  astray_ = 0;
  if (is_elsewhere(file_, path_)) {  // rotated
    if (const int fresh = open_to_append(path_); fresh >= 0)
      ::close(std::exchange(file_, fresh));
    else
      astray_ = errno;
  }
  const std::string line = (torn_ ? "\n" : "") + text_of(entry.audited()) + '\n';
  // One write per line: with O_APPEND lines do not mix, and an incomplete one ends before the next.
  errno = ENOSPC;  // if the write is short
  const ssize_t n = ::write(file_, line.data(), line.size());
  const bool whole = n == static_cast<ssize_t>(line.size());
  if (n > 0) torn_ = !whole;
  if (!whole) return false;
  return !to_disk || ::fdatasync(file_) == 0 || errno == EINVAL;  // EINVAL: a pipe or a terminal has no disk
}

void Journal::keep(JournalEntry entry, bool to_disk) {
  entry.id = ++last_id_;
  entry.at = std::chrono::system_clock::now();
  const Ring kind = ring_of(entry);
  const bool skipped = file_ >= 0 && !fits_file(entry);
  const bool written = skipped || write(entry, to_disk);
  const int why = errno;
  try {
    if (tell_) tell_(text_of(entry.all()));
  } catch (...) {  // a listener that throws does not stop the others
  }
  const bool to_file = (entry.audit || entry.automatic) && !skipped;
  lost_ += !written;
  auto& ring = rings_[kind];
  ring.push_back(std::move(entry));
  if (ring.size() > kKept[kind]) ring.pop_front();
  if (!to_file) return;
  const std::string what = "audit_file \"" + path_ + '"';
  // Each is reported once, not for every line.
  if (const int astray = astray_; (astray != 0) != reported_astray_) {
    reported_astray_ = astray != 0;
    keep({.kind = "error",
          .text = astray == 0
                      ? what + " is there again"
                      : what + " was moved and cannot be made again, lines go on into the moved file: " +
                            std::generic_category().message(astray)},
         false);
  }
  if (written != unwritten_) return;
  unwritten_ = !written;
  keep({.kind = "error",
        .text = written ? what + " is written again"
                        : what + " cannot be written, lines are missing there: " +
                              std::generic_category().message(why)},
       false);
}

void Journal::add(JournalEntry entry) {
  detail::MutexLock lock(mutex_);
  const bool to_disk = !entry.automatic;  // what happened by itself need not survive a power failure
  keep(std::move(entry), to_disk);
}

Journal::Ring Journal::ring_of(const JournalEntry& entry) noexcept {
  return entry.kind == "denied" ? kDenials : entry.automatic ? kAutomatic : kOthers;
}

bool Journal::fits_file(const JournalEntry& entry) {
  const Ring ring = ring_of(entry);
  if (ring == kOthers) return true;
  if (in_file_[ring] < kFilePerHour) return ++in_file_[ring], true;
  ++not_in_file_[ring];
  return false;
}

// A fixed window of one second: a client that is denied in a loop must not fill memory or disk.
void Journal::deny(JournalEntry entry) {
  detail::MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - denial_second_ >= std::chrono::seconds(1)) {
    denial_second_ = now;
    denials_ = 0;
  }
  if (++denials_ > kDenialsPerSecond) {
    ++suppressed_;
    return;
  }
  entry.kind = "denied";
  entry.result = "denied";
  entry.audit = true;
  keep(std::move(entry), false);
}

// What was left out is counted in one entry, so that the log shows that it is incomplete.
void Journal::report_suppressed() {
  detail::MutexLock lock(mutex_);
  if (const auto now = std::chrono::steady_clock::now(); now - file_hour_ >= std::chrono::hours(1)) {
    file_hour_ = now;
    in_file_ = {};
    const auto missing = std::exchange(not_in_file_, {});
    if (missing[kDenials] > 0)
      keep({.kind = "denied",
            .text = std::to_string(missing[kDenials]) + " denials of the last hour are not in this file",
            .audit = true,
            .result = "denied"},
           false);
    if (missing[kAutomatic] > 0)
      keep({.kind = "note",
            .text = std::to_string(missing[kAutomatic]) +
                    " automatic events of the last hour are not in the audit file",
            .audit = true},
           false);
  }
  if (suppressed_ == 0) return;
  keep({.kind = "denied",
        .text = std::to_string(std::exchange(suppressed_, 0)) + " more requests were denied",
        .audit = true,
        .result = "denied"},
       false);
}

std::vector<JournalEntry> Journal::list(const Filter& filter) const {
  detail::MutexLock lock(mutex_);
  std::vector<JournalEntry> found;
  // The rings are read backwards, the highest id first. Denials are listed in the audit log only.
  std::array<std::deque<JournalEntry>::const_reverse_iterator, kRings> at;
  for (std::size_t r = 0; r < kRings; ++r) at[r] = rings_[r].rbegin();
  (filter.audit_only ? at[kAutomatic] : at[kDenials]) =
      rings_[filter.audit_only ? kAutomatic : kDenials].rend();
  while (found.size() < filter.newest) {
    std::size_t next = kRings;
    for (std::size_t r = 0; r < kRings; ++r)
      if (at[r] != rings_[r].rend() && (next == kRings || at[r]->id > at[next]->id)) next = r;
    if (next == kRings || at[next]->id <= filter.after) break;
    const JournalEntry& entry = *at[next]++;
    if (!filter.audit_only || entry.audit) found.push_back(entry);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::uint64_t Journal::lost() const noexcept {
  detail::MutexLock lock(mutex_);
  return lost_;
}

std::uint64_t Journal::last_id() const noexcept {
  detail::MutexLock lock(mutex_);
  return last_id_;
}

}  // namespace bulkhead::control
