#include "region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "counts.h"
#include "layout.h"

namespace bulkhead::shm {
namespace {

std::int64_t read_clock(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

[[noreturn]] void invalid(const std::string& path, const std::string& problem) {
  throw std::invalid_argument("host region " + (path.empty() ? "(private)" : "\"" + path + "\"") + ": " +
                              problem);
}

[[noreturn]] void failed(const std::string& path, const std::string& what) {
  invalid(path, what + ": " + std::strerror(errno));
}

// Closes unless it is given away.
class Fd {
 public:
  explicit Fd(int fd) noexcept : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const noexcept { return fd_; }
  int give() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

struct flock byte_lock(short type, std::int64_t start, std::int64_t length = 1) {
  struct flock l{};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = start;
  l.l_len = length;
  return l;
}

bool is_locked(int fd, std::int64_t start, std::int64_t length = 1) noexcept {
  struct flock l = byte_lock(F_WRLCK, start, length);
  // If the question fails, the owner counts as alive, so no unit is taken from a live process.
  return fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

bool try_lock(int fd, std::int64_t byte) noexcept {
  struct flock l = byte_lock(F_WRLCK, byte);
  return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

std::string boot_id() {
  char id[37] = {};
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  return file && read(file.get(), id, sizeof id - 1) > 0 ? id : "unknown";
}

// Reserves the memory now: a full file system is an error here, and not a SIGBUS later.
void fill(int fd, const std::string& path) {
  if (const int error = posix_fallocate(fd, 0, sizeof(Image)); error != 0) {
    errno = error;
    failed(path, "cannot reserve " + std::to_string(sizeof(Image) / 1024) + " KiB");
  }
  Header header{};
  header.layout = kLayout;
  header.slots = kSlots;
  header.limits = kLimits;
  header.units = kUnits;
  header.size = sizeof(Image);
  std::strncpy(header.library, "bulkhead 0.1", sizeof header.library - 1);
  std::strncpy(header.boot, boot_id().c_str(), sizeof header.boot - 1);
  header.grace.store(kGrace);
  header.magic.store(kMagic);
  if (pwrite(fd, static_cast<const void*>(&header), sizeof header, 0) != sizeof header)
    failed(path, "cannot write");
}

// Empty: this library can use it. Else what is in the way.
std::string problem_of(int fd) {
  char bytes[sizeof(Header)] = {};
  const ssize_t size = pread(fd, bytes, sizeof bytes, 0);
  std::uint64_t magic = 0;
  std::memcpy(&magic, bytes, sizeof magic);
  if (size < static_cast<ssize_t>(sizeof bytes) || magic != kMagic)
    return "it is not a region of bulkhead: give another path, or delete it";
  std::uint32_t numbers[4];
  std::uint64_t length = 0;
  std::memcpy(numbers, bytes + offsetof(Header, layout), sizeof numbers);
  std::memcpy(&length, bytes + offsetof(Header, size), sizeof length);
  struct stat s{};
  if (numbers[0] == kLayout && numbers[1] == kSlots && numbers[2] == kLimits && numbers[3] == kUnits &&
      length == sizeof(Image) && fstat(fd, &s) == 0 && s.st_size >= static_cast<off_t>(sizeof(Image))) {
    char boot[sizeof Header::boot + 1] = {};
    std::memcpy(boot, bytes + offsetof(Header, boot), sizeof Header::boot);
    if (boot == boot_id()) return {};
    return "it was made before this machine was last started, and cannot be replaced: delete it";
  }
  bytes[offsetof(Header, library) + sizeof Header::library - 1] = 0;
  return "it has layout " + std::to_string(numbers[0]) + " (" +
         std::string(bytes + offsetof(Header, library)) + "), and this library needs layout " +
         std::to_string(kLayout) + ": use the same library version in all processes, or another path";
}

std::string temporary_name(const std::string& path) {
  return path + "." + std::to_string(getpid()) + "." + std::to_string(now_ns()) + ".tmp";
}

// Creates a whole region under a name of this call, so that no other process opens it half made.
Fd make_file(const std::string& path, const std::string& temporary) {
  Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660));
  if (!fd) failed(path, "cannot create it (does its directory exist, and may this user write there?)");
  try {
    fchmod(fd.get(),
           0660);  // despite the umask: the region is for processes of several users of one group
    fill(fd.get(), path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  return Fd(fd.give());
}

bool same_file(int fd, const std::string& path) {
  struct stat a{}, b{};
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

// Another library's region that no process uses makes way for a new one. False: another process is replacing it.
bool replace(int old, const std::string& path) {
  if (!try_lock(old, kReplaceByte)) return false;
  if (!same_file(old, path)) return true;
  const std::string temporary = temporary_name(path);
  const Fd fresh = make_file(path, temporary);
  if (rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  failed(path, "cannot replace it");
}

int open_named(const std::string& path) {
  for (int tries = 0; tries < 1000; ++tries) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd) {
      const std::string problem = problem_of(fd.get());
      if (problem.empty()) return fd.give();
      std::uint64_t magic = 0;
      const bool ours = pread(fd.get(), &magic, sizeof magic, 0) == sizeof magic && magic == kMagic;
      if (!ours || is_locked(fd.get(), 0, kLockBytes)) invalid(path, problem);
      if (!replace(fd.get(), path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (errno != ENOENT) failed(path, "cannot open it");
    const std::string temporary = temporary_name(path);
    Fd fresh = make_file(path, temporary);
    // link() and not rename(): if another process was quicker, its region is the one to use.
    const bool linked = link(temporary.c_str(), path.c_str()) == 0;
    const int error = errno;
    unlink(temporary.c_str());
    if (linked) return fresh.give();
    errno = error;
    if (error != EEXIST) failed(path, "cannot create it");
  }
  invalid(path, "another process has been replacing it for a second: end that process, or give another path");
}

std::uint64_t hash_of(std::string_view name, std::string_view store) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  add(name);
  if (!store.empty()) add(std::string_view("\0", 1)), add(store);
  return hash != 0 ? hash : 1;
}

void futex_wait_shared(const Cell<std::uint32_t>& word, std::uint32_t value, std::int64_t ns) noexcept {
  const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, ns > 0 ? &t : nullptr, nullptr, 0);
}

}  // namespace

std::int64_t now_ns() noexcept { return read_clock(CLOCK_MONOTONIC); }
std::int64_t coarse_now_ns() noexcept { return read_clock(CLOCK_MONOTONIC_COARSE); }
std::int64_t boot_now_ns() noexcept { return read_clock(CLOCK_BOOTTIME); }

// ---- fork ----

// All regions of this process that have a slot. fork() happens while no thread is inside a client or registers.
struct Region::Forks {
  static Forks& all() {
    static Forks* const forks = new Forks;  // never destroyed: the handlers stay registered
    return *forks;
  }
  Forks() {
    pthread_atfork([] { all().before(); }, [] { all().after(false); }, [] { all().after(true); });
  }
  // The lock is held across fork(), from one function to the other.
  void before() noexcept BULKHEAD_UNCHECKED_LOCKS {
    mutex.lock();
    for (Region* r : regions) r->before_fork();
  }
  void after(bool in_child) noexcept BULKHEAD_UNCHECKED_LOCKS {
    for (Region* r : regions) r->after_fork(in_child);
    mutex.unlock();
  }

  detail::StdMutex mutex;
  std::vector<Region*> regions BULKHEAD_GUARDED_BY(mutex);
};

void Region::before_fork() noexcept {
  registering_.lock();
  clients_mutex_.lock();
  for (Client* c : clients_) c->before_fork();
  thread_mutex_.lock();
}

void Region::after_fork(bool in_child) noexcept {
  if (in_child) {
    // The parent's registration is not ours: without this, its lock would outlive it in this process.
    if (lock_fd_ >= 0) close(std::exchange(lock_fd_, -1));
    token_.store(0, std::memory_order_relaxed);
    *mine_ = 1;
    new (&thread_) std::thread;  // its thread is not in this process
    running_ = false;
    polling_.store(false, std::memory_order_relaxed);
    attending_ = nullptr;
    try_enter();
  }
  thread_mutex_.unlock();
  for (Client* c : clients_) c->after_fork(in_child);
  clients_mutex_.unlock();
  registering_.unlock();
}

bool Region::inherited() const noexcept { return mine_ && *static_cast<volatile std::uint32_t*>(mine_) == 0; }

// ---- a region ----

std::shared_ptr<Region> Region::open(const std::string& path) {
  if (path.empty())
    throw std::invalid_argument("host region: its path is empty: give one, such as /run/shop/bulkhead");
  std::shared_ptr<Region> region(new Region(path, open_named(path)));
  region->enter();
  return region;
}

std::shared_ptr<Region> Region::make_private() {
  Fd fd(memfd_create("bulkhead", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) failed({}, "memfd_create");
  fill(fd.get(), {});
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  std::shared_ptr<Region> region(new Region({}, fd.give()));
  region->enter();
  return region;
}

std::shared_ptr<Region> Region::adopt(int fd) {
  Fd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) failed({}, "file descriptor " + std::to_string(fd));
  if (const std::string problem = problem_of(own.get()); !problem.empty()) invalid({}, problem);
  std::shared_ptr<Region> region(new Region({}, own.give()));
  region->enter();
  return region;
}

std::shared_ptr<Region> Region::look(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) failed(path, "cannot open it");
  if (const std::string problem = problem_of(fd.get()); !problem.empty()) invalid(path, problem);
  return std::shared_ptr<Region>(new Region(path, fd.give()));
}

Region::Region(std::string path, int fd) : path_(std::move(path)), fd_(fd) {
  void* const image = mmap(nullptr, sizeof(Image), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (image == MAP_FAILED) {
    const int error = errno;
    close(fd_);
    errno = error;
    failed(path_, "cannot map it");
  }
  image_ = static_cast<Image*>(image);
}

// The last owner may be a handler that runs on the thread of the region itself: it cannot join itself.
Region::~Region() {
  if (listed_) {
    Forks& forks = Forks::all();
    const detail::MutexLock lock(forks.mutex);
    std::erase(forks.regions, this);
  }
  if (running_) {
    stop_.store(true);
    ring(slot_of(token_.load()));
    if (thread_.get_id() == std::this_thread::get_id()) {
      *gone_ = true;
      thread_.detach();
    } else {
      thread_.join();
    }
  }
  leave();
  munmap(image_, sizeof(Image));
  if (mine_) munmap(mine_, 4096);
  close(fd_);
}

// ---- registration ----

void Region::enter() {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) failed(path_, "mmap");
  mine_ = static_cast<std::uint32_t*>(page);
  *mine_ = 1;
  madvise(page, 4096, MADV_WIPEONFORK);
  bool entered = false;
  int error = 0;
  {
    const detail::MutexLock lock(registering_);
    entered = try_enter();
    error = errno;
  }
  if (!entered)
    invalid(path_,
            error == EAGAIN || error == EACCES
                ? "all " + std::to_string(kSlots) + " places for processes are taken: use a second region"
                : std::string("cannot lock a place in it: ") + std::strerror(error));
  Forks& forks = Forks::all();  // not with registering_ held: fork() takes the two the other way round
  const detail::MutexLock lock(forks.mutex);
  forks.regions.push_back(this);
  listed_ = true;
}

// A file description of its own: one that is shared with a child would keep the lock.
bool Region::try_enter() noexcept {
  char link[32] = "/proc/self/fd/";
  char* end = link + std::strlen(link);
  char digits[12];
  int n = 0;
  for (int rest = fd_; rest > 0 || n == 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
  while (n > 0) *end++ = digits[--n];
  *end = 0;
  int opened = ::open(link, O_RDWR | O_CLOEXEC);
  if (opened < 0 && !path_.empty()) {  // no /proc
    opened = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (opened >= 0 && !same_file(fd_, path_)) close(std::exchange(opened, -1));
  }
  Fd fd(opened);
  if (!fd) return false;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (!try_lock(fd.get(), slot)) {
      if (errno != EAGAIN && errno != EACCES) return false;
      continue;
    }
    release_slot(slot);  // what the dead owner of the slot held
    Slot& s = image_->slots[slot];
    std::uint32_t generation = s.generation.load() + 1;
    if (generation == 0) generation = 1;
    s.pid.store(getpid());
    s.since.store(now_ns());
    struct stat ns{};
    s.pid_namespace.store(stat("/proc/self/ns/pid", &ns) == 0 ? ns.st_ino : 0);
    std::uint64_t command[4] = {};
    if (const int comm = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC); comm >= 0) {
      const ssize_t size = read(comm, command, sizeof command - 1);
      if (size > 0) reinterpret_cast<char*>(command)[size - 1] = 0;  // the newline
      close(comm);
    }
    for (int i = 0; i < 4; ++i) s.command[i].store(command[i]);
    s.generation.store(generation);
    lock_fd_ = fd.give();
    token_.store(token_of(slot, generation), std::memory_order_release);
    return true;
  }
  errno = EAGAIN;
  return false;
}

// Everything that any generation of this slot has. The caller has the lock of the slot.
void Region::release_slot(std::uint32_t slot) noexcept {
  for (Limit& limit : image_->limits) {
    if (limit.hash.load() == 0) continue;
    limit.lines[slot].head.store(0);
    limit.waiting[slot / 64].fetch_and(~(std::uint64_t{1} << slot % 64));
    if (limit.weighed.load() != 0) {
      limit.permits[slot].store(0);
      continue;
    }
    for (std::uint32_t i = 0; i < std::min(limit.high.load(), kUnits); ++i) {
      std::uint64_t word = limit.permits[i].load();
      if (word != 0 && slot_of(word) == slot) limit.permits[i].compare_exchange_strong(word, 0);
    }
  }
}

void Region::leave() noexcept {
  if (const std::uint64_t token = token_.exchange(0); token != 0) release_slot(slot_of(token));
  if (lock_fd_ >= 0) close(std::exchange(lock_fd_, -1));
}

std::uint64_t Region::token() noexcept {
  if (!inherited()) [[likely]]
    if (const std::uint64_t token = token_.load(std::memory_order_acquire); token != 0) return token;
  const detail::MutexLock lock(registering_);
  if (inherited()) {  // by a bare clone(): what after_fork() does
    if (lock_fd_ >= 0) close(std::exchange(lock_fd_, -1));
    token_.store(0);
    *mine_ = 1;
  }
  if (token_.load() == 0 && mine_) try_enter();
  return token_.load();
}

// ---- limits ----

// A limit belongs to the first process that writes its hash. Limits are never removed, so no search needs a lock.
Limit& Region::limit(std::string_view name, std::string_view store) {
  if (name.empty() || name.size() > (kNameWords - 1) * 8)
    invalid(path_, "the name of a limit has 1 to " + std::to_string((kNameWords - 1) * 8) + " bytes, and \"" +
                       std::string(name) + "\" has " + std::to_string(name.size()));
  const std::uint64_t hash = hash_of(name, store);
  for (std::uint32_t i = 0; i < kLimits; ++i) {
    Limit& limit = image_->limits[i];
    std::uint64_t found = limit.hash.load();
    if (found == 0 && limit.hash.compare_exchange_strong(found, hash)) found = hash;
    if (found != hash) continue;
    std::uint64_t words[kNameWords] = {};
    std::memcpy(words, name.data(), name.size());
    for (std::uint32_t w = 0; w < kNameWords; ++w) limit.name[w].store(words[w], std::memory_order_relaxed);
    if (!store.empty()) limit.leased.store(1);
    return limit;
  }
  invalid(path_, "it has " + std::to_string(kLimits) + " limits, and \"" + std::string(name) +
                     "\" would be one more: use a second region");
}

void Region::reserve(Limit& limit, std::uint32_t units) noexcept {
  units = std::min(units, kUnits);
  std::uint32_t high = limit.high.load();
  while (high < units && !limit.high.compare_exchange_weak(high, units)) {
  }
}

void Region::resize(Limit& limit, std::uint32_t units) noexcept {
  if (limit.weighed.load() != 0) return limit.most.store(units);
  units = std::min(units, kUnits);
  reserve(limit, units);
  std::uint64_t word = limit.shape.load();
  for (;;) {
    const Shape old = Shape::of(word);
    const Shape fresh{units, std::max({old.limit, old.drain, units}), old.version + 1};
    if (old.limit == units || limit.shape.compare_exchange_weak(word, fresh.word())) return;
  }
}

bool Region::lead(const Limit& limit) noexcept {
  const detail::MutexLock lock(registering_);
  return lock_fd_ >= 0 && try_lock(lock_fd_, kAgentBytes + (&limit - image_->limits));
}

void Region::stop_leading(const Limit& limit) noexcept {
  const detail::MutexLock lock(registering_);
  struct flock l = byte_lock(F_UNLCK, kAgentBytes + (&limit - image_->limits));
  if (lock_fd_ >= 0) fcntl(lock_fd_, F_OFD_SETLK, &l);
}

// ---- the dead ----

bool Region::alive(std::uint32_t slot) const noexcept { return is_locked(fd_, slot); }

bool Region::sweep_is_due(Limit& limit) const noexcept {
  const std::int64_t now = now_ns();
  std::int64_t last = limit.swept_at.load(std::memory_order_relaxed);
  // A time in the future is of before a restart of the machine.
  return (now - last >= kSweepEvery || last > now) && limit.swept_at.compare_exchange_strong(last, now);
}

std::uint32_t Region::sweep(Limit& limit) noexcept {
  enum : std::uint8_t { unknown, is_alive, is_dead };
  std::uint8_t state[kSlots] = {};
  std::uint32_t generations[kSlots];
  // The generation first, then the lock: see T3.
  const auto dead = [&](std::uint32_t slot) {
    if (state[slot] == unknown) {
      generations[slot] = image_->slots[slot].generation.load();
      state[slot] = alive(slot) ? is_alive : is_dead;
    }
    return state[slot] == is_dead;
  };
  std::uint32_t freed = 0;
  const bool weighed = limit.weighed.load() != 0;
  for (std::uint32_t i = 0; i < std::min(limit.high.load(), kUnits); ++i) {
    std::uint64_t word = limit.permits[i].load();
    if (weighed) {
      const std::uint32_t units = Counts::units_of(word);
      if (units != 0 && dead(i) && Counts::generation_of(word) == generations[i] &&
          limit.permits[i].compare_exchange_strong(word, 0))
        freed += units;
      continue;
    }
    if (word == 0) continue;
    const std::uint32_t slot = slot_of(word);
    if (slot >= kSlots) continue;
    if (dead(slot) && word == token_of(slot, generations[slot]) &&
        limit.permits[i].compare_exchange_strong(word, 0))
      ++freed;
  }
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    if (!(limit.waiting[slot / 64].load() & bit)) continue;
    const std::uint64_t head = limit.lines[slot].head.load();
    if (!dead(slot)) continue;
    std::uint64_t stale = head;
    limit.lines[slot].head.compare_exchange_strong(stale, 0);
    limit.waiting[slot / 64].fetch_and(~bit);
  }
  return freed;
}

void Region::ring(std::uint32_t slot) noexcept {
  if (slot >= kSlots) return;
  Cell<std::uint32_t>& bell = image_->slots[slot].bell;
  bell.fetch_add(1);
  syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// ---- the thread that answers the bell ----

void Region::add(Client& client) {
  const detail::MutexLock lock(clients_mutex_);
  clients_.push_back(&client);
}

void Region::remove(Client& client) noexcept {
  detail::UniqueLock lock(clients_mutex_);
  std::erase(clients_, &client);
  if (attending_ != &client) return;
  if (thread_id_ == std::this_thread::get_id())
    attending_ = nullptr;
  else
    while (attending_ == &client) idle_.wait(lock);
}

void Region::watch_line() noexcept {
  start_thread();
  if (!polling_.load())
    if (const std::uint64_t token = token_.load(); token != 0) ring(slot_of(token));
}

void Region::start_thread() noexcept {
  const detail::MutexLock lock(thread_mutex_);
  if (running_ || token_.load() == 0) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the threads of the application
  try {
    thread_ = std::thread([this] { run(); });
    running_ = true;
  } catch (const std::exception&) {
    // No thread now: the line is served by the releases of this process, and at the next call by this again.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Region::run() noexcept {
  pthread_setname_np(pthread_self(), "bulkhead-host");
  bool gone = false;  // a handler that ran here let go of the region
  {
    const detail::MutexLock lock(clients_mutex_);
    thread_id_ = std::this_thread::get_id();
    gone_ = &gone;
  }
  const Cell<std::uint32_t>& bell = image_->slots[slot_of(token_.load())].bell;
  while (!stop_.load()) {
    const std::uint32_t seen = bell.load();
    polling_.store(true);
    bool waits = attend_all(gone);
    if (gone) return;
    if (!waits) {
      polling_.store(false);
      waits = attend_all(gone);  // for a line that began before polling_ was false
      if (gone) return;
    }
    if (!stop_.load()) futex_wait_shared(bell, seen, waits ? kSweepEvery : 0);
  }
}

bool Region::attend_all(const bool& gone) noexcept {
  bool waits = false;
  detail::UniqueLock lock(clients_mutex_);
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    Client* const client = clients_[i];
    if (!client->waits()) continue;
    waits = true;
    attending_ = client;
    std::shared_ptr<Region> keep = shared_from_this();
    lock.unlock();
    client->attend();
    lock.lock();
    const bool still_there = attending_ == client;
    attending_ = nullptr;
    idle_.notify_all();
    if (still_there) continue;  // its owner keeps the region
    lock.unlock();
    keep.reset();
    if (gone) {
      lock.release();
      return false;
    }
    return true;  // other clients may be gone, too: the next round starts with those that are left
  }
  return waits;
}

}  // namespace bulkhead::shm
