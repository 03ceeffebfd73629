// At most 100 mails a second, five at once; a rejected call gets the time after which it may try again.
#include <bulkhead/rate_limiter.h>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  bulkhead::RateLimiter mail{{.name = "mail", .rate = 100, .per = 1s, .burst = 5}};

  for (int i = 1; i <= 7; ++i)
    if (const auto ticket = mail.try_take())
      std::printf("mail %d\n", i);
    else
      std::printf("not yet: %s\n", mail.rejection(ticket.error()).message().c_str());

  const auto now = mail.clock().now();
  const auto turn = mail.reserve({.cost = 2, .max_wait = 100ms}, now);  // takes its turn, to be used then
  if (turn)
    std::printf("two more in %.1f ms\n", std::chrono::duration<double, std::milli>(turn->at - now).count());
}
