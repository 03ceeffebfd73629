// async_acquire.h - one asynchronous acquisition as a base class, for callers with their own storage and continuation.
//
// Gate::co_acquire, Gate::async_acquire, Pool and the adapters to event loops use it:
//
//   class Op : public bulkhead::AsyncAcquire {
//    public:
//     Op(bulkhead::Gate& gate, bulkhead::AcquireOptions options)
//         : AsyncAcquire(gate, &watch_), watch_(std::move(options)) {}
//     void go() { if (start(watch_.options())) on_decided(); }
//    private:
//     void on_decided() noexcept override { use(result()); }
//     bulkhead::AcquireWatch watch_;
//   };
//
// The object is the waiter in line. Of that base class the owner may use only `next`, once the acquisition is decided.
// Do not move it before that. Its destructor takes it out of the line and gives back units that were not taken; it may
// run on the thread that would call on_decided() (but not in a hook of the gate), and only while no other thread decides
// the acquisition. The watch may be a member of the derived class, or live longer.
// Threads: start() and result() are for the owner; any thread may call cancel() while the object exists.
// Cost: 136 bytes, and 400 for the watch; nothing allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

#include "bulkhead/gate.h"

namespace bulkhead {

class AsyncAcquire;

// Watches the time and the stop_token of an acquisition that waits. `deadlines` fires the timeout; null: the driver of
// the gate. Adapters to event loops pass their own driver for each operation.
class AcquireWatch final : private Alarm {
 public:
  explicit AcquireWatch(AcquireOptions options, DeadlineDriver* deadlines = nullptr) noexcept
      : options_(std::move(options)), deadlines_(deadlines) {
    // Copied: it is read when the call is admitted, and the caller's string may be destroyed by then.
    options_.label = {label_, options_.label.copy(label_, sizeof label_)};
  }
  ~AcquireWatch();  // ends its acquisition unless the result is taken, because the result needs the watch
  const AcquireOptions& options() const noexcept { return options_; }

  // Whether an acquisition with these options needs a watch while it waits.
  static bool needed(const Gate& gate, const AcquireOptions& options) noexcept {
    return needed(gate, options.timeout, options.deadline, options.stop);
  }
  static bool needed(const Gate& gate, std::chrono::nanoseconds timeout, TimePoint deadline,
                     const std::stop_token& stop) noexcept;

 private:
  friend class AsyncAcquire;
  struct Cancel {
    AsyncAcquire& waiter;
    void operator()() const noexcept;
  };
  void arm(AsyncAcquire& waiter, std::int64_t until) noexcept;
  void disarm(Gate& gate) noexcept;
  bool expire() noexcept override;
  void expired() noexcept override;

  DeadlineDriver& deadlines(Gate& gate) const noexcept;

  AcquireOptions options_;
  char
      label_[Holder::kMaxLabel + 1];  // one more than Holders shows, so that it can see that the label is cut
  DeadlineDriver* deadlines_;
  AsyncAcquire* waiter_ = nullptr;  // from joining the line until the result is taken
  std::optional<std::stop_callback<Cancel>> cancel_;
  detail::Wakes<detail::StdPlatform> wakes_;  // waiters that were admitted because this one timed out
  bool armed_ = false;
};

class AsyncAcquire : protected detail::Waiter<detail::StdPlatform> {
 public:
  AsyncAcquire(const AsyncAcquire&) = delete;
  AsyncAcquire& operator=(const AsyncAcquire&) = delete;

  // True: decided at once, take the result(). False: on_decided() is called exactly once, possibly before start()
  // returns, so the object may be destroyed by then. With a watch, pass its options. Once the result is taken, the
  // acquisition can be started again.
  bool start(const AcquireOptions& options) noexcept;
  Result<Permit> result() noexcept;  // once, after it is decided
  // Takes it out of the line and calls on_decided(). False: it is not in line, or is decided already.
  bool cancel(Reason reason = Reason::cancelled) noexcept;

 protected:
  // When on_decided() runs. in_turn: after the other completions of this thread, so that code that releases permits does
  // not nest. at_once: inside the decision, for owners that only pass the result on.
  enum class Tell : std::uint8_t { in_turn, at_once };

  // Without a watch, start it with options that need none (AcquireWatch::needed); the owner must then keep it and the
  // gate alive until it is decided.
  AsyncAcquire(Gate& gate, AcquireWatch* watch, Tell tell = Tell::in_turn) noexcept;
  virtual ~AsyncAcquire();

  // Runs on the thread that decided, without a lock. May destroy this object and call the gate.
  virtual void on_decided() noexcept = 0;
  Gate& gate() const noexcept { return gate_; }
  // With Tell::at_once: joins the line as a call of Priority::normal, cost 1 and without a watch. False: not possible
  // now, use start().
  bool join() noexcept;
  // Gives the unit of its permit to the next acquisition of its kind in line and returns it; on_decided() is not called.
  // Null: there is none, and the permit is unchanged.
  AsyncAcquire* hand_on() noexcept;

 private:
  friend class Gate;
  friend class AcquireWatch;
  friend class detail::Completions;
  using Waiter = detail::Waiter<detail::StdPlatform>;
  enum class Stage : std::uint8_t { idle, started, posted, over };

  static void post(Waiter& w) noexcept;
  static void tell_at_once(Waiter& w) noexcept;
  void decided_by_others() noexcept;
  void let_go() noexcept;
  void abandon() noexcept;

  Stage stage_ = Stage::idle;
  bool waited_ = false;
  bool pinned_ = false;  // set from joining the line until the result is taken, if it has a watch

 protected:
  Permit permit_;  // set if it was admitted at once; for the owner once the result is taken

 private:
  Gate& gate_;
  AcquireWatch* watch_;
};

}  // namespace bulkhead

#include "bulkhead/detail/gate_calls.h"
