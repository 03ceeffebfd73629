#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <utility>

#include "app/cli/terminal.h"
#include "app/client/admin.h"
#include "app/client/commands.h"
#include "app/client/view.h"

namespace bulkhead::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kEscape = 27, kEnter = '\r', kBackspace = 127;

// The live table: what is shown, and what the keys do to it.
class Top {
 public:
  Top(const Admin& admin, const cli::Style& style) : admin_(admin), style_(style), screen_(STDOUT_FILENO) {}

  int run() {
    const cli::CatchSignals signals;
    for (;;) {
      refresh();
      for (const auto until = steady_clock::now() + milliseconds(1000); steady_clock::now() < until;) {
        draw();
        if (cli::CatchSignals::caught() != 0) return 0;
        const char key = next_key_ != 0 ? std::exchange(next_key_, '\0')
                                        : cli::FullScreen::wait_for_key(milliseconds(200));
        if (key != 0 && !press(key)) return 0;
      }
    }
  }

 private:
  enum class Typing { nothing, filter, reason, revert };

  void refresh() {
    const Reply reply = admin_.ask({.path = "/v1/snapshot"});
    trouble_ = reply.ok()          ? ""
               : reply.status == 0 ? "no answer from " + admin_.where() + ": " + reply.trouble
                                   : reply.explain();
    if (!trouble_.empty()) return;  // what was seen last stays, marked as old
    try {
      view_ = read_view(reply.json());
    } catch (const std::exception& error) {
      trouble_ = error.what();
      return;
    }
    seen_ = steady_clock::now();
    // A minute in steps of 4 s; without it there are no sparklines.
    if (const Reply history = admin_.ask({.path = "/v1/history?seconds=60&step=4"}); history.ok())
      add_history(view_, history.json());
    if (detail_) {
      const Reply one = admin_.ask({.path = "/v1/bulkheads/" + encoded(selected_name_)});
      shown_detail_ = one.ok() ? one.json() : boost::json::value();
      if (!one.ok()) detail_ = false;
    }
  }

  std::vector<BulkheadRow> rows() {
    std::vector<BulkheadRow> shown;
    for (const BulkheadRow& row : view_.rows)
      if (row.name.find(filter_) != std::string::npos) shown.push_back(row);
    sort_rows(shown, sort_);
    // The bulkhead stays selected, wherever it moves to; if it is gone, the place.
    const auto same = std::ranges::find(shown, selected_name_, &BulkheadRow::name);
    if (same != shown.end()) selected_ = static_cast<std::size_t>(same - shown.begin());
    selected_ = shown.empty() ? 0 : std::min(selected_, shown.size() - 1);
    if (!shown.empty()) selected_name_ = shown[selected_].name;
    return shown;
  }

  void select(int by) {
    const std::vector<BulkheadRow> shown = rows();
    if (shown.empty() || (by < 0 && selected_ == 0) || (by > 0 && selected_ + 1 == shown.size())) return;
    selected_name_ = shown[by > 0 ? selected_ + 1 : selected_ - 1].name;
  }

