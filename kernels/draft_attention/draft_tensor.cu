// bf16 on tensor cores (mma.sync m16n8k16, float32 sums). A block has two groups of four warps of
// 16 queries each, which walk its split's items in turns, each in its own time: a page or the
// block's own rows, 64 tokens at most, which cp.async brings two tiles ahead. Rows of shared memory
// are dim values in pieces of 16 bytes, swizzled so that ldmatrix finds eight rows in eight
// different bank groups. The blocks of a cluster hold neighbouring splits; they add their sums
// through distributed shared memory before they write one part.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/cuda/cluster.cuh"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/draft_attention/draft_split.cuh"

namespace copse::kernels::cuda::draft {
namespace {

constexpr int group_threads = 128;  // four warps of 16 queries each
constexpr int groups = 2;
constexpr int threads = groups * group_threads;
constexpr int tile_queries = 64;
constexpr int tile_tokens = limits::page_tokens;
constexpr int stages = 3;
constexpr int cluster_max = 4;
constexpr float log2_e = 1.44269504088896341f;

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 16 bytes, or zeros where `bytes` is 0.
__device__ inline void copy_async(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;");
}
template <int kLeft>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

__device__ inline void load_matrices(unsigned (&out)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}
__device__ inline void load_matrices_transposed(unsigned (&out)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline unsigned pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// Offset in bytes of piece `piece` of row `row`.
template <int kDim>
__device__ inline unsigned swizzled(int row, int piece) {
  constexpr int pieces = kDim / 8;
  const int twist = pieces >= 8 ? row & 7 : (row >> 1) & (pieces - 1);
  return static_cast<unsigned>((row * pieces + (piece ^ twist)) * 16);
}

template <int kDim>
constexpr int tile_bytes() {
  return tile_tokens * kDim * 2;
}

template <int kDim>
__device__ void fetch(const Tile<Bf16>& tile, unsigned keys, unsigned values) {
  constexpr int pieces = kDim / 8;
#pragma unroll
  for (int i = 0; i < tile_tokens * pieces / group_threads; ++i) {
    const int index = i * group_threads + static_cast<int>(threadIdx.x) % group_threads;
    const int t = index / pieces;
    const int piece = index % pieces;
    const bool readable = t >= tile.first && t < tile.end;
    const std::int64_t at = readable ? t * tile.stride + piece * 8 : 0;
    const int bytes = readable ? 16 : 0;
    const unsigned to = swizzled<kDim>(t, piece);
    copy_async(keys + to, tile.keys + at, bytes);
    copy_async(values + to, tile.values + at, bytes);
  }
}

// What one warp knows of its 16 queries. A thread holds two of them (lane / 4 and that + 8) at
// columns 2 * (lane % 4) and the next of every 8.
template <int kDim>
struct Warp {
  unsigned q[kDim / 16][4];
  float out[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};  // unscaled
  float sum[2] = {0, 0};
  int row[2];  // of the block
};

template <int kDim>
__device__ void load_queries(const DraftAttention<Bf16>& call, const Layout& layout, int sequence,
                             int kv_head, int first, Warp<kDim>& warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Bf16* at[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + lane / 4 + half * 8;
    const int row = query / layout.group;
    warp.row[half] = row;
    const int head = kv_head * layout.group + query % layout.group;
    at[half] = query >= layout.queries
                   ? nullptr
                   : call.q + (std::int64_t{sequence} * call.block + row) * call.q_stride +
                         head * kDim + lane % 4 * 2;
  }
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const Bf16* from = at[part % 2];
      const int column = k * 16 + part / 2 * 8;
      warp.q[k][part] = from == nullptr ? 0u : *reinterpret_cast<const unsigned*>(from + column);
    }
  }
}

// scores[n][..] of the 16 queries with tokens 8n .. 8n + 7. The tokens' sums do not wait for each
// other, so they are the inner loop.
template <int kDim>
__device__ void score(const Warp<kDim>& warp, unsigned keys, float (&scores)[8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      unsigned key[4];
      const int token = n * 8 + (lane & 7) + (lane >> 4) * 8;
      load_matrices(key, keys + swizzled<kDim>(token, k * 2 + ((lane >> 3) & 1)));
      multiply_add(scores[n], warp.q[k], key[0], key[1]);
      multiply_add(scores[n + 1], warp.q[k], key[2], key[3]);
    }
  }
}

template <int kDim>
__device__ void mask(const DraftAttention<Bf16>& call, const Tile<Bf16>& tile, int length,
                     const Warp<kDim>& warp, float (&scores)[8][4]) {
  const bool whole = tile.first == 0 && tile.end == tile_tokens &&
                     (call.window == 0 || tile.position > length + call.block - 1 - call.window);
  if (whole) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = n * 8 + lane % 4 * 2 + i % 2;
      if (!visible(call, tile, t, warp.row[i / 2], length)) scores[n][i] = -INFINITY;
    }
  }
}

