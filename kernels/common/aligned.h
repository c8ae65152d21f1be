#pragma once
// Float buffers whose rows start on cache lines when their length allows: a vector load that spans
// two lines costs two.
#include <cstddef>
#include <new>
#include <vector>

namespace copse::kernels {

inline constexpr std::size_t cache_line_bytes = 64;

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: as the standard's allocators
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(cache_line_bytes)));
  }
  void deallocate(T* memory, std::size_t) {
    ::operator delete(memory, std::align_val_t(cache_line_bytes));
  }
  bool operator==(const CacheLineAllocator&) const { return true; }
};

using AlignedFloats = std::vector<float, CacheLineAllocator<float>>;

}  // namespace copse::kernels
