#pragma once
// Two kinds of randomness. Philox is a pure function, for sampling: every rank, drafting mode and
// restart draws the same noise. Random is a seeded stream, for identities and the simulator.
#include <array>
#include <cstdint>

namespace copse {

// Philox4x32-10 (Salmon et al., SC 2011): four words of noise for a 64-bit key and 128-bit counter.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

// Gumbel noise of one random word r: v = (r + 1/2) / 2^32, g = -log(-log1p(-v)), finite for each r.
float gumbel_from_word(std::uint32_t word);

// Gumbel noise for drawing `token` at absolute position `position` of a request: a pure function,
// so that every rank, drafting mode, batch shape and restart draws the same token.
float gumbel_noise(std::uint64_t seed, std::uint32_t choice, std::uint64_t position,
                   std::uint32_t token);

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
