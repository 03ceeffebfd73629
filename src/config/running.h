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

// "bulkheads.db" of "bulkheads.db.max_queue"; "" if the path is not of one of many.
std::string_view thing_of(std::string_view path) noexcept;

// A setting that the table calls live, and yet is not: the gate of a member is the group's.
bool fixed_in_group(std::string_view setting) noexcept;

// What can run in place of `running` when `wanted` is asked for: `wanted`, except settings that cannot change while a bulkhead exists.
Config without_restart(const Config& running, Config wanted);

// What makes a registry that is like `from` one that is like `to`.
RegistryChange changes(const Config& from, const Config& to);

}  // namespace bulkhead::config
