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

__device__ inline void merge_barrier() {
  named_barrier(output_barrier, output_threads);
}

// A tile's counter grows by `splits` a launch, so it is a multiple of them when all have arrived.
__device__ inline void wait_for_splits(const Arguments& args, const VerifyItem& item) {
  if (merge_thread() == 0) {
    const auto splits = static_cast<unsigned>(item.splits);
    while (load_acquire(tile_counter(args, item)) % splits != 0) {
    }
  }
  merge_barrier();
}

// The units of a tile that this block joins, [begin, begin + units), and where they stand in shared
// memory: [units][parts] of unit_bytes, stats [queries][parts], which become factors, and sums.
template <int n>
struct Share {
  int begin, units;
  int first_tile, queries;  // whose units these are: tiles of 8 queries
  int parts, ways;          // few units: `ways` warps share one, each takes every ways-th part

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
  }
  __device__ int unit_step() const { return parts * unit_bytes; }
  __device__ const uint2* unit(int i) const {
    return reinterpret_cast<const uint2*>(hopper_memory + i * unit_step());
  }
  __device__ int stats_at() const { return units * unit_step(); }
  __device__ float2* stats(int query) const {
    return reinterpret_cast<float2*>(hopper_memory + stats_at()) + query * parts;
  }
  __device__ float4* sums() const { return reinterpret_cast<float4*>(stats(queries)); }
};

// All parts and their stats: two pieces of memory.
template <int n>
__device__ void load_parts(const Arguments& args, const Tile<n>& tile, const VerifyItem& item,
                           const Share<n>& share) {
  const VerifyWorkspace& workspace = args.call.workspace;
  const std::ptrdiff_t first = tile_partials(item) * n;
  const auto* units = static_cast<const unsigned char*>(workspace.partials) +
                      first * latent * static_cast<int>(sizeof(Bf16));
  const int stats_bytes = share.queries * share.parts * static_cast<int>(sizeof(float2));
  const std::uint32_t full = tile.merge_full();
  barrier_expect(full, share.units * share.unit_step() + stats_bytes);
  copy_bulk(tile.address + share.stats_at(),
            workspace.stats + first + share.first_tile * 8 * share.parts, stats_bytes, full);
  copy_bulk(tile.address, units + static_cast<std::ptrdiff_t>(share.begin) * share.unit_step(),
            share.units * share.unit_step(), full);
}

// What each part counts for, in stats(query)[part].x.
template <int n>
__device__ void find_factors(const Share<n>& share) {
  for (int query = merge_warp(); query < share.queries; query += output_warps) {
    float2* stats = share.stats(query);
    float largest = no_score;
    for (int p = output_lane(); p < share.parts; p += 32) largest = fmaxf(largest, stats[p].x);
    largest = warp_max(largest);
    float sum = 0;
    for (int p = output_lane(); p < share.parts; p += 32) {
      stats[p].x = exp2_fast(stats[p].x - largest);
      sum += stats[p].y * stats[p].x;
    }
    const float inverse = 1.0f / warp_sum(sum);
    for (int p = output_lane(); p < share.parts; p += 32) stats[p].x *= inverse;
  }
  merge_barrier();
}

// Of one unit: every ways-th part from `way` on, scaled and added in order.
template <int n>
__device__ float4 add_parts(const Share<n>& share, int unit, int way) {
  const int query =
      ((share.begin + unit) / units_of_tile - share.first_tile) * 8 + output_lane() % 4 * 2;
  const float2* even = share.stats(query);
  const float2* odd = share.stats(query + 1);
  const uint2* values = share.unit(unit) + output_lane();
  float4 sum = {};
#pragma unroll 4
  for (int p = way; p < share.parts; p += share.ways) {
    const uint2 value = values[p * 32];
    sum.x += __uint_as_float(value.x << 16) * even[p].x;
    sum.y += __uint_as_float(value.x & 0xffff0000u) * odd[p].x;
    sum.z += __uint_as_float(value.y << 16) * even[p].x;
    sum.w += __uint_as_float(value.y & 0xffff0000u) * odd[p].x;
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
  if (merge_thread() == 0) load_parts(args, tile, item, share);
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
  merge_barrier();
  if (share.ways == 1) return true;
  for (int unit = merge_warp(); unit < share.units; unit += output_warps) {
    float4 sum = share.sums()[unit * 32 + output_lane()];
    for (int way = 1; way < share.ways; ++way) {
      const float4 more = share.sums()[(way * share.units + unit) * 32 + output_lane()];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    store_unit<n>(args, item, share.begin + unit, sum);
  }
  merge_barrier();
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
