// endpoint.h - POST /v1/chat/completions in front of a model, as OpenAI's, only with "stream": true. The bulkhead has a slot
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
#include <chrono>
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
    if (!key) co_return error(401, "invalid_api_key", "unknown API key");
    Ask ask;
    if (!read(request.body(), ask)) co_return error(400, "invalid_request_error", "not a chat request");
    if (!ask.stream)
      co_return error(400, "invalid_request_error", "this endpoint only streams: send \"stream\": true");

    const std::uint32_t guess = std::min(ask.max_tokens, kGuess);
    bulkhead::AcquireOptions options{.priority = key->priority,
                                     .flow = bulkhead::flow_of(key->tenant),
                                     .costs = {{"tokens", ask.prompt + guess}}};
    auto call = co_await bulkhead::async_acquire(bulkhead_, std::move(options), boost::asio::use_awaitable);
    if (!call) co_return rejection(context, call.error());

    auto sequence = model_.start(ask.prompt);
    if (!sequence) {
      call->finish(bulkhead::Outcome::failure);
      co_return error(500, "server_error", "out of memory");
    }
    Response head(boost::beast::http::status::ok, 11);
    head.set(boost::beast::http::field::content_type, "text/event-stream");
    if (!co_await context.stream(std::move(head))) co_return Response();

    const Chunks chunks(ask.model, ++last_id_);
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
      if (!co_await context.write(chunks.text(next))) break;  // the client has gone
    }
    // The memory is free; what was reserved and not used goes back before the last event is sent.
    sequence.reset();
    call->settle("tokens", 0);
    co_await context.write(chunks.last(made, finish) + "data: [DONE]\n\n");
    call->finish(bulkhead::Outcome::success);
    co_return Response();
  }

 private:
  struct Ask {
    std::string model = "fake";
    bool stream = false;
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
    if (const auto* const stream = json.as_object().if_contains("stream"))
      ask.stream = stream->is_bool() && stream->as_bool();
    if (const auto* const model = json.as_object().if_contains("model"); model && model->is_string())
      ask.model = model->as_string().c_str();
    ask.max_tokens = number("max_tokens", ask.max_tokens);
    ask.length = std::min(number("fake_answer_tokens", 100), ask.max_tokens);
    return ask.prompt > 0;
  }

  static boost::json::value as_json(std::string_view text) {
    return boost::json::value(boost::json::string_view(text.data(), text.size()));
  }
  // The events of one answer.
  class Chunks {
   public:
    Chunks(std::string_view model, std::uint64_t id)
        : head_{{"id", as_json("chatcmpl-" + std::to_string(id))},
                {"object", "chat.completion.chunk"},
                {"created", std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())},
                {"model", as_json(model)}} {}
    std::string text(std::uint32_t tokens) const {
      std::string words;
      for (std::uint32_t i = 0; i < tokens; ++i) words += "la ";
      return event(head_, {{"content", as_json(words)}}, nullptr);
    }
    std::string last(std::uint32_t tokens, std::string_view finish) const {
      boost::json::object whole = head_;
      whole["usage"] = boost::json::object{{"completion_tokens", tokens}};
      return event(std::move(whole), {}, as_json(finish));
    }

   private:
    static std::string event(boost::json::object chunk, boost::json::object delta,
                             boost::json::value finish) {
      chunk["choices"] = boost::json::array{boost::json::object{
          {"index", 0}, {"delta", std::move(delta)}, {"finish_reason", std::move(finish)}}};
      return "data: " + boost::json::serialize(chunk) + "\n\n";
    }
    boost::json::object head_;
  };

  static void fill(Response& r, std::string_view type, std::string_view message) {
    r.set(boost::beast::http::field::content_type, "application/json");
    r.body() = boost::json::serialize(boost::json::object{
        {"error", boost::json::object{{"message", as_json(message)}, {"type", as_json(type)}}}});
    r.prepare_payload();
  }
  static Response error(unsigned status, std::string_view type, std::string_view message) {
    Response r(static_cast<boost::beast::http::status>(status), 11);
    fill(r, type, message);
    return r;
  }
  // Status and Retry-After of the library, with the body that clients of OpenAI read.
  static Response rejection(Context& context, const bulkhead::Rejection& why) {
    Response r = context.reject(why);
    fill(r, to_string(why.reason), why.message());
    return r;
  }

  bulkhead::Bulkhead& bulkhead_;
  Model& model_;
  std::uint64_t last_id_ = 0;  // of the one thread of the server
};
