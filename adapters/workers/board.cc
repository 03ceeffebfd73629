#include "adapters/workers/board.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "adapters/workers/codec.h"
#include "registry/tenants.h"

namespace bulkhead::workers {
namespace {

constexpr std::size_t kRoom = std::size_t{1} << 20;  // of one worker's numbers
constexpr std::size_t kOrdersRoom = std::size_t{256} << 10;
constexpr std::uint64_t kMagic = 0x4472'616f'4268'6c42;  // "BlhBoarD"

// When a process began, in ticks since the machine did: a process id alone may be used again. 0: unknown.
std::uint64_t start_of(pid_t pid) noexcept {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  // The name of the program, in parentheses, may have spaces; the start is the 20th word after it.
  const char* at = std::strrchr(text, ')');
  for (int word = 0; at && word < 20; ++word) at = std::strchr(at + 1, ' ');
  unsigned long long start = 0;
  return at && std::sscanf(at, "%llu", &start) == 1 ? start : 0;
}

bool lives(pid_t pid, std::uint64_t start) noexcept {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  const std::uint64_t now = start_of(pid);
  return now == 0 || start == 0 || now == start;
}

// Two copies, so that a process that dies while it writes one leaves the other whole.
template <std::size_t Room>
struct Pages {
  std::uint32_t current;
  std::uint32_t size[2];
  char bytes[2][Room];

