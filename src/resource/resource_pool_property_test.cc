// Random command sequences on a real pool, on virtual time and maintained by hand, and on a model beside
// it. After every command the same things must be on loan, idle (in the same order) and alive, each
// caller must have been told the same, and the real things must never have been more than allowed.
//
// A failure prints the shortest sequence found that still fails, and RC_PARAMS to run it again.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/resource_pool.h"

namespace bulkhead {
namespace {

using std::chrono::milliseconds;

enum class Do : std::uint8_t {
  acquire,
  wait,
  give_back,
  broken,
  dirty,
  advance,
  maintain,
  resize,
  fail,
  spoil,
  close
};
constexpr const char* kNames[] = {"acquire",  "wait",   "give_back", "broken", "dirty", "advance",
                                  "maintain", "resize", "fail",      "spoil",  "close"};

struct Command {
  Do what{};
  std::uint32_t n = 0;
};
std::ostream& operator<<(std::ostream& out, const Command& c) {
  return out << kNames[static_cast<int>(c.what)] << "(" << c.n << ")\n";
}
rc::Gen<Command> command() {
  return rc::gen::build<Command>(
      rc::gen::set(&Command::what, rc::gen::weightedElement<Do>({{30, Do::acquire},
                                                                 {15, Do::wait},
                                                                 {25, Do::give_back},
                                                                 {5, Do::broken},
                                                                 {5, Do::dirty},
                                                                 {15, Do::advance},
                                                                 {20, Do::maintain},
                                                                 {6, Do::resize},
                                                                 {6, Do::fail},
                                                                 {6, Do::spoil},
                                                                 {1, Do::close}})),
      rc::gen::set(&Command::n, rc::gen::inRange<std::uint32_t>(0, 12)));
}

struct Shape {
  std::uint32_t max = 1, max_queue = 0, min_idle = 0;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "max " << s.max << ", queue " << s.max_queue << ", min_idle " << s.min_idle;
}
rc::Gen<Shape> shape() {
  return rc::gen::build<Shape>(rc::gen::set(&Shape::max, rc::gen::inRange<std::uint32_t>(2, 6)),
                               rc::gen::set(&Shape::max_queue, rc::gen::inRange<std::uint32_t>(0, 4)),
                               rc::gen::set(&Shape::min_idle, rc::gen::inRange<std::uint32_t>(0, 3)));
}

constexpr int kValidateAfter = 4, kIdle = 9, kLife = 25, kBackoff = 3, kBackoffMax = 8;  // ms

// What a call was told: the number of its thing, or why not.
constexpr int kFull = -1, kFailing = -2, kClosed = -3, kNoThing = 0;

struct ModelThing {
  int id, opened, idle_since;
  bool suspect;
};

// The pool as one would write it for one thread, without any thought of speed.
struct Model {
  Shape shape;
  int now = 0, made = 0, failures = 0, retry_at = 0;
  std::uint32_t limit = shape.max;
  bool down = false, closed = false;
  std::vector<ModelThing> idle{};  // the last is lent first
  std::map<int, ModelThing> lent{};
  std::vector<ModelThing> doomed{};
  struct Job {  // by hand: what the next maintenance does first
    int call = 0;
    std::optional<ModelThing> cleaning{};
  };
  std::deque<Job> jobs{};
  std::deque<int> line{};  // calls that wait
  std::set<int> spoilt{};
  std::map<int, int> told{};  // by call

  std::uint32_t permits() const { return static_cast<std::uint32_t>(lent.size() + jobs.size()); }
  std::uint32_t staying() const {
    std::uint32_t n = static_cast<std::uint32_t>(lent.size() + idle.size());
    for (const Job& j : jobs) n += j.cleaning.has_value();
    return n;
  }
  std::uint32_t alive() const { return staying() + static_cast<std::uint32_t>(doomed.size()); }
  std::uint32_t allowed() const { return closed ? 0 : limit; }

