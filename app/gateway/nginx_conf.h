// nginx_conf.h - the configuration of nginx that does what a `gateway:` says.
#pragma once

#include <cstdint>
#include <string>

#include "app/gateway/gateway.h"

namespace bulkhead::gateway {

struct NginxOptions {
  std::string file{};       // the bulkheads' file, with its full path
  std::string copy{};       // what nginx reads instead of it; empty: the file itself
  std::string directory{};  // for nginx's own files
  std::string module{};
  std::uint64_t connections = 1024, descriptors = 1024;  // of each worker
  std::string user{};                                    // and group of the workers; empty: this process's
};

std::string nginx_conf(const Gateway& gateway, const Config& config, const NginxOptions& options);

}  // namespace bulkhead::gateway
