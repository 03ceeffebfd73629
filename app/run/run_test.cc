// What `bulkhead run` tells: its service manager, its reader, and of the run before.
#include "app/run/run.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "app/run/report.h"
#include "app/run/sd_notify.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::run {
namespace {

// A datagram socket as the service manager has one, named by NOTIFY_SOCKET.
class ServiceManager {
 public:
  explicit ServiceManager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path, sizeof at.sun_path - 1);
    if (name.starts_with('@')) at.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~ServiceManager() {
    ::unsetenv("NOTIFY_SOCKET");
    ::close(fd_);
  }
  std::string heard() const {
    char text[256];
    const ssize_t n = ::recv(fd_, text, sizeof text, MSG_DONTWAIT);
    return n < 0 ? "" : std::string(text, static_cast<std::size_t>(n));
  }

 private:
  int fd_;
};

TEST(SdNotify, TellsTheServiceManagerByPathOrAbstractName) {
  const tests::TempDirectory dir;
  for (const std::string& name :
       {(dir.path() / "notify").string(), "@bulkhead-test-" + std::to_string(::getpid())}) {
    const ServiceManager manager(name);
    EXPECT_TRUE(sd_notify("READY=1\nSTATUS=running")) << name;
    EXPECT_EQ(manager.heard(), "READY=1\nSTATUS=running");
    EXPECT_TRUE(sd_notify_reloading());
    EXPECT_TRUE(manager.heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
  }
}

TEST(SdNotify, WithoutAServiceManagerNothingIsTold) {
  EXPECT_FALSE(sd_notify("READY=1"));
  for (const std::string& wrong :
       {std::string("relative"), "/" + std::string(200, 'x'), std::string("/nonesuch/socket")}) {
    ::setenv("NOTIFY_SOCKET", wrong.c_str(), 1);
    EXPECT_FALSE(sd_notify("READY=1")) << wrong;
  }
  ::unsetenv("NOTIFY_SOCKET");
}

class LastRun : public testing::Test {
 protected:
  std::string explained(std::string_view lines) {
    std::ofstream(file()) << lines;
    return explain_last_run(file());
  }
  std::string file() const { return (dir_.path() / "audit.jsonl").string(); }

 private:
  tests::TempDirectory dir_;
};

constexpr std::string_view kStart = "{\"kind\":\"start\"}\n";
constexpr std::string_view kOverride =
    R"({"kind":"override","target":"db","actor":"ann","text":"limit 5 -> 9","before":{"limit":5},"after":{"limit":9}})"
    "\n";

TEST_F(LastRun, OneThatEndedByItselfNeedsNoExplanation) {
  EXPECT_EQ(explain_last_run(file()), "") << "the first run";
  EXPECT_EQ(explained(std::string(kStart) + std::string(kOverride) + "{\"kind\":\"stop\"}\n"), "");
  EXPECT_EQ(explain_last_run("/dev/zero"), "") << "a device has no end";
}

TEST_F(LastRun, OneThatWasKilledNamesTheOverridesThatEndedWithIt) {
  const std::string all = explained(std::string(kStart) + std::string(kOverride) + "{\"kind\":\"ove");
  EXPECT_NE(all.find("db: limit 5 -> 9 (ann)"), std::string::npos) << all;
}

TEST_F(LastRun, AFaultThatEndedWithItIsNamedOnce) {
  const std::string begins =
      R"({"kind":"fault","target":"db","actor":"ann","text":"fault: latency 2s, error 10 % for 5m: drill",)"
      R"("before":{"latency":0.0,"error":0.0},"after":{"latency":2.0,"error":0.1}})"
      "\n";
  const std::string all = explained(std::string(kStart) + begins);
  const std::string what = "an override ended with it: db: fault: latency 2s, error 10 % for 5m: drill (ann)";
  const std::size_t at = all.find(what);
  EXPECT_NE(at, std::string::npos) << all;
  EXPECT_EQ(all.find(what, at + 1), std::string::npos) << all;
  for (const char* const kind : {"revert", "expired"}) {
    const std::string ended = explained(
        std::string(kStart) + begins + R"({"kind":")" + kind +
        R"(","target":"db","before":{"latency":2.0,"error":0.1},"after":{"latency":0.0,"error":0.0}})" +
        "\n");
    EXPECT_EQ(ended.find("fault"), std::string::npos) << ended;
  }
}

TEST_F(LastRun, AnOverrideThatWasRevertedIsNotNamed) {
  const std::string all =
      explained(std::string(kStart) + std::string(kOverride) +
                R"({"kind":"revert","target":"db","before":{"limit":9},"after":{"limit":5}})"
                "\n");
  EXPECT_FALSE(all.empty()) << "it was killed all the same";
  EXPECT_EQ(all.find("limit 5 -> 9"), std::string::npos) << all;
}

boost::json::object told(const std::function<void(Report&)>& what) {
  testing::internal::CaptureStdout();
  {
    Report report(true);
    what(report);
  }
  return boost::json::parse(testing::internal::GetCapturedStdout()).as_object();
}

TEST(Report, AJsonLineHasItsKindItsTimeAndItsFields) {
  const auto ready = told([](Report& r) {
    r.ready(
        {.file = "b.yaml", .version = "1", .url = "http://127.0.0.1:1", .unix_socket = "", .bulkheads = 2});
  });
  EXPECT_EQ(ready.at("kind"), "ready");
  EXPECT_GT(ready.at("time").as_double(), 1e9);
  EXPECT_EQ(ready.at("bulkheads"), 2);
  EXPECT_TRUE(ready.at("unix_socket").is_null()) << "an empty text is null";
}

TEST(Report, AFailedReloadListsItsProblemsAndNoChanges) {
  ReloadResult result{.outcome = ReloadResult::Outcome::failed,
                      .problems = {{.path = "a.b", .message = "is 0", .hint = "give 1"}}};
  const auto line = told([&](Report& r) { r.loaded("b.yaml", "signal", result); });
  EXPECT_EQ(line.at("kind"), "loaded");
  EXPECT_EQ(line.at("ok"), false);
  EXPECT_TRUE(line.at("changes").as_array().empty());
  EXPECT_EQ(line.at("problems").at(0).at("hint"), "give 1");
}

}  // namespace
}  // namespace bulkhead::run
