#include "yaml.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "config/decode.h"
#include "config/document.h"
#include "config/values.h"

namespace bulkhead::yaml {
namespace {

using config::Node;

constexpr std::size_t kMostBytes = 1024 * 1024;
constexpr std::size_t kMostNodes = 100'000;
constexpr std::size_t kDeepest = 32;

struct RejectedText {  // nothing after it makes sense
  Position at;
  std::string message, hint;
};

// What yaml-cpp would pass over, take for another encoding, or complain about without saying what it saw.
std::optional<RejectedText> check_bytes(std::string_view text) {
  const Position start{1, 1};
  if (text.size() > kMostBytes) return RejectedText{start, "the file is larger than 1 MiB", "split it"};
  if (text.starts_with("\xEF\xBB\xBF"))
    return RejectedText{start, "the file begins with a byte order mark", "save it as UTF-8 without one"};
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return RejectedText{start, "the file is UTF-16", "save it as UTF-8"};
  Position at = start;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = base::utf8_length(rest);
    const char c = rest[0];
    if (length == 0) return RejectedText{at, "here is a byte that is not UTF-8", "save the file as UTF-8"};
    if (c == '\0') return RejectedText{at, "here is a NUL byte", "remove it; is this a text file?"};
    if ((c > 0 && c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f)
      return RejectedText{at, "here is a control character", "remove it"};
    rest.remove_prefix(length);
    if (c == '\n')
      at = {at.line + 1, 1};
    else
      ++at.column;
  }
  return std::nullopt;
}

// yaml-cpp counts bytes from 0; people count characters from 1. Remembers the last place, because files of one long line
// are asked for every place in it.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {}

  Position of(const YAML::Mark& mark) {
    if (mark.is_null()) return {1, 1};
    const std::size_t pos = std::min(static_cast<std::size_t>(mark.pos), text_.size());
    const auto line = static_cast<std::uint32_t>(mark.line) + 1;
    if (line != last_.line || pos < last_pos_) {
      last_pos_ = pos == 0 ? 0 : text_.rfind('\n', pos - 1) + 1;  // npos + 1 is 0
      last_ = {line, 1};
    }
    for (const char c : text_.substr(last_pos_, pos - last_pos_))
      last_.column += (static_cast<unsigned char>(c) & 0xC0U) != 0x80;
    last_pos_ = pos;
    return last_;
  }

 private:
  const std::string_view text_;
  std::size_t last_pos_ = 0;
  Position last_{};
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : places_(text) {}

  Node root{};
  std::vector<RejectedText> rejected{};  // that do not keep us from reading on

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    rejected.push_back(
        {places_.of(mark), "anchors are not supported", "put what is common into types, and name the type"});
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { attach(make(Node::Kind::null, mark)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    rejected.push_back(
        {places_.of(mark), "aliases are not supported", "put what is common into types, and name the type"});
    attach(make(Node::Kind::null, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    Node node = make(Node::Kind::scalar, mark);
    node.quoted = tag == "!";
    node.text = value;
    if (!node.quoted) check_tag(mark, tag);
    attach(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::list, mark, tag);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::map, mark, tag);
  }
  void OnMapEnd() override { close(); }

 private:
  Node make(Node::Kind kind, const YAML::Mark& mark) {
    if (++nodes_ > kMostNodes)
      throw RejectedText{places_.of(mark), "the file has more than 100000 values", "split it"};
    Node node;
    node.kind = kind;
    node.at = places_.of(mark);
    return node;
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag != "?" && !tag.empty())
      rejected.push_back({places_.of(mark), "tags are not supported", "remove what begins with !"});
  }
  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    check_tag(mark, tag);
    if (open_.size() >= kDeepest)
      throw RejectedText{places_.of(mark), "the file is more than 32 levels deep", ""};
    open_.push_back(make(kind, mark));
  }
  void close() {
    Node done = std::move(open_.back());
    open_.pop_back();
    attach(std::move(done));
  }
  void attach(Node node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Node& parent = open_.back();
    const bool is_key = parent.is_map() && parent.keys.size() == parent.values.size();
    if (is_key && !node.is_scalar())
      throw RejectedText{node.at, "the name of a setting is missing",
                         "write name: value; a map or list cannot be a name"};
    (is_key ? parent.keys : parent.values).push_back(std::move(node));
  }

