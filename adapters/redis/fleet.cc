#include "fleet.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/detail/std_mutex.h"
#include "fleet_limit.h"
#include "store.h"

namespace bulkhead::redis {
namespace {

constexpr std::int64_t kConnectTimeout = 2'000'000'000;  // ns, at most

[[noreturn]] void invalid(std::string_view bulkhead, const std::string& problem) {
  throw std::invalid_argument("bulkhead \"" + std::string(bulkhead) + "\": " + problem);
}

shared::LeaseTimes times_of(const FleetSettings& s) noexcept {
  return shared::LeaseTimes::from(s.lease.count(), s.grace.count());
}

// Names the machine, and the process unless the member is all processes of the machine; the rest makes it unique.
std::string member_name(bool of_host) {
  char host[64] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  std::random_device random;
  return std::string(host) + "-" + (of_host ? "" : std::to_string(::getpid()) + "-") +
         std::to_string(std::uint64_t{random()} << 32 | random());
}

}  // namespace

// A thread for what belongs to the application: handlers and coroutines of calls that have waited, and reports. They may take
// longer than a lease, which the other thread has to renew meanwhile.
class Teller {
 public:
  ~Teller() {
    if (!thread_.joinable()) return;
    {
      const detail::MutexLock lock(mutex_);
      stop_ = true;
    }
    ready_.notify_one();
    thread_.join();
  }
  // Once. std::system_error
  void start() {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  void add(std::shared_ptr<FleetLimit> limit) {
    {
      const detail::MutexLock lock(mutex_);
      if (std::ranges::find(limits_, limit) != limits_.end()) return;
      limits_.push_back(std::move(limit));
    }
    ready_.notify_one();
  }
  void add(const Fleet::Report& report, std::string text) {
    {
      const detail::MutexLock lock(mutex_);
      reports_.emplace_back(&report, std::move(text));
    }
    ready_.notify_one();
  }

 private:
  void run() noexcept {
    detail::UniqueLock lock(mutex_);
    for (;;) {
      while (!stop_ && limits_.empty() && reports_.empty()) ready_.wait(lock);
      if (limits_.empty() && reports_.empty()) return;
      const auto limits = std::exchange(limits_, {});
      const auto reports = std::exchange(reports_, {});
      lock.unlock();
      for (const auto& limit : limits) limit->tell();
      for (const auto& [report, text] : reports) (*report)(text);
      lock.lock();
    }
  }

  detail::StdMutex mutex_;
  std::condition_variable ready_;
  std::vector<std::shared_ptr<FleetLimit>> limits_ BULKHEAD_GUARDED_BY(mutex_);
  std::vector<std::pair<const Fleet::Report*, std::string>> reports_ BULKHEAD_GUARDED_BY(mutex_);
  bool stop_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The thread that talks to the store for all limits of this process.
class FleetEngine {
 public:
  FleetEngine(FleetSettings settings, Fleet::Report report, HostLeases* host, Connect connect)
      : report_(std::move(report)),
        host_(host),
        connect_(std::move(connect)),
        forks_((watch_forks(), forks.load())),
        settings_(std::move(settings)) {
    bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell_ < 0) throw std::runtime_error("fleet: no eventfd");
  }

  ~FleetEngine() {
    if (thread_.joinable()) {
      {
        const detail::MutexLock lock(mutex_);
        stop_ = true;
      }
      wake();
      thread_.join();
    }
    ::close(bell_);
  }

  bool forked() const noexcept { return forks_ != forks.load(); }

  FleetSettings settings() const {
    const detail::MutexLock lock(mutex_);
    return settings_;
  }
  void set_settings(const FleetSettings& settings) {
    const detail::MutexLock lock(mutex_);
    if (!thread_.joinable()) settings_ = settings;
  }

  // The first limit starts the threads, so that a fleet without limits costs nothing.
  std::shared_ptr<FleetLimit> add(const UnitSources::Request& r, UnitUser& user) {
    const detail::MutexLock lock(mutex_);
    std::random_device random;
    shared::LeaseOptions o = lease_options(settings_, r);
    FleetLimit::OpenLease open_lease;
    const bool of_host = host_ && host_->available();
    o.member = member_name(of_host);
    o.tie = random();
    if (of_host)
      open_lease = [&](std::function<void()> on_call) {
        mutex_.assert_held();
        return host_->open_lease(r, settings_.store + " " + settings_.prefix, user, std::move(on_call));
      };
    auto limit = std::make_shared<FleetLimit>(
        std::string(r.bulkhead), std::move(o), settings_.mode, r.max_queue > 0, user, [this] { wake(); },
        open_lease);
    if (!thread_.joinable()) {
      store_ = std::make_unique<Store>(store_options(settings_), connect_);
      times_ = times_of(settings_);
      teller_.start();
      thread_ = std::thread([this] { run(); });
    }
    limits_.push_back(limit);
    wake();
    return limit;
  }

  void remove(const std::shared_ptr<FleetLimit>& limit) {
    const detail::MutexLock lock(mutex_);
    std::erase(limits_, limit);
    leaving_.push_back(limit);
    wake();
  }

  std::string problem() const {
    const detail::MutexLock lock(mutex_);
    return problem_;
  }
  HostLeases* host() const noexcept { return host_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    std::shared_ptr<FleetLimit> limit;
    shared::StoreOp op;
    std::uint64_t seq;
  };

  void wake() noexcept {
    if (awake_.exchange(true)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell_, &one, sizeof one);
  }

  void sleep_until(std::int64_t due) noexcept {
    const std::int64_t left = std::max<std::int64_t>(0, due - boot_now());
    const timespec time{left / 1'000'000'000, left % 1'000'000'000};
    pollfd wait{bell_, POLLIN, 0};
    if (::ppoll(&wait, 1, &time, nullptr) <= 0) return;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(bell_, &count, sizeof count);
  }

  void set_problem(const std::string& problem) {
    {
      const detail::MutexLock lock(mutex_);
      if (problem_ == problem) return;
      problem_ = problem;
      for (const auto& limit : limits_) limit->set_problem(problem);
    }
    if (report_ && !problem.empty()) teller_.add(report_, "fleet: " + problem);
  }

  bool stopping() const noexcept {
    const detail::MutexLock lock(mutex_);
    return stop_;
  }

  void run() noexcept {
    for (;;) {
      awake_.store(false);  // before the look at what is to be done
      const bool stop = stopping();
      std::int64_t due = 0;
      try {
        due = turn();
      } catch (const std::exception&) {  // no memory
        due = boot_now() + 20'000'000;
      }
      // A member that could not send its leave is dropped after its lease.
      if (stop) return;
      sleep_until(due);
    }
  }

  // When the next one has to be, at the latest.
  std::int64_t turn() {
    std::vector<std::shared_ptr<FleetLimit>> limits, leaving;
    {
      const detail::MutexLock lock(mutex_);
      limits = limits_;
      leaving.swap(leaving_);
    }
    std::erase_if(leaving, [](const auto& limit) { return !limit->has_to_leave(); });
    bool needed = !leaving.empty();
    for (const auto& limit : limits)
      if (limit->tend(boot_now())) needed = true;
    try {
      if (needed && !store_->connected() && boot_now() >= retry_at_) connect();
      if (store_->connected()) ask(limits, leaving);
    } catch (const std::exception& error) {
      back_off(error.what());
    }
    for (const auto& limit : limits)
      if (limit->has_news()) teller_.add(limit);
    std::int64_t due = boot_now() + 3'600'000'000'000;
    const bool connected = store_->connected();
    for (const auto& limit : limits)
      if (connected || !limit->asks()) due = std::min(due, limit->due());
    if (!connected && needed) due = std::min(due, retry_at_);
    return due;
  }

  // A connection takes up to four round trips (TCP, TLS, the introduction), and is given the time of a heartbeat.
  void connect() {
    store_->connect(Clock::now() + std::chrono::nanoseconds(std::min(times_.heartbeat, kConnectTimeout)));
  }

  // The store has answered requests. A connection alone is not enough: the store may answer all requests with an error.
  void all_is_well() {
    failures_ = 0;
    std::string warnings;
    for (const std::string& w : store_->warnings()) warnings += (warnings.empty() ? "" : "; ") + w;
    set_problem(warnings);
  }

  // Twice as long each time, up to half a heartbeat or a second, and differently in each process.
  void back_off(const std::string& why) {
    set_problem(why);
    const double most = std::min(1e9, static_cast<double>(times_.heartbeat) / 2);
    const double base = std::min(most, 2e7 * std::exp2(std::min(failures_++, 10)));
    retry_at_ =
        boot_now() + static_cast<std::int64_t>(base * std::uniform_real_distribution<>(0.5, 1)(random_));
  }

  void ask(const std::vector<std::shared_ptr<FleetLimit>>& limits,
           const std::vector<std::shared_ptr<FleetLimit>>& leaving) {
    std::vector<Store::Question> questions;
    std::vector<Asked> asked;
    bool lists = false;
    const auto add = [&](const std::shared_ptr<FleetLimit>& limit, shared::StoreRequest r) {
      asked.push_back({limit, r.op, r.seq});
      questions.push_back({limit->name(), std::move(r)});
    };
    for (const auto& limit : limits)
      if (auto r = limit->next(store_->run(), boot_now())) add(limit, std::move(*r));
    for (const auto& limit : leaving) add(limit, limit->leave(store_->run()));
    for (const auto& limit : limits)
      if (auto r = limit->list_request()) {
        lists = true;
        add(limit, std::move(*r));
      }
    if (questions.empty()) return;
    std::vector<Store::Answer> answers;
    const auto sent = Clock::now();
    try {
      answers = store_->exchange(questions, Clock::now() + std::chrono::nanoseconds(times_.reply_timeout));
    } catch (...) {
      for (const Asked& a : asked)
        if (a.op != shared::StoreOp::leave && a.op != shared::StoreOp::list)
          a.limit->on_reply(a.seq, nullptr, 0);
      throw;
    }
    const double took = std::chrono::duration<double>(Clock::now() - sent).count();
    if (!lists)  // making a list of many members takes longer than what calls wait for
      round_trip_ = round_trip_ == 0 ? took : round_trip_ + 0.1 * (took - round_trip_);
    std::string problem;
    bool proved = false;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const shared::StoreReply* const reply = answers[i].ok ? &answers[i].reply : nullptr;
      if (asked[i].op == shared::StoreOp::list) {
        asked[i].limit->on_list(reply);
        continue;
      }
      proved = true;
      if (!reply) problem = "the store answered: " + answers[i].problem;
      if (asked[i].op == shared::StoreOp::leave) continue;
      const std::string news = asked[i].limit->on_reply(asked[i].seq, reply, round_trip_);
      if (!news.empty() && report_) teller_.add(report_, news);
    }
    if (!problem.empty()) throw std::runtime_error(problem);
    // A list is for people: a store without memory still gives the one that it has kept, and an error is known from other requests.
    if (proved) all_is_well();
  }

