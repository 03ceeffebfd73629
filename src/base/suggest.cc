#include "base/suggest.h"

#include <algorithm>
#include <vector>

namespace bulkhead::base {
namespace {

// The number of insertions, deletions, replacements and swaps of neighbours between the two.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string suggest(std::string_view typed, std::span<const std::string> known) {
  std::string nearest;
  std::size_t best = std::max<std::size_t>(1, std::min<std::size_t>(typed.size(), 12) / 3) + 1;
  for (const std::string& candidate : known) {
    if (typed.size() > 64) break;
    const bool begun = typed.size() >= 3 && candidate.starts_with(typed);
    const std::size_t d = begun ? 1 : distance(typed, candidate);
    if (d < best) {
      best = d;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace bulkhead::base
