#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/config/arguments.h"
#include "app/config/commands.h"
#include "base/text.h"
#include "config/sizing.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

using std::chrono::nanoseconds;

constexpr const char* kAbout =
    "Compute the size of a bulkhead, with the arithmetic\n"
    "\n"
    "Examples:\n"
    "  bulkhead size --rate 200 --latency 50ms --tolerated-wait 100ms\n"
    "  bulkhead size ... --p99                     the wait to expect (Erlang C)\n"
    "  bulkhead size ... --p99 20ms                raise max_concurrent to keep it\n"
    "  bulkhead size ... --yaml | bulkhead check -\n"
    "\n"
    "docs/operate/sizing.md explains the formulas.";

constexpr double kMostPlaces = 1e6, kMostQueue = 2'097'151;

struct Options {
  std::string rate, latency, tolerated_wait, name = "my-dependency";
  std::vector<std::string> p99;
  double buffer = 1.5;
  bool yaml = false, json = false;
};

std::string number(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string span(nanoseconds span) {
  const auto ns = static_cast<double>(span.count());
  if (ns >= 1e9) return fmt::format("{} s", number(ns / 1e9));
  if (ns >= 1e6) return fmt::format("{} ms", number(ns / 1e6));
  return fmt::format("{} us", number(ns / 1e3));
}

struct Answer {
  SizingInput in;
  Size size;
  std::uint64_t places = 0;  // those of Little's law, or more to keep the p99
  nanoseconds last_in_line{};
  bool with_wait = false, with_target = false, no_queue = false;
  Wait wait{};
  double rejected = 0;  // the share, without a queue
  nanoseconds target{};
  std::uint64_t places_for_target = 0;
  nanoseconds execution_timeout{};
};

Answer answer(const Options& o) {
  Answer a;
  a.in = {.rate = rate_of(o.rate),
          .latency = duration_of(o.latency),
          .tolerated_wait = duration_of(o.tolerated_wait),
          .buffer = o.buffer};
  a.size = size_for(a.in);
  a.places = a.size.max_concurrent;
  a.with_wait = !o.p99.empty();
  a.with_target = a.with_wait && !o.p99.front().empty();
  a.no_queue = a.size.max_queue == 0;
  if (a.with_target && !a.no_queue) {
    a.target = duration_of(o.p99.front());
    a.places_for_target = places_for_p99(a.in.rate, a.in.latency, a.target);
    a.places = std::max(a.places, a.places_for_target);
  }
  if (a.with_wait && a.no_queue) a.rejected = erlang_b(a.places, a.size.in_flight);
  if (a.with_wait && !a.no_queue) a.wait = wait_of(a.places, a.in.rate, a.in.latency);
  a.last_in_line =
      nanoseconds(std::llround(static_cast<double>(a.size.max_queue) *
                               static_cast<double>(a.in.latency.count()) / static_cast<double>(a.places)));
  a.execution_timeout = 4 * a.in.latency;
  return a;
}

std::string yaml(const Options& o, const Answer& a) {
  std::string text = fmt::format("version: 1\nbulkheads:\n  {}:\n    max_concurrent: {}\n", o.name, a.places);
  if (a.size.max_queue > 0)
    text += fmt::format("    max_queue: {}\n    max_wait: {}\n", a.size.max_queue,
                        show_duration(a.in.tolerated_wait));
  return text +
         fmt::format(
             "    execution_timeout: {}  # a guess, 4 x the latency: give a little more than the p99.9\n"
             "    typical_latency: {}\n",
             show_duration(a.execution_timeout), show_duration(a.in.latency));
}

void print_wait(const Answer& a) {
  if (!a.with_wait) return;
  if (a.no_queue) {
    fmt::print("reject  max_concurrent {}, {} in flight: {} % of the calls are rejected (Erlang B)\n",
               a.places, number(a.size.in_flight), number(a.rejected * 100));
    return;
  }
  if (a.with_target)
    fmt::print(
        "p99     {} concurrent calls keep 99 % of the waits below {} (Erlang C); Little's law gives {}\n",
        a.places_for_target, span(a.target), a.size.max_concurrent);
  fmt::print("wait    max_concurrent {}, {} in flight: {} % of the calls wait (Erlang C)\n", a.places,
             number(a.size.in_flight), number(a.wait.waits * 100));
  if (a.wait.endless)
    fmt::print("        more calls arrive than can be served: the queue grows without bound\n");
  else
    fmt::print("        on average {}, 99 % of them at most {}\n", span(a.wait.mean), span(a.wait.p99));
}

void print_text(const Options& o, const Answer& a) {
  fmt::print("calls   {}/s x {} = {} calls in flight on average (Little's law)\n", number(a.in.rate),
             span(a.in.latency), number(a.size.in_flight));
  fmt::print("        {} x {} (buffer) = {} concurrent calls\n", number(a.size.in_flight),
             number(a.in.buffer), a.size.max_concurrent);
  if (a.size.max_queue == 0) {
    fmt::print("queue   tolerated wait 0: no queue, calls are rejected at once\n");
  } else {
    const nanoseconds gap(std::llround(1e9 / a.in.rate));
    fmt::print("queue   a call every {}; {} / {} = {} waiting calls\n", span(gap), span(a.in.tolerated_wait),
               span(gap), a.size.max_queue);
    fmt::print("        the last of them waits {} x {} / {} = {}\n", a.size.max_queue, span(a.in.latency),
               a.places, span(a.last_in_line));
  }
  print_wait(a);
  fmt::print("\n{}", yaml(o, a));
}

void print_json(const Options& o, const Answer& a) {
  const auto ms = [](nanoseconds span) { return static_cast<double>(span.count()) / 1e6; };
  cli::JsonWriter json;
  json.open().field("rate_per_second", a.in.rate).field("latency_ms", ms(a.in.latency));
  json.field("tolerated_wait_ms", ms(a.in.tolerated_wait)).field("buffer", a.in.buffer);
  json.field("in_flight", a.size.in_flight)
      .field("max_concurrent", a.places)
      .field("max_queue", a.size.max_queue);
  json.field("last_in_line_ms", ms(a.last_in_line));
  if (a.with_wait && a.no_queue) {
    json.open("erlang_b").field("rejected_share", a.rejected).close();
  } else if (a.with_wait) {
    json.open("erlang_c").field("waiting_share", a.wait.waits).field("endless", a.wait.endless);
    json.field("mean_wait_ms", ms(a.wait.mean)).field("p99_wait_ms", ms(a.wait.p99));
    if (a.with_target)
      json.field("p99_target_ms", ms(a.target)).field("places_for_target", a.places_for_target);
    json.close();
  }
  cli::say(json.field("yaml", yaml(o, a)).close().text());
}

int run(const Options& o) {
  const double in_flight = rate_of(o.rate) * static_cast<double>(duration_of(o.latency).count()) / 1e9;
  const double queue = rate_of(o.rate) * static_cast<double>(duration_of(o.tolerated_wait).count()) / 1e9;
  if (in_flight * o.buffer > kMostPlaces || queue > kMostQueue) {
    fmt::print(stderr, "bulkhead size: {} calls in flight and {} waiting are too many for one bulkhead\n",
               number(in_flight * o.buffer), number(queue));
    return cli::kUsage;
  }
  const Answer a = answer(o);
  if (o.json)
    print_json(o, a);
  else if (o.yaml)
    cli::say(yaml(o, a));
  else
    print_text(o, a);
  return 0;
}

}  // namespace

