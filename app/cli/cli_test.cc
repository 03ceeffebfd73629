#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/json_lines.h"
#include "app/cli/text.h"
#include "app/client/view.h"

namespace bulkhead::cli {
namespace {

constexpr Style kAscii{};
constexpr Style kColour{.colour = true, .utf8 = true};

TEST(Text, DurationsHaveThreeFiguresAndAUnit) {
  EXPECT_EQ(duration(kAscii, 0), "0 us");
  EXPECT_EQ(duration(kAscii, 870'000), "870 us");
  EXPECT_EQ(duration(kColour, 870'000), "870 µs");
  EXPECT_EQ(duration(kAscii, 999'600), "1.0 ms");
  EXPECT_EQ(duration(kAscii, 9'940'000), "9.9 ms");
  EXPECT_EQ(duration(kAscii, 9'960'000), "10 ms");
  EXPECT_EQ(duration(kAscii, 999'600'000), "1.00 s");
  EXPECT_EQ(duration(kAscii, 1'072'000'000), "1.07 s");
  EXPECT_EQ(duration(kAscii, 9'996'000'000), "10.0 s");
}

TEST(Text, AlmostAllIsNotAllAndAlmostNoneIsNotNone) {
  EXPECT_EQ(percent(1), "100 %");
  EXPECT_EQ(percent(0.99999), "99.9 %");
  EXPECT_EQ(percent(0.00001), "0.1 %");
  EXPECT_EQ(percent(0), "0 %");
}

TEST(Text, EscapesHaveNoWidth) {
  const std::string red = paint(kColour, Paint::red, "→3");
  EXPECT_EQ(width(red), 2u);
  EXPECT_EQ(pad_left(red, 4), "  " + red);
  EXPECT_EQ(pad_right(red, 3), red + " ");
  EXPECT_EQ(paint(kAscii, Paint::red, "3"), "3");
}

TEST(Text, WhatOthersHaveNamedCannotCommandATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\tc\x7f"), "a?[2Jb???c?");
  EXPECT_EQ(printable("a\nb\x1b", true), "a\nb?");
  EXPECT_EQ(printable("caf\u00e9 \u2192 \u009b31m\u00a0"), "caf\u00e9 \u2192 ?31m\u00a0");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

TEST(Text, ClippingKeepsColoursClosed) {
  EXPECT_EQ(clip("abc", 3), "abc");
  EXPECT_EQ(clip("µµµµ", 2), "µµ");
  EXPECT_EQ(clip("\x1b[31mabcdef\x1b[0m", 2), "\x1b[31mab\x1b[0m");
}

TEST(Text, WrappingKeepsANumberWithItsUnit) {
  EXPECT_EQ(wrap("took 99 ms then", 8, " "), " took\n 99 ms\n then");
  EXPECT_EQ(wrap("one two three", 80), "one two three");
  EXPECT_EQ(wrap("a word-longer-than-the-line b", 6), "a\nword-longer-than-the-line\nb");
}

TEST(Text, BarsFillTheirWidth) {
  for (const Style& style : {kAscii, kColour})
    for (const double share : {-1.0, 0.0, 0.01, 0.33, 0.5, 0.999, 1.0, 7.0})
      EXPECT_EQ(width(bar(style, share, 11)), 11u) << share;
  EXPECT_EQ(bar(kAscii, 0.5, 4), "##..");
}

TEST(Json, EscapesWhatMustBeEscaped) {
  EXPECT_EQ(json_quoted("a\"b\\c\n\t\x01/µ"), "\"a\\\"b\\\\c\\n\\t\\u0001/µ\"");
  EXPECT_EQ(json_quoted("\xff\xc3(\xed\xa0\x80"), "\"\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\"");
  EXPECT_EQ(json_quoted("cut off \xe2\x82"), "\"cut off \\ufffd\\ufffd\"");
}

TEST(Json, NestsAndSeparates) {
  JsonWriter json;
  json.open().field("a", 1u).field("b", 0.5).field("c", true).field("d", "x").null("e");
  json.list("f").open().close().open().field("g", std::numeric_limits<double>::infinity()).close().close();
  json.list("h").close();
  EXPECT_EQ(json.close().text(), R"({
  "a": 1,
  "b": 0.5,
  "c": true,
  "d": "x",
  "e": null,
  "f": [
    {},
    {
      "g": null
    }
  ],
  "h": []
}
)");
}

struct Pipe {
  Pipe() {
    ::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  }
  ~Pipe() {
    for (const int fd : ends)
      if (fd >= 0) ::close(fd);
  }
  std::string read_all() {
    std::string text, part(65536, '\0');
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = ::read(ends[0], part.data(), part.size())) > 0;)
      text.append(part, 0, static_cast<std::size_t>(n));
    return text;
  }
  int ends[2] = {-1, -1};
};

TEST(JsonLines, AReaderWhoDoesNotReadNeitherStopsTheProgramNorFillsItsMemory) {
  Pipe pipe;
  JsonLines lines(pipe.ends[1]);
  const std::string line = "\"" + std::string(998, 'x') + "\"";
  for (int i = 0; i < 3000; ++i) lines.add(line);  // three megabytes, of which one is kept
  lines.flush();                                   // the pipe is full: it must come back
  std::string text;
  for (std::string more; lines.flush(), more = pipe.read_all(), !more.empty();) text += more;
  EXPECT_EQ(text.size(), 1047 * (line.size() + 1));  // whole lines
  for (std::size_t at = 0; at < text.size(); at += line.size() + 1)
    ASSERT_EQ(text.substr(at, line.size()), line);
  lines.add("\"next\"");
  lines.flush();
  EXPECT_EQ(pipe.read_all(), "{\"kind\":\"lost\",\"lines\":1953}\n\"next\"\n");
}

TEST(JsonLines, AReaderWhoIsGoneIsForgotten) {
  Pipe pipe;
  ::close(std::exchange(pipe.ends[0], -1));
  JsonLines lines(pipe.ends[1]);
  lines.add("1");
  lines.flush();
  lines.add("2");  // and the destructor does not wait for a second
}

TEST(View, AnErrorOfTheFileIsOneLineHoweverItComes) {
  const auto error = [](std::string_view text) {
    const boost::json::object config{{"state", "invalid"}, {"error", text}};
    return client::read_view(boost::json::object{{"config", config}, {"bulkheads", boost::json::array{}}})
        .error;
  };
  EXPECT_EQ(error("b.yaml:3:7: x: no\n    x: 0x1\n       ^\n"), "b.yaml:3:7: x: no");
  EXPECT_EQ(error("b.yaml:3:7: x: no"), "b.yaml:3:7: x: no");
}

TEST(View, TablesAreNeverWiderThanTheTerminal) {
  std::vector<client::BulkheadRow> rows(2);
  rows[0].name = std::string(40, 'n');
  rows[1].override = "max_concurrent 5->9";
  rows[1].has_breaker = true;
  std::vector<client::PoolRow> pools(1);
  pools[0].name = std::string(40, 'p');
  for (std::size_t columns = 10; columns < 180; ++columns) {
    for (const std::string& line : client::table(kColour, rows, columns)) EXPECT_LE(width(line), columns);
    for (const std::string& line : client::pool_table(kColour, pools, columns))
      EXPECT_LE(width(line), columns);
  }
}

TEST(CommandLine, NumbersAreCheckedToTheLastCharacter) {
  EXPECT_EQ(check_number("4.5", 4, 600), "");
  for (const char* wrong : {"", " 5", "5 ", "5x", "nan", "inf", "3.99", "601", "1e999"})
    EXPECT_NE(check_number(wrong, 4, 600), "") << wrong;
  EXPECT_EQ(check_whole_number("18446744073709551615"), "");
  for (const char* wrong : {"", "-1", "1.5", "18446744073709551616"})
    EXPECT_NE(check_whole_number(wrong), "") << wrong;
}

}  // namespace
}  // namespace bulkhead::cli
