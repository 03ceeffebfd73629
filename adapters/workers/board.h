// board.h - memory that the worker processes of one service share with the process that supervises them: each worker writes
// its counters, anyone reads their sum, and the supervisor writes the orders of operators, which all workers obey.
//
//   auto board = Board::open("/run/shop/board");                    // the supervisor and the workers
//   board->join();                                                  // a worker, after the fork
//   board->publish(registry.snapshot());                            // a worker, now and then
//   RegistryOptions{.complete = [board](RegistrySnapshot& s) { board->add_up(s); }};   // anyone: the sum of all workers
//   board->give(orders);  ...  if (auto news = board->take(seen)) obey(*news);         // supervisor; workers
//
// The counters of a worker that has ended, or was killed, stay in the sum: its last publish() counts. Its calls in flight
// and its waiting calls do not.
// Threads: any; processes: any. No member waits for another process: where one holds the lock for more than a moment, or
//   died with it, publish() and add_up() change nothing until the next call.
// Cost: publish() encodes the snapshot and copies it, some hundred bytes per bulkhead. 130 MB of address space. On a file
//   system, 3 MB of it are reserved by open(), and 2 MB more by each worker that joins: a full one is an error, not a signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bulkhead/breaker.h"
#include "bulkhead/clock.h"
#include "bulkhead/registry_snapshot.h"

namespace bulkhead::workers {

// What operators have changed and no file says. The whole of it each time: what is missing has ended.
struct Orders {
  struct Override {
    std::string path{};
    std::string bulkhead{}, setting{};  // instead of `path`, see OverrideRequest
    std::string value{}, reason{}, actor{};
    TimePoint expires{};
    bool operator==(const Override&) const = default;
  };
  struct Forced {
    std::string bulkhead{};
    bool draining = false;
    BreakerMode breaker = BreakerMode::automatic;
    Fault fault{};  // without latency and error: none
    bool operator==(const Forced&) const = default;
  };
  std::vector<Override> overrides{};
  std::vector<Forced> forced{};
  bool operator==(const Orders&) const = default;
};

class Board {
 public:
  static constexpr std::size_t kWorkers = 64;

  // std::runtime_error says what is wrong: the file cannot be opened, its file system is full, or another version of this
  // program made it.
  static std::shared_ptr<Board> open(const std::string& file);  // made if it does not exist
  static std::shared_ptr<Board> anonymous();                    // for children of this process
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // This process is a worker. False: there are kWorkers already, or the file system has no room for its numbers.
  bool join();
  // False: not now. `left_out` counts bulkheads that found no room; the sum misses them.
  bool publish(const RegistrySnapshot& own, std::size_t* left_out = nullptr);
  void leave(const RegistrySnapshot& last);  // this process is no worker any more
  // The sum of all workers, past and present, instead of the numbers in `all`. Bulkheads that only workers have, such as
  // tenants, are added.
  void add_up(RegistrySnapshot& all);
  struct Worker {
    int pid = 0;
    std::uint64_t start = 0;  // an id alone may be used again
    bool operator==(const Worker&) const = default;
  };
  std::vector<Worker> living();
  std::size_t workers() { return living().size(); }  // that live

  void give(const Orders& orders);
  std::optional<Orders> take(std::uint64_t& seen);  // none: nothing has changed since the version `seen`

 private:
  struct Layout;
  struct Slot;
  class Locked;
  Board(Layout* layout, int file) noexcept : layout_(layout), file_(file) {}
  std::vector<std::string> copies(bool& complete);
  void fold_ended();
  bool has_room(const Slot& slot) const noexcept;

  Layout* layout_;
  const int file_;  // -1: anonymous
  Slot* own_ = nullptr;
};

}  // namespace bulkhead::workers
