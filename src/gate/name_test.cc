#include "bulkhead/name.h"

#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"

namespace bulkhead {
namespace {

const std::string kLong(200, 'x');

TEST(Name, HoldsTextOfAnyLength) {
  for (std::size_t size = 0; size < 300; ++size) {
    const std::string text(size, 'n');
    const Name name(text);
    EXPECT_EQ(name.view(), text);
    EXPECT_EQ(name.empty(), size == 0);
  }
}

TEST(Name, CopiesMovesAndAssignmentsKeepTheText) {
  for (const std::string& text : {std::string("short"), std::string(Name::kInline, 'e'), kLong}) {
    Name first(text);
    Name copy(first);
    Name moved(std::move(first));
    EXPECT_EQ(copy, text);
    EXPECT_EQ(moved, text);
    Name assigned("other");
    assigned = copy;
    EXPECT_EQ(assigned, copy);
    Name& self = assigned;
    assigned = self;
    EXPECT_EQ(assigned, text);
    assigned = Name(std::string(60, 'z'));
    EXPECT_EQ(assigned, std::string(60, 'z'));
    EXPECT_EQ(copy, text);
  }
}

TEST(Name, ComparesWithEveryKindOfText) {
  constexpr Name name("db");
  static_assert(name == "db" && name == std::string_view("db") && name != Name("cache"));
  EXPECT_EQ(name, std::string("db"));
  EXPECT_EQ("db", name);
  std::ostringstream out;
  out << name;
  EXPECT_EQ(out.str(), "db");
}

TEST(Name, ALongNameIsSharedBetweenThreads) {
  const Name name(kLong);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([copy = name] {
      for (int i = 0; i < 1000; ++i) {
        Name mine(copy);
        Name other(std::move(mine));
        ASSERT_EQ(other.view().size(), kLong.size());
      }
    });
}

TEST(Rejection, OutlivesItsGate) {
  for (const std::string& name : {std::string("db"), kLong}) {
    std::optional<Rejection> why;
    {
      Gate gate{{.name = name, .max_concurrent = 1}};
      const auto held = gate.try_acquire();
      why = gate.try_acquire().error();
    }
    EXPECT_EQ(why->message(),
              "bulkhead \"" + name + "\" rejected (concurrency_limit): 1/1 running, 0/0 waiting");
  }
}

}  // namespace
}  // namespace bulkhead
