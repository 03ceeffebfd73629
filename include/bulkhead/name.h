// name.h - the name of a bulkhead, as a value that outlives the bulkhead.
//
//   bulkhead::Name name = rejection.name;          // copies; never dangles
//   log(name.view());                              // converts to std::string_view implicitly
//
// Threads: plain values. A copy may be made and destroyed on any thread.
// Cost: names of up to 47 bytes are stored inside, so a copy is 48 bytes and allocates nothing. A longer name is allocated
//   once, when it is constructed from text; its copies share it by a reference count.
#pragma once

#include "bulkhead/detail/language.h"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace bulkhead {

class Name;

namespace detail {
template <class T>
concept NameText = std::convertible_to<const T&, std::string_view> && !std::same_as<T, Name>;
}

class Name {
 public:
  static constexpr std::size_t kInline = 47;

  constexpr Name() noexcept : text_{}, size_(0) {}
  template <detail::NameText Text>
  constexpr Name(const Text& text) : Name(std::string_view(text), Made()) {}  // NOLINT: implicit on purpose
  constexpr Name(const Name& other) noexcept : Name(other, Copied()) {
    if (is_shared()) share();
  }
  constexpr Name(Name&& other) noexcept : Name(other, Copied()) { other.size_ = 0; }
  constexpr Name& operator=(Name other) noexcept {
    std::swap_ranges(text_, text_ + kInline, other.text_);
    std::swap(size_, other.size_);
    return *this;
  }
  constexpr ~Name() {
    if (is_shared()) drop();
  }

  constexpr std::string_view view() const noexcept {
    return is_shared() ? shared_view() : std::string_view(text_, size_);
  }
  constexpr operator std::string_view() const noexcept { return view(); }  // NOLINT: implicit on purpose
  constexpr bool empty() const noexcept { return size_ == 0; }

  friend constexpr bool operator==(const Name& a, const Name& b) noexcept { return a.view() == b.view(); }
  template <detail::NameText Text>
  friend constexpr bool operator==(const Name& a, const Text& b) noexcept {
    return a.view() == std::string_view(b);
  }
  template <class Stream>
    requires requires(Stream& out, std::string_view text) { out << text; }
  friend Stream& operator<<(Stream& out, const Name& name) {
    out << name.view();
    return out;
  }

 private:
  struct Made {};
  struct Copied {};
  struct Shared;  // a reference count, the size, and the bytes behind it
  static constexpr std::uint8_t kShared = 255;

  constexpr Name(std::string_view text, Made) : Name() {
    if (text.size() > kInline) {
      allocate(text);
    } else {
      std::copy(text.begin(), text.end(), text_);
      size_ = static_cast<std::uint8_t>(text.size());
    }
  }
  // All 48 bytes, whatever the size: a copy of a fixed length is a few moves.
  constexpr Name(const Name& other, Copied) noexcept {
    if (std::is_constant_evaluated()) {
      std::copy(other.text_, other.text_ + kInline, text_);
      size_ = other.size_;
    } else {
      std::memcpy(text_, other.text_, kInline);
      size_ = other.size_;
    }
  }

  constexpr bool is_shared() const noexcept { return size_ == kShared; }
  void allocate(std::string_view text);  // may throw std::bad_alloc
  void share() const noexcept;
  void drop() noexcept;
  std::string_view shared_view() const noexcept;
  Shared* shared() const noexcept;

  alignas(void*) char text_[kInline];  // or, of a shared name, the pointer
  std::uint8_t size_;
};

}  // namespace bulkhead
