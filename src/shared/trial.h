// trial.h - sources for a bulkhead that is made only to find out whether it can be: other processes must not notice.
#pragma once

#include <memory>

#include "bulkhead/scope.h"

namespace bulkhead::shared {

class TrialSources final : public UnitSources {
 public:
  explicit TrialSources(const UnitSources& real) noexcept : real_(real) {}

  std::unique_ptr<UnitSource> open(const Request& request, UnitUser&) override {
    real_.check(request);
    return std::make_unique<Nothing>(request.max_concurrent);
  }
  void check(const Request& request) const override { real_.check(request); }

 private:
  class Nothing final : public UnitSource {
   public:
    explicit Nothing(std::uint32_t limit) noexcept : limit_(limit) {}
    bool take(const Head&) noexcept override { return false; }
    void give_back(std::uint32_t) noexcept override {}
    std::uint32_t in_use() const noexcept override { return 0; }
    void set_head(const Head*) noexcept override {}
    std::uint32_t limit() const noexcept override { return limit_; }
    bool resize(std::uint32_t limit) noexcept override {
      limit_ = limit;
      return true;
    }
    void mute() noexcept override {}

   private:
    std::uint32_t limit_;
  };
  const UnitSources& real_;
};

}  // namespace bulkhead::shared
