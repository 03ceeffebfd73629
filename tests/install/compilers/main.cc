// One program for every compiler and language version: it includes each public header, calls into the library across the
// interfaces whose layout matters, and prints the size of the types that cross it and how they are passed. tests/install/consume
// compares the output.
#include <all_headers.h>  // generated: one #include for each public header

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>

namespace {

template <class T>
void layout(const char* name) {
  std::printf("%s %zu %zu copies=%d moves=%d trivial=%d,%d,%d\n", name, sizeof(T), alignof(T),
              std::is_copy_constructible_v<T>, std::is_nothrow_move_constructible_v<T>,
              std::is_trivially_copy_constructible_v<T>, std::is_trivially_move_constructible_v<T>,
              std::is_trivially_destructible_v<T>);
}

int failed(const char* what) {
  std::fprintf(stderr, "failed: %s\n", what);
  return 1;
}

}  // namespace

int main() {
  using namespace std::chrono_literals;
  static_assert(!std::is_copy_constructible_v<bulkhead::Result<bulkhead::Permit>>, "a permit has one owner");
  layout<bulkhead::Result<int>>("Result<int>");
  layout<bulkhead::Result<int, int>>("Result<int, int>");
  layout<bulkhead::Result<void>>("Result<void>");
  layout<bulkhead::Result<bulkhead::Permit>>("Result<Permit>");
  layout<bulkhead::Result<std::string>>("Result<std::string>");
  layout<bulkhead::Rejection>("Rejection");
  layout<bulkhead::Permit>("Permit");
  layout<bulkhead::Gate>("Gate");
  layout<bulkhead::Snapshot>("Snapshot");
  layout<bulkhead::Bulkhead>("Bulkhead");
  layout<bulkhead::BulkheadOptions>("BulkheadOptions");
  layout<bulkhead::Pool>("Pool");
  layout<bulkhead::Registry>("Registry");

  // Results that the library makes and this program takes apart, with and without a value.
  bulkhead::Gate gate{{.name = "db", .max_concurrent = 1}};
  bulkhead::Result<bulkhead::Permit> first = gate.acquire();
  const bulkhead::Result<bulkhead::Permit> second = gate.try_acquire();
  if (!first || second) return failed("the second permit of one");
  try {
    static_cast<void>(second.value());
    return failed("value() of a rejection");
  } catch (const bulkhead::BadResult& thrown) {
    if (thrown.what() != second.error().message()) return failed("the message of BadResult");
  }
  if (gate.snapshot().in_flight != 1) return failed("in_flight");

  // A function of this program that the library's own threads run.
  bulkhead::Pool pool(bulkhead::PoolOptions::io_bound("images", 1));
  auto task = pool.submit([] { return std::string(100, 'x'); });
  const bulkhead::Result<std::string> text = task.get();
  if (!text || text->size() != 100) return failed("the result of a task");

  bulkhead::Bulkhead db{{.name = "orders", .max_concurrent = 2, .max_queue = 2}};
  const bulkhead::Result<int> rows = db.acquire().transform([](const bulkhead::Call&) { return 42; });
  if (rows != 42 || db.snapshot().name != "orders") return failed("a call of a bulkhead");

#if defined(__cpp_lib_expected)
  const std::expected<int, bulkhead::Rejection> theirs = rows;
  if (bulkhead::Result<int>(theirs) != rows) return failed("a value of std::expected");
  const bulkhead::Result<void> none = std::expected<void, bulkhead::Rejection>(std::unexpect, second.error());
  const std::expected<void, bulkhead::Rejection> back = none;
  if (back || back.error().message() != second.error().message()) return failed("an error of std::expected");
  const bulkhead::Result<int, int> seven = std::unexpected(7);
  if (seven != std::unexpected(7) || seven == std::unexpected(8)) return failed("std::unexpected");
  std::fputs("std::expected converts\n", stderr);
#endif
  return 0;
}
