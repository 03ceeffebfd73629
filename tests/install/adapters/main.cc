// Two adapters as a stranger uses them: a real SQLite, and a PostgreSQL that is not there, which is told as such.
#include <bulkhead/adapters/postgres/pool.h>
#include <bulkhead/adapters/sqlite/database.h>

#include <cstdio>

int main() {
  bulkhead::sqlite::Pool embedded{{.name = "embedded", .max = 1, .connection = {.path = ":memory:"}}};
  const auto row = (*embedded.acquire())->query("select 6 * 7");
  bulkhead::postgres::Pool server{{.name = "server", .max = 1, .connection = {.conninfo = "host=/nowhere"}}};
  const auto none = server.acquire();
  if (!row || (*row)[0].integer(0) != 42 || none || !none.error().failed()) return 1;
  std::puts(none.error().message().c_str());
}