  const Fleet::Report report_;
  HostLeases* const host_;  // null: each process is a member
  const Connect connect_;   // empty: with a Connection
  const std::uint32_t forks_;
  int bell_ = -1;
  std::atomic<bool> awake_{false};

  mutable detail::StdMutex mutex_;
  FleetSettings settings_ BULKHEAD_GUARDED_BY(mutex_);  // not changed once there is the thread
  std::vector<std::shared_ptr<FleetLimit>> limits_ BULKHEAD_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<FleetLimit>> leaving_ BULKHEAD_GUARDED_BY(mutex_);
  std::string problem_ BULKHEAD_GUARDED_BY(mutex_);
  bool stop_ BULKHEAD_GUARDED_BY(mutex_) = false;

  // Of the thread; made before it starts.
  shared::LeaseTimes times_{};
  std::unique_ptr<Store> store_;
  std::int64_t retry_at_ = 0;
  int failures_ = 0;
  double round_trip_ = 0;
  std::minstd_rand random_{std::random_device()()};

  Teller teller_;
  std::thread thread_ BULKHEAD_GUARDED_BY(mutex_);
};

namespace {

class FleetSource final : public UnitSource {
 public:
  FleetSource(FleetEngine& engine, std::shared_ptr<FleetLimit> limit)
      : engine_(engine), limit_(std::move(limit)) {}
  ~FleetSource() override {
    if (engine_.forked()) return;  // its locks may be held by a thread that is not here
    limit_->mute();
    engine_.remove(limit_);
  }

