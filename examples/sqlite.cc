// An embedded database behind two bulkheads: three readers side by side, and one writer.
#include <bulkhead/adapters/sqlite/database.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>

using namespace std::chrono_literals;

int main() {
  const auto path =
      std::filesystem::temp_directory_path() / ("bulkhead_example_" + std::to_string(getpid()) + ".db");
  {
    bulkhead::sqlite::Database shop{{.name = "shop", .path = path.string(), .readers = 3}};
    if (auto db = shop.writer().acquire()) {
      auto made = (*db)->run(
          "create table items (name text); insert into items values ('anchor'), ('rope'), ('bell')");
      if (!made) std::printf("%s\n", made.error().message().c_str());
    }

    if (auto db = shop.readers().acquire({.deadline = std::chrono::steady_clock::now() + 50ms})) {
      auto rows = (*db)->query("select name from items where name > ? order by name", {"b"});
      for (std::size_t i = 0; rows && i < rows->size(); ++i) std::cout << (*rows)[i][0] << '\n';
      rows = (*db)->query(
          "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n");
      std::cout << (rows ? "in time" : rows.error().message()) << '\n';  // the deadline came
    }
  }
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path.string() + end);
  return 0;
}
