#include "report.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "counts.h"
#include "layout.h"
#include "region.h"

namespace bulkhead::shm {
namespace {

template <std::size_t N>
std::string text_of(const Cell<std::uint64_t> (&words)[N]) {
  char bytes[N * 8 + 1] = {};
  for (std::size_t i = 0; i < N; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(bytes + i * 8, &word, 8);
  }
  return bytes;
}

class Look {
 public:
  explicit Look(Region& region) : region_(region), image_(region.image()), now_(now_ns()) {
    struct stat s{};
    if (stat("/proc/self/ns/pid", &s) == 0) namespace_ = s.st_ino;
  }

  RegionReport::Process process(std::uint32_t slot, bool alive) const {
    const Slot& s = image_.slots[slot];
    return {.pid = s.pid.load(),
            .command = text_of(s.command),
            .other_namespace = s.pid_namespace.load() != namespace_,
            .alive = alive,
            .since = ago(s.since.load())};
  }
  std::chrono::nanoseconds ago(std::int64_t then) const {
    return std::chrono::nanoseconds(std::max<std::int64_t>(now_ - then, 0));
  }

  RegionReport::Limit limit(const Limit& l) const {
    const bool weighed = l.weighed.load() != 0;
    RegionReport::Limit out{.name = text_of(l.name),
                            .max_concurrent = weighed ? l.most.load() : Shape::of(l.shape.load()).limit};
    if (l.leased.load() != 0) out.fleet_limit = l.lease.limit.load();
    std::map<std::uint64_t, std::pair<std::uint32_t, std::int64_t>> held;  // token -> units, the oldest time
    for (std::uint32_t i = 0; i < std::min(l.high.load(), kUnits); ++i) {
      const std::uint64_t word = l.permits[i].load();
      const std::int64_t since = l.since[i].load();
      if (weighed) {
        const std::uint32_t units = Counts::units_of(word);
        out.in_flight += units;
        if (units != 0) held.try_emplace(token_of(i, Counts::generation_of(word)), units, since);
        continue;
      }
      const std::uint64_t token = word;
      if (token == 0 || slot_of(token) >= kSlots) continue;
      ++out.in_flight;
      auto& [units, oldest] = held.try_emplace(token, 0, since).first->second;
      ++units;
      oldest = std::min(oldest, since);
    }
    for (const auto& [token, what] : held) {
      const std::uint32_t slot = slot_of(token);
      const bool same = token == token_of(slot, image_.slots[slot].generation.load());
      out.holders.push_back({process(slot, same && region_.alive(slot)), what.first, ago(what.second)});
    }
    std::ranges::sort(out.holders, std::greater<>(), &RegionReport::Holder::longest);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> heads;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot)
      if (const std::uint64_t head = l.lines[slot].head.load(); head != 0) heads.emplace_back(head, slot);
    std::ranges::sort(heads);
    for (const auto& [head, slot] : heads)
      out.waiting.push_back({process(slot, region_.alive(slot)), static_cast<Priority>(head >> 62),
                             l.lines[slot].cost.load(),
                             ago(static_cast<std::int64_t>(head & ((std::uint64_t{1} << 62) - 1)))});
    return out;
  }

 private:
  Region& region_;
  const Image& image_;
  const std::int64_t now_;
  std::uint64_t namespace_ = 0;
};

}  // namespace

RegionReport report(Region& region) {
  const Look look(region);
  RegionReport out;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    if (region.alive(slot)) out.processes.push_back(look.process(slot, true));
  for (const Limit& limit : region.image().limits)
    if (limit.hash.load() != 0) out.limits.push_back(look.limit(limit));
  return out;
}

std::uint32_t sweep_all(Region& region) {
  std::uint32_t freed = 0;
  for (Limit& limit : region.image().limits)
    if (limit.hash.load() != 0) freed += region.sweep(limit);
  return freed;
}

}  // namespace bulkhead::shm
