// Four callers share 20 connections, 50/30/15/5. Idle units are lent to the others. When their owner needs
// them, the stop_token of borrowed permits is triggered.
#include <bulkhead/group.h>

#include <cstdio>
#include <vector>

namespace {

std::vector<bulkhead::Permit> take_all(bulkhead::Gate& gate) {
  std::vector<bulkhead::Permit> permits;
  while (auto permit = gate.try_acquire()) permits.push_back(*std::move(permit));
  return permits;
}

void show(const bulkhead::Group& group) {
  const bulkhead::GroupSnapshot s = group.snapshot();
  std::printf("%u of %u in flight\n", s.in_flight, s.total);
  for (const auto& m : s.members)
    std::printf("  %-8s guaranteed %2u, running %2u\n", m.name.c_str(), m.guaranteed, m.in_flight);
  for (const auto& loan : s.loans)
    std::printf("  %s lends %u to %s\n", loan.lender.c_str(), loan.units, loan.borrower.c_str());
}

}  // namespace

int main() {
  bulkhead::Group db{
      {.name = "db",
       .total = 20,
       .lend = bulkhead::Lend::revocable(),
       .members = {{.name = "checkout", .guaranteed = {.percent = 50}, .gate = {.max_queue = 8}},
                   {.name = "search", .guaranteed = {.percent = 30}},
                   {.name = "reports", .guaranteed = {.percent = 15}},
                   {.name = "admin", .guaranteed = {.percent = 5}}}}};

  std::vector<bulkhead::Permit> reports = take_all(db.member("reports"));  // at night all of it is theirs
  show(db);

  const std::stop_token stop = reports.back().stop_token();
  db.member("checkout").async_acquire({}, [](const bulkhead::Result<bulkhead::Permit>& permit) {
    std::printf("checkout: %s\n", permit ? "admitted" : "rejected");
  });
  std::printf("a report is told to stop: %s\n", stop.stop_requested() ? "yes" : "no");
  reports.pop_back();  // and does: checkout goes on
}
