#pragma once
// Two kinds of randomness. Philox is a pure function, for sampling (base/noise.h): every rank,
// drafting mode and restart draws the same noise. Random is a seeded stream, for identities and the
// simulator.
#include <array>
#include <cstdint>

#include "base/noise.h"

namespace copse {

// philox() over arrays.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;
  // Uniform in [0, bound), bound > 0.
  std::uint64_t below(std::uint64_t bound);
};

// splitmix64: small, seedable, good enough for identities and fault schedules.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override;

 private:
  std::uint64_t state_;
};

// A seed from the operating system's entropy.
std::uint64_t entropy_seed();

}  // namespace copse
