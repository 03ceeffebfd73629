#include <bulkhead/adapters/sqlite/database.h>

int main() {
  bulkhead::sqlite::Pool embedded{{.name = "embedded", .max = 1, .connection = {.path = ":memory:"}}};
  return (*(*embedded.acquire())->query("select 6 * 7"))[0].integer(0) == 42 ? 0 : 1;
}
