// property_test.h - what the property tests share: how many sequences they try, how a failure is
// shown, a coroutine.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <coroutine>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "gate/gate_commands_test.h"

namespace bulkhead::model {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BULKHEAD_SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BULKHEAD_SLOW_BUILD 1
#endif
#endif
#if defined(BULKHEAD_SLOW_BUILD)
inline constexpr int kSequences = 300;
#else
inline constexpr int kSequences = 2000;
#endif

inline rc::Gen<std::vector<Command>> script(const Kind& kind) {  // up to 250 commands
  return rc::gen::scale(2.5, rc::gen::container<std::vector<Command>>(command(kind)));
}

// RC_PARAMS="seed=..." repeats a run, "max_success=100000" makes it longer.
template <class Property>
void check_property(const Property& property) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, kSequences);
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto result = rc::detail::checkTestable(property, metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str() << "\nRC_PARAMS=\"seed=" << params.seed << "\"";
}

inline std::string mode_name(Fairness mode) {
  constexpr std::array<const char*, 3> names{"Fifo", "Barging", "Adaptive"};
  return names[static_cast<std::size_t>(mode)];
}

// Runs at once; whoever owns it may destroy it while it waits.
class Task {
 public:
  struct promise_type {
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  Task() = default;
  explicit Task(std::coroutine_handle<> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    destroy();
    handle_ = std::exchange(other.handle_, {});
    return *this;
  }
  ~Task() { destroy(); }

  void destroy() {
    if (auto handle = std::exchange(handle_, {})) handle.destroy();
  }

 private:
  std::coroutine_handle<> handle_;
};

}  // namespace bulkhead::model
