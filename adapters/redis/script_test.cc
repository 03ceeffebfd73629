// The script in a real server against decide() in C++: the same reply and the same state, for random states and requests.
#include <gtest/gtest.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "adapters/redis/connection.h"
#include "adapters/redis/limit_script.h"
#include "adapters/redis/server_test.h"
#include "adapters/redis/store.h"
#include "shared/limit_state.h"
#include "shared/member_list.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;
using namespace shared;

constexpr std::int64_t kNow = 1'700'000'000'000;

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned percent) { return pick(100) < percent; }
  std::uint32_t units() {
    return static_cast<std::uint32_t>(chance(90)   ? pick(12)
                                      : chance(50) ? pick(2000)
                                                   : pick(kMaxUnits + std::uint64_t{1}));
  }
  std::uint32_t weight() { return static_cast<std::uint32_t>(1 + (chance(80) ? pick(3) : pick(kMaxWeight))); }
  std::uint32_t tie() { return static_cast<std::uint32_t>(random_()); }
  std::string member() { return std::string(1, static_cast<char>('a' + pick(9))); }
  std::uint64_t version() { return pick(3) * kVersionStep + pick(3); }

  LimitState state() {
    LimitState s;
    for (std::uint64_t i = chance(5) ? 60 : chance(1) ? 300 : pick(8); i > 0; --i) {
      MemberState m{units(),  units(), units(),
                    weight(), tie(),   kNow - 3000 + static_cast<std::int64_t>(pick(9000)),
                    pick(20)};
      s.members[chance(90) ? member() : member() + member()] = m;
      s.sum += m.granted;
    }
    if (chance(5)) {  // the key of the limit is lost, and the members are not
      s.sum = 0;
      return s;
    }
    s.known = true;
    s.limit = std::max(1u, units());
    if (chance(60))
      s.limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMaxUnits, s.sum + pick(20) + 1));
    s.limit_version = version();
    s.ver = 100 + pick(10);
    s.learn = chance(70) ? kNow - static_cast<std::int64_t>(pick(5000))
                         : kNow + static_cast<std::int64_t>(pick(5000));
    s.last = kNow - static_cast<std::int64_t>(chance(80) ? pick(1300) : pick(9000)) + (chance(3) ? 5000 : 0);
    s.doubted = chance(80) ? pick(100) : 98 + pick(8);
    s.hungry = chance(50) ? 0 : kNow - static_cast<std::int64_t>(pick(10'000));
    s.run = chance(95) ? "run" : "other";
    if (chance(5)) s.sum += 1 + pick(5);
    if (chance(5)) s.members.clear();
    if (chance(50)) {
      s.listed = kNow - static_cast<std::int64_t>(pick(3000)) + (chance(3) ? 5000 : 0);
      s.list = list_of(s, kListedMembers, s.listed);
    }
    return s;
  }

  StoreRequest request(const LimitState& s) {
    StoreRequest r;
    r.op = static_cast<StoreOp>(chance(40) ? 0 : pick(6));
    r.member = member();
    r.seq = pick(40);
    const auto own = s.members.find(r.member);
    r.have = own == s.members.end() || chance(10)
                 ? units()
                 : static_cast<std::uint32_t>(pick(own->second.granted + std::uint64_t{1}));
    r.want = units();
    r.need = units();
    r.slack = units();
    r.weight = weight();
    r.tie = tie();
    if (chance(30)) {
      r.ttl = static_cast<std::int64_t>(500 + pick(20'000));
      r.gap = r.ttl / 4;
    }
    r.grace = chance(70) ? 0 : static_cast<std::int64_t>(pick(2000));
    r.run = "run";
    r.seen_ver = 98 + pick(8);
    if (chance(60)) {
      r.seen_at = s.last - 500 + static_cast<std::int64_t>(pick(600));
      r.since = std::max<std::int64_t>(0, kNow - r.seen_at - static_cast<std::int64_t>(pick(1500)));
    }
    r.limit = std::max(1u, units());
    r.limit_version = version();
    return r;
  }

 private:
  std::mt19937_64 random_;
};

std::string packed(const MemberState& m) {
  std::ostringstream out;
  out << m.granted << ' ' << m.need << ' ' << m.slack << ' ' << m.weight << ' ' << m.tie << ' ' << m.expires
      << ' ' << m.seq;
  return out.str();
}

std::map<std::string, std::string> limit_hash(const LimitState& s) {
  if (!s.known) return {};
  const auto text = [](auto n) { return std::to_string(n); };
  std::map<std::string, std::string> out = {{"limit", text(s.limit)},    {"version", text(s.limit_version)},
                                            {"ver", text(s.ver)},        {"learn", text(s.learn)},
                                            {"last", text(s.last)},      {"hungry", text(s.hungry)},
                                            {"sum", text(s.sum)},        {"run", s.run},
                                            {"doubted", text(s.doubted)}};
  if (!s.list.empty()) out.insert({{"listed", text(s.listed)}, {"list", s.list}});
  return out;
}

std::map<std::string, std::string> member_hash(const LimitState& s) {
  std::map<std::string, std::string> out;
  for (const auto& [id, m] : s.members) out[id] = packed(m);
  return out;
}

std::map<std::string, std::string> hash_of(const Value& v) {
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i + 1 < v.list.size(); i += 2) out[v.list[i].text] = v.list[i + 1].text;
  return out;
}

Command set_hash(const std::string& key, const std::map<std::string, std::string>& hash) {
  Command words = {"HSET", key};
  for (const auto& [name, value] : hash) words.insert(words.end(), {name, value});
  return words;
}

// With the time as an argument, which a test must set and nobody else may.
std::string script_with_time() {
  std::string text(kLimitScript);
  const std::string clock = "local now = t[1] * 1000 + math.floor(t[2] / 1000)";
  const std::size_t at = text.find(clock);
  EXPECT_NE(at, text.npos);
  return text.replace(at, clock.size(), "local now = tonumber(ARGV[19])");
}

TEST(LimitScript, DecidesAsTheLibraryDoes) {
  constexpr int kStates = 100'000, kBatch = 500;
  tests::Server server;
  const auto until = std::chrono::steady_clock::now() + 110s;
  const Address address{"127.0.0.1", std::to_string(server.port()), ""};
  Connection connection({address}, until);
  const std::string sha = call(connection, address, {"SCRIPT", "LOAD", script_with_time()}, until).text;
  const std::string c = limit_key("t", "db", 'c'), m = limit_key("t", "db", 'm');
  const char* given = std::getenv("BULKHEAD_SEED");
  Random random(given ? std::strtoull(given, nullptr, 10) : 1);
  int by_status[3] = {};
  for (int done = 0; done < kStates; done += kBatch) {
    std::vector<Command> commands;
    std::vector<LimitState> states;
    std::vector<StoreRequest> requests;
    std::vector<std::size_t> first;
    for (int i = 0; i < kBatch; ++i) {
      states.push_back(random.state());
      requests.push_back(random.request(states.back()));
      commands.push_back({"DEL", c, m});
      if (states.back().known) commands.push_back(set_hash(c, limit_hash(states.back())));
      if (!states.back().members.empty()) commands.push_back(set_hash(m, member_hash(states.back())));
      first.push_back(commands.size());
      auto words = limit_command(sha, "t", "db", requests.back());
      words.push_back(std::to_string(kNow));
      commands.push_back(std::move(words));
      commands.push_back({"HGETALL", c});
      commands.push_back({"HGETALL", m});
    }
    const std::vector<Value> values = connection.exchange(commands, until);
    for (std::size_t i = 0; i < states.size(); ++i) {
      const LimitState before = states[i];
      const StoreReply wanted = decide(states[i], requests[i], kNow);
      StoreReply got;
      const Value& value = values[first[i]];
      ASSERT_TRUE(read_reply(value, got)) << value.text;
      const auto what = [&] {
        std::ostringstream out;
        out << to_string(requests[i].op) << " by " << requests[i].member << " seq " << requests[i].seq
            << " have " << requests[i].have << " need " << requests[i].need << "\nlimit";
        for (const auto& [k, v] : limit_hash(before)) out << ' ' << k << '=' << v;
        for (const auto& [k, v] : member_hash(before)) out << "\n  " << k << ": " << v;
        out << "\nC++ granted " << wanted.granted << " target " << wanted.target << ", Lua " << got.granted
            << " target " << got.target;
        return out.str();
      };
      ASSERT_EQ(got, wanted) << what();
      ASSERT_EQ(hash_of(values[first[i] + 1]), limit_hash(states[i])) << what();
      ASSERT_EQ(hash_of(values[first[i] + 2]), member_hash(states[i])) << what();
      ++by_status[static_cast<int>(wanted.status)];
    }
  }
  for (const int n : by_status) EXPECT_GT(n, kStates / 20);
}

}  // namespace
}  // namespace bulkhead::redis