  bool expired(const ModelThing& t) const { return now >= t.opened + kLife; }
  bool fresh(const ModelThing& t) const {
    return !expired(t) && !t.suspect && now - t.idle_since < kValidateAfter;
  }
  void lend(int call, ModelThing t) {
    told[call] = t.id;
    t.suspect = false;
    lent[t.id] = t;
  }
  std::optional<ModelThing> open() {
    if (down) {
      ++failures;
      retry_at = now + std::min(kBackoff << std::min(failures - 1, 20), kBackoffMax);
      return std::nullopt;
    }
    failures = 0;
    return ModelThing{++made, now, now, false};
  }
  // Of a call that is admitted. False: it has no thing, and its permit is free again.
  bool obtain(int call) {
    while (!idle.empty()) {
      const ModelThing t = idle.back();
      idle.pop_back();
      if (expired(t) || (!fresh(t) && spoilt.contains(t.id))) {
        doomed.push_back(t);
      } else {
        lend(call, t);
        return true;
      }
    }
    if (closed) return told[call] = kClosed, false;
    if (failures > 0 && now < retry_at) return told[call] = kFailing, false;
    while (alive() >= limit && !doomed.empty()) doomed.pop_back();  // it closes them itself
    if (alive() >= limit) return told[call] = kFull, false;         // admitted before a shrink
    const auto t = open();
    if (!t) return told[call] = kFailing, false;
    lend(call, *t);
    return true;
  }
  void acquire(int call) {
    if (closed)
      told[call] = kClosed;
    else if (permits() >= limit)
      told[call] = kFull;
    else
      static_cast<void>(idle.empty() || !fresh(idle.back()) ? obtain(call) : (take_top(call), true));
  }
  void take_top(int call) {
    const ModelThing t = idle.back();
    idle.pop_back();
    lend(call, t);
  }
  void admit_waiting(int call) {
    if (!idle.empty() && fresh(idle.back()))
      take_top(call);
    else
      jobs.push_back({.call = call});
  }
  void wait(int call) {
    told[call] = kNoThing;
    if (closed)
      told[call] = kClosed;
    else if (permits() < limit)
      admit_waiting(call);
    else if (line.size() >= shape.max_queue)
      told[call] = kFull;
    else
      line.push_back(call);
  }
  // A permit was given back, and with it perhaps others that wait.
  void serve() {
    while (!closed && !line.empty() && permits() < limit) {
      const int call = line.front();
      line.pop_front();
      admit_waiting(call);
    }
  }
  void put_back(ModelThing t) {
    t.idle_since = now;
    if (staying() + 1 > allowed())  // + 1: this one is in no list at the moment
      doomed.push_back(t);
    else
      idle.push_back(t);
  }
  void give_back(int id, bool broken, bool dirty) {
    const ModelThing t = lent.at(id);
    lent.erase(id);
    if (broken) {
      doomed.push_back(t);
      for (ModelThing& other : idle) other.suspect = true;
    } else if (dirty) {
      jobs.push_back({.cleaning = t});
      return;
    } else {
      put_back(t);
    }
    serve();
  }
  void doom_surplus() {
    while (staying() > allowed() && !idle.empty()) {
      doomed.push_back(idle.front());
      idle.erase(idle.begin());
    }
  }
  void maintain() {
    while (!jobs.empty()) {
      const Job job = jobs.front();
      // Its permit is still held while it works, so it leaves the list only afterwards.
      if (job.cleaning) {
        jobs.pop_front();
        put_back(*job.cleaning);
        serve();
      } else {
        jobs.pop_front();
        if (!obtain(job.call)) serve();
      }
    }
    doomed.clear();
    doom_surplus();
    std::vector<ModelThing> kept;
    for (auto t = idle.rbegin(); t != idle.rend(); ++t)  // the last returned first
      if (!expired(*t) && (kept.size() < shape.min_idle || now < t->idle_since + kIdle))
        kept.insert(kept.begin(), *t);
      else
        doomed.push_back(*t);
    idle = kept;
    while (!closed && idle.size() < shape.min_idle && alive() < limit && !(failures > 0 && now < retry_at))
      if (const auto t = open()) idle.push_back(*t);
    doomed.clear();
  }
  void resize(std::uint32_t n) {
    limit = n;
    doom_surplus();
    serve();
  }
  void close() {
    closed = true;
    for (const int call : line) told[call] = kClosed;
    line.clear();
    doom_surplus();
  }
};

struct Thing {
  int id;
};

class Playing {
 public:
  explicit Playing(const Shape& shape) : shape_(shape), model_{.shape = shape}, pool_(options(shape)) {}
  ~Playing() {
    pool_.close();  // those who wait are told before the leases go
    pool_.maintain(clock_.now());
    leases_.clear();
  }

