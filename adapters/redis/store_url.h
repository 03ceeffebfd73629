// store_url.h - the address of a store:
//
//   redis://[user:password@]host[:6379][,host2:port2][/db]       one server, or some nodes of a cluster (db 0)
//   rediss://...                                                 the same over TLS
//   unix://[user:password@]/run/redis/redis.sock[?db=2]
//   redis+sentinel://[user:password@]host[:26379][,host2]/name[/db]    asks Sentinels for the master; also rediss+sentinel://
//
// Characters such as @ and / in a user or a password are written as %40 and %2F.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport.h"

namespace bulkhead::redis {

struct StoreUrl {
  std::vector<Address> addresses{};  // tried in turn
  bool tls = false;
  std::string user{}, password{};
  int db = 0;
  std::string sentinel_master{};  // empty: the addresses are those of the store itself
};

// std::invalid_argument says what is wrong; the message contains no password.
StoreUrl parse_store_url(std::string_view url);

}  // namespace bulkhead::redis
