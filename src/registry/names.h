// names.h - what may be a name, and which ones were probably meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::registry {

inline constexpr std::size_t kMaxName = 200;         // bytes, of a bulkhead, group, type or set of tenants
inline constexpr std::size_t kMaxTenantId = 128;     // bytes, whatever TenantOptions::max_id_length says
inline constexpr std::string_view kOverflow = "/*";  // what the name of an overflow bulkhead ends in

// Names end up in metrics, logs, terminals and addresses: UTF-8 without control characters, not empty, no '/' at
// either end. The problem ("is empty"), or nothing.
std::string_view problem_of_name(std::string_view name) noexcept;
// The same without '/', which divides it from the name of its set, and not "*".
bool valid_tenant_id(std::string_view id, std::size_t max_length) noexcept;

// `: did you mean "payments"?`, or `: there are "a", "b"`, or `: there is none`.
std::string suggest(std::string_view wanted, std::vector<std::string> names);

}  // namespace bulkhead::registry
