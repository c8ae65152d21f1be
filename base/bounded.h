#pragma once
// A vector that cannot grow past the bound in its type. Wire messages and plans are made of these.
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/check.h"

namespace copse {

template <class T, std::size_t kMax>
class Bounded {
 public:
  using value_type = T;
  static constexpr std::size_t max_size() { return kMax; }

  Bounded() = default;
  Bounded(std::initializer_list<T> items) : items_(items) { CHECK(items_.size() <= kMax); }

  // Outside data asks fits() or try_push() first; push_back past the bound is a programmer's error.
  bool full() const { return items_.size() == kMax; }
  static bool fits(std::size_t count) { return count <= kMax; }
  bool try_push(T item) {
    if (full()) return false;
    items_.push_back(std::move(item));
    return true;
  }
  void push_back(T item) {
    CHECK(!full());
    items_.push_back(std::move(item));
  }
  void resize(std::size_t count) {
    CHECK(count <= kMax);
    items_.resize(count);
  }
  void reserve(std::size_t count) { items_.reserve(count < kMax ? count : kMax); }
  void clear() { items_.clear(); }
  template <class It>
  void assign(It first, It last) {
    items_.assign(first, last);
    CHECK(items_.size() <= kMax);
  }

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  T* data() { return items_.data(); }
  const T* data() const { return items_.data(); }
  T& operator[](std::size_t i) {
    CHECK(i < items_.size());
    return items_[i];
  }
  const T& operator[](std::size_t i) const {
    CHECK(i < items_.size());
    return items_[i];
  }
  T& back() { return (*this)[size() - 1]; }
  const T& back() const { return (*this)[size() - 1]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool operator==(const Bounded&) const = default;

 private:
  std::vector<T> items_;
};

}  // namespace copse
