#include "shared/member_list.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"

namespace bulkhead::shared {
namespace {

// The number before the next space, which is skipped.
template <class T>
bool take_number(std::string_view& line, T& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.empty()) return true;
  if (line.front() != ' ') return false;
  line.remove_prefix(1);
  return true;
}

}  // namespace

std::string list_of(const LimitState& s, std::uint32_t most, std::int64_t now) {
  std::vector<const MemberTable::Entry*> order;
  order.reserve(s.members.size());
  MemberList sums;
  for (const auto& entry : s.members) {
    const MemberState& m = entry.second;
    order.push_back(&entry);
    if (m.expires > now) {
      ++sums.leased;
      sums.held += m.granted;
      sums.needed += m.need;
    } else {
      ++sums.lapsed;
      sums.lapsed_held += m.granted;
    }
  }
  const auto size = [](const MemberState& m) { return std::max(m.granted, m.need); };
  std::sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
    return std::pair(size(b->second), std::string_view(a->first)) <
           std::pair(size(a->second), std::string_view(b->first));
  });
  if (order.size() > most) order.resize(most);
  const auto text = [](auto number) { return std::to_string(number); };
  std::string out = base::join({text(sums.leased), " ", text(sums.lapsed), " ", text(sums.held), " ",
                                text(sums.needed), " ", text(sums.lapsed_held), "\n"});
  for (const auto* entry : order) {
    const MemberState& m = entry->second;
    out +=
        base::join({text(m.granted), " ", text(m.need), " ", text(m.expires - now), " ", entry->first, "\n"});
  }
  return out;
}

bool read_list(std::string_view text, MemberList& list) {
  list = {};
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return false;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (first) {
      if (!take_number(line, list.leased) || !take_number(line, list.lapsed) ||
          !take_number(line, list.held) || !take_number(line, list.needed) ||
          !take_number(line, list.lapsed_held) || !line.empty())
        return false;
      first = false;
      continue;
    }
    MemberList::Member m;
    if (!take_number(line, m.held) || !take_number(line, m.needed) || !take_number(line, m.left))
      return false;
    m.name = line;
    list.members.push_back(std::move(m));
  }
  return !first;
}

}  // namespace bulkhead::shared
