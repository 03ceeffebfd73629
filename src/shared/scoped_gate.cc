#include "shared/scoped_gate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "gate/completions.h"

namespace bulkhead {

UnitSources& SourcesByScope::of(const Request& request) const {
  UnitSources* const source = request.scope == Scope::fleet ? fleet_ : host_;
  if (!source)
    base::throw_invalid(base::join({"bulkhead \"", request.bulkhead, "\": scope = ", to_string(request.scope),
                                    " is not available here: give SourcesByScope a source for it"}));
  return *source;
}

}  // namespace bulkhead

namespace bulkhead::shared {
namespace {

UnitSources::Request request(const GateOptions& o, Scope scope, bool weighed) {
  return {.scope = scope,
          .bulkhead = o.name,
          .max_concurrent = o.max_concurrent,
          .critical_reserve = o.critical_reserve,
          .max_queue = o.max_queue,
          .weighed = weighed};
}

void check_fairness(const GateOptions& o, Scope scope) {
  if (o.fairness != Fairness::fifo)
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": fairness cannot be given with scope: ",
                                    to_string(scope), ", whose line is fifo: leave it out"}));
}

}  // namespace

// The critical reserve is a share of all units, so the source keeps it, and not this gate.
ScopedGate::ScopedGate(GateOptions o, Scope scope, UnitSources& sources, bool weighed)
    : source_((check_fairness(o, scope), sources.open(request(o, scope, weighed), *this))),
      gate_(std::move(o), {this, 0, 0, source_->limit(), source_.get()}) {
  ceiling_ = source_->limit();
  whole_.store(true, std::memory_order_release);
  settle();  // what the source may have said meanwhile
}

// Without a line no message of the source is needed; the calls in flight still give their units back.
ScopedGate::~ScopedGate() {
  gate_.close();
  source_->mute();
}

void ScopedGate::check(const GateOptions& o, Scope scope, const UnitSources& sources, bool weighed) {
  check_fairness(o, scope);
  sources.check(request(o, scope, weighed));
}

// A line is in the way of `w`. It may go first if all calls in line are of a lower priority.
bool ScopedGate::admit(const Waiter& w, bool) noexcept {
  const detail::MutexLock lock(mutex_);
  if (gate_.try_enter(w).waits || !source_->take({.priority = w.tier, .cost = w.cost})) return false;
  gate_.let_in_anyway(w);
  return true;
}

void ScopedGate::settle() noexcept {
  Wakes wakes;
  bool refit = false;
  gate_.pin();
  {
    const detail::MutexLock lock(mutex_);
    refit = follow_limit();
    serve(wakes);
  }
  if (refit) gate_.refit(wakes);
  gate_.unpin_and_tell(wakes);
}

void ScopedGate::units_may_be_free() noexcept {
  if (!whole_.load(std::memory_order_acquire)) return;
  // Handlers that this lets in run at the end, when nothing here is needed any more: they may destroy the gate.
  const detail::Completions::Together all;
  settle();
}

// Another process may have changed the limit. True: calls in line may cost more than can ever be available.
bool ScopedGate::follow_limit() noexcept {
  const std::uint32_t limit = source_->limit();
  if (limit == ceiling_) return false;
  gate_.reshape(0, limit);
  return std::exchange(ceiling_, limit) > limit;
}

void ScopedGate::serve(Wakes& wakes) noexcept {
  for (bool known = false;;) {
    const auto hunger = gate_.hunger();
    if (hunger.cost == 0 || gate_.closed()) return source_->set_head(nullptr);
    const UnitSource::Head head{.priority = hunger.tier,
                                .cost = hunger.cost,
                                .since = TimePoint(std::chrono::nanoseconds(hunger.since)),
                                .line = std::max(hunger.cost, gate_.waiting() + hunger.cost - 1)};
    if (source_->take(head)) {
      known = false;
      // The first call may have left, or another one come before it.
      const std::uint32_t used = gate_.let_in_first(head.cost, wakes);
      if (used < head.cost) source_->give_back(head.cost - used);
    } else {
      // Once more after the source knows it: units that came back before that were offered to no process.
      if (std::exchange(known, true)) return;
      source_->set_head(&head);
    }
  }
}

bool ScopedGate::resize(std::uint32_t limit) noexcept {
  {
    const detail::MutexLock lock(mutex_);
    if (!source_->resize(limit)) return false;
  }
  settle();
  return true;
}

std::uint32_t ScopedGate::in_flight(std::uint32_t counted) const noexcept {
  return std::min(counted, source_->in_use());
}

UnitUser::Usage ScopedGate::usage() const noexcept {
  if (!whole_.load(std::memory_order_acquire)) return {};
  const Snapshot s = gate_.snapshot();
  Usage usage{.arrived = s.admitted + s.waiting, .admitted = s.admitted, .in_flight = gate_.in_flight()};
  for (const Reason r : {Reason::concurrency_limit, Reason::queue_limit, Reason::timeout, Reason::evicted})
    usage.arrived += s.rejected_by_reason[static_cast<std::size_t>(r)];
  return usage;
}

}  // namespace bulkhead::shared
