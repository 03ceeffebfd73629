#include "adapters/redis/store_url.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace bulkhead::redis {
namespace {

TEST(StoreUrl, NamesAServer) {
  const StoreUrl u = parse_store_url("redis://limits.internal");
  ASSERT_EQ(u.addresses.size(), 1u);
  EXPECT_EQ(to_string(u.addresses[0]), "limits.internal:6379");
  EXPECT_FALSE(u.tls);
  EXPECT_EQ(u.db, 0);
}

TEST(StoreUrl, HasUserPasswordDatabaseAndTls) {
  const StoreUrl u = parse_store_url("rediss://shop:p%40ss%2F@[::1]:6380,b/3");
  EXPECT_TRUE(u.tls);
  EXPECT_EQ(u.user, "shop");
  EXPECT_EQ(u.password, "p@ss/");
  EXPECT_EQ(u.db, 3);
  ASSERT_EQ(u.addresses.size(), 2u);
  EXPECT_EQ(to_string(u.addresses[0]), "[::1]:6380");
  EXPECT_EQ(u.addresses[1].host, "b");
  EXPECT_EQ(parse_store_url("redis://:secret@h").password, "secret");
}

TEST(StoreUrl, NamesASocket) {
  const StoreUrl u = parse_store_url("unix:///run/redis.sock?db=2");
  EXPECT_EQ(u.addresses[0].path, "/run/redis.sock");
  EXPECT_EQ(u.db, 2);
}

TEST(StoreUrl, NamesSentinels) {
  const StoreUrl u = parse_store_url("redis+sentinel://a,b:26380/limits/1");
  EXPECT_EQ(u.sentinel_master, "limits");
  EXPECT_EQ(u.db, 1);
  EXPECT_EQ(to_string(u.addresses[0]), "a:26379");
  EXPECT_EQ(to_string(u.addresses[1]), "b:26380");
}

TEST(StoreUrl, AWrongOneIsExplainedWithoutItsPassword) {
  for (const char* url : {"", "limits:6379", "http://h", "redis://", "redis://h:x", "redis://h:0",
                          "redis://h/x", "redis://u@h", "redis://u:%zz@h", "unix://run", "unix:///s?x=1",
                          "redis+sentinel://h", "redis://s3cret:s3cret@h:x"}) {
    try {
      parse_store_url(url);
      FAIL() << url;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("give redis://"));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("s3cret")));
    }
  }
}

}  // namespace
}  // namespace bulkhead::redis
