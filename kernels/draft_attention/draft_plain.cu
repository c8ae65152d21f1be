// Any type and dim, in plain float32: one warp a query, one lane a token of the score, then one
// lane every 32nd value. Keys and values pass through shared memory in tiles of 32 tokens.
#include <cuda_runtime.h>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/draft_attention/draft_split.cuh"

namespace copse::kernels::cuda::draft {
namespace {

constexpr int warps = 8;  // queries of a block
constexpr int values_per_lane = 8;
constexpr int tile_tokens = 32;

struct Query {
  float largest = -INFINITY;
  float sum = 0;
  float values[values_per_lane] = {};
};

// rows [32][dim + 1] of shared memory, zero where the token may not be read.
template <class T>
__device__ void fetch(const DraftAttention<T>& call, const Tile<T>& tile, const T* from, int begin,
                      float* rows) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < tile_tokens * call.dim; i += warps * 32) {
    const int t = begin + i / call.dim;
    const bool readable = t >= tile.first && t < tile.end;
    const float value = readable ? to_float(from[t * tile.stride + i % call.dim]) : 0.0f;
    rows[i / call.dim * (call.dim + 1) + i % call.dim] = value;
  }
  __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(warps * 32)
    plain_kernel(DraftAttention<T> call, Layout layout, Parts parts) {
  extern __shared__ float shared[];
  let_next_start();
  wait_for_previous();
  const int length = call.lengths[blockIdx.z];
  if (length < 0) return;
  const int split = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.z);
  const Items items = items_of(call, layout, length);
  if (split >= items.active) return;
  const int groups = (layout.queries + warps - 1) / warps;
  const int kv_head = static_cast<int>(blockIdx.y) / groups;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int query = static_cast<int>(blockIdx.y) % groups * warps + warp;
  const bool real = query < layout.queries;  // the others only help to fetch
  const int row = query / layout.group;
  const int head = kv_head * layout.group + query % layout.group;
  float* q = shared + warp * call.dim;
  float* rows = shared + warps * call.dim;
  const std::int64_t packed_row = std::int64_t{sequence} * call.block + row;
  for (int i = lane; i < call.dim; i += 32) {
    q[i] = real ? to_float(call.q[packed_row * call.q_stride + head * call.dim + i]) : 0.0f;
  }
  Query state;
  const int end = min((split + 1) * items.per_split, items.pages + 1);
  for (int item = split * items.per_split; item < end; ++item) {
    const Tile<T> tile =
        tile_of(call, items, item, page_of(call, items, item, sequence), sequence, kv_head, length);
    for (int begin = 0; begin < tile.end; begin += tile_tokens) {
      fetch(call, tile, tile.keys, begin, rows);
      float score = 0;
      for (int i = 0; i < call.dim; ++i) score = fmaf(q[i], rows[lane * (call.dim + 1) + i], score);
      score = visible(call, tile, begin + lane, row, length) ? score * call.scale : -INFINITY;
      const float largest = fmaxf(state.largest, warp_max(score));
      const bool any = largest > -INFINITY;
      const float rescale = any ? expf(state.largest - largest) : 1.0f;
      const float weight = any ? expf(score - largest) : 0.0f;
      state.sum = state.sum * rescale + warp_sum(weight);
      state.largest = largest;
      fetch(call, tile, tile.values, begin, rows);
#pragma unroll
      for (int j = 0; j < values_per_lane; ++j) state.values[j] *= rescale;
      for (int t = 0; t < tile_tokens; ++t) {
        const float w = __shfl_sync(0xffffffffu, weight, t);
#pragma unroll
        for (int j = 0; j < values_per_lane; ++j) {
          const int i = j * 32 + lane;
          if (i < call.dim) {
            state.values[j] = fmaf(w, rows[t * (call.dim + 1) + i], state.values[j]);
          }
        }
      }
    }
  }
  if (!real) return;
  const std::int64_t part =
      ((std::int64_t{sequence} * call.kv_heads + kv_head) * layout.splits + split) *
          layout.queries +
      query;
#pragma unroll
  for (int j = 0; j < values_per_lane; ++j) {
    const int i = j * 32 + lane;
    if (i >= call.dim) continue;
    if (items.active == 1) {
      call.out[(packed_row * call.heads + head) * call.dim + i] =
          from_float<T>(state.values[j] / state.sum);
    } else {
      parts.values[part * call.dim + i] = state.values[j];
    }
  }
  if (items.active > 1 && lane == 0) parts.softmax[part] = make_float2(state.largest, state.sum);
}

}  // namespace

template <class T>
Status plain(const DraftAttention<T>& call, const Layout& layout, Stream stream) {
  const int groups = (layout.queries + warps - 1) / warps;
  const dim3 grid(static_cast<unsigned>(layout.splits),
                  static_cast<unsigned>(groups * call.kv_heads),
                  static_cast<unsigned>(call.sequences));
  const auto floats = static_cast<std::size_t>(warps * call.dim + tile_tokens * (call.dim + 1));
  plain_kernel<T>
      <<<grid, warps * 32, floats * sizeof(float), stream>>>(call, layout, parts_of(call, layout));
  return launched("draft_attention, plain");
}

template Status plain(const DraftAttention<float>&, const Layout&, Stream);
template Status plain(const DraftAttention<Bf16>&, const Layout&, Stream);

}  // namespace copse::kernels::cuda::draft
