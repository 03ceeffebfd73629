// Shadow mode: would these limits hurt? It counts what it would reject, and rejects nothing. Then in earnest.
#include <bulkhead/bulkhead.h>

#include <cstdio>

int main() {
  bulkhead::Bulkhead search{{.name = "search",
                             .max_concurrent = 10,
                             .rate_limit = bulkhead::RateLimiterOptions{.rate = 1, .burst = 3},
                             .shadow = true}};
  const auto calls = [&] {
    int served = 0;
    for (int i = 0; i < 5; ++i) served += search.execute([] {}).has_value();
    return served;
  };
  std::printf("in shadow: %d of 5 served\n", calls());
  const auto reason = static_cast<std::size_t>(bulkhead::Reason::rate_limit);
  const auto would = search.snapshot().would_reject[reason];
  std::printf("would have rejected %llu\n", static_cast<unsigned long long>(would));

  bulkhead::BulkheadOptions options = search.options();
  options.shadow = false;
  search.update(options);
  std::printf("in earnest: %d of 5 served\n", calls());  // the bucket is empty
}
