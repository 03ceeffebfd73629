// anchored.h - a member of an options struct that may be destroyed twice. Not for direct use.
//
// GCC 11 and 12 mishandle an aggregate in braces inside a co_await expression:
//
//   auto permit = co_await gate.co_acquire({.stop = token});
//
// They build the options, copy them byte by byte to another place, pass that copy to the function, and destroy both. An
// Anchored stores the address at which it was built, so it recognises such a copy: moving from the copy copies the
// value, and destroying the copy leaves the value to the original. Other compilers make no such copies. Layout and code
// are the same for all compilers, so that a program may mix them.
// See docs/how-to/coroutines-on-gcc-11-and-12.md.
// Cost: a pointer, one store when it is made and one comparison when it is destroyed.
#pragma once

#include "bulkhead/detail/language.h"

#include <concepts>
#include <new>
#include <type_traits>
#include <utility>

namespace bulkhead::detail {

template <class T>
class Anchored : public T {
 public:
  Anchored() = default;
  template <class U>
    requires(!std::derived_from<std::remove_cvref_t<U>, Anchored> && std::is_constructible_v<T, U>)
  Anchored(U&& value) : T(std::forward<U>(value)) {}  // implicit, like a T
  Anchored(const Anchored& other) : T(static_cast<const T&>(other)) {}
  Anchored(Anchored&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : T(taken(other)) {}
  Anchored& operator=(const Anchored& other) {
    if (this == &other) return *this;
    T::operator=(static_cast<const T&>(other));
    return *this;
  }
  Anchored& operator=(Anchored&& other) noexcept(std::is_nothrow_move_assignable_v<T>) {
    T::operator=(taken(other));
    return *this;
  }
  ~Anchored() {
    if (is_byte_copy()) [[unlikely]]
      ::new (static_cast<T*>(this)) T();  // the original is destroyed too, and owns the value
  }

 private:
  bool is_byte_copy() const noexcept { return built_at_ != this; }
  static T taken(Anchored& other) {
    if (other.is_byte_copy()) [[unlikely]]
      return T(static_cast<const T&>(other));
    return T(static_cast<T&&>(other));
  }

  const Anchored* built_at_ = this;
};

}  // namespace bulkhead::detail
