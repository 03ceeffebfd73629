#include "adapters/redis/resp.h"

#include <gtest/gtest.h>

#include <string>

namespace bulkhead::redis {
namespace {

Value parsed(std::string_view bytes) {
  Value v;
  std::size_t used = 0;
  EXPECT_EQ(parse(bytes, v, used), Parsed::done) << bytes;
  EXPECT_EQ(used, bytes.size());
  // Every beginning of it is incomplete, whatever the network does to it.
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    Value part;
    EXPECT_EQ(parse(bytes.substr(0, i), part, used), Parsed::incomplete) << bytes.substr(0, i);
  }
  return v;
}

Parsed result(std::string_view bytes) {
  Value v;
  std::size_t used = 0;
  return parse(bytes, v, used);
}

TEST(Resp, ReadsWhatAServerSends) {
  EXPECT_EQ(parsed("+OK\r\n").text, "OK");
  EXPECT_EQ(parsed("-ERR no\r\n").kind, Value::Kind::error);
  EXPECT_EQ(parsed(":-42\r\n").integer, -42);
  EXPECT_EQ(parsed("$5\r\na\r\nbc\r\n").text, "a\r\nbc");
  EXPECT_EQ(parsed("$-1\r\n").kind, Value::Kind::null);
  EXPECT_EQ(parsed("*-1\r\n").kind, Value::Kind::null);
  const Value list = parsed("*3\r\n:1\r\n*0\r\n$1\r\nx\r\n");
  ASSERT_EQ(list.list.size(), 3u);
  EXPECT_EQ(list.list[2].text, "x");
}

TEST(Resp, ReadsTheThirdVersion) {
  EXPECT_EQ(parsed("_\r\n").kind, Value::Kind::null);
  EXPECT_EQ(parsed("#t\r\n").integer, 1);
  EXPECT_EQ(parsed(",3.25\r\n").text, "3.25");
  EXPECT_EQ(parsed("(3492890328409238509324850943850943825024385\r\n").kind, Value::Kind::number);
  EXPECT_EQ(parsed("=8\r\ntxt:some\r\n").text, "some");
  EXPECT_EQ(parsed("!3\r\nERR\r\n").kind, Value::Kind::error);
  EXPECT_EQ(parsed("%1\r\n+a\r\n:1\r\n").list.size(), 2u);
  EXPECT_EQ(parsed("~2\r\n:1\r\n:2\r\n").list.size(), 2u);
  EXPECT_EQ(parsed("|1\r\n+ttl\r\n:3\r\n:7\r\n").integer, 7);
}

TEST(Resp, RejectsWhatIsNotResp) {
  for (const char* bytes :
       {"HTTP/1.1 200\r\n", "\r\n", ":\r\n", ":1x\r\n", "$x\r\n", "$-2\r\n", "$2\r\nabcd\r\n",
        "*99999999\r\n", "$99999999999999999999\r\n", "#x\r\n", "_x\r\n", "=2\r\nab\r\n"})
    EXPECT_EQ(result(bytes), Parsed::malformed) << bytes;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "*1\r\n";
  EXPECT_EQ(result(deep), Parsed::malformed);
  EXPECT_EQ(result(std::string(kMaxText + 10, 'x')), Parsed::malformed);
}

TEST(Resp, WritesCommands) {
  std::string out;
  append_command(out, {"GET", "a b"});
  EXPECT_EQ(out, "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
}

}  // namespace
}  // namespace bulkhead::redis
