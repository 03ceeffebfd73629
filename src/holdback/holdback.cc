#include "bulkhead/holdback.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead {
namespace {

using Fixed = std::uint32_t;
constexpr Fixed kOne = Fixed{1} << 24;
constexpr std::int64_t kReadEvery = 100'000'000;  // ns

// A near miss of a critical call raises the headroom by kRaise (a loss by kLost), every other call lowers it by kDecay. So it
// settles where about one call in 4000 is a critical one that took one of the last places, without a clock.
constexpr Fixed kRaise = kOne / 100, kLost = kOne / 25, kDecay = kRaise / 4000;
constexpr std::uint64_t kLast = 50;  // the last places are a 50th of the room

Fixed fixed(double x) noexcept {
  return x > 0 ? static_cast<Fixed>(std::min(x, 2.0) * kOne) : 0;  // false for NaN
}
double number(Fixed x) { return static_cast<double>(x) / kOne; }

[[noreturn]] void invalid(std::string_view setting, std::string_view problem) {
  base::throw_invalid(base::join({"holdback.", setting, " ", problem}));
}

std::string pressure_file(const std::string& directory, const char* resource) {
  for (const char* ending : {"", ".pressure"}) {
    std::string path = base::join({directory, "/", resource, ending});
    if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
      std::fclose(file);
      return path;
    }
  }
  return {};
}

// The share of the last ten seconds in which some task was stalled; 0 if it cannot be read.
double pressure_of(const std::string& path) noexcept {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (!file) return 0;
  char line[128] = {};
  const bool read = std::fgets(line, sizeof line, file) != nullptr;
  std::fclose(file);
  const std::string_view text(line);
  const std::size_t at = read ? text.find("avg10=") : text.npos;
  double percent = 0;
  if (at == text.npos) return 0;
  std::string_view rest = text.substr(at + 6);
  return base::take_decimal(rest, percent) ? percent / 100 : 0;
}

double call(const std::function<double()>& gauge) noexcept {
#if defined(__cpp_exceptions)
  try {
    return gauge();
  } catch (...) {
    return 0;
  }
#else
  return gauge();
#endif
}

// Each message names the setting and what to give instead.
void check(const HoldbackOptions& o) {
  const auto between = [](double x, double low, double high) { return x >= low && x <= high; };
  if (!between(o.best_effort_from, 0, 1) || o.best_effort_from == 0)
    invalid("best_effort_from", "is not above 0 to 1: give the saturation, such as 0.8");
  if (!between(o.normal_from, 0, 1) || o.normal_from == 0)
    invalid("normal_from", "is not above 0 to 1: give the saturation, such as 0.95");
  if (o.best_effort_from > o.normal_from)
    invalid("best_effort_from", "is above normal_from: best_effort calls are held back first");
  if (!between(o.hysteresis, 0, 0.5)) invalid("hysteresis", "is not 0 to 0.5");
  if (o.max_queue_age.count() < 0)
    invalid("max_queue_age", "is negative: give a duration, or 0 to leave it out");
  for (const auto& [name, most] : {std::pair{"max_cpu_pressure", o.max_cpu_pressure},
                                   {"max_memory_pressure", o.max_memory_pressure},
                                   {"max_io_pressure", o.max_io_pressure}})
    if (!between(most, 0, 1)) invalid(name, "is not 0 to 1: give the share of time, or 0 to leave it out");
}

}  // namespace

// Replaced by update(), read by one call at a time.
struct Holdback::Gauges {
  detail::StdMutex mutex;
  struct Pressure {
    std::string path;
    double most;
  };
  struct Sources {
    std::chrono::nanoseconds max_queue_age{};
    std::vector<Pressure> pressures;
    std::function<double()> gauge;
  };
  Sources sources BULKHEAD_GUARDED_BY(mutex);

