#pragma once
// Weights as checkpoints store them, made at random, beside the floats that they stand for; and the
// experts of a layer by plain loops over those floats.
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "kernels/moe_experts/moe_experts_cuda.h"

namespace copse::kernels::cuda::testing {

using Generator = std::mt19937;

inline std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

struct TestMatrix {
  int rows = 0;
  int columns = 0;
  std::vector<std::uint8_t> values;  // as StoredMatrix has them
  std::vector<std::uint8_t> scales;
  std::vector<float> wide;  // [rows][columns]
};

template <class V>
void put(std::vector<std::uint8_t>& bytes, std::int64_t at, V value) {
  std::memcpy(bytes.data() + index(at) * sizeof(V), &value, sizeof(V));
}

// e4m3 by its definition: bias 7, subnormals, no infinity.
inline float e4m3_value(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -size : size;
}

inline void make_plain(TestMatrix& m, bool half, Generator& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(m.columns)));
  m.values.resize(m.wide.size() * (half ? 2 : 4));
  for (std::size_t i = 0; i < m.wide.size(); ++i) {
    const float value = normal(random);
    m.wide[i] = half ? to_float(to_bf16(value)) : value;
    if (half) {
      put(m.values, static_cast<std::int64_t>(i), to_bf16(value));
    } else {
      put(m.values, static_cast<std::int64_t>(i), value);
    }
  }
}

inline void make_fp8(TestMatrix& m, Generator& random) {
  const int scale_columns = (m.columns + 127) / 128;
  const int scale_rows = (m.rows + 127) / 128;
  std::vector<float> scales;
  for (int i = 0; i < scale_rows * scale_columns; ++i) {
    scales.push_back(0.02f / std::sqrt(static_cast<float>(m.columns)) *
                     (0.5f + static_cast<float>(random() % 1000) / 1000.0f));
    m.scales.resize(m.scales.size() + 4);
    put(m.scales, i, scales.back());
  }
  m.values.resize(m.wide.size());
  for (int r = 0; r < m.rows; ++r) {
    for (int c = 0; c < m.columns; ++c) {
      const std::int64_t at = std::int64_t{r} * m.columns + c;
      int bits = static_cast<int>(random() % 256);
      if ((bits & 0x7f) == 0x7f) bits ^= 1;  // NaN
      m.values[index(at)] = static_cast<std::uint8_t>(bits);
      m.wide[index(at)] = e4m3_value(bits) * scales[index(r / 128 * scale_columns + c / 128)];
    }
  }
}

inline void make_int4(TestMatrix& m, bool half_scales, Generator& random) {
  const int groups = (m.columns + 31) / 32;
  m.values.assign(m.wide.size() / 2, 0);
  m.scales.resize(index(m.rows) * index(groups) * (half_scales ? 2 : 4));
  for (int r = 0; r < m.rows; ++r) {
    for (int g = 0; g < groups; ++g) {
      float scale = 0.2f / std::sqrt(static_cast<float>(m.columns)) *
                    (0.5f + static_cast<float>(random() % 1000) / 1000.0f);
      const std::int64_t scale_at = std::int64_t{r} * groups + g;
      if (half_scales) {
        put(m.scales, scale_at, to_bf16(scale));
        scale = to_float(to_bf16(scale));
      } else {
        put(m.scales, scale_at, scale);
      }
      for (int c = g * 32; c < std::min(m.columns, (g + 1) * 32); ++c) {
        const std::int64_t at = std::int64_t{r} * m.columns + c;
        const unsigned nibble = random() % 16;
        m.values[index(at / 2)] |= static_cast<std::uint8_t>(nibble << (at % 2 * 4));
        m.wide[index(at)] = (static_cast<float>(nibble) - 8.0f) * scale;
      }
    }
  }
}

inline TestMatrix make_matrix(ExpertCodec codec, int rows, int columns, Generator& random) {
  TestMatrix m = {rows, columns, {}, {}, std::vector<float>(index(rows) * index(columns))};
  switch (codec) {
    case ExpertCodec::bf16:
    case ExpertCodec::f32:
      make_plain(m, codec == ExpertCodec::bf16, random);
      break;
    case ExpertCodec::fp8_block:
      make_fp8(m, random);
      break;
    case ExpertCodec::int4_group:
    case ExpertCodec::int4_group_f32:
      make_int4(m, codec == ExpertCodec::int4_group, random);
      break;
  }
  return m;
}

struct TestExpert {
  TestMatrix gate;
  TestMatrix up;
  TestMatrix down;
};

inline std::vector<float> product(const TestMatrix& m, const float* x) {
  std::vector<float> y;
  for (int r = 0; r < m.rows; ++r) {
    double sum = 0;
    const float* row = m.wide.data() + index(r) * index(m.columns);
    for (int c = 0; c < m.columns; ++c) sum += static_cast<double>(row[c]) * x[c];
    y.push_back(static_cast<float>(sum));
  }
  return y;
}

// One row; `round` is what storing in T does.
inline std::vector<float> plain_experts(const std::vector<TestExpert>& experts, int first_expert,
                                        const float* x, const std::int32_t* ids,
                                        const float* weights, int experts_per_token, int hidden,
                                        const std::function<float(float)>& round) {
  std::vector<float> y(index(hidden));
  for (int i = 0; i < experts_per_token; ++i) {
    const int expert = ids[i] - first_expert;
    if (ids[i] < 0 || expert < 0 || expert >= static_cast<int>(experts.size())) continue;
    const TestExpert& e = experts[index(expert)];
    std::vector<float> middle = product(e.gate, x);
    const std::vector<float> up = product(e.up, x);
    for (std::size_t k = 0; k < middle.size(); ++k) {
      middle[k] = round(middle[k] / (1.0f + std::exp(-middle[k])) * up[k]);
    }
    const std::vector<float> out = product(e.down, middle.data());
    for (std::size_t k = 0; k < y.size(); ++k) y[k] += weights[i] * out[k];
  }
  return y;
}

}  // namespace copse::kernels::cuda::testing