  Places places_;
  std::vector<Node> open_;
  std::size_t nodes_ = 0;
};

// yaml-cpp's words for the usual mistakes, in ours.
RejectedText explain(std::string_view text, const YAML::Exception& error) {
  namespace e = YAML::ErrorMsg;
  const Position at = Places(text).of(error.mark);
  // A tab in the indentation has many faces; it is found here or in one of the two lines before.
  for (std::uint32_t line = at.line; line != 0 && line + 2 >= at.line; --line) {
    const std::string_view source = config::line_of(text, line);
    const std::size_t tab = source.find('\t');
    if (tab != source.npos && source.find_first_not_of(" \t") > tab)
      return {{line, static_cast<std::uint32_t>(tab) + 1},
              "here is a tab in the indentation",
              "indent with spaces"};
  }
  const std::string_view what = error.msg;
  const auto is = [&](auto... texts) { return ((what == texts) || ...); };
  if (is(e::END_OF_MAP, e::END_OF_SEQ, e::BLOCK_ENTRY, e::MAP_KEY))
    return {at, "this does not fit with the lines above",
            "settings of one section begin in the same column; write a space after each colon"};
  if (is(e::MAP_VALUE))
    return {at, "a value cannot begin here",
            "put text with a colon in it into quotes; check the indentation"};
  if (is(e::END_OF_MAP_FLOW)) return {at, "a } is missing", "close what { opened; put commas between"};
  if (is(e::END_OF_SEQ_FLOW)) return {at, "a ] is missing", "close what [ opened; put commas between"};
  if (is(e::FLOW_END)) return {at, "here is a ] or } too many", ""};
  if (is(e::EOF_IN_SCALAR)) return {at, "a closing quote is missing", ""};
  if (is(e::UNKNOWN_ANCHOR))
    return {at, "aliases are not supported", "put what is common into types, and name the type"};
  if (is(e::UNKNOWN_TOKEN)) return {at, "nothing can begin with this character", "put the text into quotes"};
  if (dynamic_cast<const YAML::DeepRecursion*>(&error))
    return {at, "the file is more than 32 levels deep", ""};
  return {at, "not YAML: " + std::string(what), ""};
}

ConfigProblem problem(const RejectedText& rejected, std::string_view file, std::string_view text) {
  return {.file = std::string(file),
          .at = rejected.at,
          .message = rejected.message,
          .hint = rejected.hint,
          .source = config::printable(config::line_of(text, rejected.at.line))};
}

// The tree, or everything that keeps us from having one.
std::vector<RejectedText> read(const std::string& text, Node& root) {
  if (auto bytes = check_bytes(text)) return {*bytes};
  const RejectedText nothing{{1, 1}, "the file is empty", "begin with version: 1"};
  TreeBuilder tree(text);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(tree)) return {nothing};
    TreeBuilder second(text);
    if (parser.HandleNextDocument(second))
      tree.rejected.push_back({second.root.at, "a second document begins here", "one file, one document"});
  } catch (const YAML::Exception& error) {
    tree.rejected.push_back(explain(text, error));
  } catch (const RejectedText& rejected) {
    tree.rejected.push_back(rejected);
  }
  if (tree.rejected.empty() && tree.root.kind == Node::Kind::null) return {nothing};
  root = std::move(tree.root);
  return std::move(tree.rejected);
}

// What keeps a text from being read at all is in loaded.problems.
Node root_of(Loaded& loaded, std::string_view file) {
  Node root;
  for (const RejectedText& r : read(loaded.text, root)) {
    if (loaded.problems.size() == 200) break;
    loaded.problems.push_back(problem(r, file, loaded.text));
  }
  config::sort_by_position(loaded.problems);
  return root;
}

}  // namespace

Loaded parse_part(const std::string& text, std::string_view file, std::string_view name,
                  const config::Section& section, void* target, bool& found) {
  Loaded loaded;
  loaded.text = text;
  const Node root = root_of(loaded, file);
  if (!loaded.ok()) return loaded;
  config::Decoded decoded;
  found = config::decode_part(root, name, section, target, file, loaded.text, decoded);
  loaded.config = std::move(decoded.config);
  loaded.problems = std::move(decoded.problems);
  return loaded;
}

// Lint rules judge values, so they run only for a file without errors.
Loaded parse(std::string text, std::string_view file) {
  Loaded loaded;
  loaded.text = std::move(text);
  const Node root = root_of(loaded, file);
  if (!loaded.ok()) return loaded;
  config::Decoded decoded = config::decode(root, file, loaded.text);
  loaded.config = std::move(decoded.config);
  loaded.problems = std::move(decoded.problems);
  if (!loaded.ok()) return loaded;
  loaded.warnings = lint(loaded.config);
  for (ConfigProblem& warning : loaded.warnings) {
    warning.file = file;
    warning.source = config::printable(config::line_of(loaded.text, warning.at.line));
  }
  return loaded;
}

Loaded parse_tree(std::string text, std::string_view file, Node& root) {
  Loaded loaded;
  loaded.text = std::move(text);
  root = root_of(loaded, file);
  return loaded;
}

namespace {

// Reads one byte more than a file may have, so that a larger one is noticed and not cut.
template <class Parse>
Loaded load_with(const std::string& path, const Parse& parse) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMostBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad() || (text.empty() && errno != 0)) {
    Loaded loaded;
    loaded.readable = false;
    loaded.problems.push_back(
        {.file = path, .message = std::string("cannot read it: ") + std::strerror(errno)});
    return loaded;
  }
  return parse(std::move(text));
}

}  // namespace

Loaded load(const std::string& path) {
  return load_with(path, [&](std::string text) { return parse(std::move(text), path); });
}

Loaded load_tree(const std::string& path, Node& root) {
  return load_with(path, [&](std::string text) { return parse_tree(std::move(text), path, root); });
}

}  // namespace bulkhead::yaml
