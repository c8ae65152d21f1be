#pragma once
// The merge, in the same launch: when all splits of a tile have arrived at its counter, each of the
// blocks that computed one of them joins an equal part of the tile's outputs. All blocks of the
// launch are resident, so waiting for one another ends. Only the output role's threads take part.
#include "kernels/verify_attention/hopper_outputs.cuh"

namespace copse::kernels::cuda::hopper {

inline constexpr int output_warps = output_threads / 32;
inline constexpr int parts_at_once = 16;  // loads in flight of a thread

__device__ inline int merge_thread() {
  return static_cast<int>(threadIdx.x) - output_group * group_threads;
}
__device__ inline int merge_warp() {
  return merge_thread() / 32;
}

// A tile's counter grows by `splits` a launch, so it is a multiple of them when all have arrived.
__device__ inline void wait_for_splits(const Arguments& args, const VerifyItem& item) {
  if (merge_thread() == 0) {
    const unsigned* counter = tile_counter(args, item);
    unsigned count = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    } while (count % static_cast<unsigned>(item.splits) != 0);
  }
  named_barrier(output_barrier, output_threads);
}

// The units of a tile that this block joins, [begin, end), and the tile's parts.
template <int n>
struct Share {
  int begin, end;
  int first_tile, queries;     // whose units these are: tiles of 8 queries
  int parts, ways;             // `ways` warps share a unit, each takes every ways-th part
  std::ptrdiff_t first, step;  // part p stands at first + p * step (times n queries)

  __device__ Share(const Arguments& args, const VerifyItem& item) {
    const int units = (queries_of<n>(args, item) + 7) / 8 * units_of_tile;
    begin = static_cast<int>(static_cast<long long>(units) * item.split / item.splits);
    end = static_cast<int>(static_cast<long long>(units) * (item.split + 1) / item.splits);
    first_tile = begin / units_of_tile;
    queries = end > begin ? ((end - 1) / units_of_tile - first_tile + 1) * 8 : 0;
    parts = item.splits;
    ways = (parts + parts_at_once - 1) / parts_at_once;
    first = item.partial - static_cast<std::ptrdiff_t>(item.split) * item.tiles;
    step = item.tiles;
  }
};

// What each part counts for: factors[part * queries + query].x.
template <int n>
__device__ void find_factors(const Arguments& args, const Share<n>& share, float2* factors) {
  const float2* stats = args.call.workspace.stats + share.first * n + share.first_tile * 8;
#pragma unroll 4
  for (int i = merge_thread(); i < share.parts * share.queries; i += output_threads) {
    factors[i] = __ldcg(stats + i / share.queries * share.step * n + i % share.queries);
  }
  named_barrier(output_barrier, output_threads);
  const int lane = output_lane();
  for (int query = merge_warp(); query < share.queries; query += output_warps) {
    float largest = no_score;
    for (int p = lane; p < share.parts; p += 32) {
      largest = fmaxf(largest, factors[p * share.queries + query].x);
    }
    largest = warp_max(largest);
    float sum = 0;
    for (int p = lane; p < share.parts; p += 32) {
      float2& part = factors[p * share.queries + query];
      part.x = exp2_fast(part.x - largest);
      sum += part.y * part.x;
    }
    sum = warp_sum(sum);
    for (int p = lane; p < share.parts; p += 32) factors[p * share.queries + query].x /= sum;
  }
  named_barrier(output_barrier, output_threads);
}

// Of one unit: every ways-th part from `way` on, scaled and added in order.
template <int n>
__device__ float4 add_parts(const Arguments& args, const Share<n>& share, const float2* factors,
                            int unit, int way) {
  constexpr int unit_fours = 32;
  const auto* from = reinterpret_cast<const float4*>(args.call.workspace.partials) +
                     (share.first * (n / 8 * units_of_tile) + unit) * unit_fours + output_lane();
  const std::ptrdiff_t step = share.step * (n / 8 * units_of_tile) * unit_fours;
  const int query = (unit / units_of_tile - share.first_tile) * 8 + output_lane() % 4 * 2;
  float4 sum = {};
  for (int p = way; p < share.parts; p += parts_at_once * share.ways) {
    float4 part[parts_at_once];
#pragma unroll
    for (int i = 0; i < parts_at_once; ++i) {
      const int at = p + i * share.ways;
      if (at < share.parts) part[i] = __ldcg(from + at * step);
    }
#pragma unroll
    for (int i = 0; i < parts_at_once; ++i) {
      const int at = p + i * share.ways;
      if (at >= share.parts) break;
      const float2* factor = factors + at * share.queries + query;
      sum.x += part[i].x * factor[0].x;
      sum.y += part[i].y * factor[1].x;
      sum.z += part[i].z * factor[0].x;
      sum.w += part[i].w * factor[1].x;
    }
  }
  return sum;
}

// The unit's outputs, of one warp.
template <int n>
__device__ void store_unit(const Arguments& args, const VerifyItem& item, int unit,
                           const float4& sum) {
  const float value[4] = {sum.x, sum.y, sum.z, sum.w};
  const int inside = unit % units_of_tile;
  store_tile(args, value, first_query<n>(args, item), unit / units_of_tile * 8,
             queries_of<n>(args, item),
             inside / group_warps * chunk_columns + inside % group_warps * 16);
}

template <int n>
__device__ void merge_item(const Arguments& args, const VerifyItem& item) {
  const Share<n> share(args, item);
  // The ring is idle: every chunk that was loaded has been used.
  auto* sums = reinterpret_cast<float4*>(hopper_memory + Tile<n>::ring_at);
  auto* factors = reinterpret_cast<float2*>(sums + 64 * 32);
  wait_for_splits(args, item);
  find_factors(args, share, factors);
  const int units = share.end - share.begin;
  for (int task = merge_warp(); task < units * share.ways; task += output_warps) {
    const int unit = share.begin + task % units;
    const float4 sum = add_parts(args, share, factors, unit, task / units);
    if (share.ways == 1) {
      store_unit<n>(args, item, unit, sum);
    } else {
      sums[task * 32 + output_lane()] = sum;
    }
  }
  named_barrier(output_barrier, output_threads);
  if (share.ways == 1) return;
  for (int i = merge_warp(); i < units; i += output_warps) {
    float4 sum = sums[i * 32 + output_lane()];
    for (int way = 1; way < share.ways; ++way) {
      const float4 more = sums[(way * units + i) * 32 + output_lane()];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    store_unit<n>(args, item, share.begin + i, sum);
  }
  named_barrier(output_barrier, output_threads);
}

template <int n>
__device__ void merge_items(const Arguments& args) {
  const int items = args.call.workspace.plan->items;
  for (int index = static_cast<int>(blockIdx.x); index < items;
       index += static_cast<int>(gridDim.x)) {
    const VerifyItem& item = args.call.workspace.items[index];
    if (item.splits > 1) merge_item<n>(args, item);
  }
}

}  // namespace copse::kernels::cuda::hopper
