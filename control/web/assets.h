// assets.h - the files of the dashboard, embedded in the program.
//
//   for (const Asset& file : assets()) serve("/ui/" + std::string(file.path), file);
//
// The page itself is "index.html". Send `gzip` with Content-Encoding: gzip, `plain` to clients that do not accept that.
// The files only refer to each other and to ../v1/, so they work below any path that ends in a slash, under the strictest CSP:
//   default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:
//
// Threads, cost: constants.
#pragma once

#include <span>
#include <string_view>

namespace bulkhead::control {

struct Asset {
  std::string_view path;          // "main.js"
  std::string_view content_type;  // "text/javascript; charset=utf-8"
  std::span<const unsigned char> plain, gzip;
  std::string_view etag;  // quoted, changes with the bytes
};

std::span<const Asset> assets() noexcept;

}  // namespace bulkhead::control
