// counting_test.h - an allocator that counts what it has given.
#pragma once

#include <cstddef>
#include <memory>

namespace bulkhead {

template <class T>
struct Counting {
  using value_type = T;
  int* live;
  int* total;
  Counting(int* l, int* t) : live(l), total(t) {}
  template <class U>
  Counting(const Counting<U>& other) : live(other.live), total(other.total) {}
  T* allocate(std::size_t n) {
    ++*live;
    ++*total;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* p, std::size_t n) {
    --*live;
    std::allocator<T>().deallocate(p, n);
  }
  friend bool operator==(const Counting&, const Counting&) = default;
};

}  // namespace bulkhead
