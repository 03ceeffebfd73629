// A pool of connections that are slow to open: two at a time, and four calls may wait. When the server is down, callers
// get its error instead of "full".
#include <bulkhead/resource_pool.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

struct Connection {
  int number;
  std::string ask(const std::string& question) {
    return question + "? Ask connection " + std::to_string(number) + ".";
  }
};

int main() {
  std::atomic<int> opened{0};
  std::atomic<bool> down{false};
  bulkhead::ResourcePool<Connection> pool{{
      .name = "answers",
      .max = 2,
      .open = [&](const bulkhead::Opening&) -> bulkhead::Result<Connection, std::string> {
        if (down) return bulkhead::Unexpected("connection refused");
        return Connection{++opened};
      },
      .validate = [](Connection&) { return true; },
      .gate = {.max_queue = 4, .max_wait = 1s},
  }};

  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&pool] {
      if (auto connection = pool.acquire()) (*connection)->ask("why");  // goes back here, on every path
    });
  for (auto& caller : callers) caller.join();
  std::cout << "four callers, " << opened << " connection(s)\n";

  down = true;
  {
    auto one = pool.acquire(), two = pool.acquire();
    if (one) one->mark_broken();  // it will be closed, not lent again
    if (two) two->mark_broken();
  }
  if (auto none = pool.acquire(); !none) std::cout << none.error().message() << '\n';
  return opened <= 2 ? 0 : 1;
}