  double highest(std::chrono::nanoseconds queue_age) noexcept {
    const detail::MutexLock lock(mutex);
    double most = 0;
    if (sources.max_queue_age.count() > 0)
      most = static_cast<double>(queue_age.count()) / static_cast<double>(sources.max_queue_age.count());
    for (const Pressure& p : sources.pressures) most = std::max(most, pressure_of(p.path) / p.most);
    if (sources.gauge) most = std::max(most, call(sources.gauge));
    return most;
  }
  // A gauge that cannot be read is an error here and not a silent 0 later.
  static Sources sources_of(const HoldbackOptions& o) {
    static constexpr std::string_view kHint =
        "which cannot be read: enable PSI in the kernel, name the directory of a cgroup "
        "(pressure_directory), or leave it out";
    Sources s{.max_queue_age = o.max_queue_age, .pressures = {}, .gauge = o.gauge};
    using Most = std::pair<const char*, double>;
    for (const auto& [resource, most] :
         {Most("cpu", o.max_cpu_pressure), Most("memory", o.max_memory_pressure),
          Most("io", o.max_io_pressure)}) {
      if (most == 0) continue;
      std::string path = pressure_file(o.pressure_directory, resource);
      if (path.empty())
        invalid(base::join({"max_", resource, "_pressure"}),
                base::join({"needs ", o.pressure_directory, "/", resource, " or ", resource,
                            ".pressure there, ", kHint}));
      s.pressures.push_back({std::move(path), most});
    }
    return s;
  }
};

Holdback::Holdback(const HoldbackOptions& options) : gauges_(std::make_unique<Gauges>()) { update(options); }
Holdback::~Holdback() = default;

void Holdback::update(const HoldbackOptions& o) {
  check(o);
  Gauges::Sources sources = Gauges::sources_of(o);
  const bool reads = sources.max_queue_age.count() > 0 || !sources.pressures.empty() || sources.gauge;
  {
    detail::MutexLock lock(gauges_->mutex);
    std::swap(gauges_->sources, sources);
  }
  // Each is read by itself: a call in between may use one old and one new threshold.
  best_effort_from_.store(fixed(o.best_effort_from), std::memory_order_relaxed);
  normal_from_.store(fixed(o.normal_from), std::memory_order_relaxed);
  hysteresis_.store(fixed(o.hysteresis), std::memory_order_relaxed);
  shadow_.store(o.shadow, std::memory_order_relaxed);
  if (!reads) gauge_.store(0, std::memory_order_relaxed);
  read_next_.store(0, std::memory_order_relaxed);
  reads_gauges_.store(reads, std::memory_order_relaxed);
}

// The gate does not know when the first call in line joined it. But every call that joins comes through admits() first, so
// the line was empty when no call waited then, and a call that leaves the line joined before those behind it. A hanging
// dependency lets none leave, and the age grows.
void Holdback::left_line(TimePoint joined) noexcept {
  const std::int64_t t = joined.time_since_epoch().count();
  // Relaxed, also below: an estimate. A lost race leaves it one call older.
  if (t > head_joined_.load(std::memory_order_relaxed)) head_joined_.store(t, std::memory_order_relaxed);
}

// One call at a time; the others use the last reading.
void Holdback::read_gauges(TimePoint now, const HoldbackLoad& load) noexcept {
  std::int64_t joined = head_joined_.load(std::memory_order_relaxed);
  if (load.in_line != (joined != 0))
    head_joined_.store(joined = load.in_line ? now.time_since_epoch().count() : 0, std::memory_order_relaxed);
  std::int64_t next = read_next_.load(std::memory_order_relaxed);
  const std::int64_t t = now.time_since_epoch().count();
  if (t < next || !read_next_.compare_exchange_strong(next, t + kReadEvery, std::memory_order_relaxed))
    return;
  const std::chrono::nanoseconds age(load.in_line ? t - joined : 0);
  gauge_.store(fixed(gauges_->highest(age)), std::memory_order_relaxed);
}

