#include "app/client/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "app/cli/command_line.h"
#include "app/cli/man.h"
#include "app/cli/terminal.h"
#include "app/client/admin.h"
#include "app/client/view.h"
#include "base/suggest.h"
#include "control/state/json_text.h"

namespace bulkhead::client {
namespace {

namespace json = boost::json;

Admin admin_of(const ClientOptions& o) { return Admin::at(o.admin, o.token, o.certificate); }

using cli::say;

constexpr std::uint64_t kMostUnits = 268'435'455;  // of a gate

int status(const ClientOptions& o) {
  const Admin admin = admin_of(o);
  const Reply reply =
      admin.ask({.path = o.name.empty() ? "/v1/snapshot" : "/v1/bulkheads/" + encoded(o.name)});
  if (!reply.ok()) return failed(o, reply, admin);
  if (o.json) return say(reply.body), 0;
  const cli::Style style = o.plain ? cli::Style{} : cli::style_of(STDOUT_FILENO, !o.no_colour);
  const std::size_t columns =
      cli::is_terminal(STDOUT_FILENO) ? cli::terminal_size(STDOUT_FILENO).columns : 200;
  if (o.names) {
    const json::value all = reply.json();
    std::string text;
    for (const json::value& b : all.at("bulkheads").as_array())
      text += std::string(b.at("name").as_string()) + '\n';
    return say(text), 0;
  }
  if (!o.name.empty()) return say(detail_lines(style, reply.json(), columns)), 0;
  const View view = read_view(reply.json());
  std::string text = verdict_lines(style, view, columns);
  text += fmt::format("{}{} {}, up {}, config: {}{}\n", text.empty() ? "" : "\n", view.instance, view.version,
                      cli::span(view.uptime), view.config, view.error.empty() ? "" : " (" + view.error + ")");
  for (const std::string& line : table(style, view.rows, columns)) text += line + '\n';
  if (view.rows.empty()) text += "There is no bulkhead yet.\n";
  for (const std::string& line : budget_table(style, view.budgets, columns)) text += line + '\n';
  for (const std::string& line : pool_table(style, view.pools, columns)) text += line + '\n';
  say(text);
  return 0;
}

// Sends a change and prints its effects.
int change(const ClientOptions& o, const std::string& method, const std::string& path,
           const json::object& body) {
  const Admin admin = admin_of(o);
  const Reply reply = admin.ask(
      {method, path + (o.dry_run ? "?dry_run=true" : ""), body.empty() ? "" : json::serialize(body), ""});
  if (!reply.ok()) return failed(o, reply, admin);
  if (o.json) return say(reply.body), 0;
  const json::value answer = reply.json();
  say(fmt::format("{}{}: {}\n", o.dry_run ? "(dry run) " : "", o.name,
                  std::string(answer.at("text").as_string())));
  for (const json::value& effect : answer.at("effects").as_array())
    say(fmt::format("  {}\n", std::string(effect.as_string())));
  return 0;
}

json::object with_reason(const ClientOptions& o) { return {{"ttl", o.duration}, {"reason", o.reason}}; }

int set(const ClientOptions& o) {
  if (o.max_concurrent < 0 && o.max_queue < 0 && o.budgets.empty()) {
    fmt::print(
        stderr,
        "bulkhead set: give --max-concurrent N, --max-queue N or --budget NAME=N\nTry: bulkhead set {} "
        "--max-concurrent 5 --for 15m --reason \"why\"\n",
        o.name);
    return cli::kUsage;
  }
  json::object budgets;
  for (const std::string& one : o.budgets) {
    const std::size_t equals = one.find('=');
    const std::string number = equals == one.npos ? "" : one.substr(equals + 1);
    if (!cli::check_whole_number(number).empty() || equals == 0) {
      fmt::print(stderr, "bulkhead set: --budget {} is not NAME=N, as tokens=200000\n", one);
      return cli::kUsage;
    }
    budgets[one.substr(0, equals)] = std::stoll(number);
  }
  json::object body = with_reason(o);
  if (o.max_concurrent >= 0) body["max_concurrent"] = o.max_concurrent;
  if (o.max_queue >= 0) body["max_queue"] = o.max_queue;
  if (!budgets.empty()) body["budgets"] = std::move(budgets);
  return change(o, "PUT", "/v1/overrides/" + encoded(o.name), body);
}

int reset(const ClientOptions& o) {
  const Admin admin = admin_of(o);
  bool any = false;
  const Reply reply = end_overrides(admin, o.name, o.reason, o.dry_run, any);
  if (!reply.ok()) return failed(o, reply, admin);
  if (!any) return say(o.json ? "{\"results\":[]}\n" : fmt::format("{}: no override\n", o.name)), 0;
  if (o.json) return say(reply.body), 0;
  const json::value answer = reply.json();
  for (const json::value& result : answer.at("results").as_array())
    say(fmt::format("{}{}: {}\n", o.dry_run ? "(dry run) " : "", o.name,
                    std::string(result.at("text").as_string())));
  return 0;
}

int breaker(const ClientOptions& o) {
  const std::string path = "/v1/breakers/" + encoded(o.name);
  if (o.action == "auto")
    return change(o, "DELETE", path, o.reason.empty() ? json::object{} : json::object{{"reason", o.reason}});
  json::object body = with_reason(o);
  body["state"] = o.action == "open" ? "open" : "closed";
  return change(o, "PUT", path, body);
}

int drain(const ClientOptions& o) {
  const std::string path = "/v1/drains/" + encoded(o.name);
  if (o.resume)
    return change(o, "DELETE", path, o.reason.empty() ? json::object{} : json::object{{"reason", o.reason}});
  return change(o, "PUT", path, with_reason(o));
}

// "10%" or "0.1": 0.1; below 0: it is neither.
double read_share(const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string number = percent ? text.substr(0, text.size() - 1) : text;
  double value = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size()) return -1;
  return percent ? value / 100 : value;
}

int fault(const ClientOptions& o) {
  const std::string path = "/v1/faults/" + encoded(o.name);
  if (o.end)
    return change(o, "DELETE", path, o.reason.empty() ? json::object{} : json::object{{"reason", o.reason}});
  json::object body{{"ttl", o.fault_duration}, {"reason", o.reason}};
  if (!o.latency.empty()) body["latency"] = o.latency;
  if (!o.error.empty()) {
    const double share = read_share(o.error);
    if (!(share >= 0 && share <= 1)) {
      fmt::print(stderr, "bulkhead fault: --error {} is not a share: write 10% or 0.1\n", o.error);
      return cli::kUsage;
    }
    body["error"] = share;
  }
  return change(o, "PUT", path, body);
}

// Without a name: lists the switches.
int toggle(const ClientOptions& o) {
  const Admin admin = admin_of(o);
  const bool all = o.name.empty();
  json::object body{{"on", o.action == "on"}};
  if (!o.reason.empty()) body["reason"] = o.reason;
  const Reply reply =
      all ? admin.ask({.path = "/v1/switches"})
          : admin.ask({"PUT", "/v1/switches/" + encoded(o.name) + (o.dry_run ? "?dry_run=true" : ""),
                       json::serialize(body), ""});
  if (!reply.ok()) return failed(o, reply, admin);
  if (o.json) return say(reply.body), 0;
  const json::value answer = reply.json();
  const auto tell = [&](const json::value& s) {
    say(fmt::format("{}{:<16}  {:<5}{}\n", !all && o.dry_run ? "(dry run) " : "",
                    std::string(s.at("name").as_string()), s.at("on").as_bool() ? "on" : "off",
                    std::string(s.at("title").as_string())));
  };
  if (!all) return tell(answer), 0;
  for (const json::value& s : answer.at("switches").as_array()) tell(s);
  if (answer.at("switches").as_array().empty()) say("This program has no switches.\n");
  return 0;
}

void show_event(const json::value& e) {
  const auto seconds = static_cast<std::time_t>(e.at("time").to_number<double>());
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char time[32];
  std::strftime(time, sizeof time, "%H:%M:%S", &local);
  say(fmt::format("{} {:<13} {:<18} {:<14} {}\n", time, std::string(e.at("kind").as_string()),
                  std::string(e.at("bulkhead").as_string()), std::string(e.at("actor").as_string()),
                  std::string(e.at("text").as_string())));
}

int events(const ClientOptions& o) {
  const Admin admin = admin_of(o);
  const cli::CatchSignals signals;
  std::uint64_t last = 0;  // id and time of the newest event shown
  double last_time = 0;
  bool answered = false, told = false;
  for (;;) {
    const std::uint64_t since = last - (last > 0);  // the last one again: another one means another process
    const Reply reply = admin.ask({.path = fmt::format("/v1/events?since={}&newest=1000", since)});
    if (reply.ok()) {
      const json::value answer = reply.json();
      const auto id = [](const json::value& e) { return e.at("id").to_number<std::uint64_t>(); };
      const auto time = [](const json::value& e) { return e.at("time").to_number<double>(); };
      const json::array& list = answer.at("events").as_array();
      const bool same = list.empty() || id(list.front()) != last || time(list.front()) == last_time;
      if (!same || answer.at("last").to_number<std::uint64_t>() < last) {
        last = 0;  // another process answers at this address now
        continue;
      }
      for (const json::value& e : list) {
        if (id(e) <= last) continue;
        o.json ? say(control::text_of(e) + '\n') : show_event(e);
        last = id(e), last_time = time(e);
      }
      answered = true, told = false;
    } else if (!answered || (reply.status != 0 && reply.status < 500)) {
      return failed(o, reply, admin);
    } else if (!std::exchange(told, true)) {  // perhaps a restart: try again
      const std::string why = reply.explain();
      fmt::print(stderr, "bulkhead events: {}: {}; trying again\n", admin.where(),
                 why.substr(0, why.find('\n')));
    }
    if (!o.follow) return 0;
    for (int i = 0; i < 5; ++i) {
      if (cli::CatchSignals::caught() != 0) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

int plan(const ClientOptions& o, const Question& question) {
  const Admin admin = admin_of(o);
  const Reply reply = admin.ask(question);
  if (!reply.ok()) return failed(o, reply, admin);
  const json::value p = reply.json();
  const int code = p.at("valid").as_bool() ? 0 : kInvalid;
  if (o.json) return say(reply.body), code;
  for (const json::value& e : p.at("errors").as_array())
    fmt::print(stderr, "line {}: {}: {}\n", e.at("line").to_number<int>(),
               std::string(e.at("pointer").as_string()), std::string(e.at("message").as_string()));
  for (const json::value& c : p.at("changes").as_array()) say(std::string(c.as_string()) + '\n');
  for (const json::value& c : p.at("needs_restart").as_array())
    say(std::string(c.as_string()) + '\n');  // it says that it needs a restart
  if (code == 0 && p.at("changes").as_array().empty() && p.at("needs_restart").as_array().empty())
    say("No changes.\n");
  return code;
}

}  // namespace

Reply end_overrides(const Admin& admin, const std::string& bulkhead, const std::string& reason, bool dry_run,
                    bool& any) {
  const std::string name = encoded(bulkhead);
  Reply now = admin.ask({.path = "/v1/bulkheads/" + name});
  if (!now.ok()) return now;
  json::array operations;
  json::object body;
  if (!reason.empty()) body["reason"] = reason;
  std::string last;
  const json::value found = now.json();
  for (const json::value& field : found.at("overrides").as_array()) {
    const std::string which(field.at("field").as_string());
    const std::string path = which == "breaker" ? "/v1/breakers/" + name
                             : which == "drain" ? "/v1/drains/" + name
                             : which == "fault" ? "/v1/faults/" + name
                                                : "/v1/overrides/" + name;
    if (path != last)
      operations.push_back(json::object{{"method", "DELETE"}, {"path", path}, {"body", body}});
    last = path;
  }
  any = !operations.empty();
  if (!any) return now;
  return admin.ask({"POST", std::string("/v1/batch") + (dry_run ? "?dry_run=true" : ""),
                    json::serialize(json::object{{"operations", std::move(operations)}}), ""});
}

namespace {

constexpr std::size_t kMembers = 20;  // `bulkhead fleet` shows more

std::string member_lines(const json::object& one, const json::object& fleet) {
  const json::value* const list = fleet.if_contains("list");
  const json::value* const members = one.if_contains("fleet_members");
  if (!list || !members) return "";
  const auto number = [&](const json::value& of, std::string_view name) {
    return of.at(name).to_number<std::uint64_t>();
  };
  const auto leased = number(*list, "leased"), lapsed = number(*list, "lapsed");
  std::string text = fmt::format(
      "   all members, {:.1f} s ago: {} leased; {} units held, {} needed{}\n",
      list->at("age").to_number<double>(), leased, number(*list, "held"), number(*list, "needed"),
      lapsed == 0 ? "" : fmt::format("; {} lapsed with {} units", lapsed, number(*list, "lapsed_held")));
  std::size_t shown = 0;
  for (const json::value& m : members->as_array()) {
    if (shown == kMembers) break;
    const std::string name(m.at("name").as_string());
    text += fmt::format("   {:>3}. {}{}: {}, holds {}, needs {}; renewed {:.1f} s before\n", ++shown,
                        name.empty() ? "?" : cli::printable(name), m.at("own").as_bool() ? " (this one)" : "",
                        std::string_view(m.at("state").as_string()), number(m, "held"), number(m, "needed"),
                        m.at("lease_age").to_number<double>());
  }
  if (leased + lapsed > shown)
    text += fmt::format("   and {} more: bulkhead fleet FILE\n", leased + lapsed - shown);
  return text;
}

}  // namespace

std::string detail_lines(const cli::Style& style, const json::value& one, std::size_t columns) {
  json::array only;
  only.push_back(one);
  const View view = read_view(json::object{{"bulkheads", std::move(only)}});
  std::string text;
  for (const std::string& line : table(style, view.rows, columns)) text += line + '\n';
  const BulkheadRow& row = view.rows.front();
  if (row.minute_rejected > 0 || row.rejected_rate > 0)
    text += fmt::format("   rejected in the last minute: {:.0f} of {:.0f}{}\n", row.minute_rejected,
                        row.minute_calls, row.top_reason.empty() ? "" : ", mostly " + row.top_reason);
  if (row.nested) text += "   nested: its calls are made inside calls of other bulkheads\n";
  if (const json::value* const all = one.as_object().if_contains("host_in_flight"))
    text += fmt::format("   host: {} units in use by all processes\n", all->to_number<std::uint64_t>());
  if (const json::value* const f = one.as_object().if_contains("fleet")) {
    const std::string problem(f->at("problem").as_string());
    const std::string state(f->at("state").as_string()), cut_off(f->at("when_cut_off").as_string());
    const double loss = f->at("pooling_loss").to_number<double>();
    const auto members = f->at("members").to_number<std::uint64_t>();
    text += fmt::format(
        "   fleet: {}{}, {}; {} member{}; holds {}, needs {}; {}{}{}\n", state,
        state == "degraded"
            ? fmt::format(" for {:.1f} s ({})", f->at("degraded_for").to_number<double>(), cut_off)
            : "",
        std::string_view(f->at("mode").as_string()), members, members == 1 ? "" : "s",
        f->at("held").to_number<std::uint64_t>(), f->at("needed").to_number<std::uint64_t>(),
        state == "joining"
            ? "no lease yet"
            : fmt::format("lease renewed {:.1f} s ago", f->at("lease_age").to_number<double>()),
        loss >= 0.001 ? fmt::format("; {:.1f} % of calls find no unit here", 100 * loss) : "",
        problem.empty() ? "" : "; " + problem);
    text += member_lines(one.as_object(), f->as_object());
  }
  for (const json::value& h : one.at("holders").as_array())
    text += fmt::format("   in flight for {:>6}: {} {}\n", cli::span(h.at("age").to_number<double>()),
                        std::string(h.at("label").as_string()), std::string(h.at("where").as_string()));
  bool defaults = false;
  for (const json::value& s : one.at("settings").as_array()) {
    const json::value* const standard = s.as_object().if_contains("default");
    if (standard && standard->is_bool() && standard->get_bool() && !std::exchange(defaults, true))
      text += "   as by default:\n";
    text += fmt::format("   {:<32}  {}\n", std::string(s.at("name").as_string()),
                        std::string(s.at("value").as_string()));
  }
  return text;
}

// With --json the answer is a Problem also if no server has sent one, so that scripts read one form.
int failed(const ClientOptions& o, const Reply& reply, const Admin& admin) {
  if (o.json)
    say(reply.status != 0
            ? reply.body
            : json::serialize(json::object{{"type", reply.denied ? "urn:bulkhead:problem:forbidden"
                                                                 : "urn:bulkhead:problem:unreachable"},
                                           {"title", reply.denied ? "Not allowed" : "No answer"},
                                           {"status", 0},
                                           {"detail", admin.where() + ": " + reply.trouble}}) +
                  '\n');
  if (reply.denied)
    fmt::print(
        stderr,
        "bulkhead: no permission to open {}: {}\nTry: run as its owner or in its group, or --admin URL\n",
        admin.where(), reply.trouble);
  else if (reply.status == 0)
    fmt::print(
        stderr,
        "bulkhead: no answer from {}: {}\nTry: bulkhead run FILE, bulkhead demo --serve, or --admin URL\n",
        admin.where(), reply.trouble);
  else
    fmt::print(stderr, "bulkhead: {}", reply.explain());
  if (reply.status == 401)
    fmt::print(stderr, "Try: --token TOKEN, BULKHEAD_TOKEN, or --admin PATH of the unix socket\n");
  return reply.exit_code();
}

// Declares the commands; each stores into o_ and sets the function that run() calls.
Commands::Commands(CLI::App& app, std::string version) : version_(std::move(version)), app_(app) {
  const auto name = [this](CLI::App& c) { c.add_option("NAME", o_.name, "The bulkhead")->required(); };
  const auto why = [this](CLI::App& c, bool required) {
    auto* const reason = c.add_option("--reason", o_.reason, "Why; shown to colleagues and in the audit log")
                             ->type_name("TEXT");
    if (required) reason->required();
    c.add_flag("--dry-run", o_.dry_run, "Print the effects, and change nothing");
  };
  const auto duration = [this](CLI::App& c) {
    c.add_option("--for", o_.duration, "How long it lasts: 90s, 15m, 1h30m; at most 24h")
        ->type_name("TIME")
        ->capture_default_str();
  };
  add(
      app, "status",
      "Show the bulkheads of a running process\n\nExamples:\n  bulkhead status\n  bulkhead status "
      "checkout\n  bulkhead status --json",
      [this](CLI::App& c) {
        c.add_option("NAME", o_.name, "Only this bulkhead, with its settings");
        c.add_flag("--names", o_.names, "Print only the names, one per line");
      },
      [this] { return status(o_); });
  add(
      app, "top",
      "Show the bulkheads live; sort, filter and resize them\n\nExamples:\n  bulkhead "
      "top\n  "
      "bulkhead top --once",
      [this](CLI::App& c) { c.add_flag("--once", o_.once, "Print once and exit"); },
      [this] { return run_top(o_); });
  add(
      app, "set",
      "Override limits of a bulkhead for a limited time\n\nExamples:\n  "
      "bulkhead set reports "
      "--max-concurrent 5 --for 30m --reason "
      "\"incident 4711\"",
      [=, this](CLI::App& c) {
        name(c);
        c.add_option("--max-concurrent", o_.max_concurrent, "Maximum number of concurrent calls")
            ->type_name("N")
            ->check([](const std::string& text) { return cli::check_whole_number(text, 1, kMostUnits); });
        c.add_option("--max-queue", o_.max_queue, "Maximum number of waiting calls")
            ->type_name("N")
            ->check([](const std::string& text) { return cli::check_whole_number(text, 0, kMostUnits); });
        c.add_option("--budget", o_.budgets, "The maximum of a budget")->type_name("NAME=N");
        duration(c);
        why(c, true);
      },
      [this] { return set(o_); });
  add(
      app, "reset", "Remove every override of a bulkhead\n\nExamples:\n  bulkhead reset reports",
      [=](CLI::App& c) { name(c), why(c, false); }, [this] { return reset(o_); });
  add(
      app, "breaker",
      "Force a breaker open or closed for a limited time\n\nExamples:\n  bulkhead breaker open payments "
      "--for 10m "
      "--reason \"provider is down\"\n"
      "  bulkhead breaker auto payments",
      [=, this](CLI::App& c) {
        words_[c.add_option("ACTION", o_.action, "open, close or auto; may follow NAME")->required()] =
            "open close auto";
        name(c);
        duration(c);
        why(c, false);
      },
      [this] {
        const auto is_action = [](std::string_view word) {
          return word == "open" || word == "close" || word == "auto";
        };
        if (!is_action(o_.action) && is_action(o_.name)) std::swap(o_.action, o_.name);
        if (!is_action(o_.action)) {
          fmt::print(stderr,
                     "bulkhead breaker: \"{}\" is not open, close or auto\nTry: bulkhead breaker open {}{}\n",
                     o_.action, o_.name, o_.reason.empty() ? " --reason \"why\"" : "");
          return cli::kUsage;
        }
        return o_.action == "auto" || !o_.reason.empty() ? breaker(o_) : cli::needs_reason("breaker");
      });
  add(
      app, "drain",
      "Reject new calls for a limited time; other calls finish\n\nExamples:\n  bulkhead drain "
      "reports --for 1h "
      "--reason upgrade\n  bulkhead drain reports --resume",
      [=, this](CLI::App& c) {
        name(c);
        duration(c);
        why(c, false);
        c.add_flag("--resume", o_.resume, "Admit calls again");
      },
      [this] { return o_.resume || !o_.reason.empty() ? drain(o_) : cli::needs_reason("drain"); });
  add(
      app, "fault",
      "Inject latency and errors for a while (a rehearsal)\n\nThe file has to allow it: "
      "control.allow_faults: true.\n\nExamples:\n  bulkhead fault payments --latency 2s --error 10% --for 1m "
      "--reason drill\n  bulkhead fault payments --end",
      [=, this](CLI::App& c) {
        name(c);
        c.add_option("--latency", o_.latency, "Added to each call: 250ms, 2s; at most 1m")->type_name("TIME");
        c.add_option("--error", o_.error, "Share of the calls that fail: 10% or 0.1")->type_name("SHARE");
        c.add_option("--for", o_.fault_duration, "How long it lasts: 30s, 5m; at most 1h")
            ->type_name("TIME")
            ->capture_default_str();
        why(c, false);
        c.add_flag("--end", o_.end, "End it now");
      },
      [this] {
        if (o_.end || (!o_.reason.empty() && !(o_.latency.empty() && o_.error.empty()))) return fault(o_);
        if (!o_.latency.empty() || !o_.error.empty()) return cli::needs_reason("fault");
        fmt::print(
            stderr,
            "bulkhead fault: give --latency TIME or --error SHARE\nTry: bulkhead fault {} --latency 2s "
            "--error 10% --for 1m --reason drill\n",
            o_.name);
        return cli::kUsage;
      });
  add(
      app, "switch",
      "List or change the switches of the program\n\nExamples:\n  bulkhead switch\n  bulkhead switch "
      "slow-analytics on",
      [=, this](CLI::App& c) {
        auto* const which = c.add_option("NAME", o_.name, "The switch; without it: list all");
        one_of(c, "STATE", o_.action, {"on", "off"})->needs(which);
        why(c, false);
      },
      [this] {
        if (o_.name.empty() || !o_.action.empty()) return toggle(o_);
        fmt::print(stderr, "bulkhead switch: give on or off\nTry: bulkhead switch {} on\n", o_.name);
        return cli::kUsage;
      });
  add(
      app, "events",
      "Show events: changes, breakers, reloads\n\nExamples:\n  bulkhead events\n  bulkhead events -f",
      [this](CLI::App& c) { c.add_flag("-f,--follow", o_.follow, "Wait for new events and print them"); },
      [this] { return events(o_); });
  add(
      app, "diff", "Show what a reload of the file would change", [](CLI::App&) {},
      [this] { return plan(o_, {.path = "/v1/config/diff"}); });
  add(
      app, "reload", "Reload the configuration file\n\nExamples:\n  bulkhead reload --dry-run",
      [=](CLI::App& c) { why(c, false); },
      [this] {
        return plan(o_,
                    {.method = "POST",
                     .path = std::string("/v1/config/reload") + (o_.dry_run ? "?dry_run=true" : ""),
                     .body = o_.reason.empty() ? "" : json::serialize(json::object{{"reason", o_.reason}})});
      });

  CLI::App* const complete = app.add_subcommand(
      "completion",
      "Print the completion script for a shell\n\nExamples:\n  source <(bulkhead completion bash)");
  one_of(*complete, "SHELL", o_.shell, {"bash", "zsh", "fish"})->required();
  print(*complete, [this] { return std::pair{completion(), json::object{{"shell", o_.shell}}}; });
  print(*app.add_subcommand("man", "Print the manual page\n\nExamples:\n  bulkhead man | man -l -"),
        [this] { return std::pair{cli::manual(app_, version_), json::object{{"page", "bulkhead(1)"}}}; });
  print(*app.add_subcommand("version", "Print the version"), [this] {
    return std::pair{"bulkhead " + version_ + '\n',
                     json::object{{"name", "bulkhead"}, {"version", version_}}};
  });
  CLI::App* const help =
      app.add_subcommand("help", "Print the help of a command\n\nExamples:\n  bulkhead help set");
  help->add_option("COMMAND", o_.name, "The command; without it: the program")
      ->check([&app](const std::string& text) {
        std::vector<std::string> known;
        for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
          known.push_back(c->get_name());
        if (std::ranges::count(known, text) > 0) return std::string();
        const std::string close = base::suggest(text, known);
        return fmt::format("unknown command \"{}\"{}", text,
                           close.empty() ? "" : fmt::format("; did you mean \"{}\"?", close));
      });
  print(*help, [this] {
    const CLI::App& of = o_.name.empty() ? app_ : *app_.get_subcommand(o_.name);
    const std::string full = app_.get_name() + (o_.name.empty() ? "" : ' ' + o_.name);
    return std::pair{of.get_formatter()->make_help(&of, full, CLI::AppFormatMode::Normal),
                     json::object{{"command", o_.name}}};
  });
}

CLI::Option* Commands::one_of(CLI::App& command, const char* name, std::string& to,
                              const std::vector<std::string>& words) {
  const std::string all =
      fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
  CLI::Option* const option = command.add_option(name, to, all);
  words_[option] = fmt::format("{}", fmt::join(words, " "));
  return option->check([words, all](const std::string& text) {
    return std::ranges::count(words, text) > 0 ? std::string() : fmt::format("\"{}\" is not {}", text, all);
  });
}

// Commands that need no server. With --json the text is one field of an object.
void Commands::print(CLI::App& command, std::function<std::pair<std::string, json::object>()> what) {
  command.add_flag("--json", o_.json, "Print JSON");
  commands_.emplace_back(&command, [this, what = std::move(what)] {
    auto [text, object] = what();
    object["text"] = text;
    return say(o_.json ? json::serialize(object) + '\n' : text), 0;
  });
}

void Commands::add(CLI::App& app, const char* name, const char* about,
                   const std::function<void(CLI::App&)>& options, std::function<int()> action) {
  CLI::App* const command = app.add_subcommand(name, about);
  options(*command);
  command
      ->add_option(
          "--admin", o_.admin,
          "The control plane: path of a Unix socket, host:port or https://host:port; also BULKHEAD_ADMIN")
      ->type_name("URL");
  command->add_option("--token", o_.token, "For TCP; prefer BULKHEAD_TOKEN, which other users cannot see")
      ->type_name("TOKEN")
      ->envname("BULKHEAD_TOKEN");
  command->add_option("--certificate", o_.certificate, "For mutual TLS: certificate and key (PEM)")
      ->type_name("FILE")
      ->envname("BULKHEAD_CERTIFICATE");
  command->add_flag("--json", o_.json, "Print JSON and nothing else");
  command->add_flag("--plain", o_.plain, "No colours, no bars");
  command->add_flag("--no-color", o_.no_colour, "No colours; also with NO_COLOR in the environment");
  commands_.emplace_back(command, std::move(action));
}

int Commands::run() const {
  for (const auto& [command, action] : commands_) {
    if (!command->parsed()) continue;
    try {
      return action();
    } catch (const std::invalid_argument& wrong) {
      fmt::print(stderr, "bulkhead {}: {}\n", command->get_name(), wrong.what());
      return cli::kUsage;
    } catch (const std::system_error&) {  // writing the output failed
      throw;
    } catch (const std::exception& error) {  // not an answer of a control plane
      fmt::print(stderr, "bulkhead {}: unexpected answer: {}\n", command->get_name(), error.what());
      return cli::kFailure;
    }
  }
  return -1;
}

// zsh uses the script for bash.
std::string Commands::completion() const {
  const auto commands = app_.get_subcommands([](const CLI::App*) { return true; });
  const auto options_of = [](const CLI::App& app) {
    std::string options;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) options += (options.empty() ? "--" : " --") + name;
    return options;
  };
  std::string names;
  for (const CLI::App* command : commands) names += (names.empty() ? "" : " ") + command->get_name();
  std::string options, arguments, fish;
  for (const CLI::App* command : commands) {
    const std::string& name = command->get_name();
    const std::string about = command->get_description();
    options += fmt::format("    {}) options=\"{}\" ;;\n", name, options_of(*command));
    fish += fmt::format("complete -c bulkhead -f -n __fish_use_subcommand -a {} -d '{}'\n", name,
                        about.substr(0, about.find('\n')));
    int place = 1;  // in the line
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& word : option->get_lnames())
        fish += fmt::format("complete -c bulkhead -n '__fish_seen_subcommand_from {}' -l {}\n", name, word);
      if (!option->get_positional()) continue;
      ++place;
      const bool file = option->get_name(true) == "FILE", of_commands = option->get_name(true) == "COMMAND";
      const bool bulkhead = option->get_name(true) == "NAME" && name != "switch";
      const auto known = words_.find(option);
      if (!file && !of_commands && !bulkhead && known == words_.end()) continue;
      // The names of the running process; nothing if there is none.
      constexpr std::string_view kNames = "$(bulkhead status --names 2>/dev/null)";
      const std::string words = of_commands ? names
                                : file      ? ""
                                : bulkhead  ? std::string(kNames)
                                            : known->second;
      arguments += fmt::format("    {}:{}) words=\"{}\" ;;\n", name, place, words);
      if (!file)
        fish += fmt::format("complete -c bulkhead -f -n '__fish_seen_subcommand_from {}' -a '{}'\n", name,
                            bulkhead ? "(bulkhead status --names 2>/dev/null)" : words);
    }
  }
  if (o_.shell == "fish") return fish + "complete -c bulkhead -n __fish_use_subcommand -l help -l version\n";
  const std::string script = fmt::format(
      "_bulkhead() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} words=\"\" options=\"{}\"\n"
      "  ((COMP_CWORD == 1)) || case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  case ${{COMP_WORDS[1]}}:$COMP_CWORD in\n    *:1) words=\"{}\" ;;\n{}    *) words=$options ;;\n  "
      "esac\n"
      "  [[ $current != -* ]] || words=$options\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  [[ $current == -* || ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "}}\ncomplete -F _bulkhead bulkhead\n",
      options_of(app_), options, names, arguments);
  return o_.shell == "bash" ? script : "autoload -U +X bashcompinit && bashcompinit\n" + script;
}

}  // namespace bulkhead::client
