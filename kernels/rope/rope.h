#pragma once
// Rotary position embedding (arXiv 2104.09864) with YaRN's frequencies (arXiv 2309.00071, section
// 3.2). Angles are computed once a forward pass for all rows, then applied in every layer.
//
// Frequencies, angles, cosines and sines are float32 in the steps of Hugging Face's modules, since
// an angle of 10^5 rounds differently in float64: angle = float(position) * inv_freq.
//
// GPU: inv_freq on the device, angles of a step in one small launch, same layouts.
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/common/thread_pool.h"

namespace copse::kernels {

struct RopeSpec {
  int dim = 0;  // rotated values per head, even
  double theta = 10000.0;
  double factor = 1.0;  // YaRN above 1
  int original_positions = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;  // multiplies cosine and sine
};

struct RopeTable {
  std::vector<float> inv_freq;  // [dim / 2]
  float attention_factor = 1.0f;
  int dim() const { return 2 * static_cast<int>(inv_freq.size()); }
};

RopeTable make_rope_table(const RopeSpec& spec);

// YaRN's attention temperature: 0.1 * mscale * ln(factor) + 1, and 1 for a factor up to 1.
double yarn_mscale(double factor, double mscale);

// angles[row]: dim / 2 cosines, then dim / 2 sines, both times attention_factor. [rows][dim].
void rope_angles(const RopeTable& table, std::span<const std::int32_t> positions,
                 std::span<float> angles);

enum class RopePairs : std::uint8_t {
  interleaved,  // (2i, 2i + 1): DeepSeek, Kimi
  halves,       // (i, i + dim / 2), "rotate half": Qwen3, DFlash
};

// Where the rotated values stand: head h of row r at data + r * row_stride + h * head_stride, `dim`
// floats, rotated in place. Strides in floats.
struct RopeHeads {
  float* data = nullptr;
  int rows = 0;
  int heads = 1;
  std::ptrdiff_t row_stride = 0;
  std::ptrdiff_t head_stride = 0;
};

// angles [rows][dim] as of rope_angles for the same rows.
void rope(const RopeHeads& x, std::span<const float> angles, int dim, RopePairs pairs,
          ThreadPool& pool);

std::uint64_t rope_bytes_moved(int rows, int heads, int dim);

namespace ref {
void rope(const RopeHeads& x, std::span<const float> angles, int dim, RopePairs pairs);
}

}  // namespace copse::kernels
