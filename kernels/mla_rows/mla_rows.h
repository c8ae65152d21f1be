#pragma once
// What stands between the products of multi-head latent attention (arXiv 2405.04434, appendix C),
// on the GPU, in one launch each. Arithmetic is float32, rounded to T once; each row alone.
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/rope/rope.h"
#include "kernels/verify_attention/verify_attention.h"

namespace copse::kernels::cuda {

// Of the fused projection [q_a | latent | rope], row stride q_lora + latent + rope:
//   q_a is normed in place (q_lora may be 0)
//   [norm(latent) | rotate(rope)] of row first_row + i of a sequence becomes row i of its slot's
//   scratch, [slots][scratch_rows][latent + rope]
// Rows are those of `sequences` [count]; padding is left alone. angles [rows][rope] of rope_angles.
template <class T>
struct LatentRows {
  T* projected = nullptr;
  int rows = 0;
  int rows_per_sequence = 1;
  const VerifySequence* sequences = nullptr;  // [rows / rows_per_sequence]
  int q_lora = 0;
  int latent = 0;
  int rope = 0;
  const float* q_norm = nullptr;   // [q_lora]
  const float* kv_norm = nullptr;  // [latent]
  float eps = 0;
  const float* angles = nullptr;
  RopePairs pairs = RopePairs::interleaved;
  T* scratch = nullptr;
  int scratch_rows = 0;
};
template <class T>
Status latent_rows(const LatentRows<T>& call, Stream stream);

// The rotary part of every head's query, rotated, behind its absorbed part:
//   out[r][h][latent + j] = rotate(q[r][h][nope ...])[j]
// q [rows][heads][nope + rope], out [rows][heads][latent + rope].
template <class T>
struct QueryRope {
  const T* q = nullptr;
  T* out = nullptr;
  int rows = 0;
  int heads = 0;
  int nope = 0;
  int rope = 0;
  int latent = 0;
  const float* angles = nullptr;  // [rows][rope]
  RopePairs pairs = RopePairs::interleaved;
};
template <class T>
Status query_rope(const QueryRope<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
