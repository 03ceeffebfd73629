// html.h - a report to send to others: one file, with charts, that loads nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/simulate/report.h"
#include "app/simulate/search.h"

namespace bulkhead::simulate {

extern const std::string_view kUplot;       // third_party/uplot
extern const std::string_view kReportPage;  // app/simulate/report.html, with places for script and data

// `text`: the table as a terminal shows it. Of a sweep, also the curves over its values.
std::string html_report(const Subject& subject, const std::vector<Case>& cases, const std::string& text,
                        const SweepResult* sweep = nullptr);

}  // namespace bulkhead::simulate
