// endpoint.h - POST /v1/chat/completions in front of a model, as OpenAI's, with "stream": true. The bulkhead has a slot
// for each request that the model works on and a budget for the tokens in its memory; the API key says whose request it
// is and how urgent.
#pragma once

#include <bulkhead/adapters/asio/async_acquire.h>
#include <bulkhead/adapters/beast/server.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "model.h"

struct ApiKey {
  std::string_view key, tenant;
  bulkhead::Priority priority;
};
inline constexpr std::array kKeys{ApiKey{"sk-ann", "ann", bulkhead::Priority::normal},
                                  ApiKey{"sk-batch", "batch", bulkhead::Priority::normal},
                                  ApiKey{"sk-ops", "ops", bulkhead::Priority::critical}};

class Endpoint {
 public:
  using Request = bulkhead::beast::Request;
  using Response = bulkhead::beast::Response;
  using Context = bulkhead::beast::Context;
  static constexpr std::uint32_t kGuess = 256;  // tokens of most answers: reserved at first
  static constexpr std::uint32_t kMore = 128;   // taken at once by an answer that gets longer

  Endpoint(bulkhead::Bulkhead& bulkhead, Model& model) : bulkhead_(bulkhead), model_(model) {}

  boost::asio::awaitable<Response> chat(const Request& request, Context& context) {
    const ApiKey* const key = key_of(request);
    if (!key) co_return reply(401, R"({"error":{"message":"unknown API key"}})");
    Ask ask;
    if (!read(request.body(), ask)) co_return reply(400, R"({"error":{"message":"not a chat request"}})");

    const std::uint32_t guess = std::min(ask.max_tokens, kGuess);
    bulkhead::AcquireOptions options{.priority = key->priority,
                                     .flow = bulkhead::flow_of(key->tenant),
                                     .costs = {{"tokens", ask.prompt + guess}}};
    auto call = co_await bulkhead::async_acquire(bulkhead_, std::move(options), boost::asio::use_awaitable);
    if (!call) co_return context.reject(call.error());

    auto sequence = model_.start(ask.prompt);
    if (!sequence) {
      call->finish(bulkhead::Outcome::failure);
      co_return reply(500, R"({"error":{"message":"out of memory"}})");
    }
    Response head(boost::beast::http::status::ok, 11);
    head.set(boost::beast::http::field::content_type, "text/event-stream");
    if (!co_await context.stream(std::move(head))) co_return Response();

    boost::asio::steady_timer step(co_await boost::asio::this_coro::executor);
    std::string_view finish = "stop";
    std::uint32_t made = 0, reserved = guess;
    while (made < ask.length) {
      const std::uint32_t next = std::min(Model::kStep, ask.length - made);
      // An answer that gets longer than the estimate takes more, or ends here: it never waits while it holds memory.
      if (made + next > reserved) {
        if (!call->try_grow("tokens", kMore)) {
          finish = "length";
          break;
        }
        reserved += kMore;
      }
      if (!sequence->take(next)) throw std::runtime_error("out of memory");  // ends the connection
      step.expires_after(sequence->step_time());
      co_await step.async_wait(boost::asio::use_awaitable);
      made += next;
      if (!co_await context.write(event(next))) break;  // the client has gone
    }
    // The memory is free; what was reserved and not used goes back before the last event is sent.
    sequence.reset();
    call->settle("tokens", 0);
    co_await context.write(last_event(made, finish) + "data: [DONE]\n\n");
    call->finish(bulkhead::Outcome::success);
    co_return Response();
  }

 private:
  struct Ask {
    std::uint32_t prompt = 0, max_tokens = 1024;
    std::uint32_t length = 0;  // of the answer, which only the fake model knows beforehand
  };

  static const ApiKey* key_of(const Request& request) {
    const std::string_view given = request[boost::beast::http::field::authorization];
    for (const ApiKey& key : kKeys)
      if (given.size() == key.key.size() + 7 && given.starts_with("Bearer ") && given.ends_with(key.key))
        return &key;
    return nullptr;
  }

  // Four characters are a token, roughly.
  static bool read(const std::string& body, Ask& ask) {
    boost::system::error_code wrong;
    const boost::json::value json = boost::json::parse(body, wrong);
    if (wrong || !json.is_object()) return false;
    const auto* const messages = json.as_object().if_contains("messages");
    if (!messages || !messages->is_array()) return false;
    for (const auto& message : messages->as_array()) {
      const auto* const content = message.is_object() ? message.as_object().if_contains("content") : nullptr;
      if (!content || !content->is_string()) return false;
      ask.prompt += static_cast<std::uint32_t>(content->as_string().size() / 4 + 1);
    }
    const auto number = [&](const char* name, std::uint32_t otherwise) {
      const auto* const value = json.as_object().if_contains(name);
      return value && value->is_int64() ? static_cast<std::uint32_t>(value->as_int64()) : otherwise;
    };
    ask.max_tokens = number("max_tokens", ask.max_tokens);
    ask.length = std::min(number("fake_answer_tokens", 100), ask.max_tokens);
    return ask.prompt > 0;
  }

  static std::string event(std::uint32_t tokens) {
    std::string text;
    for (std::uint32_t i = 0; i < tokens; ++i) text += "la ";
    return R"(data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":")" + text +
           "\"}}]}\n\n";
  }
  static std::string last_event(std::uint32_t tokens, std::string_view finish) {
    return R"(data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":")" +
           std::string(finish) + R"("}],"usage":{"completion_tokens":)" + std::to_string(tokens) + "}}\n\n";
  }
  static Response reply(unsigned status, std::string body) {
    Response r(static_cast<boost::beast::http::status>(status), 11);
    r.set(boost::beast::http::field::content_type, "application/json");
    r.body() = std::move(body);
    r.prepare_payload();
    return r;
  }

  bulkhead::Bulkhead& bulkhead_;
  Model& model_;
};
