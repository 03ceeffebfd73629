#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "pool.h"

namespace bulkhead::postgres {
namespace {

[[noreturn]] void invalid(std::string_view name, const std::string& problem) {
  throw std::invalid_argument("workloads \"" + std::string(name) + "\": " + problem);
}

// Units of each workload. Per cents are rounded together (largest remainder), so that 100 % are exactly
// the total.
std::vector<std::uint32_t> units_of(const WorkloadsOptions& o) {
  if (o.workloads.empty()) invalid(o.name, "workloads is empty: give at least one");
  if (o.instances < 1) invalid(o.name, "instances = 0 is out of range: give 1 or more");
  std::vector<std::uint32_t> units;
  std::vector<std::pair<double, std::size_t>> remainders;
  double percents = 0;
  std::uint32_t sum = 0;
  for (const Workload& w : o.workloads) {
    if ((w.share.percent > 0) == (w.share.units > 0))
      invalid(o.name, w.name + ".share is " + (w.share.units > 0 ? "given twice" : "missing") +
                          ": give percent or units");
    if (w.share.percent > 0 && o.total == 0)
      invalid(o.name,
              "total is missing: " + w.name + ".share is in per cent, so say of how many connections");
    const double exact = w.share.units > 0 ? w.share.units : w.share.percent / 100 * o.total;
    units.push_back(static_cast<std::uint32_t>(std::floor(exact + 1e-9)));
    sum += units.back();
    percents += w.share.percent;
    if (w.share.percent > 0) remainders.emplace_back(exact - units.back(), units.size() - 1);
  }
  if (o.total == 0) return units;
  std::ranges::sort(remainders,
                    [](const auto& a, const auto& b) {  // the largest first, then in the order given
                      return a.first != b.first ? a.first > b.first : a.second < b.second;
                    });
  if (percents > 100 - 1e-9)
    for (const auto& [rest, i] : remainders)
      if (sum < o.total && rest > 1e-9) ++units[i], ++sum;
  if (sum > o.total)
    invalid(o.name, "the shares are " + std::to_string(sum) + " connections, above total = " +
                        std::to_string(o.total) + ": give less, or raise total");
  return units;
}

std::uint32_t total_of(const WorkloadsOptions& o) {
  std::uint32_t sum = 0;
  for (const std::uint32_t u : units_of(o)) sum += u;
  return o.elastic ? std::max(o.total, sum) : sum;
}

// The common options, with those of the workload in their place where it has any.
PoolOptions pool_options(const WorkloadsOptions& o, const Workload& w, std::uint32_t max) {
  PoolOptions p = o.pool;
  p.name = w.name;
  p.max = max;
  p.min_idle = w.min_idle;
  p.gate = w.gate;
  p.connection = o.connection;
  p.connection.application_name = w.name;
  const auto override = [](auto& setting, auto own) {
    if (own.count() > 0) setting = own;
  };
  override(p.connection.statement_timeout, w.statement_timeout);
  override(p.connection.lock_timeout, w.lock_timeout);
  override(p.connection.idle_in_transaction_session_timeout, w.idle_in_transaction_session_timeout);
  return p;
}

GroupOptions group_options(const WorkloadsOptions& o, const std::vector<std::uint32_t>& units) {
  GroupOptions g{.name = o.name, .total = total_of(o), .lend = o.lend};
  for (std::size_t i = 0; i < units.size(); ++i)
    g.members.push_back({.name = o.workloads[i].name,
                         .guaranteed = {.units = units[i]},
                         .max = o.workloads[i].max,
                         .gate = o.workloads[i].gate});
  return g;
}

}  // namespace

// An empty text: the server has enough connections for all workloads of all instances.
Result<std::string, Error> check_against_server(const WorkloadsOptions& o, TimePoint deadline) {
  const std::vector<std::uint32_t> units = units_of(o);
  ConnectionOptions c = o.connection;
  c.application_name = o.name + " check";
  auto connection = Connection::open(c, deadline);
  if (!connection) return Unexpected(std::move(connection).error());
  auto rows = connection->query(
      "select current_setting('max_connections'), current_setting('superuser_reserved_connections'), "
      "coalesce(current_setting('reserved_connections', true), '0')",
      {}, deadline);
  if (!rows) return Unexpected(std::move(rows).error());
  const std::int64_t max = (*rows)[0].integer(0), reserved = (*rows)[0].integer(1) + (*rows)[0].integer(2);
  const std::int64_t needed = std::int64_t{total_of(o)} * o.instances, allowed = max - reserved;
  if (needed <= allowed) return std::string();
  std::string sum;
  for (std::size_t i = 0; i < units.size(); ++i)
    sum += (i ? " + " : "") + o.workloads[i].name + " " + std::to_string(units[i]);
  if (o.elastic) sum = "total";
  return "workloads \"" + o.name + "\": " + sum + " = " + std::to_string(total_of(o)) + " connections" +
         (o.instances > 1 ? " x " + std::to_string(o.instances) + " instances = " + std::to_string(needed)
                          : "") +
         ", but the server has " + std::to_string(allowed) + " (max_connections = " + std::to_string(max) +
         ", " + std::to_string(reserved) + " reserved): give at most " +
         std::to_string(allowed / o.instances) + (o.instances > 1 ? " each" : "") +
         ", or raise max_connections to " + std::to_string(needed + reserved);
}

struct Workloads::Inside {
  std::optional<Group> group;
  std::optional<ResourceBudget> budget;
  std::vector<std::unique_ptr<Pool>> pools;
  std::string unchecked, name;
};

// A server that does not answer now is no error: the service may start before its database.
Workloads::Workloads(WorkloadsOptions o) : inside_(std::make_unique<Inside>()) {
  const std::vector<std::uint32_t> units = units_of(o);
  inside_->name = o.name;
  if (o.check) {
    const auto problem = check_against_server(
        o, std::chrono::steady_clock::now() +
               std::chrono::duration_cast<std::chrono::nanoseconds>(o.pool.connect_timeout));
    if (!problem)
      inside_->unchecked = problem.error().message();
    else if (!problem->empty())
      throw std::invalid_argument(*problem);
  }
  if (o.elastic) {
    inside_->group.emplace(group_options(o, units));
    inside_->budget.emplace(total_of(o));
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Workload& w = o.workloads[i];
    PoolOptions p = pool_options(o, w, o.elastic ? total_of(o) : units[i]);
    if (o.elastic) {
      p.on = &inside_->group->member(w.name);
      p.budget = &*inside_->budget;
    }
    inside_->pools.push_back(std::make_unique<Pool>(std::move(p)));
  }
}

Workloads::~Workloads() {
  for (const auto& pool : inside_->pools) pool->close();  // all at once, then each waits for its leases
  inside_->pools.clear();
}

Pool& Workloads::operator[](std::string_view name) {
  for (const auto& pool : inside_->pools)
    if (pool->name() == name) return *pool;
  invalid(inside_->name, "there is no workload \"" + std::string(name) + "\"");
}

std::vector<Pool*> Workloads::pools() const {
  std::vector<Pool*> all;
  for (const auto& pool : inside_->pools) all.push_back(pool.get());
  return all;
}

const Group* Workloads::group() const noexcept { return inside_->group ? &*inside_->group : nullptr; }
const std::string& Workloads::unchecked() const noexcept { return inside_->unchecked; }

std::uint32_t Workloads::alive() const noexcept {
  if (inside_->budget) return inside_->budget->alive();
  std::uint32_t sum = 0;
  for (const auto& pool : inside_->pools) sum += pool->snapshot().alive;
  return sum;
}

}  // namespace bulkhead::postgres
