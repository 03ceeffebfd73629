#include "access.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "base/sync_point.h"
#include "control/world_test.h"

namespace bulkhead::control {
namespace {

// As an editor or a deployment does: another file in the place of the old one.
void write_tokens(const World& w, const std::string& text) {
  const std::string next = w.options.tokens_file + ".next";
  std::ofstream(next) << text;
  std::filesystem::permissions(next, std::filesystem::perms(0600));
  std::filesystem::rename(next, w.options.tokens_file);
}

std::string line(const std::string& name, const std::string& role, const std::string& token) {
  return name + ' ' + role + ' ' + sha256_hex(token) + '\n';
}

int status_with(World& w, const std::string& token) {
  return w.ask({.path = "/v1/session", .token = token}).status;
}

std::string events(World& w) { return w.ask_local({.path = "/v1/events"}).body; }

TEST(Access, ATokenIsAddedAndRemovedWithoutARestart) {
  World w;
  EXPECT_EQ(status_with(w, "o"), 200);
  EXPECT_EQ(status_with(w, "n"), 401);
  write_tokens(w, line("nora", "operator", "n"));
  EXPECT_EQ(status_with(w, "n"), 200);
  EXPECT_EQ(status_with(w, "o"), 401) << "removed";
  std::filesystem::remove(w.options.tokens_file);
  EXPECT_EQ(status_with(w, "n"), 401) << "without a file no token is valid";
  EXPECT_NE(events(w).find("no token is valid"), std::string::npos);
}

TEST(Access, AnInvalidTokensFileKeepsThePreviousTokensAndSaysWhy) {
  World w;
  EXPECT_EQ(status_with(w, "o"), 200);
  write_tokens(w, "nora operator 123\n");
  EXPECT_EQ(status_with(w, "o"), 200);
  const std::string told = events(w);
  EXPECT_NE(told.find(":1: the third word is not a SHA-256"), std::string::npos) << told;
  EXPECT_NE(told.find("the previous tokens stay valid"), std::string::npos) << told;
}

TEST(Access, AStreamEndsWhenItsTokenIsRemoved) {
  World w;
  w.options.anonymous = Role::none;
  w.start();
  Client reader = Client::tcp(w.server->port());
  reader.send(Ask{.path = "/v1/stream", .token = "v"}.text());
  std::string text;
  while (text.find("event: snapshot") == std::string::npos) ASSERT_TRUE(reader.receive(text));
  write_tokens(w, line("olga", "operator", "o"));
  while (reader.receive(text)) {  // until the server ends it
  }
  EXPECT_EQ(status_with(w, "v"), 401);
}

TEST(Access, AnEndingServerLeavesTheSocketOfItsSuccessor) {
  World w;
  w.start();
  const std::string path = w.options.unix_socket;
  std::filesystem::rename(path, path + ".old");
  World successor;
  successor.options.unix_socket = path;
  successor.start();
  w.server.reset();
  EXPECT_EQ(successor.ask_local({.path = "/livez"}).status, 200);
  successor.server.reset();
  EXPECT_FALSE(std::filesystem::exists(path)) << "its own";
}

#if defined(BULKHEAD_SYNC_POINTS)
// A server starts while another one is between bind() and listen(): there its socket looks like that of a killed process.
TEST(Access, OfTwoServersThatStartAtOnceOneGetsTheSocket) {
  static World* first;
  static std::thread second;
  static std::atomic<bool> waits;
  static std::string problem;
  World w;
  first = &w;
  waits = false;
  base::sync_point_handler = [](const char* name) {
    if (std::string_view(name) == "control.starting") waits = true;
    if (std::string_view(name) != "control.bound" || second.joinable()) return;
    static std::atomic<bool> over;
    over = false;
    second = std::thread([] {
      World other;
      other.options.unix_socket = first->options.unix_socket;
      try {
        other.start();
      } catch (const std::system_error& error) {
        problem = error.what();
      }
      over = true;
    });
    while (!waits && !over) std::this_thread::yield();
  };
  w.start();
  second.join();
  base::sync_point_handler = nullptr;
  EXPECT_NE(problem.find("another process listens on it"), std::string::npos) << problem;
  EXPECT_EQ(w.ask_local({.path = "/livez"}).status, 200);
  EXPECT_FALSE(std::filesystem::exists(w.options.unix_socket + ".lock"));
}
#endif

TEST(Access, TheUnixSocketHasTheModeAndTheGroupOfItsSettings) {
  World w;
  w.options.unix_socket_mode = 0600;
  w.options.unix_socket_owner = std::to_string(::geteuid());
  const ::group* const own = ::getgrgid(::getegid());
  w.options.unix_socket_group = own ? own->gr_name : std::to_string(::getegid());
  w.start();
  struct stat found{};
  ASSERT_EQ(::stat(w.options.unix_socket.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_gid, ::getegid());
  World unknown;
  unknown.options.unix_socket_group = "no such group";
  try {
    unknown.start();
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "control: unix_socket_group: unknown name \"no such group\"");
  }
  EXPECT_FALSE(std::filesystem::exists(unknown.options.unix_socket)) << "nothing is left behind";
}

TEST(Access, AMissingDirectoryOfTheSocketIsNamed) {
  World w;
  w.options.unix_socket = w.directory + "/none/admin.sock";
  try {
    w.start();
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("its directory does not exist; create it"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bulkhead::control
