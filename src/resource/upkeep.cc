// upkeep.cc - things are opened, closed and looked after.
#include <algorithm>
#include <cmath>

#include "base/futex.h"
#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/core.h"
#include "resource/util.h"

namespace bulkhead::detail {

using std::chrono::nanoseconds;

// ---- opening ----

// A slot for one more, under the lock; null if there may not be one now.
ResourceSlot* ResourceCore::begin_opening(Lock&) {
  if (closed_ || alive_ >= limit_) return nullptr;
  if (failures_ > 0 && opening_ > 0)
    return nullptr;  // one tries whether it is better now; the others wait for that
  if (budget_ && !budget_->state_->take()) return nullptr;
  ResourceSlot* slot = nullptr;
  if (vacant_.empty()) {
    slot = &idle_.grow();
  } else {
    slot = vacant_.back();
    vacant_.pop_back();
  }
  slot->state.store(SlotState::opening, std::memory_order_relaxed);  // relaxed: read under the lock
  slot->broken = slot->suspect = false;
  ++opening_;
  most_alive_ = std::max<std::uint32_t>(most_alive_, ++alive_);
  return slot;
}

Opening ResourceCore::opening() const {
  return {.deadline = after(clock_.now(), settings_.connect_timeout), .stop = closing_.get_token()};
}

std::expected<void, std::string> ResourceCore::open_into(ResourceSlot& slot) {
  const TimePoint began = clock_.now();
  const Opening o = opening();
  auto made =
      guarded([&] { return operations_.open(o); },
              [](const char* what) { return std::expected<void*, std::string>(std::unexpect, what); });
  if (!made) {
    failed_to_open(slot, made.error());
    return std::unexpected(std::move(made).error());
  }
  if (times_) times_->open.record(static_cast<std::uint64_t>((clock_.now() - began).count()));
  opened(slot, *made, clock_.now());
  return {};
}

void ResourceCore::open_elsewhere(ResourceSlot& slot) {
  run_job([this, &slot] {
    if (open_into(slot)) put_back(slot);
  });
}

void ResourceCore::opened(ResourceSlot& slot, void* thing, TimePoint now) {
  slot.thing = thing;
  slot.idle_since = now;
  count_.opened.fetch_add(1, std::memory_order_relaxed);
  bool was_failing = false, sooner = false;
  {
    const Lock lock(mutex_);
    const double share = 1 - settings_.lifetime_jitter * random();
    slot.expires = settings_.max_lifetime == wait_forever
                       ? no_deadline
                       : after(now, nanoseconds(static_cast<std::int64_t>(
                                        static_cast<double>(settings_.max_lifetime.count()) * share)));
    --opening_;
    was_failing = std::exchange(failures_, 0) > 0;
    sooner = slot.expires < at;  // if that is past, the alarm has rung, and maintenance will see this one
    slot.state.store(SlotState::lent, std::memory_order_relaxed);  // relaxed: under the lock
  }
  if (was_failing) changed();  // those who waited for this try may open theirs
  if (sooner) kick();
}

void ResourceCore::failed_to_open(ResourceSlot& slot, std::string why) {
  {
    Lock lock(mutex_);
    --opening_;
    ++failures_ever_;
    last_failure_ = std::move(why);
    const double doublings = std::min<double>(failures_, 40);
    ++failures_;
    const double delay =
        std::min(static_cast<double>(settings_.backoff.initial.count()) * std::exp2(doublings),
                 static_cast<double>(settings_.backoff.max.count()));
    retry_at_ =
        after(clock_.now(),
              nanoseconds(static_cast<std::int64_t>(delay * (1 - settings_.backoff.jitter * random()))));
    vacate(lock, slot);
  }
  changed();
  if (budget_) budget_->state_->changed();
}

void ResourceCore::filled(ResourceSlot& slot, void* thing) noexcept {
  const TimePoint now = clock_.now();
  opened(slot, thing, now);
  slot.state.store(SlotState::lent, std::memory_order_relaxed);  // relaxed: as in lend()
  if (clocked_) slot.lent_at.store(ns_of(now), std::memory_order_relaxed);
}

ResourceError ResourceCore::not_filled(ResourceSlot& slot, Permit& permit, std::string why) {
  failed_to_open(slot, std::move(why));
  permit.fail();
  permit.release();
  return failing(clock_.now());
}

// ---- closing ----

void ResourceCore::doom(ResourceSlot& slot, std::atomic<std::uint64_t>& why) noexcept {
  why.fetch_add(1, std::memory_order_relaxed);
  slot.state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
  {
    const Lock lock(mutex_);
    doomed_.push_back(&slot);
  }
  // On a helper of its own: to close one may take long, and neither callers nor others that are to be closed should
  // wait for it.
  if (settings_.maintenance != Maintenance::by_hand) run_job([this] { dispose_one_doomed(); });
  kick();
}

bool ResourceCore::dispose_one_doomed() {
  ResourceSlot* slot = nullptr;
  {
    const Lock lock(mutex_);
    if (doomed_.empty()) return false;
    slot = doomed_.back();
    doomed_.pop_back();
    ++closing_now_;
  }
  dispose(*slot);
  return true;
}

// Of a slot that is counted in closing_now_.
void ResourceCore::dispose(ResourceSlot& slot) noexcept {
  const struct {
    void operator()(const char*) const {}
  } forget;
  guarded([&] { operations_.dispose(slot.thing); }, forget);
  base::sync_point("resource.dispose.disposed");
  count_.closed.fetch_add(1, std::memory_order_relaxed);
  {
    Lock lock(mutex_);
    --closing_now_;
    vacate(lock, slot);
  }
  changed();
  if (budget_) budget_->state_->changed();
}

void ResourceCore::vacate(Lock&, ResourceSlot& slot) {
  slot.thing = nullptr;
  slot.state.store(SlotState::vacant, std::memory_order_relaxed);  // relaxed: under the lock
  vacant_.push_back(&slot);
  --alive_;
  if (budget_) budget_->state_->give();
}

void ResourceCore::changed() noexcept {
  epoch_.fetch_add(1);
  if (waiting_.load() != 0) base::futex_wake(&epoch_);
}

bool ResourceCore::close_an_idle_one() {
  ResourceSlot* slot = idle_.pop();
  if (!slot) return dispose_one_doomed();
  slot->state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
  count_.surplus.fetch_add(1, std::memory_order_relaxed);
  {
    const Lock lock(mutex_);
    ++closing_now_;
  }
  dispose(*slot);
  return true;
}

// ---- maintenance ----

// Takes every idle thing in hand, the last returned first, and dooms those that `keep` does not want.
// Nobody finds the stack empty because of it: who does looks again under the lock.
template <class Keep>
void ResourceCore::sweep(Lock&, Keep&& keep) {
  ResourceSlot* first = nullptr;
  ResourceSlot* last = nullptr;
  IdleStack::Contents taken = idle_.take_all();
  while (ResourceSlot* slot = idle_.pop(taken)) {
    if (keep(*slot)) {
      if (last)
        IdleStack::join(*last, *slot);
      else
        first = slot;
      last = slot;
    } else {
      slot->state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
      doomed_.push_back(slot);
    }
  }
  if (!first) return;
  idle_.push_chain(*first, *last);
}

// Whatever broke one thing may have broken those that are idle.
void ResourceCore::suspect_all() {
  Lock lock(mutex_);
  sweep(lock, [](ResourceSlot& slot) { return slot.suspect = true; });
}

// The idle ones that were not used for longest go first.
void ResourceCore::doom_surplus(Lock& lock) {
  const std::uint32_t allowed = closed_ ? 0 : limit_.load();
  const std::uint32_t staying = alive_ - closing_now_ - static_cast<std::uint32_t>(doomed_.size());
  if (staying <= allowed) {
    if (!closed_) careful_.store(false);
    return;
  }
  std::uint32_t idle = 0;
  sweep(lock, [&](ResourceSlot&) { return ++idle, true; });
  const std::uint32_t kept = idle - std::min(idle, staying - allowed);
  std::uint32_t seen = 0;
  sweep(lock, [&](ResourceSlot&) {
    if (seen++ < kept) return true;
    count_.surplus.fetch_add(1, std::memory_order_relaxed);
    return false;
  });
}

// Whether a lent thing is past its lifetime; gives the time when the next one will be. Under the lock.
TimePoint ResourceCore::look_for_aged(TimePoint now) {
  if (settings_.maintenance == Maintenance::by_hand || settings_.max_lifetime == wait_forever)
    return no_deadline;
  TimePoint next = no_deadline;
  bool aged = false;
  aged_.store(false);  // before the look: an alarm that rings meanwhile stays heard
  for (std::uint32_t i = 0; i < idle_.size(); ++i) {
    const ResourceSlot& slot = idle_.at(i);
    // Relaxed: `expires` is written under the lock, and a state that is out of date only makes this look twice.
    const SlotState state = slot.state.load(std::memory_order_relaxed);
    if (state == SlotState::vacant || state == SlotState::opening || state == SlotState::closing) continue;
    if (slot.expires <= now)
      aged = true;
    else
      next = std::min(next, slot.expires);
  }
  if (aged) aged_.store(true);
  return next;
}

TimePoint ResourceCore::maintain(TimePoint now) {
  run_jobs_by_hand();
  while (dispose_one_doomed()) {
  }
  TimePoint next = no_deadline;
  {
    Lock lock(mutex_);
    doom_surplus(lock);
    std::uint32_t idle = 0;
    sweep(lock, [&](ResourceSlot& slot) {
      if (slot.idle_since == TimePoint()) slot.idle_since = now;
      if (now >= slot.expires) {
        count_.expired.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      const TimePoint idle_until =
          idle < settings_.min_idle ? no_deadline : after(slot.idle_since, settings_.idle_timeout);
      if (now >= idle_until) {
        count_.idled_out.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      next = std::min({next, slot.expires, idle_until});
      ++idle;
      return true;
    });
    if (settings_.maintenance == Maintenance::by_hand && idle > 0) next = std::min(next, after(now, rhythm_));
    while (!closed_ && idle + opening_ < settings_.min_idle) {
      if (failures_ > 0 && now < retry_at_) {
        next = std::min(next, retry_at_);
        break;
      }
      ResourceSlot* slot = begin_opening(lock);
      if (!slot) break;
      lock.unlock();
      if (open_into(*slot)) {
        put_back(*slot);
        ++idle;
      }
      lock.lock();
    }
  }
  while (dispose_one_doomed()) {
  }
  watch(next);
  return next;
}

// Sets the alarm for the next time there is something to do.
void ResourceCore::watch(TimePoint next) {
  if (settings_.maintenance == Maintenance::by_hand) return;
  const Lock lock(mutex_);
  if (stopped_) return;
  clock_.deadlines().disarm(*this);
  const TimePoint now = clock_.now();
  next = std::min(next, look_for_aged(now));
  // What was pushed since `next` was worked out is seen here, or its pusher finds watching_ clear and kicks (R5).
  watching_.store(false);
  if (!idle_.empty()) {
    next = std::min(next, after(now, rhythm_));
    watching_.store(true);
  }
  at = next;
  if (next != no_deadline) clock_.deadlines().arm(*this);
}

bool ResourceCore::expire() noexcept {
  aged_.store(true);
  firing_.fetch_add(1,
                    // Relaxed: the destructor's disarm() takes the driver's lock.
                    std::memory_order_relaxed);
  return true;
}

void ResourceCore::expired() noexcept {
  kick();
  firing_.fetch_sub(1, std::memory_order_release);  // release: the destructor waits for it
}

void ResourceCore::kick() noexcept {
  if (settings_.maintenance == Maintenance::by_hand || kicked_.exchange(true)) return;
  watching_.store(true);
  run_job([this] {
    kicked_.store(false);
    maintain(clock_.now());
  });
}

}  // namespace bulkhead::detail
