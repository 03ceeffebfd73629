// process_stats.h - resource usage of this process: time, memory, files, threads.
//
//   if (const auto self = bulkhead::process_stats()) print(self->resident_bytes);
//
// Threads: any. Cost: reads three small files of /proc and lists /proc/self/fd.
#pragma once

#include "bulkhead/detail/language.h"

#include <cstdint>
#include <optional>

namespace bulkhead {

struct ProcessStats {
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // Unix time
  std::uint64_t resident_bytes = 0, virtual_bytes = 0;
  std::uint64_t open_fds = 0, max_fds = 0;
  std::uint64_t threads = 0;
};

std::optional<ProcessStats> process_stats();  // none without /proc

}  // namespace bulkhead