// Turns scores into weights and brings `out` and `sum` to the new largest score.
template <int kDim>
__device__ void soften(float scale, Warp<kDim>& warp, float (&scores)[8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = warp.largest[half];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      largest = fmaxf(largest, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float base = largest == -INFINITY ? 0.0f : largest * scale;  // nothing seen so far
    const float rescale = exp2f(warp.largest[half] * scale - base);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        scores[n][i] = exp2f(scores[n][i] * scale - base);
        sum += scores[n][i];
      }
    }
    warp.sum[half] = warp.sum[half] * rescale + sum;
    warp.largest[half] = largest;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      warp.out[n][half * 2] *= rescale;
      warp.out[n][half * 2 + 1] *= rescale;
    }
  }
}

template <int kDim>
__device__ void add_values(const float (&weights)[8][4], unsigned values, Warp<kDim>& warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < tile_tokens / 16; ++k) {
    const float(&low)[4] = weights[2 * k];
    const float(&high)[4] = weights[2 * k + 1];
    const unsigned a[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                           pack(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      unsigned value[4];
      const int token = k * 16 + (lane & 15);
      load_matrices_transposed(value, values + swizzled<kDim>(token, n + (lane >> 4)));
      multiply_add(warp.out[n], a, value[0], value[1]);
      multiply_add(warp.out[n + 1], a, value[2], value[3]);
    }
  }
}

// Sums of a group in shared memory, where the blocks of the cluster read them: per query kDim
// values and 4 more floats of which two are the largest score, scaled, and the sum of weights.
template <int kDim>
constexpr int sum_stride() {
  return kDim + 4;
}
template <int kDim>
constexpr int sums_bytes() {
  return tile_queries * sum_stride<kDim>() * 4;
}

template <int kDim>
__device__ void share(float scale, Warp<kDim>& warp, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) % group_threads / 32 * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = warp.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    float* to = sums + (first + lane / 4 + half * 8) * sum_stride<kDim>();
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(to + n * 8 + lane % 4 * 2) =
          make_float2(warp.out[n][half * 2], warp.out[n][half * 2 + 1]);
    }
    if (lane % 4 == 0) {
      to[kDim] = warp.largest[half] * scale;
      to[kDim + 1] = sum;
    }
  }
}

// One query over the blocks of the cluster and their groups, in order; threads share out its
// values.
template <int kDim>
__device__ void combine(const DraftAttention<Bf16>& call, const Layout& layout, const Parts& parts,
                        int query, int split, bool last, unsigned sums, int sequence, int kv_head,
                        int tile_query) {
  constexpr int pieces = kDim / 4;
  const int piece = static_cast<int>(threadIdx.x) % pieces;
  const unsigned at = sums + static_cast<unsigned>(tile_query * sum_stride<kDim>() * 4);
  const auto load = [&](int i, int offset) {
    return load_of_rank(at + static_cast<unsigned>(i % groups * sums_bytes<kDim>() + offset),
                        i / groups);
  };
  float4 softmax[cluster_max * groups];
  float4 values[cluster_max * groups];
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < cluster_max * groups; ++i) {
    if (i >= layout.cluster * groups) break;
    softmax[i] = load(i, kDim * 4);
    values[i] = load(i, piece * 16);
    largest = fmaxf(largest, softmax[i].x);
  }
  float4 value = make_float4(0, 0, 0, 0);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < cluster_max * groups; ++i) {
    if (i >= layout.cluster * groups) break;
    // Where no token was seen by anybody of the cluster, the weight is that of nothing.
    const float weight = largest == -INFINITY ? 0.0f : expf(softmax[i].x - largest);
    sum = fmaf(weight, softmax[i].y, sum);
    value.x = fmaf(weight, values[i].x, value.x);
    value.y = fmaf(weight, values[i].y, value.y);
    value.z = fmaf(weight, values[i].z, value.z);
    value.w = fmaf(weight, values[i].w, value.w);
  }
  if (last) {
    const int row = query / layout.group;
    const int head = kv_head * layout.group + query % layout.group;
    Bf16* out = call.out + ((std::int64_t{sequence} * call.block + row) * call.heads + head) * kDim;
    *reinterpret_cast<uint2*>(out + piece * 4) =
        make_uint2(pack(value.x / sum, value.y / sum), pack(value.z / sum, value.w / sum));
    return;
  }
  const std::int64_t part = ((std::int64_t{sequence} * call.kv_heads + kv_head) * layout.parts() +
                             split / layout.cluster) *
                                layout.queries +
                            query;
  *reinterpret_cast<float4*>(parts.values + part * kDim + piece * 4) = value;
  if (piece == 0) parts.softmax[part] = make_float2(largest, sum);
}

