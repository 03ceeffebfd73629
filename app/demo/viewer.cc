#include "app/demo/viewer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <optional>
#include <thread>

#include "app/cli/terminal.h"

namespace bulkhead::demo {
namespace {

using cli::Paint;
using Seconds = std::chrono::duration<double>;

int whole_seconds(nanoseconds d) { return static_cast<int>(std::ceil(Seconds(d).count())); }

double share_done(const Scene& scene) {
  return Seconds(scene.elapsed).count() / Seconds(scene.total).count();
}

std::string_view title(Bulkheads bulkheads) {
  return bulkheads == Bulkheads::on ? "WITH BULKHEADS" : "WITHOUT BULKHEADS";
}

class LiveTable final : public Viewer {
 public:
  LiveTable(int fd, const cli::Style& style) : fd_(fd), style_(style), screen_(fd) {}

  void show(const Scene& scene) override {
    const std::size_t columns = cli::terminal_size(fd_).columns;
    if (scene.now.phase == Phase::slow && scene.bulkheads == Bulkheads::off) keep_worst(scene);
    screen_.draw(head(scene, columns) + '\n' + table_text(style_, scene, columns) + '\n' +
                 foot(scene, columns));
  }

  bool pause(std::chrono::milliseconds at_most) override {
    const char key = cli::FullScreen::wait_for_key(at_most);
    return key != 'q' && key != 'Q';
  }

 private:
  std::string head(const Scene& scene, std::size_t columns) const {
    const std::string name = " bulkhead demo";
    const std::string left = fmt::format("{} s left ", whole_seconds(scene.total - scene.elapsed));
    const std::string about =
        fmt::format("   a shop on {} connections of {}", scene.now.limit, scene.story->database);
    const std::size_t room = columns > name.size() + left.size() ? columns - name.size() - left.size() : 0;
    const bool bad = scene.now.phase == Phase::slow;
    std::string text = cli::paint(style_, Paint::bold, name) +
                       cli::pad_right(about.size() <= room ? about : "", room) + left + '\n';
    text += ' ' + cli::paint(style_, Paint::cyan, cli::bar(style_, share_done(scene), columns - 2)) + "\n\n";
    text += ' ' + cli::paint(style_, Paint::inverse, fmt::format(" {} ", title(scene.bulkheads)));
    text += fmt::format("  act {} of 2\n", scene.bulkheads == Bulkheads::on ? 2 : 1);
    text += cli::wrap(setting(*scene.story, scene.bulkheads), columns - 1, " ") + '\n';
    return text + ' ' + cli::paint(style_, bad ? Paint::yellow : Paint::none, headline(scene)) + '\n';
  }

  std::string foot(const Scene& scene, std::size_t columns) const {
    const Remark said = remark(scene);
    std::string text = cli::wrap(said.text, columns - 1, " ");
    if (text.find('\n') == text.npos) text += '\n';  // what follows stays in its place
    text = cli::paint(style_, said.bad ? Paint::bold_red : Paint::bold_green, text) + "\n\n";
    if (scene.bulkheads == Bulkheads::on && !worst_.empty())
      text += cli::paint(style_, Paint::dim, cli::wrap(worst_, columns - 1, " ")) + '\n';
    return text +
           cli::paint(
               style_, Paint::dim,
               cli::wrap("Last second. full: the queue was full; late: waited 1 s in the queue. q ends.",
                         columns - 1, " "));
  }

  // The worst second of the first act, to compare with while the second runs.
  void keep_worst(const Scene& scene) {
    std::uint64_t served = 0, decided = 0;
    for (std::size_t i = 0; i < kRoutes; ++i) {
      if (i == scene.story->slow_route) continue;
      served += scene.recent[i].served;
      decided += scene.recent[i].decided();
    }
    if (decided == 0) return;
    const double share = static_cast<double>(served) / static_cast<double>(decided);
    if (share > worst_share_) return;
    worst_share_ = share;
    worst_ = fmt::format("The worst second without bulkheads: {} of all other calls were served.",
                         cli::percent(share));
  }

  const int fd_;
  const cli::Style style_;
  cli::FullScreen screen_;
  double worst_share_ = 1;
  std::string worst_;
};

class PlainLines final : public Viewer {
 public:
  explicit PlainLines(int fd) : fd_(fd) {}

  void show(const Scene& scene) override {
    std::string text;
    if (act_ != scene.bulkheads) {
      if (!act_)
        text += fmt::format("A shop on {} connections of one database ({}); two acts, {} s in all.\n",
                            scene.now.limit, scene.story->database, whole_seconds(scene.total));
      act_ = scene.bulkheads;
      phase_.reset();
      next_ = std::chrono::seconds(1);
      text += fmt::format("\nAct {} of 2, {}: {}.\n", *act_ == Bulkheads::on ? 2 : 1,
                          *act_ == Bulkheads::on ? "with bulkheads" : "without bulkheads",
                          setting(*scene.story, *act_));
    }
    if (phase_ != scene.now.phase) {
      phase_ = scene.now.phase;
      text += headline(scene) + '\n';
    }
    if (scene.now.elapsed >= next_) {
      next_ += std::chrono::seconds(1);
      text += line(scene);
    }
    cli::write_all(fd_, text);
  }

 private:
  static std::string line(const Scene& scene) {
    const cli::Style ascii;
    std::string text = fmt::format("{:4} s  {:3}/{} connections", std::lround(Seconds(scene.elapsed).count()),
                                   scene.now.in_flight, scene.now.limit);
    for (std::size_t i = 0; i < kRoutes; ++i) {
      const Count& recent = scene.recent[i];
      text += fmt::format(" | {} {}/s", scene.story->routes[i].name, scene.per_second(recent.served));
      if (recent.rejected() > 0) text += fmt::format(", {}/s rejected", scene.per_second(recent.rejected()));
      if (recent.response.count() > 0)
        text += ", p99 " + cli::duration(ascii, recent.response.quantile(0.99));
    }
    return text + '\n';
  }

  const int fd_;
  std::optional<Bulkheads> act_;
  std::optional<Phase> phase_;
  nanoseconds next_{};
};

class ProgressLine final : public Viewer {
 public:
  explicit ProgressLine(int fd) : fd_(fd) {}
  ~ProgressLine() override { cli::write_all(fd_, "\r\x1b[K"); }

  void show(const Scene& scene) override {
    const std::string text = fmt::format("\r{} {} s left\x1b[K", cli::bar({}, share_done(scene), 40),
                                         whole_seconds(scene.total - scene.elapsed));
    cli::write_all(fd_, text);
  }

 private:
  const int fd_;
};

class NoViewer final : public Viewer {
 public:
  void show(const Scene&) override {}
};

}  // namespace

bool Viewer::pause(std::chrono::milliseconds at_most) {
  ::usleep(static_cast<useconds_t>(std::chrono::microseconds(at_most).count()));  // a signal ends it early
  return true;
}

std::unique_ptr<Viewer> live_table(int fd, const cli::Style& style) {
  return std::make_unique<LiveTable>(fd, style);
}
std::unique_ptr<Viewer> plain_lines(int fd) { return std::make_unique<PlainLines>(fd); }
std::unique_ptr<Viewer> progress_line(int fd) { return std::make_unique<ProgressLine>(fd); }
std::unique_ptr<Viewer> no_viewer() { return std::make_unique<NoViewer>(); }

}  // namespace bulkhead::demo
