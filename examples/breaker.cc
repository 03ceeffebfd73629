// A breaker around a payment provider that answers 503: after ten such answers it is left alone for a
// while.
#include <bulkhead/breaker.h>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  bulkhead::Breaker payments{{.name = "payments", .window_calls = 10, .open_for = 5s}};
  const auto judge = bulkhead::result_if([](int status) { return status >= 500; });

  int answers = 0;
  while (payments.run([] { return 503; }, judge)) ++answers;

  const auto rejected = payments.run([] { return 200; }, judge);  // not called at all
  const auto s = payments.snapshot();
  std::printf("%d calls, then %s\n", answers, rejected.error().message().c_str());
  std::printf("the breaker is %s: %s\n", to_string(s.state).data(), to_string(s.reason).data());
}
