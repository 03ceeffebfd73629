// async_acquire.h - one asynchronous acquisition, for those who bring their own storage and their own way
// to go on.
//
// Gate::co_acquire, Gate::async_acquire and Pool are made of it, and so are adapters to event loops:
//
//   class Op : public bulkhead::AsyncAcquire {
//    public:
//     Op(Gate& gate, AcquireOptions options) : AsyncAcquire(gate, &watch_), watch_(std::move(options)) {}
//     void go() { if (start(watch_.options())) on_decided(); }
//    private:
//     void on_decided() noexcept override { use(result()); }
//     AcquireWatch watch_;
//   };
//
// It is the waiter in line itself; of that base, only the link `next` is for the owner's use, once it is
// decided. It lives, unmoved, until it is decided; destroying it earlier takes it out of the line (from the
// thread that would be told, or while nobody else is deciding it). Cost: about 150 bytes, and 200 for the
// watch; nothing allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

#include "bulkhead/gate.h"

namespace bulkhead {

class AsyncAcquire;

// Watches the time and the stop_token of an acquisition that waits. `deadlines`: who fires its timeout; null: the
// gate's own. An event loop brings its own for each operation.
class AcquireWatch final : private Alarm {
 public:
  explicit AcquireWatch(AcquireOptions options, DeadlineDriver* deadlines = nullptr) noexcept
      : options_(std::move(options)), deadlines_(deadlines) {
    // It is read when the call is admitted, and the caller's may be gone by then.
    options_.label = {label_, options_.label.copy(label_, sizeof label_)};
  }
  const AcquireOptions& options() const noexcept { return options_; }

  // Whether an acquisition with these options may need to be watched while it waits.
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
  char label_[Holder::max_label + 1];  // one more than is shown: so it is known to be cut
  DeadlineDriver* deadlines_;
  AsyncAcquire* waiter_ = nullptr;
  std::optional<std::stop_callback<Cancel>> cancel_;
  detail::Wakes<detail::StdPlatform> wakes_;  // those who can go because this one's time was up
  bool armed_ = false;
};

class AsyncAcquire : protected detail::Waiter<detail::StdPlatform> {
 public:
  AsyncAcquire(const AsyncAcquire&) = delete;
  AsyncAcquire& operator=(const AsyncAcquire&) = delete;

  // True: decided at once, take the result(). False: on_decided() will be called, exactly once; it may even
  // have been called, and the object be gone, when this returns. With a watch, pass its options.
  // Once the result is taken, it can be started again.
  bool start(const AcquireOptions& options) noexcept;
  Result<Permit> result() noexcept;  // once, after it is decided
  // Takes it out of the line; on_decided() is called from inside. False: it is not in line,
  // or decided already.
  bool cancel(Reason reason = Reason::cancelled) noexcept;

 protected:
  // When on_decided() runs: in turn, after whatever else is being decided on this thread, which keeps the
  // stack flat when it runs code that releases permits; or at once, for those that only pass it on.
  enum class Tell : std::uint8_t { in_turn, at_once };

  // Without a watch it must be started with options that need none, see AcquireWatch::needed; and the owner
  // sees to it that neither it nor the gate goes before it is decided.
  AsyncAcquire(Gate& gate, AcquireWatch* watch, Tell tell = Tell::in_turn) noexcept;
  virtual ~AsyncAcquire();

  // On the thread that decided it, outside all locks. May destroy this object and re-enter the gate.
  virtual void on_decided() noexcept = 0;
  Gate& gate() const noexcept { return gate_; }
  // For those told at once. Joins the line as an ordinary call, normal and of cost 1, that needs no watch;
  // false: not possible just now, start() it.
  bool join() noexcept;
  // Gives the unit of its permit to the next of its kind in line, who is not told; null: nobody, and the permit is
  // as it was.
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

  Stage stage_ = Stage::idle;
  bool waited_ = false;
  bool pinned_ = false;  // from joining the line until the result is taken

 protected:
  Permit permit_;  // if it was admitted at once; the owner's once the result is taken

 private:
  Gate& gate_;
  AcquireWatch* watch_;
};

}  // namespace bulkhead

#include "bulkhead/detail/gate_calls.h"
