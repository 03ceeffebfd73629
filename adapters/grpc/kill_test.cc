// A client process that is killed, in each phase of each kind of RPC: its place comes back, and its turn in line.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>

#include "echo_test.h"

extern char** environ;

namespace bulkhead::grpc::tests {
namespace {

class Victim {
 public:
  Victim(const World& world, const char* method) {
    std::string program = VICTIM, address = world.address(), name = method;
    char* const arguments[] = {program.data(), address.data(), name.data(), nullptr};
    if (::posix_spawn(&pid_, VICTIM, nullptr, nullptr, arguments, environ) != 0)
      throw std::runtime_error("cannot start " VICTIM);
  }
  ~Victim() { kill(); }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

class GrpcKill : public ::testing::TestWithParam<Api> {
 protected:
  static bool calls(World& world) {
    const auto stub = world.stub();
    ::grpc::ClientContext context;
    Reply reply;
    return stub->Unary(&context, ask("a"), &reply).ok();
  }
};
INSTANTIATE_TEST_SUITE_P(Apis, GrpcKill,
                         ::testing::Values(Api::sync, Api::callback, Api::wrapped, Api::wrapped_callback),
                         [](const auto& api) { return kApis[static_cast<int>(api.param)]; });

TEST_P(GrpcKill, AClientThatDiesInAHandlerGivesItsPlaceBack) {
  World world({.api = GetParam(), .bulkhead = {.max_concurrent = 1}});
  for (const char* method : {"Unary", "Upload", "Download", "Chat"}) {
    Victim victim(world, method);
    ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; })) << method;
    victim.kill();
    EXPECT_TRUE(eventually([&] { return world.stage.inside == 0 && world.gate().in_flight == 0; })) << method;
    EXPECT_EQ(world.gate().released, world.gate().admitted);
  }
  EXPECT_EQ(world.gate().failed, 0);
  EXPECT_TRUE(calls(world));
}

TEST_P(GrpcKill, AClientThatDiesInLineLeavesTheLineAndItsHandlerNeverRuns) {
  World world({.api = GetParam(), .bulkhead = {.max_concurrent = 1, .max_queue = 1}});
  Victim first(world, "Chat");
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  for (const char* method : {"Unary", "Upload", "Download", "Chat"}) {
    Victim second(world, method);
    ASSERT_TRUE(eventually([&] { return world.gate().waiting == 1; })) << method;
    second.kill();
    EXPECT_TRUE(eventually([&] { return world.gate().waiting == 0; })) << method;
  }
  EXPECT_EQ(world.stage.runs, 1);
  first.kill();
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_TRUE(calls(world));
}

TEST_P(GrpcKill, AClientThatDiesWithItsRejectionLeavesNothing) {
  World world({.api = GetParam(), .bulkhead = {.max_concurrent = 1}});
  Victim first(world, "Unary");
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  {
    Victim second(world, "Download");
    ASSERT_TRUE(eventually([&] { return sum(world.method("Download").rejected) == 1; }));
  }
  EXPECT_EQ(world.gate().in_flight, 1);
  first.kill();
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.stage.runs, 1);
}

TEST_P(GrpcKill, AClientThatDiesWhileItsRejectionIsHeldLeavesNothing) {
  World world(
      {.api = GetParam(),
       .bulkhead = {.max_concurrent = 1},
       .guard = {.methods = {{.name = "/", .bulkhead = "echo"}},
                 .storm = {.per_second = 2, .burst = 1, .batch = 1, .max_hold = std::chrono::seconds(1)}}});
  Victim first(world, "Unary");
  ASSERT_TRUE(eventually([&] { return world.stage.inside == 1; }));
  for (const char* method : {"Unary", "Upload", "Download", "Chat"}) {
    const auto rejected = [&] { return sum(world.method(method).rejected); };
    const auto before = rejected();
    EXPECT_FALSE(calls(world));  // uses up what may leave at once
    Victim held(world, method);
    ASSERT_TRUE(eventually([&] { return rejected() > before + (method == std::string("Unary")); })) << method;
    held.kill();
  }
  EXPECT_EQ(world.gate().in_flight, 1);
  first.kill();
  EXPECT_TRUE(eventually([&] { return world.gate().in_flight == 0; }));
  EXPECT_EQ(world.stage.runs, 1);
  EXPECT_TRUE(calls(world));
}

}  // namespace
}  // namespace bulkhead::grpc::tests
