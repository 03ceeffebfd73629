// region.h - a file or an anonymous mapping that the processes of one host share, and this process's place in it.
//
//   auto region = bulkhead::shm::Region::open("/run/shop/bulkhead");      // made if it does not exist
//   auto forked = bulkhead::shm::Region::make_private();                  // for the children of this process
//
// Threads: every member may be called from any thread.
// Processes: a child made by fork() registers itself as a process of its own, inside fork(). exec() ends the
//   registration. A child made by a bare clone() registers at its first call; until it does, or execs, it keeps the
//   registration of its parent alive.
// Errors: std::invalid_argument that names the path, the problem and the remedy; nothing has changed then.
// Cost: 2.6 MB of memory for all processes together, two file descriptors for each; no thread until a line waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::shm {

struct Image;  // layout.h
struct Limit;

std::int64_t now_ns() noexcept;         // CLOCK_MONOTONIC
std::int64_t coarse_now_ns() noexcept;  // the same, a few milliseconds late
std::int64_t boot_now_ns() noexcept;    // CLOCK_BOOTTIME, which also counts while the machine sleeps

class Region : public std::enable_shared_from_this<Region> {
 public:
  static std::shared_ptr<Region> open(const std::string& path);
  static std::shared_ptr<Region> make_private();
  static std::shared_ptr<Region> adopt(
      int fd);  // what make_private() has made, inherited; the fd stays the caller's
  // For a look from outside: it exists, and this process is not registered.
  static std::shared_ptr<Region> look(const std::string& path);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const std::string& path() const noexcept { return path_; }  // empty: private
  int fd() const noexcept { return fd_; }
  Image& image() const noexcept { return *image_; }

  // 0: not registered, because every slot is taken; tried again at the next call.
  std::uint64_t token() noexcept;

  // The limit of that name; made if need be, with 0 units. `store`: it is a lease of a fleet, whose store this is.
  Limit& limit(std::string_view name, std::string_view store = {});
  static void resize(Limit& limit, std::uint32_t units) noexcept;
  static void reserve(Limit& limit,
                      std::uint32_t units) noexcept;  // words below this index may be in use from now on
  // To be the agent of a lease: see T6. False: another process is.
  bool lead(const Limit& limit) noexcept;
  void stop_leading(const Limit& limit) noexcept;

  // Is the owner of this slot alive? The kernel's answer, also for processes of other PID namespaces.
  bool alive(std::uint32_t slot) const noexcept;
  // Frees what dead processes hold of it, and their lines; how many units.
  std::uint32_t sweep(Limit& limit) noexcept;
  bool sweep_is_due(Limit& limit) const noexcept;  // true for one caller per kSweepEvery on this host
  void ring(std::uint32_t slot) noexcept;

  // A user of a line in the region. The region's thread calls attend() while waits() is true: when this process's bell is
  // rung, and every millisecond. Around fork() both functions are called, the second in parent and child.
  class Client {
   public:
    virtual bool waits() const noexcept = 0;
    virtual void attend() noexcept = 0;
    virtual void before_fork() noexcept = 0;
    virtual void after_fork(bool in_child) noexcept = 0;

   protected:
    ~Client() = default;
  };
  void add(Client& client);
  // When it returns, attend() of it is not running, unless on this thread.
  void remove(Client& client) noexcept;
  void watch_line() noexcept;  // waits() of a client has become true

 private:
  struct Forks;
  Region(std::string path, int fd);
  void enter();  // takes a slot
  bool try_enter() noexcept BULKHEAD_REQUIRES(registering_);
  void leave() noexcept BULKHEAD_UNCHECKED_LOCKS;  // for the destructor, when no other thread uses the region
  void release_slot(std::uint32_t slot) noexcept;
  void start_thread() noexcept;
  void run() noexcept;
  bool attend_all(const bool& gone) noexcept;  // true: a client waits
  // The locks are held across fork(), from one function to the other.
  void before_fork() noexcept BULKHEAD_UNCHECKED_LOCKS;
  void after_fork(bool in_child) noexcept BULKHEAD_UNCHECKED_LOCKS;
  bool inherited() const noexcept;

  const std::string path_;
  const int fd_;  // of the mapping; locks are never taken through it
  Image* image_ = nullptr;
  std::uint32_t* mine_ = nullptr;  // 1 in the process that registered; the kernel zeroes it in children

  detail::StdMutex registering_;
  int lock_fd_ BULKHEAD_GUARDED_BY(registering_) = -1;
  std::atomic<std::uint64_t> token_{0};

  detail::StdMutex clients_mutex_;
  std::condition_variable idle_;
  std::vector<Client*> clients_ BULKHEAD_GUARDED_BY(clients_mutex_);
  Client* attending_ BULKHEAD_GUARDED_BY(clients_mutex_) = nullptr;
  std::thread::id thread_id_ BULKHEAD_GUARDED_BY(clients_mutex_);
  bool* gone_ BULKHEAD_GUARDED_BY(clients_mutex_) = nullptr;

  detail::StdMutex thread_mutex_;
  bool running_ BULKHEAD_GUARDED_BY(thread_mutex_) = false;
  std::thread thread_ BULKHEAD_GUARDED_BY(thread_mutex_);
  std::atomic<bool> stop_{false}, polling_{false};
  bool listed_ = false;  // in Forks, whose lock protects it
};

}  // namespace bulkhead::shm
