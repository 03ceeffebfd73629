// running.h - from a configuration to a registry that is like it.
#pragma once

#include <map>
#include <string>

#include "bulkhead/config.h"
#include "bulkhead/registry.h"

namespace bulkhead::config {

// Every setting by its path.
using Values = std::map<std::string, Setting, std::less<>>;
Values values_of(const Config& config);

// "bulkheads.db" of "bulkheads.db.max_queue"; "" if the path is not inside an entry of a map.
std::string_view entry_path(std::string_view path) noexcept;

// A setting that is live in the table, but not for a member of a group, whose gate belongs to the group.
bool fixed_in_group(std::string_view setting) noexcept;

// The configuration that can replace `running` now: `wanted`, except settings that cannot change while a bulkhead exists.
Config without_restart(const Config& running, Config wanted);

// The changes that turn a registry with the configuration `from` into one with `to`.
RegistryChange changes(const Config& from, const Config& to);

}  // namespace bulkhead::config
