#pragma once
// The noise of sampling as inline functions, for host and GPU alike: the same bits on both, since
// every operation is IEEE's and none is fused (base/host_device.h).
#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace copse {

struct PhiloxCounter {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t philox_weyl0 = 0x9E3779B9u;
inline constexpr std::uint32_t philox_weyl1 = 0xBB67AE85u;

// Philox4x32-10 (Salmon et al., SC 2011): four words of noise for a 64-bit key and 128-bit counter.
COPSE_HOST_DEVICE inline PhiloxCounter philox(PhiloxCounter c, std::uint32_t key0,
                                              std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(p0)}};
    key0 += philox_weyl0;
    key1 += philox_weyl1;
  }
  return c;
}

// The random word for drawing `token` at absolute position `position` of a request. Key: seed and
// choice folded into 64 bits; counter: position (64 bits), token.
COPSE_HOST_DEVICE inline std::uint32_t noise_word(std::uint64_t seed, std::uint32_t choice,
                                                  std::uint64_t position, std::uint32_t token) {
  const std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32) ^ (choice * philox_weyl0);
  const PhiloxCounter counter = {
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), token, 0}};
  return philox(counter, static_cast<std::uint32_t>(seed), key1).word[0];
}

// Natural logarithm of a normal x > 0. x = 2^n * m with m in [sqrt(1/2), sqrt(2)); log(m) =
// 2 atanh(s) with s = (m - 1) / (m + 1) by its series, whose first term left out is below 2^-58 of
// the sum. Within 2 units of the last place, near 1 as well, where the result is small.
COPSE_HOST_DEVICE inline double log_fixed(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t sqrt_half = 0x3FE6A09E667F3BCDu;
  const std::uint64_t above = bits - sqrt_half;
  const auto n = static_cast<std::int32_t>(static_cast<std::int64_t>(above) >> 52);
  const auto m = std::bit_cast<double>((above & 0x000FFFFFFFFFFFFFu) + sqrt_half);
  const double f = add(m, -1.0);
  const double s = f / add(m, 1.0);
  const double z = multiply(s, s);
  double series = 0;
  for (int i = 23; i >= 3; i -= 2) series = add(multiply(series, z), 2.0 / i);
  // n * ln 2 in two parts: the product with the first is exact.
  const double high = multiply(n, 0x1.62e42fefp-1);
  const double low = multiply(n, 0x1.473de6af278edp-34);
  const double small = add(multiply(multiply(s, z), series), low);
  return add(high, add(multiply(2.0, s), small));
}

// Gumbel noise of one random word r: v = (r + 1/2) / 2^32, g = -log(-log1p(-v)), finite for each
// r. 1 - v is exact in double and log_fixed is precise near 1, so it stands for log1p.
COPSE_HOST_DEVICE inline float gumbel_from_word(std::uint32_t word) {
  const double v = multiply(add(static_cast<double>(word), 0.5), 0x1p-32);
  return static_cast<float>(-log_fixed(-log_fixed(add(1.0, -v))));
}

// Gumbel noise for drawing `token` at absolute position `position` of a request: a pure function,
// so that every rank, drafting mode, batch shape and restart draws the same token.
COPSE_HOST_DEVICE inline float gumbel_noise(std::uint64_t seed, std::uint32_t choice,
                                            std::uint64_t position, std::uint32_t token) {
  return gumbel_from_word(noise_word(seed, choice, position, token));
}

}  // namespace copse