// From 0 at the tier's own threshold to all at the next one.
std::uint32_t Holdback::share(Priority priority, Fixed saturation) const noexcept {
  if (priority == Priority::critical) return 0;
  const Fixed normal = normal_from_.load(std::memory_order_relaxed);
  const bool lowest = priority == Priority::best_effort;
  const Fixed from = lowest ? best_effort_from_.load(std::memory_order_relaxed) : normal;
  const Fixed all = std::max(lowest ? normal : kOne, from);
  if (saturation >= all) return kOne;
  if (saturation <= from) return 0;
  return static_cast<Fixed>((std::uint64_t{saturation} - from) * kOne / (all - from));
}

bool Holdback::admits(Priority priority, const HoldbackLoad& load, TimePoint now) noexcept {
  if (reads_gauges()) read_gauges(now, load);
  const bool critical = priority == Priority::critical;
  Fixed headroom = headroom_.load(std::memory_order_relaxed);
  const bool near_miss =
      critical && load.used + std::max<std::uint64_t>(1, load.room / kLast) >= load.room && load.room > 1;
  // Only if others were admitted since: critical calls that fill the room by themselves need no headroom.
  if (near_miss && others_came_.exchange(false, std::memory_order_relaxed))
    headroom = std::min(headroom + (load.used >= load.room ? kLost : kRaise), kOne);
  else
    headroom -= std::min(headroom, kDecay);
  headroom_.store(headroom, std::memory_order_relaxed);

  const std::uint64_t used = std::min<std::uint64_t>(load.used, load.room);
  const Fixed own = static_cast<Fixed>(used * kOne / std::max<std::uint64_t>(load.room, 1)) + headroom;
  const Fixed seen = std::max(own, gauge_.load(std::memory_order_relaxed));
  // Backlash: the level follows a rise at once, and a fall only when it exceeds the hysteresis.
  Fixed level = level_.load(std::memory_order_relaxed);
  const Fixed slack = seen + hysteresis_.load(std::memory_order_relaxed);
  const Fixed next = std::clamp(level, seen, slack);
  if (next != level) level_.store(level = next, std::memory_order_relaxed);
  if (critical) return true;

  const auto tier = static_cast<std::size_t>(priority);
  if (takes_share(tier, share(priority, level))) {
    held_[tier].fetch_add(1, std::memory_order_relaxed);
    if (!shadow_.load(std::memory_order_relaxed)) return false;
  }
  if (!others_came_.load(std::memory_order_relaxed)) others_came_.store(true, std::memory_order_relaxed);
  return true;
}

bool Holdback::gauges_lead(const HoldbackLoad& load) const noexcept {
  const std::uint64_t used = std::min<std::uint64_t>(load.used, load.room);
  const Fixed own = static_cast<Fixed>(used * kOne / std::max<std::uint64_t>(load.room, 1));
  return gauge_.load(std::memory_order_relaxed) > own;
}

// Spreads the share evenly over the calls, without a random number.
bool Holdback::takes_share(std::size_t tier, Fixed part) noexcept {
  if (part == 0 || part >= kOne) return part != 0;
  const std::uint32_t add = part << 8;
  const std::uint32_t before = owed_[tier].fetch_add(add, std::memory_order_relaxed);
  return static_cast<std::uint32_t>(before + add) < before;  // it wrapped
}

HoldbackSnapshot Holdback::snapshot() const {
  HoldbackSnapshot s;
  const Fixed level = level_.load(std::memory_order_relaxed);
  s.saturation = number(level);
  s.gauges = number(gauge_.load(std::memory_order_relaxed));
  s.headroom = number(headroom_.load(std::memory_order_relaxed));
  s.shadow = shadow_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kPriorities; ++i) {
    s.share[i] = number(share(static_cast<Priority>(i), level));
    s.held[i] = held_[i].load(std::memory_order_relaxed);
  }
  return s;
}

}  // namespace bulkhead
