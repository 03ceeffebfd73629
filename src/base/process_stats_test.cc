#include "bulkhead/process_stats.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

TEST(ProcessStats, TellsOfThisProcess) {
  const auto before = process_stats();
  ASSERT_TRUE(before);
  std::vector<std::FILE*> files(5);
  for (auto& file : files) file = std::fopen("/dev/null", "r");
  std::vector<char> memory(64 << 20, 'x');
  const volatile char* const in_use = memory.data();  // or an optimiser would leave it out
  ASSERT_EQ(in_use[memory.size() - 1], 'x');
  const auto with_files = process_stats();
  EXPECT_EQ(with_files->open_fds, before->open_fds + files.size());
  EXPECT_GE(with_files->resident_bytes, before->resident_bytes + memory.size() / 2);
  EXPECT_GE(with_files->virtual_bytes, with_files->resident_bytes);
  EXPECT_GE(with_files->max_fds, with_files->open_fds);
  for (auto* file : files) std::fclose(file);
  EXPECT_EQ(process_stats()->open_fds, before->open_fds);
}

TEST(ProcessStats, CountsTimeAndThreads) {
  std::thread([] {}).join();  // the first one may bring along one of a sanitizer's
  const auto before = process_stats();
  ASSERT_TRUE(before);
  std::jthread another([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  EXPECT_EQ(process_stats()->threads, before->threads + 1);
  while (process_stats()->cpu_seconds <= before->cpu_seconds) {  // it burns time until then
  }
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LE(before->start_time_seconds, now + 2);
  EXPECT_GE(before->start_time_seconds, now - 3600);
  EXPECT_EQ(process_stats()->start_time_seconds, before->start_time_seconds);
}

}  // namespace
}  // namespace bulkhead
