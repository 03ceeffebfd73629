// admin.h - speaks to a control plane: over its unix socket, http://host:port or https://host:port.
//
//   Admin admin = Admin::at("", "");                      // $BULKHEAD_ADMIN, the usual socket, or the usual port
//   Reply reply = admin.ask({"GET", "/v1/snapshot"});
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <string>
#include <string_view>

namespace bulkhead::client {

inline constexpr std::string_view kUsualSocket = "/run/bulkhead/admin.sock";
inline constexpr std::string_view kUsualUrl = "http://127.0.0.1:9920";

// Exit codes beside those of command_line.h.
inline constexpr int kInvalid = 3, kUnreachable = 4, kConflict = 5, kForbidden = 6;

struct Question {
  std::string method = "GET", path{}, body{}, if_match{};
};

struct Reply {
  int status = 0;  // 0: no answer, see `trouble`
  std::string etag{}, body{}, trouble{};
  bool denied = false;  // no answer, because this user may not open the socket

  bool ok() const noexcept { return status / 100 == 2; }
  boost::json::value json() const;  // to be shown: its texts are printable; null if it is none
  int exit_code() const noexcept;
  std::string explain() const;  // what went wrong, as lines for people, with commands and options

 private:
  std::string explain_as_sent() const;
};

class Admin {
 public:
  // `where`: a path, "unix:PATH", "host:port", "http://host:port" or https, perhaps with a prefix behind it, or the
  // dashboard's address; "": as above. std::invalid_argument if it is none of these. `certificate`: see tls.h.
  static Admin at(const std::string& where, const std::string& token, const std::string& certificate = "");

  Reply ask(const Question& question) const;
  const std::string& where() const noexcept { return where_; }

 private:
  // The answer as it came; empty if `trouble` says why there is none.
  std::string send(const std::string& request, std::string& trouble) const;

  bool tls_ = false;
  std::string where_, socket_path_, host_, port_, prefix_, token_, certificate_;
};

// "a/b c" as a part of a path.
std::string encoded(std::string_view name);

}  // namespace bulkhead::client
