// table.h - shared by the files of the settings table: how a row names its member, and common bounds.
#pragma once

#include "config/access.h"
#include "config/settings.h"

namespace bulkhead::config {

inline constexpr double kMostUnits = 268'435'455;  // most units of a gate
inline constexpr double kMostQueue = 2'097'151;    // most waiting calls of a gate
inline constexpr double kMostCount = 4'294'967'295;
inline constexpr double kMicro = 1e3, kMilli = 1e6, kSecond = 1e9, kDay = 86400e9;  // in nanoseconds
inline constexpr double kLongest = 31 * kDay;

// The accessors of a member of Target. Only for the files of the table.
#define AT(Target, member) field<Target, [](auto& t) -> auto& { return t.member; }>()
#define PART(Target, member) part<Target, [](auto& t) -> auto& { return t.member; }>()
#define OPTIONAL(Target, member) optional_part<Target, [](auto& t) -> auto& { return t.member; }>()
#define NAMED(Target, member) named<Target, [](auto& t) -> auto& { return t.member; }>()

#define PARTS(Target, member) named_parts<Target, [](auto& t) -> auto& { return t.member; }>()

template <class T>
const void* fresh() {
  static const T one{};
  return &one;
}

extern const Section kBreaker, kBudget, kRate, kAdaptive, kHoldback, kPool;  // policy_settings.cc

}  // namespace bulkhead::config
