// upkeep.cc - resources are opened, validated, cleaned and closed, by helpers or by hand.
#include <algorithm>
#include <cmath>

#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/lending.h"
#include "resource/pool_core.h"
#include "resource/util.h"

namespace bulkhead::detail {

using std::chrono::nanoseconds;

// ---- opening ----

// A slot for one more, under the lock; null if there may not be one now.
ResourceSlot* ResourceCore::begin_opening(bool* no_unit) noexcept {
  if (closed_ || alive_ >= limit_) return nullptr;
  if (failures_ > 0 && opening_ > 0)
    return nullptr;  // one tries whether it is better now; the others wait for that
  if (budget_ && !budget_->state_->take()) {
    if (no_unit) *no_unit = true;
    return nullptr;
  }
  ResourceSlot* slot = nullptr;
  if (!vacant_.empty()) {
    slot = vacant_.back();
    vacant_.pop_back();
  } else if (!guarded(
                 [&] {
                   const std::size_t slots = idle_.size() + 1;
                   // Ahead of the slot, so that no list has to grow where that could not be reported (R8).
                   for (auto* list : {&vacant_, &doomed_})
                     if (list->capacity() < slots) list->reserve(2 * slots);
                   slot = &idle_.grow();
                   return true;
                 },
                 [](auto) { return false; })) {
    if (budget_) budget_->state_->give();
    note_failure("out of memory");
    return nullptr;
  }
  slot->state.store(SlotState::opening, std::memory_order_relaxed);  // relaxed: read under the lock
  slot->broken = slot->suspect = false;
  ++opening_;
  most_alive_ = std::max<std::uint32_t>(most_alive_, ++alive_);
  return slot;
}

Opening ResourceCore::opening() const {
  return {.deadline = saturating_add(clock_.now(), settings_.connect_timeout), .stop = closing_.get_token()};
}

Result<void*, std::string> ResourceCore::make(const Open& open) noexcept {
  const TimePoint began = clock_.now();
  auto made = guarded([&] { return open(opening()); },
                      [](const char* what) { return Result<void*, std::string>(unexpect, text_of(what)); });
  if (made && times_) times_->open.record(static_cast<std::uint64_t>((clock_.now() - began).count()));
  return made;
}

// The opener owns the slot still.
void ResourceCore::opened(ResourceSlot& slot, void* resource, TimePoint now, Aftermath& after) noexcept {
  after.refill |= settings_.min_idle > 0 && failures_ > 0;  // refill() waited for this attempt
  slot.resource = resource;
  slot.idle_since = slot.known_good = now;
  count_.opened.fetch_add(1, std::memory_order_relaxed);
  const double share = 1 - settings_.lifetime_jitter * random();
  slot.expires = settings_.max_lifetime == wait_forever
                     ? no_deadline
                     : saturating_add(now, nanoseconds(static_cast<std::int64_t>(
                                               static_cast<double>(settings_.max_lifetime.count()) * share)));
  --opening_;
  failures_ = 0;
  slot.state.store(SlotState::lent, std::memory_order_relaxed);  // relaxed: under the lock
}

void ResourceCore::note_failure(std::string why) noexcept {
  ++failures_ever_;
  last_failure_ = std::move(why);
  const double doublings = std::min<double>(failures_, 40);
  ++failures_;
  const double delay = std::min(static_cast<double>(settings_.backoff.initial.count()) * std::exp2(doublings),
                                static_cast<double>(settings_.backoff.max.count()));
  retry_at_ = saturating_add(
      clock_.now(),
      nanoseconds(static_cast<std::int64_t>(delay * (1 - settings_.backoff.jitter * random()))));
}

void ResourceCore::failed_to_open(ResourceSlot& slot, std::string why) noexcept {
  --opening_;
  note_failure(std::move(why));
  vacate(slot);
}

void ResourceCore::do_open(ResourceSlot& slot) noexcept {
  Permit held = std::move(slot.held);
  const Open opener = std::exchange(slot.opener, nullptr);
  auto made = make(opener ? opener : operations_.open);
  base::sync_point("resource.opened");
  const bool failed = !made;
  Aftermath after;
  bool sooner = false;
  {
    Lock lock(mutex_);
    --opening_ahead_;
    if (!failed) {
      opened(slot, *made, clock_.now(), after);
      sooner = slot.expires < at;  // if that is past, the alarm has rung, and maintenance will see this one
      hand_in(slot, false, after);
    } else {
      failed_to_open(slot, std::move(made).error());
    }
    serve(after);
  }
  if (failed) unit_freed(after);
  after.refill |= sooner || (failed && settings_.min_idle > 0);
  wake(after);
  held.release();
  Deliveries::run(after.decided);
}

// The claimant gives up, and a helper opens the resource for the next call. The place stays taken until then.
ResourceError ResourceCore::fill_elsewhere(ResourceSlot& slot, Permit& permit, Open open, Reason reason) {
  ResourceError error = gave_up(permit.priority(), reason);
  if (reason == Reason::timeout) count_.timeouts.fetch_add(1, std::memory_order_relaxed);
  visitors_.fetch_add(1, std::memory_order_relaxed);  // relaxed: the permit keeps the pool alive so far
  slot.opener = std::move(open);
  slot.held = std::move(permit);
  {
    Lock lock(mutex_);
    ++opening_ahead_;
    add_job(slot, JobKind::open);
  }
  if (!by_hand()) post(1);
  visitors_.fetch_sub(1, std::memory_order_release);  // release: the pool may end now
  return error;
}

void ResourceCore::filled(ResourceSlot& slot, void* resource) noexcept {
  const TimePoint now = clock_.now();
  Aftermath after;
  {
    Lock lock(mutex_);
    opened(slot, resource, now, after);
    after.refill |= slot.expires < at;
    serve(after);  // seekers that waited for this attempt may open theirs
  }
  if (clocked_) slot.lent_at.store(ns_of(now), std::memory_order_relaxed);
  finish(after);
}

ResourceError ResourceCore::not_filled(ResourceSlot& slot, Permit& permit, std::string why) {
  Aftermath after;
  {
    Lock lock(mutex_);
    failed_to_open(slot, std::move(why));
    serve(after);
  }
  unit_freed(after);
  after.refill = settings_.min_idle > 0;
  ResourceError error = failing(clock_.now());
  wake(after);
  permit.fail();
  permit.release();
  Deliveries::run(after.decided);
  return error;
}

// What was opened, cleaned or validated goes to the first call that waits for it, or onto the stack; `below`: under it.
void ResourceCore::hand_in(ResourceSlot& slot, bool below, Aftermath& after) noexcept {
  if (closed_ || staying() > limit_) return doom(slot, count_.surplus, after);
  if (Seeker* first = seekers_.front()) return assign(*first, slot, after);
  slot.state.store(SlotState::idle, std::memory_order_relaxed);  // relaxed: as in lend()
  if (below)
    sweep([](ResourceSlot&) { return Fate::keep; }, &slot);
  else
    idle_.push(slot);
  after.refill |= !watching_.load() || careful_.load();
  after.reclaim |= budget_ && budget_->state_->hungry.load() != 0;
}

// ---- validating, cleaning ----

bool ResourceCore::still_good(ResourceSlot& slot) const noexcept {
  return !operations_.validate ||
         guarded([&] { return operations_.validate(slot.resource); }, [](auto) { return false; });
}

void ResourceCore::do_validate(ResourceSlot& slot) noexcept {
  const bool checked = slot.job == JobKind::check;
  const bool good = still_good(slot);
  Aftermath after;
  {
    Lock lock(mutex_);
    --(checked ? checking_ : validating_);
    if (good) {
      slot.suspect = false;
      slot.known_good = clock_.now();
      hand_in(slot, checked, after);
    } else {
      doom(slot, count_.invalid, after);
    }
    serve(after);
    // The next one whose time has come, and what min_idle lacks now.
    after.refill |= checked || (!good && settings_.min_idle > 0);
  }
  if (!good) suspect_all();
  finish(after);
}

// The permit is kept while the resource is cleaned: it is not available yet.
void ResourceCore::do_clean(ResourceSlot& slot) noexcept {
  Permit held = std::move(slot.held);
  Aftermath after;
  if (!guarded([&] { return operations_.reset(slot.resource); }, [](auto) { return false; })) {
    doom_now(slot, count_.broken, after);
    suspect_all();
  } else {
    if (stamps_returns_) slot.idle_since = slot.known_good = clock_.glance();
    Lock lock(mutex_);
    hand_in(slot, false, after);
  }
  wake(after);
  held.release();
  Deliveries::run(after.decided);
}

// ---- closing ----

void ResourceCore::doom(ResourceSlot& slot, std::atomic<std::uint64_t>& why, Aftermath& after) noexcept {
  why.fetch_add(1, std::memory_order_relaxed);
  slot.state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
  doomed_.push_back(&slot);
  leaving_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a guess for neighbours
  ++after.jobs;                                      // on a helper of its own: to close one may take long
}

void ResourceCore::doom_now(ResourceSlot& slot, std::atomic<std::uint64_t>& why, Aftermath& after) noexcept {
  Lock lock(mutex_);
  doom(slot, why, after);
}

bool ResourceCore::dispose_one_doomed() noexcept {
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
  guarded([&] { operations_.dispose(slot.resource); }, forget);
  base::sync_point("resource.dispose.disposed");
  count_.closed.fetch_add(1, std::memory_order_relaxed);
  Aftermath after;
  {
    Lock lock(mutex_);
    --closing_now_;
    leaving_.fetch_sub(1, std::memory_order_relaxed);
    vacate(slot);
    serve(after);
  }
  unit_freed(after);
  after.refill |= settings_.min_idle > 0;
  finish(after);
}

void ResourceCore::vacate(ResourceSlot& slot) noexcept {
  slot.resource = nullptr;
  slot.state.store(SlotState::vacant, std::memory_order_relaxed);  // relaxed: under the lock
  vacant_.push_back(&slot);
  --alive_;
  if (budget_) budget_->state_->give();
}

// After a slot was vacated: a neighbour may wait for its unit.
void ResourceCore::unit_freed(Aftermath& after) noexcept {
  if (budget_) budget_->state_->freed(after);
}

bool ResourceCore::close_an_idle_one() noexcept {
  ResourceSlot* slot = idle_.pop();
  if (!slot) return dispose_one_doomed();
  slot->state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
  count_.surplus.fetch_add(1, std::memory_order_relaxed);
  {
    const Lock lock(mutex_);
    ++closing_now_;
    leaving_.fetch_add(1, std::memory_order_relaxed);
  }
  dispose(*slot);
  return true;
}

bool ResourceCore::spare_one() noexcept {
  Aftermath after;
  {
    Lock lock(mutex_);  // so that no sweep has the stack in hand
    ResourceSlot* slot = nullptr;
    while (!slot) {
      slot = idle_.pop();
      if (!slot && idle_.empty()) return false;  // sequentially consistent, unlike the pop: B2
    }
    doom(*slot, count_.surplus, after);
  }
  wake(after);
  return true;
}

// ---- maintenance ----

// Takes every idle resource in hand, the last returned first, and asks look() what is to become of each. `below` is put under
// those that are kept. A call that finds the stack empty meanwhile looks again under the lock.
template <class Look>
void ResourceCore::sweep(Look&& look, ResourceSlot* below) noexcept {
  ResourceSlot* first = nullptr;
  ResourceSlot* last = nullptr;
  const auto keep = [&](ResourceSlot& slot) {
    if (last)
      IdleStack::join(*last, slot);
    else
      first = &slot;
    last = &slot;
  };
  IdleStack::Contents taken = idle_.take_all();
  while (ResourceSlot* slot = idle_.pop(taken)) {
    switch (look(*slot)) {
      case Fate::keep:
        keep(*slot);
        break;
      case Fate::close:
        slot->state.store(SlotState::closing, std::memory_order_relaxed);  // relaxed: as in lend()
        doomed_.push_back(slot);
        leaving_.fetch_add(1, std::memory_order_relaxed);
        break;
      case Fate::check:
        ++checking_;
        slot->state.store(SlotState::validating, std::memory_order_relaxed);
        add_job(*slot, JobKind::check);
        break;
    }
  }
  if (below) keep(*below);
  if (first) idle_.push_chain(*first, *last);
}

// Whatever broke one resource may have broken those that are idle. Without `validate` there is no way to check them.
void ResourceCore::suspect_all() noexcept {
  if (!operations_.validate) return;
  Aftermath after;
  {
    Lock lock(mutex_);
    sweep([](ResourceSlot& slot) { return slot.suspect = true, Fate::keep; });
    serve(after);  // a seeker may have found the stack empty meanwhile
  }
  finish(after);
}

// The idle ones that were not used for longest go first.
void ResourceCore::doom_surplus(Aftermath& after) noexcept {
  const std::uint32_t allowed = closed_ ? 0 : limit_.load();
  const std::uint32_t now = staying();
  if (now <= allowed) {
    if (!closed_) careful_.store(false);
    return;
  }
  std::uint32_t idle = 0;
  sweep([&](ResourceSlot&) { return ++idle, Fate::keep; });
  const std::uint32_t kept = idle - std::min(idle, now - allowed);
  std::uint32_t seen = 0;
  sweep([&](ResourceSlot&) {
    if (seen++ < kept) return Fate::keep;
    count_.surplus.fetch_add(1, std::memory_order_relaxed);
    ++after.jobs;
    return Fate::close;
  });
}

// Whether a lent resource is past its lifetime; gives the time when the next one will be. Under the lock.
TimePoint ResourceCore::look_for_aged(TimePoint now) {
  if (by_hand() || settings_.max_lifetime == wait_forever) return no_deadline;
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

// Closes what is too old or was idle for too long, and has those validated that are due. Gives the time of the next look.
TimePoint ResourceCore::look_after_idle(TimePoint now, Aftermath& after) noexcept {
  TimePoint next = no_deadline;
  std::uint32_t idle = 0, due = 0;
  const auto is_due = [&](const ResourceSlot& slot) {
    return settings_.keepalive != wait_forever && now - slot.known_good >= settings_.keepalive;
  };
  sweep([&](ResourceSlot& slot) {
    mutex_.assert_held();
    if (slot.idle_since == TimePoint()) slot.idle_since = now;
    if (now >= slot.expires) {
      count_.expired.fetch_add(1, std::memory_order_relaxed);
      ++after.jobs;
      return Fate::close;
    }
    const TimePoint idle_until = idle + checking_ < settings_.min_idle
                                     ? no_deadline
                                     : saturating_add(slot.idle_since, settings_.idle_timeout);
    if (now >= idle_until) {
      count_.idled_out.fetch_add(1, std::memory_order_relaxed);
      ++after.jobs;
      return Fate::close;
    }
    next = std::min({next, slot.expires, idle_until});
    ++idle;
    if (is_due(slot))
      ++due;
    else
      next = std::min(next, saturating_add(slot.known_good, settings_.keepalive));
    return Fate::keep;
  });
  if (by_hand() && idle > 0) next = std::min(next, saturating_add(now, rhythm_));
  // From below, where the longest idle are, and a few at a time: the others stay for the callers. The helper that
  // has validated one looks for the next.
  const std::uint32_t at_a_time = by_hand() ? due : 1 + (idle + checking_) / 4;
  const std::uint32_t chosen = std::min(due, at_a_time - std::min(at_a_time, checking_));
  if (chosen == 0) return next;
  std::uint32_t spared = due - chosen;
  sweep([&](ResourceSlot& slot) {
    if (!is_due(slot)) return Fate::keep;
    if (spared > 0) return --spared, Fate::keep;
    ++after.jobs;
    return Fate::check;
  });
  return next;
}

// Opens what min_idle lacks. Gives the time to try again.
TimePoint ResourceCore::refill(TimePoint now, Aftermath& after) noexcept {
  if (settings_.min_idle == 0 || closed_) return no_deadline;
  std::uint32_t idle = checking_;
  // Relaxed: exact for what is opened, which becomes idle under the lock; a lease or a return that is just under way is
  // seen by the next look.
  for (std::uint32_t i = 0; i < idle_.size(); ++i)
    idle += idle_.at(i).state.load(std::memory_order_relaxed) == SlotState::idle;
  for (;;) {
    const std::uint32_t coming = opening_ahead_ + validating_;
    const std::uint32_t spare = coming - std::min(coming, seekers_.size());
    if (idle + spare >= settings_.min_idle) return no_deadline;
    if (backing_off(now)) return retry_at_;
    bool no_unit = false;
    ResourceSlot* slot = begin_opening(&no_unit);
    if (no_unit && !lacks_unit_.exchange(true)) {
      budget_->state_->lacking.fetch_add(1);
      slot = begin_opening();  // B2: a unit may have been given back just before
    }
    if (!slot) return backing_off(now) ? retry_at_ : no_deadline;  // it is called again when there is room
    ++opening_ahead_;
    add_job(*slot, JobKind::open);
    ++after.jobs;
    if (!by_hand()) continue;
    after.jobs = 0;
    mutex_.unlock();
    run_jobs_by_hand();
    mutex_.lock();
    idle = 0;
    for (std::uint32_t i = 0; i < idle_.size(); ++i)
      idle += idle_.at(i).state.load(std::memory_order_relaxed) == SlotState::idle;
  }
}

TimePoint ResourceCore::maintain(TimePoint now) {
  const auto dispose_by_hand = [this] {
    while (by_hand() && dispose_one_doomed()) {
    }
  };
  run_jobs_by_hand();
  dispose_by_hand();
  Aftermath after;
  TimePoint next = no_deadline;
  {
    Lock lock(mutex_);
    doom_surplus(after);
    next = look_after_idle(now, after);
    serve(after);  // a seeker may have found the stack empty meanwhile
  }
  finish(after);
  run_jobs_by_hand();  // what was due for a validation; those that failed it are replaced at once
  {
    Lock lock(mutex_);
    next = std::min(next, refill(now, after));
  }
  finish(after);
  dispose_by_hand();
  watch(next);
  return next;
}

// Sets the alarm for the next time there is something to do.
void ResourceCore::watch(TimePoint next) {
  if (by_hand()) return;
  base::sync_point("resource.watch");
  const Lock lock(mutex_);
  if (stopped_) return;
  clock_.deadlines().disarm(*this);
  const TimePoint now = clock_.now();
  next = std::min(next, look_for_aged(now));
  if (at > now)
    next = std::min(next, at);  // of another look, which may have seen a later state than this one
  // What was pushed since `next` was worked out is seen here, or its pusher finds watching_ clear and kicks (R5).
  watching_.store(false);
  if (!idle_.empty()) {
    next = std::min(next, saturating_add(now, rhythm_));
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

}  // namespace bulkhead::detail
