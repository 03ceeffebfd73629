#include "adapters/workers/codec.h"

#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "registry/tenants.h"

namespace bulkhead::workers {
namespace {

// The writer and the reader have the same members, so that one list of fields serves both.
class Writer {
 public:
  explicit Writer(std::string& to) : to_(to) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void plain(const T& value) {
    to_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    plain(static_cast<std::uint32_t>(value.size()));
    to_ += value;
  }
  template <class T>
  void maybe(const std::optional<T>& value) {
    plain(value.has_value());
    if (value) plain(*value);
  }
  // Most buckets of a histogram are empty.
  void counts(const HistogramCounts& h) {
    std::uint16_t used = 0;
    for (const std::uint64_t n : h.buckets) used = static_cast<std::uint16_t>(used + (n > 0));
    plain(used);
    for (std::size_t i = 0; i < h.buckets.size(); ++i) {
      if (h.buckets[i] == 0) continue;
      plain(static_cast<std::uint16_t>(i));
      plain(h.buckets[i]);
    }
    plain(h.sum);
  }
  template <class List, class Fn>
  void list(const List& items, Fn one) {
    plain(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) one(*this, item);
  }

 private:
  std::string& to_;
};

// After the end of the bytes everything reads as nothing.
class Reader {
 public:
  explicit Reader(std::string_view from) : from_(from) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void plain(T& value) {
    if (from_.size() < sizeof value) {
      from_ = {};
      return;
    }
    std::memcpy(&value, from_.data(), sizeof value);
    from_.remove_prefix(sizeof value);
  }
  void text(std::string& value) {
    std::uint32_t size = 0;
    plain(size);
    if (size > from_.size()) size = 0, from_ = {};
    value = from_.substr(0, size);
    from_.remove_prefix(size);
  }
  template <class T>
  void maybe(std::optional<T>& value) {
    bool there = false;
    plain(there);
    if (there) plain(value.emplace());
  }
  void counts(HistogramCounts& h) {
    std::uint16_t used = 0;
    plain(used);
    while (used-- > 0 && !from_.empty()) {
      std::uint16_t at = 0;
      std::uint64_t n = 0;
      plain(at);
      plain(n);
      if (at < h.buckets.size()) h.buckets[at] = n;
    }
    plain(h.sum);
  }
  template <class List, class Fn>
  void list(List& items, Fn one) {
    std::uint32_t size = 0;
    plain(size);
    for (; size > 0 && !from_.empty(); --size) one(*this, items.emplace_back());
  }
  bool at_end() const noexcept { return from_.empty(); }