  void operator()(const Command& c) {
    const auto nth = [&] {
      auto lease = leases_.begin();
      std::advance(lease, c.n % leases_.size());
      return lease;
    };
    switch (c.what) {
      case Do::acquire: {
        const int call = ++calls_;
        model_.acquire(call);
        answer(call, pool_.acquire({.timeout = milliseconds(0)}));
        break;
      }
      case Do::wait: {
        const int call = ++calls_;
        model_.wait(call);
        told_[call] = kNoThing;
        pool_.async_acquire({},
                            [this, call](ResourceResult<Thing> lease) { answer(call, std::move(lease)); });
        break;
      }
      case Do::give_back:
      case Do::broken:
      case Do::dirty: {
        if (leases_.empty()) return;
        auto lease = nth();
        const int id = lease->first;
        if (c.what == Do::broken) lease->second.mark_broken();
        if (c.what == Do::dirty) dirty_.insert(id);
        model_.give_back(id, c.what == Do::broken, c.what == Do::dirty);
        Lease<Thing> dying = std::move(lease->second);
        leases_.erase(lease);
        break;
      }
      case Do::advance:
        model_.now += static_cast<int>(c.n);
        clock_.advance(milliseconds(c.n));
        break;
      case Do::maintain:
        model_.maintain();
        pool_.maintain(clock_.now());
        break;
      case Do::resize:
        if (model_.closed) return;
        model_.resize(std::max(1 + c.n % 6, shape_.min_idle));
        pool_.resize(std::max(1 + c.n % 6, shape_.min_idle));
        break;
      case Do::fail:
        down_ = model_.down = c.n % 2;
        break;
      case Do::spoil:
        spoilt_.insert(static_cast<int>(c.n));
        model_.spoilt.insert(static_cast<int>(c.n));
        break;
      case Do::close:
        model_.close();
        pool_.close();
        break;
    }
    compare();
  }

 private:
  ResourceOptions<Thing> options(const Shape& shape) {
    return {.name = "model",
            .max = shape.max,
            .min_idle = shape.min_idle,
            .open = [this](const Opening&) -> Result<Thing, std::string> {
              if (down_) return Unexpected("down");
              alive_.insert(++made_);
              return Thing{made_};
            },
            .validate = [this](Thing& thing) { return !spoilt_.contains(thing.id); },
            .dirty = [this](Thing& thing) { return dirty_.contains(thing.id); },
            .reset = [this](Thing& thing) { return dirty_.erase(thing.id) == 1; },
            .dispose = [this](Thing& thing) { wrong_ += alive_.erase(thing.id) != 1; },
            .validate_after = milliseconds(kValidateAfter),
            .idle_timeout = milliseconds(kIdle),
            .max_lifetime = milliseconds(kLife),
            .lifetime_jitter = 0,
            .backoff = {.initial = milliseconds(kBackoff), .max = milliseconds(kBackoffMax), .jitter = 0},
            .gate = {.max_queue = shape.max_queue},
            .maintenance = Maintenance::by_hand,
            .clock = &clock_};
  }

  void answer(int call, ResourceResult<Thing> lease) {
    wrong_ += told_[call] != kNoThing;  // an assertion must not leave a handler
    if (lease) {
      told_[call] = (*lease)->id;
      wrong_ += !alive_.contains((*lease)->id);
      wrong_ += !leases_.emplace((*lease)->id, *std::move(lease)).second;
    } else if (lease.error().failed()) {
      told_[call] = kFailing;
    } else {
      told_[call] = lease.error().rejection->reason == Reason::shutdown ? kClosed : kFull;
    }
  }

  void compare() {
    RC_ASSERT(wrong_ == 0);
    RC_ASSERT(told_ == model_.told);
    std::vector<int> lent, model_lent;
    for (const auto& [id, lease] : leases_) lent.push_back(id);
    for (const auto& [id, thing] : model_.lent) model_lent.push_back(id);
    RC_ASSERT(lent == model_lent);
    const ResourceSnapshot s = pool_.snapshot();
    RC_ASSERT(s.idle == model_.idle.size());
    RC_ASSERT(s.used == model_.lent.size());
    RC_ASSERT(s.closing == model_.doomed.size());
    RC_ASSERT(s.alive == model_.alive());
    RC_ASSERT(s.alive == alive_.size());
    RC_ASSERT(s.alive == s.used + s.idle + s.opening + s.cleaning + s.closing);
    RC_ASSERT(s.gate.in_flight == model_.permits());
    RC_ASSERT(s.gate.waiting == model_.line.size());
    RC_ASSERT(s.failures == static_cast<std::uint32_t>(model_.failures));
    RC_ASSERT(s.opened == s.closed + s.alive);
  }

  const Shape shape_;
  ManualClock clock_;
  bool down_ = false;
  int made_ = 0, calls_ = 0, wrong_ = 0;
  std::set<int> alive_, spoilt_, dirty_;
  std::map<int, int> told_;
  Model model_;
  std::map<int, Lease<Thing>> leases_;
  ResourcePool<Thing> pool_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSequences = 300;
#else
constexpr int kSequences = 3000;
#endif

TEST(ResourcePoolProperty, LendsOpensAndClosesLikeTheModel) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, kSequences);
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = "ResourcePoolProperty";
  const auto result = rc::detail::checkTestable(
      [] {
        const auto run = std::make_unique<Playing>(*shape());
        for (const Command& c : *rc::gen::scale(1.5, rc::gen::container<std::vector<Command>>(command())))
          (*run)(c);
      },
      metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str() << "\nRC_PARAMS=\"seed=" << params.seed << "\"";
}

}  // namespace
}  // namespace bulkhead
