// What a server sends, or somebody who pretends to be one: parsing it must end, stay within the input, and give the same for
// every split of it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adapters/redis/limit_script.h"
#include "adapters/redis/resp.h"
#include "shared/member_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bulkhead::redis;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Value value;
  std::size_t used = 0;
  const Parsed whole = parse(bytes, value, used);
  if (used > size) std::abort();
  if (whole != Parsed::done) return 0;
  bulkhead::shared::StoreReply reply;
  bulkhead::shared::MemberList list;
  if (read_reply(value, reply)) (void)bulkhead::shared::read_list(reply.list, list);
  Value again;
  std::size_t used_again = 0;
  if (parse(bytes.substr(0, used), again, used_again) != Parsed::done || used_again != used) std::abort();
  if (parse(bytes.substr(0, used - 1), again, used_again) != Parsed::incomplete) std::abort();
  return 0;
}
