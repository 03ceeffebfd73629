// Random sequences of calls with budgets, compared with a model that does one thing at a time: three lines, first in,
// first out, which every call passes in the same order: the budgets by name, although the options list them otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <stop_token>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"

namespace bulkhead {
namespace {

constexpr std::size_t kLines = 3;  // bytes, tokens, the place
constexpr const char* kBudgets[] = {"bytes", "tokens"};

struct Model {
  struct Line {
    std::uint32_t limit = 0, used = 0;
    std::deque<int> waiting{};
  };
  struct Asked {
    std::array<std::uint32_t, kLines> need{}, held{};
    std::size_t at = 0;  // the line it is in, or kLines: it runs
  };

  void go_on(int id) {
    Asked& call = calls.at(id);
    for (; call.at < kLines; ++call.at) {
      Line& line = lines[call.at];
      const std::uint32_t need = call.need[call.at];
      if (need == 0) continue;
      if (!line.waiting.empty() || line.used + need > line.limit) return line.waiting.push_back(id);
      line.used += need;
      call.held[call.at] = need;
    }
  }
  // All that fit leave the line first; then each goes on.
  void serve(std::size_t which) {
    Line& line = lines[which];
    std::vector<int> admitted;
    while (!line.waiting.empty()) {
      Asked& head = calls.at(line.waiting.front());
      if (line.used + head.need[which] > line.limit) break;
      line.used += head.need[which];
      head.held[which] = head.need[which];
      ++head.at;
      admitted.push_back(line.waiting.front());
      line.waiting.pop_front();
    }
    for (const int id : admitted) go_on(id);
  }
  void settle(int id, std::size_t which, std::uint32_t units) {
    lines[which].used -= calls.at(id).held[which] - units;
    calls.at(id).held[which] = units;
    serve(which);
  }
  bool grow(int id, std::size_t which, std::uint32_t units) {
    Line& line = lines[which];
    if (!line.waiting.empty() || line.used + units > line.limit) return false;
    line.used += units;
    calls.at(id).held[which] += units;
    return true;
  }
  void finish(int id) {  // the place first, then the budgets, the last one first
    for (const std::size_t which : {std::size_t{2}, std::size_t{1}, std::size_t{0}}) {
      lines[which].used -= calls.at(id).held[which];
      if (calls.at(id).need[which] > 0) serve(which);
    }
    calls.erase(id);
  }
  void cancel(int id) {  // only of a call that holds nothing yet
    Asked& call = calls.at(id);
    std::erase(lines[call.at].waiting, id);
    const std::size_t which = call.at;
    calls.erase(id);
    serve(which);
  }

  std::array<Line, kLines> lines{};
  std::map<int, Asked> calls{};
};

class Pair {
 public:
  explicit Pair(unsigned seed) : random_(seed), bulkhead_(options_) {
    for (std::size_t i = 0; i < 2; ++i) model_.lines[i].limit = budget(i).max;
    model_.lines[2].limit = options_.max_concurrent;
  }
  ~Pair() {
    bulkhead_.close();
    running_.clear();
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return begin();
      case 3:
      case 4:
        return end();
      case 5:
        return change();
      case 6:
        return cancel();
      default:
        if (below(4) == 0) resize();
    }
  }

  void compare() {
    const BulkheadSnapshot now = bulkhead_.snapshot();
    for (std::size_t i = 0; i < 2; ++i) {
      const BudgetSnapshot& budget = *std::ranges::find(now.budgets, kBudgets[i], &BudgetSnapshot::name);
      ASSERT_EQ(budget.in_use, model_.lines[i].used) << i;
      ASSERT_EQ(budget.waiting, model_.lines[i].waiting.size()) << i;
    }
    ASSERT_EQ(now.gate.in_flight, model_.lines[2].used);
    ASSERT_EQ(now.gate.waiting, model_.lines[2].waiting.size());
    std::set<int> expected, actual;
    for (const auto& [id, call] : model_.calls)
      if (call.at == kLines) expected.insert(id);
    for (const auto& [id, call] : running_) actual.insert(id);
    ASSERT_EQ(actual, expected);
  }

 private:
  BudgetOptions& budget(std::size_t line) {
    return *std::ranges::find(options_.budgets, kBudgets[line], &BudgetOptions::name);
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void begin() {
    if (model_.calls.size() > 40) return;
    const int id = next_++;
    const std::uint32_t tokens = below(11), bytes = below(2) * below(7);
    model_.calls[id].need = {bytes, tokens, 1};
    model_.go_on(id);
    const Costs costs = below(2) == 0 ? Costs{{"tokens", tokens}, {"bytes", bytes}}
                                      : Costs{{"bytes", bytes}, {"tokens", tokens}};
    bulkhead_.async_acquire({.stop = stops_[id].get_token(), .costs = costs}, [this, id](Result<Call> call) {
      if (call) running_.emplace(id, *std::move(call));
    });
  }
  std::map<int, Call>::iterator one() {
    return running_.empty() ? running_.end()
                            : std::next(running_.begin(), below(static_cast<std::uint32_t>(running_.size())));
  }
  void end() {
    const auto which = one();
    if (which == running_.end()) return;
    const int id = which->first;
    Call call = std::move(which->second);
    running_.erase(which);
    model_.finish(id);
    call.finish(below(2) == 0 ? Outcome::success : Outcome::failure);
  }
  void change() {
    const auto which = one();
    if (which == running_.end()) return;
    const std::size_t line = below(2);
    const char* const name = kBudgets[line];
    const int id = which->first;
    Call& call = which->second;
    if (model_.calls.at(id).need[line] == 0) {
      EXPECT_FALSE(call.settle(name, 0));
      return;
    }
    const std::uint32_t held = call.held(name);
    ASSERT_EQ(held, model_.calls.at(id).held[line]);
    if (below(2) == 0) {
      const std::uint32_t units = below(held + 1);
      model_.settle(id, line, units);
      EXPECT_TRUE(call.settle(name, units));
    } else {
      const std::uint32_t units = 1 + below(3), most = budget(line).max;
      const bool grows = held + units <= most && model_.grow(id, line, units);
      EXPECT_EQ(call.try_grow(name, units), grows);
    }
  }
  void cancel() {
    for (const auto& [id, call] : model_.calls) {
      if (call.at == kLines || call.held != std::array<std::uint32_t, kLines>{} || below(3) != 0) continue;
      const int chosen = id;
      model_.cancel(chosen);
      stops_.at(chosen).request_stop();
      return;
    }
  }
  void resize() {
    const std::size_t line = below(2);
    budget(line).max = (line == 0 ? 6 : 10) + below(6);  // never below what a call may ask for
    model_.lines[line].limit = budget(line).max;
    model_.serve(line);
    bulkhead_.update(options_);
  }

  BulkheadOptions options_{.name = "model",
                           .max_concurrent = 3,
                           .max_queue = 1000,
                           .budgets = {{.name = "tokens", .max = 10}, {.name = "bytes", .max = 6}}};
  std::mt19937 random_;
  Model model_;
  std::map<int, std::stop_source> stops_;
  std::map<int, Call> running_;
  Bulkhead bulkhead_;
  int next_ = 0;
};

TEST(BudgetsProperty, EveryCallIsWhereTheModelSays) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    for (int i = 0; i < 400; ++i) {
      pair.step();
      pair.compare();
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace bulkhead
