// The call's entry: checks, the cut into splits, and the merge of their parts.
#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/draft_attention/draft_split.cuh"

namespace copse::kernels::cuda {
namespace draft {
namespace {

constexpr int merge_warps = 8;
constexpr int dim_max = 256;
constexpr int tile_queries = 64;  // of a block of the tensor core path
constexpr int splits_max = 256;
constexpr int cluster_max = 4;

// The tensor core path has one block a multiprocessor, in clusters of at most four (of which 32
// find room at once), the plain path two, if a sequence can be cut so often.
Layout layout_of(int sequences, int block, int heads, int kv_heads, bool tensor_cores) {
  Layout layout;
  layout.group = heads / kv_heads;
  layout.queries = block * layout.group;
  const int tiles = (layout.queries + tile_queries - 1) / tile_queries;
  const int others = sequences * kv_heads * tiles;
  const int multiprocessors = device_info().multiprocessors;
  const int blocks = tensor_cores ? multiprocessors * 28 / 33 : 2 * multiprocessors;
  if (tensor_cores && device_info().major >= 9) {
    while (layout.cluster < cluster_max && 2 * layout.cluster * others <= blocks) {
      layout.cluster *= 2;
    }
  }
  layout.least = tensor_cores ? 2 : 1;  // its two groups work side by side
  layout.splits = std::clamp(blocks / others, 1, splits_max) / layout.cluster * layout.cluster;
  return layout;
}

// One block a query: each warp adds every eighth part, then the warps' sums are added in order.
template <class T>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_kernel(DraftAttention<T> call, Layout layout, Parts parts) {
  __shared__ float weights[splits_max];
  __shared__ float sums[merge_warps][dim_max];
  let_next_start();
  wait_for_previous();
  const int query = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int length = call.lengths[sequence];
  if (length < 0) return;
  const int splits = items_of(call, layout, length).active;
  const int active = (splits + layout.cluster - 1) / layout.cluster;
  if (active == 1) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t base =
      (std::int64_t{sequence} * call.kv_heads + kv_head) * layout.parts() * layout.queries + query;
  const auto part = [&](int split) { return base + std::int64_t{split} * layout.queries; };
  float largest = -INFINITY;
  for (int s = lane; s < active; s += 32) largest = fmaxf(largest, parts.softmax[part(s)].x);
  largest = warp_max(largest);
  float total = 0;
  for (int s = lane; s < active; s += 32) {
    const float2 softmax = parts.softmax[part(s)];
    const float weight = expf(softmax.x - largest);
    total += weight * softmax.y;
    if (warp == 0) weights[s] = weight;
  }
  total = warp_sum(total);
  __syncthreads();
  float sum[dim_max / 32] = {};
#pragma unroll 4
  for (int s = warp; s < active; s += merge_warps) {
    const float* values = parts.values + part(s) * call.dim;
#pragma unroll
    for (int j = 0; j < dim_max / 32; ++j) {
      const int i = j * 32 + lane;
      if (i < call.dim) sum[j] = fmaf(weights[s], values[i], sum[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < dim_max / 32; ++j) sums[warp][j * 32 + lane] = sum[j];
  __syncthreads();
  const int row = query / layout.group;
  const int head = kv_head * layout.group + query % layout.group;
  T* out = call.out + ((std::int64_t{sequence} * call.block + row) * call.heads + head) * call.dim;
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += merge_warps * 32) {
    float value = 0;
    for (int w = 0; w < merge_warps; ++w) value += sums[w][i];
    out[i] = from_float<T>(value / total);
  }
}

template <class T>
bool fits_tensor_cores(const DraftAttention<T>& call) {
  const auto aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  };
  return sizeof(T) == 2 && (call.dim == 32 || call.dim == 64 || call.dim == 128) &&
         call.q_stride % 8 == 0 && call.kv_stride % 8 == 0 && aligned(call.q) && aligned(call.k) &&
         aligned(call.v) && aligned(call.key_pages) && aligned(call.value_pages) &&
         aligned(call.out);
}

}  // namespace

template <class T>
Status merge(const DraftAttention<T>& call, const Layout& layout, Stream stream) {
  if (layout.parts() == 1) return {};
  const dim3 grid(static_cast<unsigned>(layout.queries), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(call.sequences));
  return launch_early("draft_attention, merge", merge_kernel<T>, {grid, dim3(merge_warps * 32)},
                      stream, call, layout, parts_of(call, layout));
}

}  // namespace draft

template <class T>
Status draft_attention(const DraftAttention<T>& call, Stream stream) {
  CHECK(call.block > 0 && call.block <= limits::draft_block && call.window >= 0);
  CHECK(call.kv_heads > 0 && call.heads > 0 && call.heads % call.kv_heads == 0);
  CHECK(call.dim > 0 && call.dim <= draft::dim_max && call.sequences >= 0);
  CHECK(call.q_stride >= std::int64_t{call.heads} * call.dim);
  CHECK(call.kv_stride >= std::int64_t{call.kv_heads} * call.dim);
  if (call.sequences == 0) return {};
  const bool tensor_cores = draft::fits_tensor_cores(call);
  const draft::Layout layout =
      draft::layout_of(call.sequences, call.block, call.heads, call.kv_heads, tensor_cores);
  if constexpr (sizeof(T) == 2) {
    if (tensor_cores) {
      COPSE_RETURN_IF_ERROR(draft::tensor_core(call, layout, stream));
      return draft::merge(call, layout, stream);
    }
  }
  COPSE_RETURN_IF_ERROR(draft::plain(call, layout, stream));
  return draft::merge(call, layout, stream);
}

std::size_t draft_attention_workspace_bytes(int sequences, int block, int heads, int kv_heads,
                                            int dim) {
  // The plain path has a part for each split.
  const draft::Layout layout = draft::layout_of(sequences, block, heads, kv_heads, false);
  const std::int64_t parts = std::int64_t{sequences} * kv_heads * layout.splits * layout.queries;
  return static_cast<std::size_t>((parts * (dim + 2) + 1) * std::int64_t{sizeof(float)});
}

template Status draft_attention(const DraftAttention<float>&, Stream);
template Status draft_attention(const DraftAttention<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
