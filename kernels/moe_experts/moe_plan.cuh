#pragma once
// Who multiplies what: the work of both products, dealt to the blocks of a fixed grid as equal
// contiguous ranges.
//
//   first product    one job is a tile of one entry (moe_sort.cuh), all warps of a block together:
//                    of every stage each takes its slot. Jobs in order of entry, then tile.
//   second product   a unit is a tile of one share: of an entry and, where a warp could not hold
//   all
//                    the activations, of a part of the inputs. Units in order of tile, then share,
//                    so that a block has few tiles and most of them whole. In rounds, every warp
//                    takes a share and goes through the block's tiles with it, so that the share's
//                    activations serve all of them. In a small call a block has whole tiles only,
//                    and no block needs another's products.
#include <cuda_runtime.h>

#include "kernels/moe_experts/moe_sort.cuh"
#include "kernels/moe_experts/moe_warps.h"
#include "kernels/moe_experts/moe_workspace.h"

namespace copse::kernels::cuda {

struct WorkRange {
  int begin;
  int end;
  __device__ int size() const { return end - begin; }
};

// Part `index` of `count` parts of [0, units), equal but for one.
__device__ inline WorkRange part_of(int units, int index, int count) {
  const int each = units / count;
  const int more = units - each * count;
  const int begin = index * each + min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

// A warp's slot of every stage of a tile of `blocks` blocks.
template <ExpertCodec kCodec>
__device__ inline BlockShare slots_of_tile(int blocks, int warp) {
  constexpr int stage = multiply_warps * stage_blocks(kCodec);
  return {warp * stage_blocks(kCodec), stage, blocks, (blocks + stage - 1) / stage};
}

// A block's units of the second product: tile * shares + share in a range.
struct TileUnits {
  int shares;
  int begin_tile, begin_share;
  int end_tile, end_share;  // the unit behind the last

  __device__ void set(int share_count, const WorkRange& range) {
    shares = share_count;
    begin_tile = range.begin / share_count;
    begin_share = range.begin - begin_tile * share_count;
    end_tile = range.end / share_count;
    end_share = range.end - end_tile * share_count;
  }
  __device__ void set_whole(int share_count, const WorkRange& tile_range) {
    shares = share_count;
    begin_tile = tile_range.begin;
    begin_share = 0;
    end_tile = tile_range.end;
    end_share = 0;
  }
  __device__ WorkRange of_share(int share) const {
    return {begin_tile + (share < begin_share ? 1 : 0), end_tile + (share < end_share ? 1 : 0)};
  }
  // All tiles, and how many of a tile's units are here.
  __device__ WorkRange tiles() const { return {begin_tile, end_tile + (end_share > 0 ? 1 : 0)}; }
  __device__ int of_tile(int tile) const {
    return (tile < end_tile ? shares : end_share) - (tile == begin_tile ? begin_share : 0);
  }
};

// The second product in rounds. Where shares are few, a share's tiles are split between `splits`
// warps. Fetching and multiplying warps go through the same rounds and steps.
struct TileRounds {
  int splits;
  int count;

  __device__ void set(const TileUnits& units) {
    splits = units.shares * 2 <= multiply_warps ? multiply_warps / units.shares : 1;
    count = splits == 1 ? (units.shares + multiply_warps - 1) / multiply_warps : 1;
  }
};

// A warp's part of a round. All warps have the same steps; a warp has a tile in those where its
// tile is in `own`.
struct TileRound {
  int share;  // units.shares or more: none
  int first;  // tile of step 0
  int stride;
  int steps;
  WorkRange own;

  __device__ TileRound(const TileUnits& units, const TileRounds& all, int round, int warp) {
    WorkRange tiles = units.tiles();
    share = all.splits == 1 ? round * multiply_warps + warp : warp / all.splits;
    own = units.of_share(share);
    if (share >= units.shares) own.end = own.begin;
    stride = all.splits;
    if (all.splits == 1) {  // leave out tiles that no share of the round has
      const int first_share = round * multiply_warps;
      if (first_share + multiply_warps <= units.begin_share) ++tiles.begin;
      if (units.end_share > 0 && first_share >= units.end_share) --tiles.end;
    }
    first = tiles.begin + (all.splits == 1 ? 0 : warp % all.splits);
    steps = max(0, (tiles.size() + stride - 1) / stride);
  }
  __device__ int tile(int step) const { return first + step * stride; }
  __device__ bool has(int tile_index) const {
    return tile_index >= own.begin && tile_index < own.end;
  }
};

// Where a block keeps products of the second matrix until a row's are added.
struct Products {
  float* values;  // of pair 0, part 0, output 0
  int stride;     // from one part of a pair to the next

  __device__ float* at(int pair, int part, int parts, int output) const {
    return values + static_cast<std::int64_t>(pair * parts + part) * stride + output;
  }
};

}  // namespace copse::kernels::cuda
