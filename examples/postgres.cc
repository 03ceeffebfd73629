// Two workloads on one PostgreSQL server: reports cannot take the connections that payments need.
//
//   example_postgres "host=localhost dbname=shop"        without an argument it says only this
#include <bulkhead/adapters/postgres/pool.h>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;
namespace postgres = bulkhead::postgres;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cout << "usage: example_postgres <conninfo of a PostgreSQL server>\n";
    return 0;
  }
  postgres::Workloads shop{{
      .name = "shop",
      .connection = {.conninfo = argv[1], .statement_timeout = 2s},
      .workloads = {{.name = "checkout", .share = {.units = 4}, .gate = {.max_queue = 8, .max_wait = 50ms}},
                    {.name = "analytics", .share = {.units = 1}, .statement_timeout = 60s}},
  }};
  const auto report = shop["analytics"].acquire();  // takes all that analytics has
  if (const auto second = shop["analytics"].acquire(); !second) std::cout << second.error().message() << '\n';

  const auto deadline = std::chrono::steady_clock::now() + 200ms;
  auto payment = shop["checkout"].acquire({.deadline = deadline});
  if (!payment) {
    std::cout << payment.error().message() << '\n';
    return 1;
  }
  auto rows = (*payment)->query("select $1::int + 1 as answer", {41});
  std::cout << (rows ? std::string((*rows)[0]["answer"]) : rows.error().message()) << '\n';
  rows = (*payment)->query("select pg_sleep(5)");  // cancelled when the deadline comes
  std::cout << (rows ? "in time" : rows.error().message()) << '\n';
  return 0;
}
