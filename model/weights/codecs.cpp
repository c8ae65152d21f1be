#include "model/weights/codecs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

std::array<float, 256> e4m3_table() {
  std::array<float, 256> table = {};
  for (int bits = 0; bits < 256; ++bits)
    table[size(bits)] = e4m3_to_float(static_cast<std::uint8_t>(bits));
  return table;
}

}  // namespace

float e4m3_to_float(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -9);
  } else if (exponent != 15 || mantissa != 7) {
    value = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return (bits & 0x80) != 0 ? -value : value;
}

std::vector<float> decode_fp8_block(std::span<const std::byte> values, Range rows, Range columns,
                                    std::span<const float> scales, int scale_columns, int block) {
  CHECK(values.size() == size(rows.size()) * size(columns.size()));
  static const std::array<float, 256> table = e4m3_table();
  std::vector<float> result(values.size());
  std::size_t at = 0;
  for (int r = rows.begin; r < rows.end; ++r) {
    const float* scale = scales.data() + size(r / block) * size(scale_columns);
    for (int c = columns.begin; c < columns.end; ++c, ++at) {
      result[at] = table[std::to_integer<std::size_t>(values[at])] * scale[c / block];
    }
  }
  return result;
}

std::vector<float> decode_int4_group(std::span<const std::uint32_t> packed, Range rows,
                                     Range columns, std::span<const float> scales, int group) {
  CHECK(columns.begin % 8 == 0 && columns.size() % 8 == 0);
  CHECK(packed.size() * 8 == size(rows.size()) * size(columns.size()));
  const int first_group = columns.begin / group;
  const int groups = columns.size() == 0 ? 0 : (columns.end - 1) / group - first_group + 1;
  CHECK(scales.size() == size(rows.size()) * size(groups));
  std::vector<float> result(packed.size() * 8);
  std::size_t at = 0;
  for (int r = 0; r < rows.size(); ++r) {
    const float* scale = scales.data() + size(r) * size(groups);
    for (int c = columns.begin; c < columns.end; ++c, ++at) {
      const std::uint32_t nibble = packed[at / 8] >> (4 * (at % 8)) & 15u;
      result[at] =
          static_cast<float>(static_cast<int>(nibble) - 8) * scale[c / group - first_group];
    }
  }
  return result;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

}  // namespace copse