  bool take(const Head& head) noexcept override { return limit_->take(head); }
  void give_back(std::uint32_t units) noexcept override { limit_->give_back(units); }
  std::uint32_t in_use() const noexcept override { return limit_->in_use(); }
  std::optional<std::uint32_t> host_in_use() const noexcept override { return limit_->host_in_use(); }
  void set_head(const Head* head) noexcept override { limit_->set_head(head); }
  std::uint32_t limit() const noexcept override { return limit_->limit(); }
  bool resize(std::uint32_t limit) noexcept override { return !engine_.forked() && limit_->resize(limit); }
  void mute() noexcept override {
    if (!engine_.forked()) limit_->mute();
  }
  bool describe(FleetSnapshot& now) const override {
    if (engine_.forked()) return false;
    limit_->describe(now);
    now.problem = engine_.problem();
    if (now.problem.empty()) now.problem = limit_->problem_of_agent();
    return true;
  }

 private:
  FleetEngine& engine_;
  std::shared_ptr<FleetLimit> limit_;
};

}  // namespace

Fleet::Fleet(FleetSettings settings, Report report, HostLeases* host, Connect connect) {
  if (!settings.store.empty()) check(settings);
  engine_ = std::make_unique<FleetEngine>(std::move(settings), std::move(report), host, std::move(connect));
}

Fleet::~Fleet() {
  if (engine_->forked()) [[maybe_unused]]
    const auto* lost =
        engine_.release();  // the child of a fork has not its thread, and perhaps not its locks
}

void Fleet::set_settings(const FleetSettings& settings) {
  check(settings);
  engine_->set_settings(settings);
}

// Each message names the setting and what to give.
void Fleet::check(const FleetSettings& s) {
  const auto wrong = [](const std::string& setting, const std::string& problem) {
    throw std::invalid_argument("fleet." + setting + ": " + problem);
  };
  try {
    parse_store_url(s.store);
  } catch (const std::invalid_argument& error) {
    wrong("store", error.what());
  }
  using namespace std::chrono_literals;
  if (s.lease < 500ms || s.lease > 10min) wrong("lease", "give 500ms to 10m");
  if (s.grace < 0ns || s.grace > 10min) wrong("grace", "give 0s to 10m");
  if (s.cut_off_for < 0ns) wrong("cut_off_for", "give a duration");
  if (s.weight == 0 || s.weight > shared::kMaxWeight) wrong("weight", "give 1 to 1000");
  if (!(s.max_share > 0 && s.max_share <= 1)) wrong("max_share", "give above 0 to 1");
  if (s.prefix.empty() || s.prefix.find_first_of("{}") != std::string::npos)
    wrong("prefix", "give a name without braces");
}

void Fleet::check(const Request& r) const {
  const FleetSettings s = engine_->settings();
  if (r.scope != Scope::fleet)
    invalid(r.bulkhead,
            "scope = " + std::string(to_string(r.scope)) + " is not what a Fleet is for: give fleet");
  if (s.store.empty())
    invalid(r.bulkhead, "scope = fleet needs a store: give fleet.store, such as redis://limits:6379");
  if (r.max_concurrent > shared::kMaxUnits)
    invalid(r.bulkhead, "max_concurrent = " + std::to_string(r.max_concurrent) +
                            " is out of range for scope = fleet: give 1 to " +
                            std::to_string(shared::kMaxUnits));
  if (r.critical_reserve > 0)
    invalid(r.bulkhead,
            "critical_reserve does not go with scope = fleet, whose units are spread over processes: leave "
            "it out");
  if (s.mode == FleetMode::direct && r.max_queue == 0)
    invalid(
        r.bulkhead,
        "fleet.mode = direct fetches units for calls that wait: give max_queue at least 1, or mode block");
  if (r.bulkhead.empty()) invalid(r.bulkhead, "scope = fleet needs a name");
  if (engine_->host() && engine_->host()->available()) engine_->host()->check_lease(r);
}

std::unique_ptr<UnitSource> Fleet::open(const Request& r, UnitUser& user) {
  check(r);
  return std::make_unique<FleetSource>(*engine_, engine_->add(r, user));
}

}  // namespace bulkhead::redis
