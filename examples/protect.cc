// A function that carries its bulkhead: called like the one it wraps, it gives a Result.
#include <bulkhead/bulkhead.h>

#include <cstdio>
#include <string>

namespace {

std::string find_user(int id) { return "user " + std::to_string(id); }

}  // namespace

int main() {
  bulkhead::Bulkhead directory{{.name = "directory", .max_concurrent = 8}};
  auto find = bulkhead::protect(directory, find_user);

  for (const int id : {1, 2}) {
    const bulkhead::Result<std::string> user = find(id);
    std::puts(user ? user->c_str() : user.error().message().c_str());
  }
  directory.close();
  if (const auto user = find(3); !user) std::puts(user.error().message().c_str());  // shutdown
}
