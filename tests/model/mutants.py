"""The seeded errors: one edit each to a copy of the shipped source. run_mutants applies, compiles and runs them.

Each must be found. `old` must occur exactly once in the file, so that an entry cannot outlive the code it changes;
`where` names the scenarios that should find it (a part of their name), so that the check runs only those.
"""

TURNSTILE = "include/bulkhead/detail/turnstile.h"
SLOW = "src/gate/slow_path.h"
POSTING = "src/gate/posting.h"
SEQUENCE = "src/gate/sequence.h"
SETTLING = "src/gate/settling.h"
IN_ORDER = "include/bulkhead/detail/in_order.h"


class Mutant:
    def __init__(self, name, file, old, new, where):
        self.name, self.file, self.old, self.new, self.where = name, file, old, new, where


MUTANTS = [
    # ---- the word ----
    Mutant("relaxed_release", TURNSTILE,
           "word_.fetch_add(word::kReleasedOne + cost, std::memory_order_release)",
           "word_.fetch_add(word::kReleasedOne + cost, std::memory_order_relaxed)", "admit_release"),
    Mutant("relaxed_acquire", TURNSTILE,
           "w - cost, std::memory_order_acq_rel, std::memory_order_relaxed)",
           "w - cost, std::memory_order_relaxed, std::memory_order_relaxed)", "admit_release"),
    Mutant("pass_does_not_release", TURNSTILE,
           "w - cost, std::memory_order_acq_rel, std::memory_order_relaxed)",
           "w - cost, std::memory_order_acquire, std::memory_order_relaxed)", "snapshot_heavy"),
    Mutant("relaxed_take", SLOW,
           "x - w.cost, std::memory_order_acq_rel, std::memory_order_relaxed)",
           "x - w.cost, std::memory_order_relaxed, std::memory_order_relaxed)", "admit_release"),
    Mutant("one_unit_too_many", TURNSTILE,
           ">= word::kQuiet + word::kBias + cost;", ">= word::kQuiet + word::kBias + cost - 1;", "try_only"),
    Mutant("pass_ignores_the_line", TURNSTILE,
           "return (w & (word::kReleasedOne - 1)) >= word::kQuiet + word::kBias + cost;",
           "return (w & (word::kQuiet - 1)) >= word::kBias + cost;", "hand_off"),
    # ---- quiet ----
    Mutant("quiet_cleared_without_recheck", SLOW,
           "  do serve(now, wakes);\n  while (settle_quiet(now));",
           "  serve(now, wakes);\n  settle_quiet(now);", "hand_off"),
    Mutant("joins_without_clearing_quiet", SLOW,
           '  P::point("enter.before_recheck");\n  attend(now, wakes);',
           '  P::point("enter.before_recheck");\n  serve(now, wakes);', "hand_off"),
    Mutant("quiet_while_somebody_waits", SLOW,
           "const bool nobody_waits = !w || (poked_ && !starved(w, now));",
           "const bool nobody_waits = !w || poked_ || loose();", "hand_off"),
    Mutant("release_without_slow_path", SLOW,
           "    --slow_releases_;\n    attend(now, wakes);", "    --slow_releases_;", "hand_off"),
    # ---- waiting ----
    Mutant("grant_dropped_on_timeout", SLOW,
           "    if (left) return true;\n    until = kForever;",
           "    if (left) return true;\n    w.verdict = rejected(Reason::timeout);\n    return true;\n    until = kForever;",
           "timeout_vs_release"),
    Mutant("withdraw_takes_back_a_decision", SLOW,
           "        w.early = rejected(reason);\n      return false;",
           "        w.early = rejected(reason);\n      else\n        w.verdict = rejected(reason);\n      return false;", "cancel"),
    Mutant("early_cancel_forgotten", SLOW,
           "        w.early = rejected(reason);\n      return false;", "        ;\n      return false;", "cancel_only"),
    Mutant("poke_not_passed_on", SLOW,
           "    decide(w, rejected(reason));\n    attend(now, wakes);\n  }",
           "    decide(w, rejected(reason));\n  }", "timeout_vs_release"),
    Mutant("poked_forgotten_when_it_leaves", SLOW,
           "  w.queued = false;\n  if (poked_ == &w) poked_ = nullptr;", "  w.queued = false;", "poke_passed_on"),
    Mutant("poked_loser_does_not_rearm", SLOW,
           "      if (poked_ == &w) poked_ = nullptr;\n", "", "poke_passed_on"),
    Mutant("poked_winner_does_not_attend", SLOW,
           "      attend(t, wakes);\n", "      if (!admitted) attend(t, wakes);\n", "poke_passed_on"),
    Mutant("woken_thread_overtakes", SLOW,
           "&& head() == &w && admit(w, t);", "&& admit(w, t);", "hand_off/fifo"),
    Mutant("poke_without_wake", SLOW,
           "  if (wakes.poke) P::wake(wakes.poke);\n", "", "hand_off"),
    Mutant("publish_before_verdict", SLOW,
           "signal->store(Waiter::kDone, std::memory_order_release);\n  P::wake(signal);  // an",
           "signal->store(Waiter::kDone, std::memory_order_relaxed);\n  P::wake(signal);  // an", "hand_off"),
    Mutant("publish_touches_the_dead", SLOW,
           "  P::wake(signal);  // an address only: the waiter may be gone",
           "  if (signal->load(std::memory_order_relaxed) == Waiter::kDone) P::wake(signal);", "hand_off"),
    Mutant("callback_is_only_poked", SLOW,
           "if (loose() && w->is_thread && !starved(w, now)) {", "if (loose() && !starved(w, now)) {", "callback"),
    Mutant("leaves_the_count_late", SLOW,
           "  line_.store(l - line::one(w.tier), std::memory_order_release);\n  if (!take(w, now)) {\n"
           "    line_.store(l, std::memory_order_release);\n    return false;\n  }\n",
           "  if (!take(w, now)) return false;\n  line_.store(l - line::one(w.tier), std::memory_order_release);\n",
           "admit_release"),
    # ---- tiers, cost, reserve ----
    Mutant("evicted_stays_in_line", SLOW, "    leave(victim);\n", "", "evict"),
    Mutant("evicted_is_not_told", SLOW,
           "    decide(victim, rejected(Reason::evicted));\n    wakes.push(victim);",
           "    decide(victim, rejected(Reason::evicted));", "evict"),
    Mutant("evicts_its_equals", SLOW,
           "  if (full && evictable(l, w.tier) == 0 && !(flows_",
           "  if (full && false && !(flows_", "evict_lowest"),
    Mutant("reserve_closed_to_critical", SLOW,
           "  const std::int64_t reserve = w.tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;\n"
           "  if (w.cost > 1) begin();",
           "  const std::int64_t reserve = 0;\n  if (w.cost > 1) begin();", "reserve"),
    Mutant("reserve_open_to_all", SLOW,
           "  const std::int64_t reserve = w.tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;\n"
           "  if (w.cost > 1) begin();",
           "  const std::int64_t reserve = reserve_.load(std::memory_order_relaxed);\n  if (w.cost > 1) begin();",
           "reserve"),
    Mutant("newcomer_overtakes", SLOW,
           "if ((ahead == 0 || (loose() && !starved(head(), now))) && take(w, now)) {", "if (take(w, now)) {", "hand_off/fifo"),
    Mutant("starved_is_overtaken", SLOW,
           "(ahead == 0 || (loose() && !starved(head(), now)))", "(ahead == 0 || loose())", "hand_off/adaptive"),
    # ---- resize, close ----
    Mutant("grow_without_serving", SLOW,
           "    wakes.push(w);\n  }\n  attend(now, wakes);\n  return true;", "    wakes.push(w);\n  }\n  return true;", "grow"),
    Mutant("shrink_beside_the_word", SLOW,
           "  shift(after - before, now);\n", "  if (after > before) shift(after - before, now);\n", "shrink"),
    Mutant("resize_with_the_wrong_sign", SLOW,
           "  shift(after - before, now);\n", "  shift(before - after, now);\n", "grow"),
    Mutant("resize_without_section", SLOW,
           "  begin();\n"
           "  shift(after - before, now);\n"
           "  P::point(\"resize.halfway\");\n"
           "  limit_.store(limit, std::memory_order_release);\n"
           "  reserve_.store(reserve, std::memory_order_release);\n"
           "  end();\n",
           "  shift(after - before, now);\n"
           "  limit_.store(limit, std::memory_order_release);\n"
           "  reserve_.store(reserve, std::memory_order_release);\n", "snapshot_resize"),
    Mutant("hopeless_wait_for_ever", SLOW, "    if (!hopeless(w)) {", "    if (true) {", "hopeless"),
    Mutant("resize_looks_at_one_batch", SLOW,
           "  while (!over) {\n    P::point(\"resize.between_batches\");",
           "  while (false) {\n    P::point(\"resize.between_batches\");", "hopeless"),
    Mutant("scan_loses_its_place", SLOW, "  if (scan_ == &w) scan_ = w.next;\n", "", "leave_during_scan"),
    Mutant("serves_one_batch", SLOW, "    serving_ = wakes.more = false;\n    attend(now, wakes);",
           "    serving_ = wakes.more = false;", "grow_for_all"),
    Mutant("closed_line_is_served", SLOW,
           "  if (serving_ || closed_.load(std::memory_order_relaxed)) return;\n", "  if (serving_) return;\n", "close"),
    Mutant("closes_one_batch", SLOW,
           "  while (!over) {\n    P::point(\"close.between_batches\");",
           "  while (false) {\n    P::point(\"close.between_batches\");", "close"),
    Mutant("close_without_waking", SLOW,
           "    decide(*w, rejected(Reason::shutdown));\n    wakes.push(*w);",
           "    decide(*w, rejected(Reason::shutdown));", "close"),
    Mutant("close_keeps_quiet", SLOW,
           "&& !drains_ && !closed_.load(std::memory_order_relaxed);", "&& !drains_;", "close"),
    Mutant("close_not_seen_in_line", SLOW,
           "  if (closed_.load(std::memory_order_relaxed)) return reject(w, Reason::shutdown);\n", "", "close"),
    # ---- drain, destruction ----
    Mutant("drain_not_notified", SLOW,
           "  allow_posts();\n  check_idle(wakes);", "  allow_posts();", "drain"),
    Mutant("drain_keeps_quiet", SLOW,
           "nobody_waits && !drains_ && !closed_", "nobody_waits && !closed_", "drain"),
    Mutant("drain_left_in_the_list", SLOW, "      *d = drain.next;\n", "", "drain"),
    Mutant("drain_forgets_the_others", SLOW,
           "  while (last->next) last = last->next;\n  last->next = static_cast<Drain*>(wakes.idle);",
           "  last->next = static_cast<Drain*>(wakes.idle);", "drain"),
    Mutant("idle_ignores_releases_on_the_way", SLOW,
           "return !head() && on_the_way == 0 &&", "return !head() && (on_the_way == 0 || true) &&", "destroy"),
    Mutant("release_not_acknowledged", SLOW, "    --slow_releases_;\n", "", "destroy"),
    Mutant("idle_with_units_out", SLOW,
           "         word::room(w) >=\n", "         true || word::room(w) >=\n", "drain"),
    # ---- the inbox of a pool ----
    Mutant("posts_to_a_closed_inbox", POSTING,
           "  if (places == 0) return false;\n", "", "posted"),
    Mutant("inbox_not_closed", POSTING,
           "    inbox_->places.store(0, std::memory_order_relaxed);\n", "", "posted"),
    Mutant("serves_without_looking_at_posts", POSTING,
           "(!tiers_[2].first || inbox_->places.load(std::memory_order_relaxed) != granted_))", "false)", "posted"),
    Mutant("newcomer_before_posts", SLOW,
           "  take_posts();  // they came before\n", "", "posted_full"),
    Mutant("withdraw_misses_posts", SLOW,
           '  P::point("withdraw.before_lock");\n  {\n    MutexLock hold(mutex_);\n    take_posts();\n',
           '  P::point("withdraw.before_lock");\n  {\n    MutexLock hold(mutex_);\n', "posted_cancel"),
    Mutant("close_misses_posts", SLOW,
           "    take_posts();\n    over = reject_all(wakes);", "    over = reject_all(wakes);", "posted_close"),
    Mutant("hand_on_not_acknowledged", POSTING, "  --slow_releases_;  // see D1\n", "", "posted_drain"),
    Mutant("hand_on_in_debt", POSTING,
           "reserve < 0) return nullptr;", "reserve < -9) return nullptr;", "posted_shrink"),
    # ---- permits that change what they hold ----
    Mutant("settle_without_serving", SETTLING, "    attend(now, wakes);\n", "", "settle/"),
    Mutant("settle_counts_as_a_release", SETTLING,
           "word_.fetch_add(units, std::memory_order_release)",
           "word_.fetch_add(word::kReleasedOne + units, std::memory_order_release)", "settle"),
    Mutant("settle_does_not_release_memory", SETTLING,
           "word_.fetch_add(units, std::memory_order_release)",
           "word_.fetch_add(units, std::memory_order_relaxed)", "settle"),
    Mutant("empty_permit_is_idle", SLOW,
           "  if (empty_.load(std::memory_order_relaxed) != 0) return false;", "  ;", "settle_d"),
    Mutant("empty_counted_after_the_units", SETTLING,
           "  if (to == 0) empty_.fetch_add(1, std::memory_order_relaxed);  // published by the addition below\n"
           "  // release: what the call has written is visible to the one that takes these units.\n"
           "  const std::uint64_t w = word_.fetch_add(units, std::memory_order_release);\n",
           "  const std::uint64_t w = word_.fetch_add(units, std::memory_order_release);\n"
           "  if (to == 0) empty_.fetch_add(1, std::memory_order_relaxed);\n", "settle_d"),
    Mutant("empty_released_without_the_lock", SETTLING,
           "  MutexLock hold(mutex_);\n  empty_.fetch_sub(1, std::memory_order_relaxed);\n  return put_back(0) & word::kQuiet;",
           "  const bool quiet = put_back(0) & word::kQuiet;\n  empty_.fetch_sub(1, std::memory_order_relaxed);\n"
           "  return quiet;", "settle_d"),
    Mutant("grows_past_the_line", SETTLING,
           "    if (line::total(l) > line::below(l, tier)) {", "    if (false) {", "settle_grow_behind"),
    Mutant("growth_counted_as_a_call", SETTLING, "      add_heavy(1);  // take() has counted a permit of its own\n", "",
           "settle_"),
    Mutant("grown_from_nothing_stays_empty", SETTLING,
           "      if (held == 0) empty_.fetch_sub(1, std::memory_order_relaxed);\n", "", "settle"),
    Mutant("settle_counted_outside_the_section", SETTLING,
           "  add_heavy(-std::int64_t{units});\n  end();", "  end();\n  add_heavy(-std::int64_t{units});",
           "settle_snapshot"),
    # ---- several gates at once ----
    Mutant("gates_in_the_order_named", IN_ORDER,
           "    while (at > 0 && before(next.gate, wanted[at - 1].gate)) --at;\n", "", "all_of"),
    # ---- numbers ----
    Mutant("reader_trusts_any_instant", SLOW,
           "const bool still = begun_.load(std::memory_order_acquire) == ended;", "const bool still = true;",
           "snapshot_heavy"),
    Mutant("look_trusts_any_instant", SLOW,
           "  MutexLock hold(mutex_);\n  return shape_under_lock();", "  return shape_under_lock();", "snapshot_resize"),
    Mutant("heavy_counted_outside_the_section", SLOW,
           "    if (taken) add_heavy(w.cost - 1);\n    end();", "    end();\n    if (taken) add_heavy(w.cost - 1);",
           "snapshot_heavy"),
    Mutant("end_does_not_release", TURNSTILE,
           "ended_.fetch_add(1, std::memory_order_release)", "ended_.fetch_add(1, std::memory_order_relaxed)",
           "snapshot_heavy"),
    # ---- the order of the calls ----
    Mutant("cost_counted_outside_the_section", SEQUENCE,
           "  if (pass != Turnstile<P>::Pass::no) turnstile.add_heavy(cost - 1);\n  turnstile.end();\n",
           "  turnstile.end();\n  if (pass != Turnstile<P>::Pass::no) turnstile.add_heavy(cost - 1);\n", "snapshot_heavy"),
    Mutant("release_counted_outside_the_section", SEQUENCE,
           "  const bool quiet = give_back();\n  if (failed) turnstile.add_failed();\n",
           "  const bool quiet = give_back();\n  turnstile.end();\n  turnstile.begin();\n  if (failed) turnstile.add_failed();\n",
           "snapshot_heavy"),
    Mutant("evicted_told_after_the_wait", SEQUENCE,
           "  owner.tell(wakes);\n  if (verdict != Verdict::pending) return true;\n",
           "  if (verdict != Verdict::pending) return true;\n", "evict"),
    Mutant("cancelled_is_not_told", SEQUENCE, "  if (left) wakes.push_front(w);\n", "", "cancel_only"),
    Mutant("drain_leaves_without_telling", SEQUENCE, "      if (left) return false;\n", "      return false;\n", "drain"),
]