  void draw() {
    const cli::Size size = cli::terminal_size(STDOUT_FILENO);
    const std::vector<BulkheadRow> shown = rows();
    const double age = std::chrono::duration<double>(steady_clock::now() - seen_).count();
    std::string text =
        cli::paint(style_, cli::Paint::bold, fmt::format(" {} {}", view_.instance, view_.version)) +
        fmt::format("  up {}  config: {}  sort: {}{}\n", cli::span(view_.uptime), view_.config,
                    to_string(sort_), filter_.empty() ? "" : "  filter: " + filter_);
    std::string said =
        trouble_.empty()
            ? verdict_lines(style_, view_, size.columns)
            : cli::paint(style_, cli::Paint::bold_red,
                         fmt::format(" {:.0f} s old: {}", age, trouble_.substr(0, trouble_.find('\n')))) +
                  "\n";
    if (said.empty()) said = "\n";
    text += said;
    const auto used = static_cast<std::size_t>(std::ranges::count(said, '\n'));
    if (detail_ && shown_detail_.is_object()) return draw_detail(text, used, size);
    const std::vector<std::string> lines = table(style_, shown, size.columns, selected_);
    const std::size_t room =
        std::max(std::size_t{size.rows}, used + 5) - used - 4;  // the verdict; head, heading, a blank, foot
    first_ = std::clamp(first_, selected_ - std::min(selected_, room - 1), selected_);
    first_ = std::min(first_, shown.size() - std::min(shown.size(), room));
    text += lines.front() + '\n';
    for (std::size_t i = first_; i < std::min(shown.size(), first_ + room); ++i) text += lines[i + 1] + '\n';
    if (shown.empty()) text += filter_.empty() ? " There is no bulkhead yet.\n" : " No name contains that.\n";
    text += "\n " + foot();
    if (shown.size() > room)
      text +=
          fmt::format("  ({} to {} of {})", first_ + 1, std::min(shown.size(), first_ + room), shown.size());
    screen_.draw(text);
  }

  // The bulkhead that is selected, as far as the screen reaches.
  void draw_detail(std::string text, std::size_t used, const cli::Size& size) {
    const std::string all = detail_lines(style_, shown_detail_, size.columns);
    std::size_t room = std::max(std::size_t{size.rows}, used + 5) - used - 3, at = 0;
    while (room-- > 0 && at < all.size()) at = std::min(all.find('\n', at), all.size() - 1) + 1;
    screen_.draw(text + all.substr(0, at) + "\n " + foot());
  }

  std::string foot() const {
    if (typing_ == Typing::revert)
      return fmt::format("{}: end its overrides (Enter), or keep them (Esc); reason: {}_", target_, typed_);
    if (typing_ == Typing::filter) return "filter: " + typed_ + "_";
    if (typing_ == Typing::reason)
      return fmt::format("{}: max_concurrent {} -> {} for 15m; reason: {}_", target_, from_, to_, typed_);
    if (!message_.empty()) return message_;
    return detail_ ? "Esc back  + - resize  r revert  q quit"
                   : "q quit  Enter detail  s sort  / filter  j k or arrows select  + - resize  r revert";
  }

  void begin_resize(int direction) {
    const std::vector<BulkheadRow> shown = rows();
    if (shown.empty()) return;
    const BulkheadRow& row = shown[selected_];
    target_ = row.name;
    from_ = row.max_concurrent;
    const std::uint64_t step = std::max<std::uint64_t>(1, from_ / 10);
    to_ = direction > 0 ? from_ + step : std::max<std::uint64_t>(1, from_ - std::min(from_, step));
    typing_ = Typing::reason;
    typed_.clear();
  }

  // Enter: what was typed is a filter, the reason of a change, or the reason to end overrides.
  void finish_typing() {
    if (typing_ == Typing::filter) filter_ = typed_;
    if (typing_ == Typing::reason) {
      const boost::json::object body{{"max_concurrent", to_}, {"ttl", "15m"}, {"reason", typed_}};
      const Reply reply =
          admin_.ask({"PUT", "/v1/overrides/" + encoded(target_), boost::json::serialize(body), ""});
      message_ =
          reply.ok() ? fmt::format("{}: max_concurrent {} -> {}", target_, from_, to_) : reply.explain();
      std::ranges::replace(message_, '\n', ' ');
      refresh();
    }
    if (typing_ == Typing::revert) {
      bool any = false;
      const Reply reply = end_overrides(admin_, target_, typed_, false, any);
      message_ =
          !reply.ok() ? reply.explain() : target_ + (any ? ": its overrides have ended" : ": no override");
      std::ranges::replace(message_, '\n', ' ');
      refresh();
    }
    typing_ = Typing::nothing;
  }