template <int kDim>
__global__ void __launch_bounds__(threads)
    tensor_kernel(DraftAttention<Bf16> call, Layout layout, Parts parts) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  let_next_start();
  wait_for_previous();
  const int split = static_cast<int>(blockIdx.x);
  const int sequence = static_cast<int>(blockIdx.z);
  const int length = call.lengths[sequence];
  if (length < 0) return;
  const Items items = items_of(call, layout, length);
  if (split / layout.cluster * layout.cluster >= items.active) return;  // the whole cluster
  const int tiles = (layout.queries + tile_queries - 1) / tile_queries;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int tile_first = static_cast<int>(blockIdx.y) % tiles * tile_queries;
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int first = tile_first + static_cast<int>(threadIdx.x) % group_threads / 32 * 16;
  const int begin = split * items.per_split;
  const int end = min(begin + items.per_split, items.pages + 1);
  const unsigned base = shared_address(shared);
  const auto keys_of = [&](int item) {
    const int stage = (item - begin) / groups % stages * groups + group;
    return base + static_cast<unsigned>(stage * 2 * tile_bytes<kDim>());
  };
  const auto page_at = [&](int item) { return page_of(call, items, item, sequence); };
  const auto tile_at = [&](int item, PageId page) {
    return tile_of(call, items, item, page, sequence, kv_head, length);
  };
  const auto fetch_item = [&](int item, PageId page) {
    if (item < end) {
      fetch<kDim>(tile_at(item, page), keys_of(item), keys_of(item) + tile_bytes<kDim>());
    }
    commit_copies();
  };
  constexpr int ahead = (stages - 1) * groups;
  PageId pages[stages];  // of the items that are fetched next
#pragma unroll
  for (int i = 0; i < stages; ++i) pages[i] = page_at(begin + group + i * groups);
#pragma unroll
  for (int i = 0; i < stages - 1; ++i) fetch_item(begin + group + i * groups, pages[i]);
  PageId next_page = pages[stages - 1];
  Warp<kDim> warp;
  load_queries(call, layout, sequence, kv_head, first, warp);
  for (int item = begin + group; item < end; item += groups) {
    wait_copies<stages - 2>();
    // The tile is here for all of the group, and the one before it is read by all.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(group_threads) : "memory");
    fetch_item(item + ahead, next_page);
    next_page = page_at(item + ahead + groups);
    if (first >= layout.queries) continue;
    float scores[8][4];
    score(warp, keys_of(item), scores);
    mask(call, tile_at(item, 0), length, warp, scores);
    soften(call.scale * log2_e, warp, scores);
    add_values(scores, keys_of(item) + tile_bytes<kDim>(), warp);
  }
  wait_copies<0>();
  __syncthreads();  // the tiles' memory is free
  share(call.scale, warp, reinterpret_cast<float*>(shared + group * sums_bytes<kDim>()));
  cluster_barrier();
  const int mine = tile_queries / layout.cluster;  // queries of this block
  constexpr int at_once = threads / (kDim / 4);
  for (int i = static_cast<int>(threadIdx.x) / (kDim / 4); i < mine; i += at_once) {
    const int tile_query = split % layout.cluster * mine + i;
    const int query = tile_first + tile_query;
    if (query >= layout.queries) break;
    combine<kDim>(call, layout, parts, query, split, items.active <= layout.cluster, base, sequence,
                  kv_head, tile_query);
  }
  cluster_barrier();  // nobody leaves while others read its sums
}

template <int kDim>
Status launch(const DraftAttention<Bf16>& call, const Layout& layout, Stream stream) {
  constexpr int shared =
      std::max(stages * groups * 2 * tile_bytes<kDim>(), groups * sums_bytes<kDim>());
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaFuncSetAttribute(tensor_kernel<kDim>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                  "draft_attention"));
  const int tiles = (layout.queries + tile_queries - 1) / tile_queries;
  const dim3 grid(static_cast<unsigned>(layout.splits),
                  static_cast<unsigned>(tiles * call.kv_heads),
                  static_cast<unsigned>(call.sequences));
  return launch_early("draft_attention", tensor_kernel<kDim>,
                      {grid, dim3(threads), shared, static_cast<unsigned>(layout.cluster)}, stream,
                      call, layout, parts_of(call, layout));
}

}  // namespace

Status tensor_core(const DraftAttention<Bf16>& call, const Layout& layout, Stream stream) {
  if (call.dim == 128) return launch<128>(call, layout, stream);
  if (call.dim == 64) return launch<64>(call, layout, stream);
  return launch<32>(call, layout, stream);
}

}  // namespace copse::kernels::cuda::draft
