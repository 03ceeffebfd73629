// words.h - a row of the settings table in words, for `bulkhead explain` and the documentation.
#pragma once

#include <string>

#include "config/settings.h"

namespace bulkhead::config {

std::string kind_words(
    const SettingRow& row);  // "whole number", "duration", "one of fifo, barging, adaptive"
std::string values_words(const SettingRow& row);  // the kind and the bounds: "whole number, 1 to 268435455"

}  // namespace bulkhead::config
