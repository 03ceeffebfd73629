// report.h - predictions for people and for machines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/json.h"
#include "app/cli/text.h"
#include "app/simulate/run.h"

namespace bulkhead::simulate {

// A configuration and what is predicted for it.
struct Case {
  std::string label;  // the file, or the value of a sweep
  Prediction prediction{};
};

struct Subject {
  std::string file, load;
  std::uint64_t seed = 1;
};

// Two cases stand side by side, row by row. `columns`: 0: as wide as it is.
std::string table_text(const cli::Style& style, const Subject& subject, const std::vector<Case>& cases,
                       std::size_t columns);

// The fields of one case, into an object that is open.
void write_case(cli::JsonWriter& json, const Case& one);
std::string json_text(const Subject& subject, const std::vector<Case>& cases, std::string_view version);
void begin_json(cli::JsonWriter& json, const Subject& subject, const Prediction& of,
                std::string_view version);

double total_ms(const sim::Tally& tally, double quantile);
double wait_ms(const sim::Tally& tally, double quantile);
double lost_share(const sim::Tally& tally);  // failed, timed out, given up or not finished

}  // namespace bulkhead::simulate