  void write(std::string_view text) noexcept {
    const std::uint32_t next = 1 - (current & 1);
    std::memcpy(bytes[next], text.data(), text.size());
    size[next] = static_cast<std::uint32_t>(text.size());
    std::atomic_ref(current).store(next, std::memory_order_release);
  }
  std::string_view read() const noexcept {
    const std::uint32_t at = current & 1;
    return {bytes[at], std::min<std::size_t>(size[at], Room)};
  }
};

void end_state(BulkheadSnapshot& s) noexcept {
  Snapshot& g = s.gate;
  g.in_flight = g.waiting = g.permits = 0;
  g.released = g.admitted;  // a killed worker's calls have ended, though it did not say how
  g.waiting_by_priority = {};
  g.max_concurrent = g.max_queue = 0;
  g.oldest_hold.reset();
  s.over_limit = 0;
}

void add(std::optional<BreakerSnapshot>& sum, const std::optional<BreakerSnapshot>& one) {
  if (!one) return;
  if (!sum) {
    sum = one;
    return;
  }
  const auto rank = [](const BreakerSnapshot& b) {  // the most serious state is shown
    return b.state == BreakerState::open ? 2 : b.state == BreakerState::half_open ? 1 : 0;
  };
  BreakerSnapshot added = rank(*one) > rank(*sum) ? *one : *sum;
  added.generation = sum->generation + one->generation;
  added.calls = sum->calls + one->calls;
  added.failures = sum->failures + one->failures;
  added.slow = sum->slow + one->slow;
  added.probes_in_flight = sum->probes_in_flight + one->probes_in_flight;
  added.opens = sum->opens + one->opens;
  for (std::size_t i = 0; i < added.entered.size(); ++i) added.entered[i] = sum->entered[i] + one->entered[i];
  added.rejected = sum->rejected + one->rejected;
  added.late = sum->late + one->late;
  added.hook_errors = sum->hook_errors + one->hook_errors;
  added.above_threshold = sum->above_threshold || one->above_threshold;
  added.next_probe = std::min(sum->next_probe, one->next_probe);
  sum = added;
}

// Each worker decides by its own saturation: the highest is shown.
void add(std::optional<HoldbackSnapshot>& sum, const std::optional<HoldbackSnapshot>& one) {
  if (!sum || !one) {
    if (!sum) sum = one;
    return;
  }
  auto held = one->held;
  for (std::size_t i = 0; i < kPriorities; ++i) held[i] += sum->held[i];
  if (one->saturation > sum->saturation) sum = one;
  sum->held = held;
}

void add(RegistrySnapshot::Entry& sum, const RegistrySnapshot::Entry& one) {
  registry::fold(sum.now, one.now);
  const std::uint32_t limit = sum.now.gate.max_concurrent;
  registry::fold_state(sum.now, one.now);
  // With scope: host they share one limit.
  if (one.configured.scope != Scope::process)
    sum.now.gate.max_concurrent = std::max(limit, one.now.gate.max_concurrent);
  sum.now.enabled = one.now.enabled;
  sum.now.gate.closed = one.now.gate.closed;
  sum.now.gate.mean_hold = std::max(sum.now.gate.mean_hold, one.now.gate.mean_hold);
  add(sum.now.breaker, one.now.breaker);
  if (!sum.now.adaptive) sum.now.adaptive = one.now.adaptive;
  add(sum.now.holdback, one.now.holdback);
  if (!sum.now.rate_limit) {
    sum.now.rate_limit = one.now.rate_limit;
  } else if (one.now.rate_limit) {
    sum.now.rate_limit->available += one.now.rate_limit->available;
    sum.now.rate_limit->admitted += one.now.rate_limit->admitted;
    sum.now.rate_limit->rejected += one.now.rate_limit->rejected;
    sum.now.rate_limit->cancelled += one.now.rate_limit->cancelled;
  }
}

// Each worker has a group of its own, so its units add up; the total is that of one.
void add(RegistrySnapshot::Group& sum, const RegistrySnapshot::Group& one) {
  sum.in_flight += one.in_flight;
  sum.configured = one.configured;
  if (!sum.adaptive) sum.adaptive = one.adaptive;
  sum.free += one.free;
  sum.total = std::max(sum.total, one.total);
  for (const GroupSnapshot::Member& m : one.members) {
    const auto at = std::ranges::find(sum.members, m.name, &GroupSnapshot::Member::name);
    if (at == sum.members.end()) {
      sum.members.push_back(m);
      continue;
    }
    at->allotted += m.allotted;
    at->in_flight += m.in_flight;
    at->waiting += m.waiting;
    at->called_back += m.called_back;
    at->lent += m.lent;
    at->borrowed += m.borrowed;
    at->revoked += m.revoked;
    at->waits += m.waits;
    at->total_wait += m.total_wait;
    at->longest_wait = std::max(at->longest_wait, m.longest_wait);
  }
}

void add(RegistrySnapshot::Tenants& sum, const RegistrySnapshot::Tenants& one) {
  sum.live += one.live;
  sum.max = std::max(sum.max, one.max);
  sum.created += one.created;
  sum.retired += one.retired;
  sum.overflowed += one.overflowed;
  sum.rejected += one.rejected;
  sum.invalid += one.invalid;
  if (!one.other) return;
  if (!sum.other) sum.other = BulkheadSnapshot{};
  registry::fold(*sum.other, *one.other);
}

template <class List>
auto& place_for(List& list, const std::string& name) {
  const auto by_name = [](const auto& item, const std::string& wanted) { return item.name < wanted; };
  auto at = std::lower_bound(list.begin(), list.end(), name, by_name);
  if (at == list.end() || at->name != name) {
    at = list.emplace(at);
    at->name = name;
  }
  return *at;
}

// The settings are those of the last worker; they differ only while a reload is under way.
void add(RegistrySnapshot& sum, const RegistrySnapshot& one) {
  for (const auto& e : one.bulkheads) {
    RegistrySnapshot::Entry& to = place_for(sum.bulkheads, e.name);
    to.type = e.type;
    to.group = e.group;
    to.tenants = e.tenants;
    to.tenant_id = e.tenant_id;
    to.criticality = e.criticality;
    to.configured = e.configured;
    to.now.isolation = e.now.isolation;
    add(to, e);
  }
  for (const auto& g : one.groups) add(place_for(sum.groups, g.name), g);
  for (const auto& t : one.tenants) add(place_for(sum.tenants, t.name), t);
}

// What stays of a worker that has ended. Its tenants become part of `other` of their set, as retired tenants do.
void add_past(RegistrySnapshot& past, RegistrySnapshot ended) {
  for (RegistrySnapshot::Tenants& t : ended.tenants) {
    t.retired += t.live;
    t.live = 0;
    if (t.other) end_state(*t.other);
  }
  std::erase_if(ended.bulkheads, [&](RegistrySnapshot::Entry& e) {
    end_state(e.now);
    if (e.now.breaker) {
      e.now.breaker->state = BreakerState::closed;
      e.now.breaker->mode = BreakerMode::automatic;
      e.now.breaker->calls = e.now.breaker->failures = e.now.breaker->slow = 0;
      e.now.breaker->above_threshold = false;
      e.now.breaker->probes_in_flight = 0;
      e.now.breaker->next_probe = no_deadline;
    }
    e.now.adaptive.reset();
    e.now.draining = e.now.shadow = false;
    if (e.tenants.empty()) return false;
    RegistrySnapshot::Tenants& set = place_for(ended.tenants, e.tenants);
    if (!set.other) set.other = BulkheadSnapshot{};
    registry::fold(*set.other, e.now);
    return true;
  });
  ended.groups.clear();
  add(past, ended);
}

}  // namespace

struct Board::Slot {
  pid_t pid;  // 0: free
  std::uint64_t start;
  bool ended;
  Pages<kRoom> numbers;
};

// Invariants: slots and `past` change only under the lock, `orders` only under the lock and with a new version. All zeros
// is an empty board.
struct Board::Layout {
  std::uint64_t magic, format;
  pthread_mutex_t lock;
  std::uint64_t version;  // of the orders; read without the lock
  Pages<kOrdersRoom> orders;
  Pages<kRoom> past;
  Slot slots[kWorkers];
};

// Not locked, if another process holds it for longer than a moment: a worker's event loop does not wait for others.
class Board::Locked {
 public:
  explicit Locked(Layout& layout) noexcept : layout_(layout) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2'000'000;
    if (until.tv_nsec >= 1'000'000'000) until.tv_nsec -= 1'000'000'000, ++until.tv_sec;
    const int result = ::pthread_mutex_timedlock(&layout_.lock, &until);
    if (result == EOWNERDEAD) ::pthread_mutex_consistent(&layout_.lock);  // Pages are whole at any time
    locked_ = result == 0 || result == EOWNERDEAD;
  }
  ~Locked() {
    if (locked_) ::pthread_mutex_unlock(&layout_.lock);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  explicit operator bool() const noexcept { return locked_; }

 private:
  Layout& layout_;
  bool locked_ = false;
};

namespace {

void prepare(pthread_mutex_t& lock) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&lock, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

// Gives a part of the file its place on the file system: writing to a page without one, and on a tmpfs also reading it, is a
// SIGBUS once the file system is full. A file system that cannot reserve is taken as it is. False: errno says why.
bool reserve(int file, std::size_t begin, std::size_t size) noexcept {
  int result = 0;
  do {
    result = ::fallocate(file, 0, static_cast<off_t>(begin), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EOPNOTSUPP;
}

[[noreturn]] void fail(const std::string& file) {
  throw std::runtime_error(file + ": " + std::system_category().message(errno));
}

}  // namespace

std::shared_ptr<Board> Board::anonymous() {
  void* const memory = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("memory for the counters of workers");
  auto* const layout = static_cast<Layout*>(memory);
  prepare(layout->lock);
  layout->format = format();
  layout->magic = kMagic;
  return std::shared_ptr<Board>(new Board(layout, -1));
}

std::shared_ptr<Board> Board::open(const std::string& file) {
  struct Descriptor {
    int fd;
    bool kept = false;
    ~Descriptor() {
      if (fd < 0) return;
      ::flock(fd, LOCK_UN);  // close() alone would not: the mapping keeps the file open
      if (!kept) ::close(fd);
    }
  } d{::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  struct stat is{};
  if (d.fd < 0 || ::flock(d.fd, LOCK_EX) != 0 || ::fstat(d.fd, &is) != 0)
    fail(file);  // one of them prepares it
  const bool empty = is.st_size == 0;
  if (!empty && static_cast<std::size_t>(is.st_size) != sizeof(Layout))
    throw std::runtime_error(file + ": is not a board of this version of bulkhead: remove it");
  if (empty && ::ftruncate(d.fd, sizeof(Layout)) != 0) fail(file);
  bool reserved = reserve(d.fd, 0, offsetof(Layout, slots));
  for (std::size_t i = 0; i < kWorkers && reserved; ++i)  // what is read of a slot that is free
    reserved = reserve(d.fd, offsetof(Layout, slots) + i * sizeof(Slot), offsetof(Slot, numbers.bytes));
  if (!reserved) fail(file);
  void* const memory = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, d.fd, 0);
  if (memory == MAP_FAILED) fail(file);
  auto* const layout = static_cast<Layout*>(memory);
  if (empty || layout->magic == 0) {  // 0: its maker died
    prepare(layout->lock);
    layout->format = format();
    layout->magic = kMagic;
  } else if (layout->magic != kMagic || layout->format != format()) {
    ::munmap(memory, sizeof(Layout));
    throw std::runtime_error(file +
                             ": was made by another version of bulkhead: remove it, or install module and "
                             "program of one version");
  }
  std::shared_ptr<Board> board(new Board(layout, d.fd));
  d.kept = true;
  return board;
}

Board::~Board() {
  ::munmap(layout_, sizeof(Layout));
  if (file_ >= 0) ::close(file_);
}

bool Board::has_room(const Slot& slot) const noexcept {
  if (file_ < 0) return true;
  const auto begin = reinterpret_cast<const char*>(&slot) - reinterpret_cast<const char*>(layout_);
  return reserve(file_, static_cast<std::size_t>(begin), sizeof slot);
}

// Under the lock.
void Board::fold_ended() {
  for (Slot& slot : layout_->slots) {
    if (slot.pid == 0 || (!slot.ended && lives(slot.pid, slot.start))) continue;
    RegistrySnapshot past = decode(layout_->past.read());
    add_past(past, decode(slot.numbers.read()));
    std::size_t left_out = 0;
    layout_->past.write(encode(past, kRoom, left_out));
    slot.numbers.write({});
    slot.pid = 0;
  }
}

// Numbers of ended workers are folded first, which frees their slots.
bool Board::join() {
  for (int tries = 0; tries < 1000; ++tries) {
    const Locked locked(*layout_);
    if (!locked) continue;
    fold_ended();
    for (Slot& slot : layout_->slots) {
      if (slot.pid != 0) continue;
      if (!has_room(slot)) return false;
      slot.numbers.write({});
      slot.ended = false;
      slot.start = start_of(::getpid());
      slot.pid = ::getpid();
      own_ = &slot;
      return true;
    }
    return false;
  }
  return false;
}

bool Board::publish(const RegistrySnapshot& own, std::size_t* left_out) {
  if (!own_) return false;
  std::size_t missing = 0;
  const std::string bytes = encode(own, kRoom, missing);
  if (left_out) *left_out = missing;
  const Locked locked(*layout_);
  if (locked) own_->numbers.write(bytes);
  return static_cast<bool>(locked);
}

void Board::leave(const RegistrySnapshot& last) {
  if (!own_) return;
  for (int tries = 0; tries < 100 && !publish(last); ++tries) {
  }
  own_->ended = true;
  own_ = nullptr;
}

std::vector<std::string> Board::copies(bool& complete) {
  std::vector<std::string> all;
  const Locked locked(*layout_);
  complete = static_cast<bool>(locked);
  if (!locked) return all;
  fold_ended();
  all.emplace_back(layout_->past.read());
  for (const Slot& slot : layout_->slots)
    if (slot.pid != 0) all.emplace_back(slot.numbers.read());
  return all;
}

void Board::add_up(RegistrySnapshot& all) {
  bool complete = false;
  const std::vector<std::string> parts = copies(complete);
  if (!complete) return;
  RegistrySnapshot sum;
  for (const std::string& part : parts) add(sum, decode(part));
  // One entry of a look() is completed alone.
  const bool one = all.bulkheads.size() == 1 && all.taken == TimePoint{};
  for (RegistrySnapshot::Entry& e : sum.bulkheads) {
    const auto by_name = [](const auto& item, const std::string& name) { return item.name < name; };
    const auto at = std::lower_bound(all.bulkheads.begin(), all.bulkheads.end(), e.name, by_name);
    if (at == all.bulkheads.end() || at->name != e.name) {
      // A removed bulkhead of a past worker is not shown; a tenant of a live one is.
      if (!one && !e.tenants.empty()) all.bulkheads.insert(at, std::move(e));
      continue;
    }
    if (e.now.gate.max_concurrent == 0) {  // only past workers had it
      e.now.gate.max_concurrent = at->now.gate.max_concurrent;
      e.now.gate.max_queue = at->now.gate.max_queue;
    }
    if (e.now.adaptive && at->now.adaptive) {  // texts do not cross processes
      e.now.adaptive->why.because = at->now.adaptive->why.because;
    }
    e.now.name = at->now.name;
    e.now.fleet = std::move(at->now.fleet);
    e.now.draining |= at->now.draining;
    if (!e.now.breaker) e.now.breaker = at->now.breaker;
    at->now = std::move(e.now);
  }
  for (RegistrySnapshot::Group& g : sum.groups)
    for (RegistrySnapshot::Group& to : all.groups) {
      if (to.name != g.name) continue;
      if (g.adaptive && to.adaptive) g.adaptive->why.because = to.adaptive->why.because;  // as above
      to = std::move(g);
    }
  for (RegistrySnapshot::Tenants& t : sum.tenants)
    for (RegistrySnapshot::Tenants& to : all.tenants)
      if (to.name == t.name) to = std::move(t);
}

std::vector<Board::Worker> Board::living() {
  std::vector<Worker> all;
  for (const Slot& slot : layout_->slots)
    if (slot.pid != 0 && !slot.ended && lives(slot.pid, slot.start)) all.push_back({slot.pid, slot.start});
  return all;
}

// If they do not fit, overrides are left out, from the end of the list.
void Board::give(const Orders& orders) {
  Orders fitting = orders;
  std::string bytes = encode(fitting);
  while (bytes.size() > kOrdersRoom && !fitting.overrides.empty()) {
    fitting.overrides.pop_back();
    bytes = encode(fitting);
  }
  if (bytes.size() > kOrdersRoom) return;
  for (int tries = 0; tries < 1000; ++tries) {
    const Locked locked(*layout_);
    if (!locked) continue;
    layout_->orders.write(bytes);
    std::atomic_ref(layout_->version).fetch_add(1, std::memory_order_release);
    return;
  }
}

std::optional<Orders> Board::take(std::uint64_t& seen) {
  if (std::atomic_ref(layout_->version).load(std::memory_order_acquire) == seen) return std::nullopt;
  const Locked locked(*layout_);
  if (!locked) return std::nullopt;
  seen = layout_->version;
  return decode_orders(layout_->orders.read());
}

}  // namespace bulkhead::workers