  // An arrow comes as three: escape, [ and a letter. Others of that kind are swallowed.
  char arrow() {
    if (const char next = cli::FullScreen::wait_for_key(milliseconds(20)); next != '[') {
      next_key_ = next;
      return kEscape;
    }
    const char which = cli::FullScreen::wait_for_key(milliseconds(20));
    return which == 'A' ? 'k' : which == 'B' ? 'j' : '\0';
  }

  bool press(char key) {  // false: leave
    if (key == kEscape) {
      key = arrow();
      if (key != kEscape && typing_ != Typing::nothing) return true;
    }
    if (typing_ != Typing::nothing) {
      if (key == kEnter || key == '\n')
        finish_typing();
      else if (key == kEscape)
        typing_ = Typing::nothing;
      else if (key == kBackspace || key == '\b')
        typed_.resize(typed_.size() - !typed_.empty());
      else if (static_cast<unsigned char>(key) >= ' ')
        typed_ += key;
      // A + that is typed again while the reason is asked for goes on: 20 -> 22 -> 24.
      if (typing_ == Typing::reason && typed_ == "+")
        typed_.clear(), to_ += std::max<std::uint64_t>(1, from_ / 10);
      if (typing_ == Typing::reason && typed_ == "-")
        typed_.clear(),
            to_ = std::max<std::uint64_t>(1, to_ - std::min(to_, std::max<std::uint64_t>(1, from_ / 10)));
      return true;
    }
    message_.clear();
    switch (key) {
      case kEscape:  // first the detail, then the filter
        if (!std::exchange(detail_, false)) filter_.clear();
        break;
      case kEnter:
      case '\n':
        detail_ = !detail_ && !rows().empty();
        if (detail_) refresh();
        break;
      case 'r':
        if (rows().empty()) break;
        target_ = selected_name_;
        typing_ = Typing::revert;
        typed_.clear();
        break;
      case 'q':
      case 3:  // Ctrl-C, where it comes as a key
        return false;
      case 's':
        sort_ = static_cast<SortBy>((static_cast<std::size_t>(sort_) + 1) % kSorts);
        break;
      case '/':
        typing_ = Typing::filter, typed_ = filter_;
        break;
      case 'j':
        select(1);
        break;
      case 'k':
        select(-1);
        break;
      case '+':
      case '=':
        begin_resize(1);
        break;
      case '-':
        begin_resize(-1);
        break;
      default:
        break;
    }
    return true;
  }

  const Admin& admin_;
  const cli::Style style_;
  cli::FullScreen screen_;
  View view_;
  steady_clock::time_point seen_ = steady_clock::now();
  std::string trouble_, filter_, typed_, message_, target_;
  std::uint64_t from_ = 0, to_ = 0;
  char next_key_ = 0;  // read to see whether it belongs to an arrow
  std::string selected_name_;
  std::size_t selected_ = 0, first_ = 0;  // rows: the selected one, the topmost on the screen
  SortBy sort_ = SortBy::name;
  Typing typing_ = Typing::nothing;
  bool detail_ = false;
  boost::json::value shown_detail_;  // of the selected bulkhead
};

}  // namespace

int run_top(const ClientOptions& o) {
  const Admin admin = Admin::at(o.admin, o.token, o.certificate);
  const Reply reply = admin.ask({.path = "/v1/snapshot"});
  if (!reply.ok()) return failed(o, reply, admin);
  if (o.json) return cli::say(reply.body), 0;
  const bool live = !o.once && !o.plain && cli::can_redraw(STDOUT_FILENO) && cli::is_terminal(STDIN_FILENO);
  const cli::Style style = o.plain ? cli::Style{} : cli::style_of(STDOUT_FILENO, !o.no_colour);
  if (live) return Top(admin, style).run();
  const std::size_t columns =
      cli::is_terminal(STDOUT_FILENO) ? cli::terminal_size(STDOUT_FILENO).columns : 200;
  const View view = read_view(reply.json());
  std::string text = verdict_lines(style, view, columns);
  for (const std::string& line : table(style, view.rows, columns)) text += line + '\n';
  return cli::say(text), 0;
}

}  // namespace bulkhead::client
