#pragma once
// A chained 64-bit digest of what a step did (design rule: unequal digests are never committed).
// constexpr, so that CUDA code computes the same.
// It guards against drift and wrong arithmetic, not against an adversary.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace copse {

class DigestChain {
 public:
  constexpr explicit DigestChain(std::uint64_t previous = 0)
      : state_(previous ^ 0x9E3779B97F4A7C15u) {}

  // Integers only: floats and padded structs have several encodings of one value.
  template <class T>
  requires std::is_integral_v<T>
  constexpr DigestChain& add(T value) {
    mix(static_cast<std::uint64_t>(value));
    return *this;
  }
  template <class T>
  requires std::is_integral_v<T>
  constexpr DigestChain& add(std::span<const T> values) {
    mix(values.size());
    for (T value : values) mix(static_cast<std::uint64_t>(value));
    return *this;
  }
  constexpr std::uint64_t value() const { return state_; }

 private:
  // splitmix64's finaliser over the running state: every input bit reaches every output bit.
  constexpr void mix(std::uint64_t word) {
    std::uint64_t z = state_ + 0x9E3779B97F4A7C15u + word * 0xD6E8FEB86659FD93u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    state_ = z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace copse
