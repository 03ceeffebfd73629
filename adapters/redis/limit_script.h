// limit_script.h - the script limit.lua, and its words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "resp.h"
#include "shared/limit_state.h"

namespace bulkhead::redis {

extern const std::string_view kLimitScript;

// "EVALSHA", the script, its keys and its arguments. All limits of a prefix have one hash tag, so that they are on one
// node of a cluster and travel together.
std::vector<std::string> limit_command(const std::string& sha, std::string_view prefix,
                                       std::string_view limit, const shared::StoreRequest& request);
// False: it is not a reply of the script.
bool read_reply(const Value& value, shared::StoreReply& reply);

std::string limit_key(std::string_view prefix, std::string_view limit, char part);  // 'c' or 'm'

}  // namespace bulkhead::redis