 private:
  std::string_view from_;
};

constexpr auto bulkhead_fields = [](auto& io, auto& s) {
  io.plain(s.isolation);
  io.plain(s.enabled);
  io.plain(s.shadow);
  io.plain(s.draining);
  io.plain(s.gate);
  io.maybe(s.breaker);
  io.maybe(s.rate_limit);
  io.maybe(s.adaptive);
  io.maybe(s.holdback);
  io.plain(s.bypassed);
  io.plain(s.timed_out);
  io.plain(s.fallbacks);
  io.plain(s.fallback_failures);
  io.plain(s.handler_errors);
  io.plain(s.would_reject);
  io.plain(s.would_wait);
  io.plain(s.over_limit);
  io.counts(s.wait);
  io.counts(s.service);
};

constexpr auto entry_fields = [](auto& io, auto& e) {
  io.text(e.name);
  io.text(e.type);
  io.text(e.group);
  io.text(e.tenants);
  io.text(e.tenant_id);
  io.plain(e.criticality);
  io.plain(e.configured.max_concurrent);
  io.plain(e.configured.max_queue);
  io.plain(e.configured.scope);
  bulkhead_fields(io, e.now);
};

constexpr auto tenants_fields = [](auto& io, auto& t) {
  io.text(t.name);
  io.plain(t.live);
  io.plain(t.max);
  io.plain(t.created);
  io.plain(t.retired);
  io.plain(t.overflowed);
  io.plain(t.rejected);
  io.plain(t.invalid);
};

constexpr auto member_fields = [](auto& io, auto& m) {
  io.text(m.name);
  io.plain(m.guaranteed);
  io.plain(m.max);
  io.plain(m.allotted);
  io.plain(m.in_flight);
  io.plain(m.waiting);
  io.plain(m.called_back);
  io.plain(m.lent);
  io.plain(m.borrowed);
  io.plain(m.closed);
  io.plain(m.revoked);
  io.plain(m.waits);
  io.plain(m.total_wait);
  io.plain(m.longest_wait);
};

constexpr auto group_fields = [](auto& io, auto& g) {
  io.text(g.name);
  io.plain(g.total);
  io.plain(g.in_flight);
  io.plain(g.free);
  io.list(g.members, member_fields);
  io.plain(g.configured);
  io.maybe(g.adaptive);
};

constexpr auto override_fields = [](auto& io, auto& o) {
  io.text(o.path);
  io.text(o.bulkhead);
  io.text(o.setting);
  io.text(o.value);
  io.text(o.reason);
  io.text(o.actor);
  io.plain(o.expires);
};

constexpr auto forced_fields = [](auto& io, auto& f) {
  io.text(f.bulkhead);
  io.plain(f.draining);
  io.plain(f.breaker);
  io.plain(f.fault);
};

// Texts of the limiter are literals of the process that took the snapshot. Also for RegistrySnapshot::Group.
template <class WithLimiter>
void forget_texts(WithLimiter& s) {
  if (s.adaptive) s.adaptive->why.because = s.adaptive->change.because = {};
}

enum class What : std::uint8_t { entry, other, group, tenants };

}  // namespace

std::uint64_t format() noexcept {
  std::uint64_t hash = base::hash_of(BULKHEAD_VERSION);
  for (const std::size_t size :
       {sizeof(Snapshot), sizeof(BreakerSnapshot), sizeof(RateLimiterSnapshot), sizeof(LimiterSnapshot),
        sizeof(HoldbackSnapshot), sizeof(HistogramCounts), kReasons, kPriorities})
    hash = base::hash_of({reinterpret_cast<const char*>(&size), sizeof size}, hash);
  return hash;
}

// Each item with its kind before it, so that what fits is readable by itself. Sets and groups are few and come first.
std::string encode(const RegistrySnapshot& all, std::size_t room, std::size_t& left_out) {
  std::string bytes, item;
  left_out = 0;
  const auto add = [&](What what, const auto& fields) {
    item.clear();
    Writer to(item);
    to.plain(what);
    fields(to);
    if (bytes.size() + item.size() > room)
      ++left_out;
    else
      bytes += item;
  };
  for (const RegistrySnapshot::Tenants& t : all.tenants) {
    add(What::tenants, [&](Writer& to) { tenants_fields(to, t); });
    for (const BulkheadSnapshot* const more : {t.other ? &*t.other : nullptr, t.sum ? &t.sum->now : nullptr})
      if (more)
        add(What::other, [&](Writer& to) {
          BulkheadSnapshot s = *more;
          forget_texts(s);
          to.text(t.name);
          bulkhead_fields(to, s);
        });
  }
  for (const RegistrySnapshot::Group& g : all.groups)
    add(What::group, [&](Writer& to) {
      RegistrySnapshot::Group copy = g;
      forget_texts(copy);
      group_fields(to, copy);
    });
  for (const RegistrySnapshot::Entry& e : all.bulkheads)
    add(What::entry, [&](Writer& to) {
      RegistrySnapshot::Entry copy{.name = e.name,
                                   .type = e.type,
                                   .group = e.group,
                                   .tenants = e.tenants,
                                   .tenant_id = e.tenant_id,
                                   .criticality = e.criticality,
                                   .configured = {.max_concurrent = e.configured.max_concurrent,
                                                  .max_queue = e.configured.max_queue,
                                                  .scope = e.configured.scope},
                                   .now = e.now,
                                   .bulkhead = {}};
      forget_texts(copy.now);
      entry_fields(to, copy);
    });
  return bytes;
}

// Each item begins with its kind, see encode().
RegistrySnapshot decode(std::string_view bytes) {
  RegistrySnapshot all;
  Reader from(bytes);
  while (!from.at_end()) {
    What what{};
    from.plain(what);
    if (what == What::entry) {
      entry_fields(from, all.bulkheads.emplace_back());
    } else if (what == What::group) {
      group_fields(from, all.groups.emplace_back());
    } else if (what == What::tenants) {
      tenants_fields(from, all.tenants.emplace_back());
    } else {
      std::string name;
      BulkheadSnapshot s;
      from.text(name);
      bulkhead_fields(from, s);
      for (RegistrySnapshot::Tenants& t : all.tenants) {
        if (t.name != name) continue;
        if (!t.other) t.other = BulkheadSnapshot{};
        registry::fold(*t.other, s);
        registry::fold_state(*t.other, s);
      }
    }
  }
  return all;
}

std::string encode(const Orders& orders) {
  std::string bytes;
  Writer to(bytes);
  to.list(orders.overrides, override_fields);
  to.list(orders.forced, forced_fields);
  return bytes;
}

Orders decode_orders(std::string_view bytes) {
  Orders orders;
  Reader from(bytes);
  from.list(orders.overrides, override_fields);
  from.list(orders.forced, forced_fields);
  return orders;
}

}  // namespace bulkhead::workers
