// sampler.h - cheap counters of calls from many threads, summed up now and then by one thread.
//
// Threads: add() from any; fold() from one at a time.
// Cost: add() is four relaxed additions to a cache line that up to eight threads do not share; for failures and calls that
// were given up, to two lines.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/tally.h"
#include "bulkhead/limiter.h"
#include "limiter/algorithm.h"

namespace bulkhead::limiter {

// Invariants
//   S1 The counters only grow (modulo 2^64); a window is the difference of two folds. So adding needs no lock, and folding
//      resets nothing.
//   S2 Each counter is exact; the counters of a stripe are not of one instant. A call that is added during a fold counts
//      partly in this window and partly in the next: one call in hundreds.
class Sampler {
 public:
  // `filled`: the call took the last place. Outcome::ignored: its caller gave it up after `round_trip`.
  void add(Outcome outcome, std::int64_t round_trip, std::uint32_t in_flight, bool filled = false) noexcept {
    Stripe& s = stripes_[base::thread_number() % stripes_.size()];
    // All relaxed: they are statistics (S2), and order no other memory.
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const auto ns = static_cast<std::uint64_t>(round_trip > 0 ? round_trip : 0);
    s.in_flight.fetch_add(in_flight, kRelaxed);
    if (in_flight > s.max_in_flight.load(kRelaxed)) s.max_in_flight.store(in_flight, kRelaxed);
    if (outcome == Outcome::ignored) {
      s.given_up.fetch_add(1, kRelaxed);
      s.given_up_time.fetch_add(ns, kRelaxed);
      return;
    }
    if (filled) s.filled.fetch_add(1, kRelaxed);
    if (outcome == Outcome::failure) {
      s.failed.fetch_add(1, kRelaxed);
      s.failed_time.fetch_add(ns, kRelaxed);
      return;
    }
    (outcome == Outcome::success ? s.succeeded : s.timed_out).fetch_add(1, kRelaxed);
    s.round_trip.fetch_add(ns, kRelaxed);
    const std::uint64_t scaled = std::min<std::uint64_t>(ns >> shift_.load(kRelaxed), kMostScaled);
    s.squares.fetch_add(scaled * scaled, kRelaxed);
  }

  void held_back() noexcept {
    // Relaxed: as in add().
    stripes_[base::thread_number() % stripes_.size()].held_back.fetch_add(1, std::memory_order_relaxed);
  }

  // The calls since the last take(); the caller fills in `begin`, `end` and `limit`. Calls that failed, and calls that were
  // given up, count as timed out if they took long: longer than `slow` on average while no call succeeded, and kClearly
  // times as long otherwise. A call that is given up sooner says nothing: any caller may go away at any time.
  Window peek(nanoseconds slow = nanoseconds::max()) const noexcept {
    const Sums d = sums() - taken_;
    Window w{.succeeded = d.succeeded,
             .failed = d.failed,
             .timed_out = d.timed_out,
             .filled = d.filled,
             .held_back = d.held_back};
    const auto timed = static_cast<double>(d.succeeded + d.timed_out);
    if (timed > 0) {
      w.round_trip = static_cast<double>(d.round_trip) / timed;
      const double unit = static_cast<double>(1ULL << shift_.load(std::memory_order_relaxed));
      const double mean = w.round_trip / unit;
      if (mean > 0) w.cv2 = std::max(0.0, static_cast<double>(d.squares) / timed / (mean * mean) - 1);
    }
    if (const std::uint64_t ended = w.samples() + d.given_up; ended > 0)
      w.in_flight = static_cast<double>(d.in_flight) / static_cast<double>(ended);
    const double long_time = static_cast<double>(slow.count()) * (d.succeeded > 0 ? kClearly : 1);
    const auto count_slow = [&](std::uint64_t calls, std::uint64_t time) {
      if (calls == 0 || static_cast<double>(time) < long_time * static_cast<double>(calls)) return false;
      const auto before = static_cast<double>(w.succeeded + w.timed_out);
      w.timed_out += calls;
      w.round_trip =
          (w.round_trip * before + static_cast<double>(time)) / (before + static_cast<double>(calls));
      return true;
    };
    if (count_slow(d.failed, d.failed_time)) w.failed = 0;
    if (!count_slow(d.given_up, d.given_up_time)) w.given_up = d.given_up;
    for (const Stripe& s : stripes_)
      w.max_in_flight = std::max(w.max_in_flight, s.max_in_flight.load(std::memory_order_relaxed));
    return w;
  }

  // Begins a new window.
  void take(const Window& peeked) noexcept {
    taken_ = sums();
    // Relaxed: a call that is added at the same time may count in either window (S2).
    for (Stripe& s : stripes_) s.max_in_flight.store(0, std::memory_order_relaxed);
    // Squares are summed in units in which the mean is some hundreds: exact enough, and 2^24 calls do not overflow.
    const auto mean = static_cast<std::uint64_t>(peeked.round_trip);
    const auto bits = static_cast<int>(std::bit_width(mean));
    shift_.store(static_cast<std::uint8_t>(bits > kMeanBits ? bits - kMeanBits : 0),
                 std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kMostScaled = 1 << 20;
  static constexpr int kMeanBits = 9;
  static constexpr double kClearly = 1.5;

  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> succeeded{0}, failed{0}, timed_out{0}, round_trip{0}, squares{0}, in_flight{0},
        filled{0}, failed_time{0}, given_up{0}, given_up_time{0}, held_back{0};
    std::atomic<std::uint32_t> max_in_flight{0};
  };
  struct Sums {
    std::uint64_t succeeded = 0, failed = 0, timed_out = 0, round_trip = 0, squares = 0, in_flight = 0,
                  filled = 0, failed_time = 0, given_up = 0, given_up_time = 0, held_back = 0;
    Sums operator-(const Sums& o) const {
      return {succeeded - o.succeeded, failed - o.failed,
              timed_out - o.timed_out, round_trip - o.round_trip,
              squares - o.squares,     in_flight - o.in_flight,
              filled - o.filled,       failed_time - o.failed_time,
              given_up - o.given_up,   given_up_time - o.given_up_time,
              held_back - o.held_back};
    }
  };

  Sums sums() const noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;  // S2
    Sums sum;
    for (const Stripe& s : stripes_) {
      sum.succeeded += s.succeeded.load(kRelaxed);
      sum.failed += s.failed.load(kRelaxed);
      sum.timed_out += s.timed_out.load(kRelaxed);
      sum.round_trip += s.round_trip.load(kRelaxed);
      sum.squares += s.squares.load(kRelaxed);
      sum.in_flight += s.in_flight.load(kRelaxed);
      sum.filled += s.filled.load(kRelaxed);
      sum.failed_time += s.failed_time.load(kRelaxed);
      sum.given_up += s.given_up.load(kRelaxed);
      sum.given_up_time += s.given_up_time.load(kRelaxed);
      sum.held_back += s.held_back.load(kRelaxed);
    }
    return sum;
  }

  std::array<Stripe, 8> stripes_;
  std::atomic<std::uint8_t> shift_{10};
  Sums taken_;  // used by the folding thread
};

}  // namespace bulkhead::limiter
