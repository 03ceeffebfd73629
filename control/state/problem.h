// problem.h - why a request fails, as the client sees it (RFC 9457).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bulkhead::control {

struct ProblemType {
  unsigned status;
  std::string_view name, title;
};
inline constexpr ProblemType kBadRequest{400, "bad_request", "Bad request"};
inline constexpr ProblemType kUnauthorized{401, "unauthorized", "Authentication required"};
inline constexpr ProblemType kForbidden{403, "forbidden", "Access denied"};
inline constexpr ProblemType kNotFound{404, "not_found", "Not found"};
inline constexpr ProblemType kMethodNotAllowed{405, "method_not_allowed", "Method not allowed"};
inline constexpr ProblemType kConflict{409, "conflict", "Conflict with the current state"};
inline constexpr ProblemType kPreconditionFailed{412, "precondition_failed", "Precondition failed"};
inline constexpr ProblemType kBodyTooLarge{413, "too_large", "Request too large"};
inline constexpr ProblemType kUnsupportedMediaType{415, "unsupported_media_type", "Unsupported media type"};
inline constexpr ProblemType kInvalidBody{422, "invalid_body", "Invalid body"};
inline constexpr ProblemType kHeaderTooLarge{431, "too_large", "Request too large"};
inline constexpr ProblemType kInternal{500, "internal", "Internal error"};
inline constexpr ProblemType kUnavailable{503, "unavailable", "Service unavailable"};

struct FieldError {
  std::string pointer{}, message{}, hint{};
  std::uint32_t line = 0, column = 0;
};

// Thrown by code that cannot answer; becomes a response.
struct Problem {
  ProblemType type = kInternal;
  std::string detail{};
  std::vector<FieldError> errors{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

// kNotFound, with a similar name if there is one, or else with the route that lists all names.
Problem not_known(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                  std::string_view list);

}  // namespace bulkhead::control
