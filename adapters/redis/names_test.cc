#include "adapters/redis/names.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "tests/support/no_threads.h"

namespace bulkhead::redis {
namespace {

using namespace std::chrono_literals;

auto in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

TEST(Names, ASlowLookupEndsAtTheDeadlineAndItsAnswerIsUsedLater) {
  struct Shared {
    std::mutex mutex;
    std::atomic<int> lookups{0};
    std::atomic<bool> fails{false};
  };
  const auto shared = std::make_shared<Shared>();
  Names names([shared](const std::string& host) -> Names::Addresses {
    EXPECT_EQ(host, "limits");
    const std::lock_guard wait(shared->mutex);
    ++shared->lookups;
    if (shared->fails) throw std::runtime_error("no such host");
    return {"192.0.2." + std::to_string(shared->lookups)};
  });
  {
    const std::lock_guard slow(shared->mutex);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(names.find("limits", in(20ms)), std::runtime_error);
    EXPECT_THROW(names.find("limits", in(20ms)), std::runtime_error);  // waits for the same lookup
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  }
  EXPECT_EQ(names.find("limits", in(30s)), Names::Addresses{"192.0.2.1"});
  EXPECT_EQ(shared->lookups, 1);
  {
    const std::lock_guard slow(shared->mutex);
    EXPECT_EQ(names.find("limits", in(40ms)), Names::Addresses{"192.0.2.1"});  // that of before
  }
  EXPECT_EQ(names.find("limits", in(30s)), Names::Addresses{"192.0.2.2"});
  shared->fails = true;
  EXPECT_EQ(names.find("limits", in(30s)), Names::Addresses{"192.0.2.2"});
}

TEST(Names, WithoutAThreadTheAddressesOfBeforeAreUsed) {
  Names names([](const std::string&) -> Names::Addresses { return {"192.0.2.1"}; });
  {
    const bulkhead::tests::NoThreads none;
    EXPECT_THROW(names.find("limits", in(30s)), std::runtime_error);
  }
  EXPECT_EQ(names.find("limits", in(30s)), Names::Addresses{"192.0.2.1"});
  const bulkhead::tests::NoThreads none;
  EXPECT_EQ(names.find("limits", in(30s)), Names::Addresses{"192.0.2.1"});
  EXPECT_EQ(bulkhead::tests::NoThreads::failed(), 1);
}

TEST(Names, ANameThatDoesNotExistIsSaid) {
  Names names([](const std::string&) -> Names::Addresses { throw std::runtime_error("no such host"); });
  try {
    names.find("limits", in(30s));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no such host");
  }
  EXPECT_FALSE(system_names().find("localhost", in(30s)).empty());
  try {
    system_names().find("not..a.name", in(30s));  // no server is asked for it
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).find("boost"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bulkhead::redis
