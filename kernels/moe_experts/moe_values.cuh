#pragma once
// Which sums of a tile a lane 4 * g + t ends with, after the instructions and what joins lanes.
//   sums   numbers a lane accumulates
//   count  numbers it has in the end, of `rows` rows of activations
#include <cuda_runtime.h>

namespace copse::kernels::cuda {

// As the instruction leaves them: rows 2 * t and 2 * t + 1, outputs g and g + 8.
struct MmaValues {
  static constexpr int sums = 4;
  static constexpr int count = 4;
  static constexpr int rows = 2;

  __device__ static int row(int index, int lane) { return lane % 4 * 2 + index; }
  __device__ static void join(const float (&sum)[4], int, float (&values)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = sum[i];
  }
  // Where outputs g and g + 8 are gate and up of the same: both, and whether the lane has the row.
  __device__ static bool gate_up(const float (&values)[4], int index, int, float& gate, float& up) {
    gate = values[index];
    up = values[2 + index];
    return true;
  }
  // Stores the values of a row; `out` is where output g goes.
  __device__ static void store(const float (&values)[4], int index, int, bool upper, float* out) {
    out[0] = values[index];
    if (upper) out[8] = values[2 + index];
  }
};

// kSets rows, t and t + 4, outputs g and g + 8.
template <int kSets>
struct RowValues {
  static constexpr int sums = 2 * kSets;
  static constexpr int count = 2 * kSets;
  static constexpr int rows = kSets;

  __device__ static int row(int index, int lane) { return lane % 4 + 4 * index; }
  __device__ static void join(const float (&sum)[sums], int, float (&values)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = sum[i];
  }
  __device__ static bool gate_up(const float (&values)[count], int index, int, float& gate,
                                 float& up) {
    gate = values[2 * index];
    up = values[2 * index + 1];
    return true;
  }
  __device__ static void store(const float (&values)[count], int index, int, bool upper,
                               float* out) {
    out[0] = values[2 * index];
    if (upper) out[8] = values[2 * index + 1];
  }
};

// Row t % 2; lanes t and t + 2 had sums of other inputs, and each keeps one output: g or g + 8.
struct PairValues {
  static constexpr int sums = 2;
  static constexpr int count = 1;
  static constexpr int rows = 1;

  __device__ static int row(int, int lane) { return lane % 2; }
  __device__ static void join(const float (&sum)[2], int lane, float (&values)[1]) {
    const bool upper = (lane & 2) != 0;
    const float given = __shfl_xor_sync(0xffffffffu, upper ? sum[0] : sum[1], 2);
    values[0] = (upper ? sum[1] : sum[0]) + given;
  }
  __device__ static bool gate_up(const float (&values)[1], int, int lane, float& gate, float& up) {
    gate = values[0];
    up = __shfl_xor_sync(0xffffffffu, values[0], 2);
    return (lane & 2) == 0;
  }
  __device__ static void store(const float (&values)[1], int, int lane, bool upper, float* out) {
    if ((lane & 2) == 0) {
      out[0] = values[0];
    } else if (upper) {
      out[8] = values[0];
    }
  }
};

}  // namespace copse::kernels::cuda
