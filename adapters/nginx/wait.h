// wait.h - one request in line: where the answer of its bulkhead arrives, on whatever thread that is decided.
//
//   auto wait = std::make_shared<Wait>(engine, visit);
//   if (wait->begin(bulkhead, std::move(begun), options)) use(wait->take());   // decided already
//   // else Engine::run() resumes the visit on the loop, and take() gives the answer
//
// The request may go first: abandon() takes it out of the line, and gives a place back that it was given meanwhile.
// Threads: everything but the arrival of the answer belongs to the loop.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>

#include "bulkhead/bulkhead.h"

namespace bulkhead::nginx {

class Engine;
struct Visit;

class Wait : public std::enable_shared_from_this<Wait> {
 public:
  Wait(Engine& engine, Visit& visit) noexcept : engine_(engine), visit_(&visit) {}

  bool begin(std::shared_ptr<Bulkhead> bulkhead, Call begun, AcquireOptions options);
  Result<Call> take() { return *std::move(answer_); }
  void abandon() noexcept;
  Visit* visit() const noexcept { return visit_; }  // null: the request is gone

 private:
  Engine& engine_;
  Visit* visit_;
  std::shared_ptr<Bulkhead> bulkhead_;  // destroyed after answer_, which may hold a place in it
  std::optional<Result<Call>> answer_;
  std::stop_source stop_;
  bool beginning_ = false, decided_ = false;
};

}  // namespace bulkhead::nginx
