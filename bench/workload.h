// workload.h - what a rival is, and the loops that every rival runs.
//
// A rival brings two functions: try_call(body) runs body() if there is room now, call(body) waits for room.
// How it takes its place and gives it back is its own affair; the loops, the flags and the observation are
// the same for all. A loop is compiled for each rival (Contending below); only its start is a virtual call,
// once per thousands of operations.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bench/timing.h"

namespace bench {

// What a rival can do beside counting: the price of a feature is only visible beside what lacks it.
struct Guarantees {
  bool waits = true;      // call() works
  bool counters = false;  // exact numbers of admitted, released and rejected calls
  bool resize = false;    // the limit can change while calls are running
  bool fifo = false;      // first come, first served
  bool full() const { return waits && counters && resize; }
};

template <class R>
concept Rival = std::constructible_from<R, unsigned> && requires(R& r, void (*body)()) {
  { R::name } -> std::convertible_to<std::string_view>;
  { R::guarantees } -> std::convertible_to<Guarantees>;
  { r.try_call(body) } -> std::same_as<bool>;
  { r.call(body) } -> std::same_as<void>;
};

// What is done inside the protected section.
struct Section {
  enum Kind { empty, spin, sleep } kind = empty;
  std::int64_t ns = 0;
  void run() const {
    if (kind == spin) burn(ns);
    if (kind == sleep) nap(ns);
  }
};

// One thread's part in a saturated gate.
struct Turns {
  std::uint64_t count = 0;
  std::int64_t worst_gap_ns = 0;  // between two of its own turns, the section included
};

class Contender {
 public:
  virtual ~Contender() = default;

  // Continues with another copy of the rival, in another page. The place of a cache line in the chip changes the cost of
  // passing it between two cores by up to a quarter, and that must not decide the comparison.
  virtual void move_elsewhere() = 0;
  // n times: in and out again. Returns how many were let in.
  virtual std::uint64_t try_calls(std::uint64_t n) = 0;
  // Until n got in: in, burn, out; those rejected try again at once.
  virtual void insist(std::uint64_t n, std::int64_t section_ns) = 0;
  // In, the body, out. Waits.
  virtual void call(const std::function<void()>& body) = 0;
  // In, the section, out, again and again until the time has come. Waits.
  virtual Turns saturate(Section section, std::int64_t until) = 0;
};

template <Rival R>
class Contending final : public Contender {
 public:
  explicit Contending(unsigned limit) {
    for (std::unique_ptr<Page>& page : pages_) page = std::make_unique<Page>(limit);
  }

  void move_elsewhere() override { at_ = (at_ + 1) % pages_.size(); }

  std::uint64_t try_calls(std::uint64_t n) override {
    R& rival = here();
    std::uint64_t admitted = 0;
    for (std::uint64_t i = 0; i < n; ++i) admitted += rival.try_call([] {});
    return admitted;
  }

  void insist(std::uint64_t n, std::int64_t section_ns) override {
    R& rival = here();
    for (std::uint64_t i = 0; i < n; ++i)
      while (!rival.try_call([&] { burn(section_ns); })) {
      }
  }

  void call(const std::function<void()>& body) override {
    if constexpr (R::guarantees.waits) here().call(body);
  }

  Turns saturate(Section section, std::int64_t until) override {
    Turns turns;
    if constexpr (R::guarantees.waits) {
      R& rival = here();
      std::int64_t last = now_ns();
      while (last < until) {
        rival.call([&] { section.run(); });
        const std::int64_t now = now_ns();
        turns.worst_gap_ns = std::max(turns.worst_gap_ns, now - last);
        ++turns.count;
        last = now;
      }
    }
    return turns;
  }

 private:
  struct alignas(4096) Page {
    explicit Page(unsigned limit) : rival(limit) {}
    R rival;
  };
  R& here() { return pages_[at_]->rival; }

  std::array<std::unique_ptr<Page>, 8> pages_;
  std::size_t at_ = 0;
};

struct Entry {
  std::string_view name;
  Guarantees guarantees;
  std::unique_ptr<Contender> (*make)(unsigned limit);
};

template <Rival R>
Entry entry() {
  return {R::name, R::guarantees, [](unsigned limit) -> std::unique_ptr<Contender> {
            return std::make_unique<Contending<R>>(limit);
          }};
}

std::span<const Entry> all_rivals();  // rivals.cc

inline constexpr std::string_view kFloor = "floor: fetch_add + fetch_sub";
inline constexpr std::string_view kSemaphore = "std::counting_semaphore";
inline constexpr std::string_view kGate = "bulkhead::Gate, fifo";
inline constexpr std::string_view kGateBarging = "bulkhead::Gate, barging";
inline constexpr std::string_view kGateAdaptive = "bulkhead::Gate, adaptive";
inline constexpr std::string_view kPlainBulkhead = "bulkhead::Bulkhead, plain";
inline constexpr std::string_view kFullBulkhead = "bulkhead::Bulkhead, full";
inline constexpr std::string_view kResourcePool = "bulkhead::ResourcePool";
inline constexpr std::string_view kBareMap = "floor: bare std::unordered_map";
inline constexpr std::string_view kRegistryUse = "bulkhead::Registry, use";
inline constexpr std::string_view kRegistryFind = "bulkhead::Registry, handle";
inline constexpr std::string_view kMutexMap = "map + mutex, shared_ptr";
inline constexpr std::string_view kPosix = "POSIX sem_t";

inline bool is_ours(std::string_view name) { return name.starts_with("bulkhead::"); }
inline bool is_floor(std::string_view name) { return name.starts_with("floor:"); }

}  // namespace bench
