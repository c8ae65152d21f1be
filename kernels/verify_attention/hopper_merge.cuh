#pragma once
// The merge, in the same launch: when all splits of a tile have arrived at its counter, each of the
// blocks that computed one of them joins an equal part of the tile's outputs. All blocks of the
// launch are resident, so waiting for one another ends. Only the output role's threads take part;
// all of shared memory but Small is theirs, since every chunk that was loaded has been used.
#include "kernels/verify_attention/hopper_outputs.cuh"

namespace copse::kernels::cuda::hopper {

inline constexpr int output_warps = output_threads / 32;

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

// The units of a tile that this block joins, [begin, end), and where they stand in shared memory:
// [parts][units] of unit_bytes, stats [parts][queries], factors [parts][queries], sums.
template <int n>
struct Share {
  int begin, units;
  int first_tile, queries;     // whose units these are: tiles of 8 queries
  int parts, ways;             // few units: `ways` warps share one, each takes every ways-th part
  std::ptrdiff_t first, step;  // part p is partial first + p * step

  __device__ Share(const Arguments& args, const VerifyItem& item) {
    const int all = (queries_of<n>(args, item) + 7) / 8 * units_of_tile;
    const auto bound = [&](int split) {
      return static_cast<int>(static_cast<long long>(all) * split / item.splits);
    };
    begin = bound(item.split);
    units = bound(item.split + 1) - begin;
    first_tile = begin / units_of_tile;
    queries = units > 0 ? ((begin + units - 1) / units_of_tile - first_tile + 1) * 8 : 0;
    parts = item.splits;
    ways = units == 0 || units >= output_warps ? 1 : output_warps / units;
    first = item.partial - static_cast<std::ptrdiff_t>(item.split) * item.tiles;
    step = item.tiles;
  }
  __device__ const uint2* part(int p) const {
    return reinterpret_cast<const uint2*>(hopper_memory + p * units * unit_bytes);
  }
  __device__ int stats_at() const { return parts * units * unit_bytes; }
  __device__ const float2* stats() const {
    return reinterpret_cast<const float2*>(hopper_memory + stats_at());
  }
  __device__ float* factors() const {
    return reinterpret_cast<float*>(hopper_memory + stats_at() + parts * queries * 8);
  }
  __device__ float4* sums() const {
    return reinterpret_cast<float4*>(hopper_memory + stats_at() + parts * queries * 12);
  }
};

// All parts and their stats, each lane of each warp its own copies.
template <int n>
__device__ void load_parts(const Arguments& args, const Tile<n>& tile, const Share<n>& share) {
  const VerifyWorkspace& workspace = args.call.workspace;
  const std::uint32_t full = tile.merge_full();
  if (merge_thread() == 0) {
    barrier_expect(full, share.parts * (share.units * unit_bytes + share.queries * 8));
  }
  const auto* partials = static_cast<const unsigned char*>(workspace.partials);
  for (int p = merge_warp() + output_lane() * output_warps; p < share.parts; p += output_threads) {
    const std::ptrdiff_t partial = share.first + p * share.step;
    copy_bulk(tile.address + p * share.units * unit_bytes,
              partials + (partial * (n / 8 * units_of_tile) + share.begin) * unit_bytes,
              share.units * unit_bytes, full);
    copy_bulk(tile.address + share.stats_at() + p * share.queries * 8,
              workspace.stats + partial * n + share.first_tile * 8, share.queries * 8, full);
  }
}

// What each part counts for, [part][query].
template <int n>
__device__ void find_factors(const Share<n>& share) {
  const int lane = output_lane();
  const float2* stats = share.stats();
  float* factors = share.factors();
  for (int query = merge_warp(); query < share.queries; query += output_warps) {
    float largest = no_score;
    for (int p = lane; p < share.parts; p += 32) {
      largest = fmaxf(largest, stats[p * share.queries + query].x);
    }
    largest = warp_max(largest);
    float sum = 0;
    for (int p = lane; p < share.parts; p += 32) {
      const float2 part = stats[p * share.queries + query];
      sum += part.y * exp2_fast(part.x - largest);
    }
    const float inverse = 1.0f / warp_sum(sum);
    for (int p = lane; p < share.parts; p += 32) {
      const float2 part = stats[p * share.queries + query];
      factors[p * share.queries + query] = exp2_fast(part.x - largest) * inverse;
    }
  }
  named_barrier(output_barrier, output_threads);
}

// Of one unit: every ways-th part from `way` on, scaled and added in order.
template <int n>
__device__ float4 add_parts(const Share<n>& share, int unit, int way) {
  const int query =
      ((share.begin + unit) / units_of_tile - share.first_tile) * 8 + output_lane() % 4 * 2;
  const float* factors = share.factors() + query;
  float4 sum = {};
#pragma unroll 4
  for (int p = way; p < share.parts; p += share.ways) {
    const uint2 value = share.part(p)[unit * 32 + output_lane()];
    const float2 factor = *reinterpret_cast<const float2*>(factors + p * share.queries);
    sum.x += __uint_as_float(value.x << 16) * factor.x;
    sum.y += __uint_as_float(value.x & 0xffff0000u) * factor.y;
    sum.z += __uint_as_float(value.y << 16) * factor.x;
    sum.w += __uint_as_float(value.y & 0xffff0000u) * factor.y;
  }
  return sum;
}

// The unit's outputs, by one warp.
template <int n>
__device__ void store_unit(const Arguments& args, const VerifyItem& item, int unit,
                           const float4& sum) {
  const float value[4] = {sum.x, sum.y, sum.z, sum.w};
  const int inside = unit % units_of_tile;
  store_tile(args, value, first_query<n>(args, item), unit / units_of_tile * 8,
             queries_of<n>(args, item),
             inside / group_warps * chunk_columns + inside % group_warps * 16);
}

// Returns whether anything was loaded.
template <int n>
__device__ bool merge_item(const Arguments& args, const Tile<n>& tile, const VerifyItem& item,
                           unsigned parity) {
  const Share<n> share(args, item);
  wait_for_splits(args, item);
  if (share.units == 0) return false;
  fence_async_proxy_global();
  load_parts(args, tile, share);
  barrier_wait(tile.merge_full(), parity);
  find_factors(share);
  for (int task = merge_warp(); task < share.units * share.ways; task += output_warps) {
    const int unit = task % share.units;
    const float4 sum = add_parts(share, unit, task / share.units);
    if (share.ways == 1) {
      store_unit<n>(args, item, share.begin + unit, sum);
    } else {
      share.sums()[task * 32 + output_lane()] = sum;
    }
  }
  named_barrier(output_barrier, output_threads);
  if (share.ways == 1) return true;
  for (int unit = merge_warp(); unit < share.units; unit += output_warps) {
    float4 sum = share.sums()[unit * 32 + output_lane()];
    for (int way = 1; way < share.ways; ++way) {
      const float4 more = share.sums()[(way * share.units + unit) * 32 + output_lane()];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    store_unit<n>(args, item, share.begin + unit, sum);
  }
  named_barrier(output_barrier, output_threads);
  return true;
}

template <int n>
__device__ void merge_items(const Arguments& args, const Tile<n>& tile) {
  unsigned parity = 0;
  for (Work work(args); work.exists(); work.next(args)) {
    if (work.item->splits < 2) continue;
    if (merge_item<n>(args, tile, *work.item, parity)) parity ^= 1;
    fence_async_proxy();  // the next copies overwrite what was read
    named_barrier(output_barrier, output_threads);
  }
}

}  // namespace copse::kernels::cuda::hopper