std::function<int()> add_size(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("size", kAbout);
  const auto positive = [](const std::string& text) { return check_duration(text, false); };
  const auto any = [](const std::string& text) { return check_duration(text, true); };
  command->add_option("--rate", o->rate, "Calls per second at the peak: 200, 12000/m")
      ->required()
      ->check(check_rate)
      ->type_name("R");
  command->add_option("--latency", o->latency, "Average duration of a call: 50ms")
      ->required()
      ->check(positive)
      ->type_name("T");
  command
      ->add_option("--tolerated-wait", o->tolerated_wait,
                   "How long callers accept to wait rather than be rejected")
      ->required()
      ->check(any)
      ->type_name("T");
  command->add_option("--buffer", o->buffer, "Factor for bursts and slow days, 1 to 10")
      ->check([](const std::string& text) { return cli::check_number(text, 1, 10); })
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--p99", o->p99, "Also compute the wait (Erlang C); T: keep its p99 below T")
      ->expected(0, 1)
      ->check([](const std::string& text) { return text.empty() ? "" : check_duration(text, true); })
      ->type_name("[T]");
  command->add_option("--name", o->name, "Name of the bulkhead in the YAML")
      ->check([](const std::string& text) {
        return read_name({.kind = Node::Kind::scalar, .quoted = true, .text = text})
                   ? ""
                   : "give letters, digits, - and _";
      })
      ->type_name("NAME")
      ->capture_default_str();
  auto* json = command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  command->add_flag("--yaml", o->yaml, "Print only the YAML")->excludes(json);
  return [o] { return run(*o); };
}

}  // namespace bulkhead::config
