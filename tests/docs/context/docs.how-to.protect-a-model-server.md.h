#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
extern bulkhead::Bulkhead model;  // the one of the first block
extern const std::string prompt;
std::string complete(const std::string& prompt);
void reply(int status, std::string_view message);
bulkhead::Priority priority_of(const bulkhead::beast::Request& request);
std::string_view tenant_of(const bulkhead::beast::Request& request);
std::uint32_t estimate_of(const bulkhead::beast::Request& request);
std::uint32_t tokens_left(const bulkhead::beast::Request& request);
boost::asio::awaitable<std::optional<std::string>> next_event(const bulkhead::beast::Request& request);
