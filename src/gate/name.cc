#include "bulkhead/name.h"

#include <atomic>
#include <new>

namespace bulkhead {

struct Name::Shared {
  std::atomic<std::uint32_t> uses{1};
  std::size_t size;

  explicit Shared(std::size_t bytes) noexcept : size(bytes) {}
  char* text() noexcept { return reinterpret_cast<char*>(this + 1); }
};

void Name::allocate(std::string_view text) {
  auto* const made = new (::operator new(sizeof(Shared) + text.size())) Shared(text.size());
  std::copy(text.begin(), text.end(), made->text());
  std::memcpy(text_, static_cast<const void*>(&made), sizeof(Shared*));
  size_ = kShared;
}

Name::Shared* Name::shared() const noexcept {
  Shared* shared;
  std::memcpy(static_cast<void*>(&shared), text_, sizeof(Shared*));
  return shared;
}

// relaxed: the copied name keeps the text alive.
void Name::share() const noexcept { shared()->uses.fetch_add(1, std::memory_order_relaxed); }

// acq_rel: the last user destroys what the others have read.
void Name::drop() noexcept {
  Shared* const last = shared();
  if (last->uses.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  last->~Shared();
  ::operator delete(last);
}

std::string_view Name::shared_view() const noexcept { return {shared()->text(), shared()->size}; }

}  // namespace bulkhead
