#include "problem.h"

#include "base/suggest.h"

namespace bulkhead::control {

Problem not_known(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                  std::string_view list) {
  const std::string close = base::suggest(name, known);
  return {.type = kNotFound,
          .detail = "unknown " + std::string(what) + " \"" + std::string(name) + "\"; " +
                    (close.empty() ? std::string(list) : "did you mean \"" + close + "\"?")};
}

}  // namespace bulkhead::control
