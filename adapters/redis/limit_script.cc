#include "limit_script.h"

namespace bulkhead::redis {
namespace {

template <class T>
bool number(const Value& v, T& out) {
  if (v.kind != Value::Kind::integer || v.integer < 0) return false;
  out = static_cast<T>(v.integer);
  return true;
}

}  // namespace

std::string limit_key(std::string_view prefix, std::string_view limit, char part) {
  std::string key = "{";
  key.append(prefix).append("}:").append(limit).append(":");
  return key += part;
}

std::vector<std::string> limit_command(const std::string& sha, std::string_view prefix,
                                       std::string_view limit, const shared::StoreRequest& r) {
  const auto text = [](auto number) { return std::to_string(number); };
  return {"EVALSHA",
          sha,
          "2",
          limit_key(prefix, limit, 'c'),
          limit_key(prefix, limit, 'm'),
          to_string(r.op),
          r.member,
          text(r.seq),
          text(r.have),
          text(r.want),
          text(r.need),
          text(r.slack),
          text(r.weight),
          text(r.tie),
          text(r.ttl),
          text(r.grace),
          text(r.gap),
          r.run,
          text(r.seen_ver),
          text(r.limit),
          text(r.limit_version),
          text(r.seen_at),
          text(r.since)};
}

// Eleven values in the order of the script, and two more for a list.
bool read_reply(const Value& value, shared::StoreReply& r) {
  if (value.kind != Value::Kind::list || (value.list.size() != 11 && value.list.size() != 13)) return false;
  const std::vector<Value>& v = value.list;
  if (v[0].text == "ok")
    r.status = shared::StoreStatus::ok;
  else if (v[0].text == "full")
    r.status = shared::StoreStatus::full;
  else if (v[0].text == "stale")
    r.status = shared::StoreStatus::stale;
  else
    return false;
  if (v.size() == 13) {
    r.list = v[11].text;
    if (!number(v[12], r.list_age)) return false;
  }
  return number(v[1], r.ver) && number(v[2], r.granted) && number(v[3], r.target) &&
         number(v[4], r.learning) && number(v[5], r.members) && number(v[6], r.limit) &&
         number(v[7], r.limit_version) && number(v[8], r.hungry) && number(v[9], r.at) &&
         number(v[10], r.spare);
}

}  // namespace bulkhead::redis
