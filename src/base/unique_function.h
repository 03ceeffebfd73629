// unique_function.h - a std::function for targets that can be moved but not copied; C++20 has none.
//
// Cost: one allocation when it is made, unless the target fits into three pointers and moves without throwing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bulkhead::base {

template <class Signature>
class UniqueFunction;

template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() noexcept = default;
  UniqueFunction(std::nullptr_t) noexcept {}  // NOLINT: as std::function
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
  UniqueFunction(F&& f) {  // NOLINT: as std::function
    using Target = std::decay_t<F>;
    if constexpr (fits<Target>)
      new (storage_) Target(std::forward<F>(f));
    else
      new (storage_) Target*(new Target(std::forward<F>(f)));
    kind_ = &kKind<Target>;
  }
  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~UniqueFunction() { clear(); }

  explicit operator bool() const noexcept { return kind_ != nullptr; }
  R operator()(Args... args) { return kind_->call(storage_, std::forward<Args>(args)...); }

 private:
  static constexpr std::size_t kRoom = 3 * sizeof(void*);
  template <class Target>
  static constexpr bool fits = sizeof(Target) <= kRoom && alignof(Target) <= alignof(void*) &&
                               std::is_nothrow_move_constructible_v<Target>;

  struct Kind {
    R (*call)(void*, Args&&...);
    void (*move)(void* from, void* to) noexcept;  // then destroys `from`
    void (*destroy)(void*) noexcept;
  };
  template <class Target>
  static Target& target(void* storage) noexcept {
    if constexpr (fits<Target>)
      return *std::launder(static_cast<Target*>(storage));
    else
      return **std::launder(static_cast<Target**>(storage));
  }
  template <class Target>
  static constexpr Kind kKind{
      [](void* storage, Args&&... args) -> R {
        if constexpr (std::is_void_v<R>)
          static_cast<void>(std::invoke(target<Target>(storage), std::forward<Args>(args)...));
        else
          return std::invoke(target<Target>(storage), std::forward<Args>(args)...);
      },
      [](void* from, void* to) noexcept {
        if constexpr (fits<Target>) {
          new (to) Target(std::move(target<Target>(from)));
          std::destroy_at(&target<Target>(from));
        } else {
          new (to) Target*(&target<Target>(from));
        }
      },
      [](void* storage) noexcept {
        if constexpr (fits<Target>)
          std::destroy_at(&target<Target>(storage));
        else
          delete &target<Target>(storage);
      }};

  void take(UniqueFunction& other) noexcept {
    kind_ = std::exchange(other.kind_, nullptr);
    if (kind_) kind_->move(other.storage_, storage_);
  }
  void clear() noexcept {
    if (const Kind* kind = std::exchange(kind_, nullptr)) kind->destroy(storage_);
  }

  alignas(void*) std::byte storage_[kRoom];
  const Kind* kind_ = nullptr;
};

}  // namespace bulkhead::base
