// nginx.h - nginx's own headers, as C++.
#pragma once

extern "C" {
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>
}

#include <cstddef>
#include <string_view>

namespace bulkhead::nginx {

inline std::string_view view(const ngx_str_t& text) noexcept {
  return {reinterpret_cast<const char*>(text.data), text.len};
}

// nginx takes names as text that it may write, and does not write them.
template <std::size_t N>
ngx_str_t literal(const char (&text)[N]) noexcept {
  return {N - 1, reinterpret_cast<u_char*>(const_cast<char*>(text))};
}

// A copy in `pool`, with len 0 if there is no memory.
inline ngx_str_t copy(ngx_pool_t* pool, std::string_view text) noexcept {
  ngx_str_t to = {0, static_cast<u_char*>(ngx_pnalloc(pool, text.size() + 1))};
  if (!to.data) return to;
  *ngx_copy(to.data, text.data(), text.size()) = 0;
  to.len = text.size();
  return to;
}

}  // namespace bulkhead::nginx
