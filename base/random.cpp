#include "base/random.h"

#include <sys/random.h>

#include <cmath>

#include "base/check.h"

namespace copse {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53u;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;

std::uint32_t high(std::uint64_t product) {
  return static_cast<std::uint32_t>(product >> 32);
}
std::uint32_t low(std::uint64_t product) {
  return static_cast<std::uint32_t>(product);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> c,
                                           std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kMultiplier0) * c[0];
    const std::uint64_t p1 = static_cast<std::uint64_t>(kMultiplier1) * c[2];
    c = {high(p1) ^ c[1] ^ k[0], low(p1), high(p0) ^ c[3] ^ k[1], low(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

float gumbel_from_word(std::uint32_t word) {
  // (r + 1/2) / 2^32 is exact in double and never 0 or 1; log1p keeps its precision near 0.
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return static_cast<float>(-std::log(-std::log1p(-v)));
}

float gumbel_noise(std::uint64_t seed, std::uint32_t choice, std::uint64_t position,
                   std::uint32_t token) {
  // Key: seed and choice folded into 64 bits; counter: position (64 bits), token.
  const std::array<std::uint32_t, 2> key = {low(seed), high(seed) ^ (choice * kWeyl0)};
  return gumbel_from_word(philox4x32_10({low(position), high(position), token, 0}, key)[0]);
}

std::uint64_t Random::below(std::uint64_t bound) {
  CHECK(bound > 0);
  return next() % bound;
}

std::uint64_t SeededRandom::next() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t entropy_seed() {
  std::uint64_t seed = 0;
  CHECK(getrandom(&seed, sizeof seed, 0) == static_cast<ssize_t>(sizeof seed));
  return seed;
}

}  // namespace copse
