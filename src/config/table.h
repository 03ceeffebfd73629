// table.h - what the files that make up the settings table share: how a row names its member, and its bounds.
#pragma once

#include "config/access.h"
#include "config/settings.h"

namespace bulkhead::config {

inline constexpr double kMostUnits = 268'435'455;  // what a gate can hold
inline constexpr double kMostQueue = 2'097'151;    // and its line
inline constexpr double kMostCount = 4'294'967'295;
inline constexpr double kMicro = 1e3, kMilli = 1e6, kSecond = 1e9, kDay = 86400e9;  // in nanoseconds
inline constexpr double kLongest = 31 * kDay;

// The lambda that names a member, and the row's access to it. For these files only.
#define AT(Target, member) field<Target, [](auto& t) -> auto& { return t.member; }>()
#define PART(Target, member) part<Target, [](auto& t) -> auto& { return t.member; }>()
#define OPTIONAL(Target, member) optional_part<Target, [](auto& t) -> auto& { return t.member; }>()
#define NAMED(Target, member) named<Target, [](auto& t) -> auto& { return t.member; }>()

template <class T>
const void* fresh() {
  static const T one{};
  return &one;
}

extern const Section kBreaker, kRate, kAdaptive, kPool;  // policy_settings.cc

}  // namespace bulkhead::config
