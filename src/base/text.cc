#include "base/text.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace bulkhead::base {

std::string join(std::initializer_list<std::string_view> parts) {
  std::size_t size = 0;
  for (const auto part : parts) size += part.size();
  std::string text;
  text.reserve(size);
  for (const auto part : parts) text += part;
  return text;
}

void throw_invalid(const std::string& what) {
#if defined(__cpp_exceptions)
  throw std::invalid_argument(what);
#else
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
#endif
}

}  // namespace bulkhead::base
