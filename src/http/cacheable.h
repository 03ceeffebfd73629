// cacheable.h - whether a response may be kept for other clients, and what of it.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bulkhead/http_guard.h"

namespace bulkhead::http {

bool same_name(std::string_view a,
               std::string_view b) noexcept;  // of headers and directives: without regard to case

// Which of kVarying the response depends on, as bits; nullopt: it must not be kept. That is one which sets a cookie;
// which says private, no-store, no-cache or must-revalidate; or which varies by a header that is no part of the key.
std::optional<unsigned> cacheable(std::span<const HeaderView> headers);

// Those of the response itself, without those of its connection and its framing.
std::vector<Header> kept_headers(std::span<const HeaderView> headers);

bool forbids_storing(std::string_view cache_control) noexcept;  // no-store: of a request

}  // namespace bulkhead::http
