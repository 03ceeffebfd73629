#include "group/shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/text.h"

namespace bulkhead::group {
namespace {

constexpr double kSlack = 1e-6;  // 33.3 + 33.3 + 33.4 per cent are doubles, so their sum is not exact

[[noreturn]] void reject(std::string_view group, std::string_view member, std::string_view setting,
                         std::string_view problem) {
  base::throw_invalid(
      base::join({"group \"", group, "\", member \"", member, "\": ", setting, " ", problem}));
}

void check(std::string_view group, std::string_view member, std::string_view setting, const Share& share) {
  if (share.percent != 0 && share.units != 0)
    reject(group, member, setting, "is given in per cent and in units: give one of them");
  if (!(share.percent >= 0 && share.percent <= 100))
    reject(group, member, setting, "is out of range: give 0 to 100 per cent");
}

double exact(const Share& share, std::uint32_t total) { return share.percent / 100 * total; }

std::uint32_t largest(const Share& max, std::uint32_t total) {
  if (max.units != 0) return std::min(max.units, total);
  return static_cast<std::uint32_t>(std::ceil(exact(max, total) - kSlack));
}

// Guarantees in per cent are rounded together: first down, then those with the largest remainders get one more.
std::vector<Quota> rounded(std::uint32_t total, const std::vector<Part>& parts) {
  std::vector<Quota> result(parts.size());
  std::vector<std::size_t> by_remainder;
  double whole = 0;
  std::int64_t left = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    result[i].guaranteed = p.guaranteed.units;
    if (p.guaranteed.percent == 0) continue;
    whole += exact(p.guaranteed, total);
    result[i].guaranteed = static_cast<std::uint32_t>(exact(p.guaranteed, total) + kSlack);
    left -= result[i].guaranteed;
    by_remainder.push_back(i);
  }
  left += static_cast<std::int64_t>(whole + kSlack);
  const auto remainder = [&](std::size_t i) {
    return std::llround((exact(parts[i].guaranteed, total) - result[i].guaranteed) / kSlack);
  };
  std::sort(by_remainder.begin(), by_remainder.end(), [&](std::size_t a, std::size_t b) {
    return remainder(a) != remainder(b) ? remainder(a) > remainder(b) : a < b;
  });
  for (std::size_t i = 0; left > 0; ++i, --left) ++result[by_remainder[i]].guaranteed;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    result[i].max = largest(p.max, total);
    result[i].max_follows = p.max.units == 0 || p.max.units > total;
    // Rounding must not put `max` below the guarantee.
    if (p.guaranteed.units == 0 && result[i].max + kSlack >= std::floor(exact(p.guaranteed, total)))
      result[i].max = std::max(result[i].max, result[i].guaranteed);
  }
  return result;
}

std::uint64_t sum_of(const std::vector<Quota>& quotas) {
  std::uint64_t sum = 0;
  for (const Quota& q : quotas) sum += q.guaranteed;
  return sum;
}

// As exactly as whole units can be: rounded down, then one more for the largest remainders.
void scale_to(std::uint32_t total, std::vector<Quota>& quotas) {
  const std::uint64_t sum = sum_of(quotas);
  std::vector<std::pair<std::uint64_t, std::size_t>> remainders;
  std::uint64_t left = total;
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    const std::uint64_t product = std::uint64_t{total} * quotas[i].guaranteed;
    quotas[i].guaranteed = static_cast<std::uint32_t>(product / sum);
    left -= quotas[i].guaranteed;
    remainders.emplace_back(product % sum, i);
  }
  std::sort(remainders.begin(), remainders.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (std::size_t i = 0; i < left; ++i) ++quotas[remainders[i].second].guaranteed;
}

}  // namespace

std::vector<Quota> quotas(std::string_view group, std::uint32_t total, const std::vector<Part>& parts) {
  for (const Part& p : parts) {
    check(group, p.name, "guaranteed", p.guaranteed);
    check(group, p.name, "max", p.max);
  }
  std::vector<Quota> result = rounded(total, parts);
  if (const std::uint64_t sum = sum_of(result); sum > total)
    base::throw_invalid(
        base::join({"group \"", group, "\": the guarantees add up to ", std::to_string(sum),
                    " of total = ", std::to_string(total), ": lower them, or raise the total"}));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (result[i].max == 0) reject(group, parts[i].name, "max", "is 0 units: give at least one");
    if (result[i].max < result[i].guaranteed)
      reject(group, parts[i].name, "max",
             base::join({"= ", std::to_string(result[i].max), " units is below guaranteed = ",
                         std::to_string(result[i].guaranteed), ": give at least that"}));
  }
  return result;
}

std::vector<Quota> shrunk_quotas(std::uint32_t total, const std::vector<Part>& parts) {
  std::vector<Quota> result = rounded(total, parts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (const std::uint32_t most = parts[i].max.units)
      result[i].guaranteed = std::min(result[i].guaranteed, most);
  if (sum_of(result) > total) scale_to(total, result);
  for (Quota& q : result) {
    q.max = std::max(q.max, std::uint32_t{1});
    q.guaranteed = std::min(q.guaranteed, q.max);
  }
  std::uint64_t sum = sum_of(result), claims = 0;
  for (const Part& p : parts) claims += p.guaranteed.units > 0 || p.guaranteed.percent > 0;
  if (claims > total) return result;
  const auto fewer = [](const Quota& a, const Quota& b) { return a.guaranteed < b.guaranteed; };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool claims_one = parts[i].guaranteed.units > 0 || parts[i].guaranteed.percent > 0;
    if (!claims_one || result[i].guaranteed > 0) continue;
    if (sum < total)
      ++sum;
    else
      --std::max_element(result.begin(), result.end(), fewer)
            ->guaranteed;  // at least 2: there are units for all
    result[i].guaranteed = 1;
  }
  return result;
}

}  // namespace bulkhead::group
