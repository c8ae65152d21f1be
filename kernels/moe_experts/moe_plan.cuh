#pragma once
// Who multiplies what: the work of both products, dealt to the blocks of a fixed grid as equal
// contiguous ranges.
//
//   first product    one job is a tile of one entry (moe_sort.cuh), all warps of a block together:
//                    each takes a part of the inputs. Jobs in order of entry, then tile.
//   second product   one job is a tile of one entry by one warp. Units in order of tile, then
//                    entry, so that a block has few tiles and most of them whole; it goes through
//                    them in order of entry, so that an entry's activations serve all its tiles.
#include <cuda_runtime.h>

#include "kernels/moe_experts/moe_sort.cuh"
#include "kernels/moe_experts/moe_workspace.h"

namespace copse::kernels::cuda {

struct WorkRange {
  int begin;
  int end;
};

// Part `index` of `count` equal parts of [0, units).
__device__ inline WorkRange part_of(std::int64_t units, int index, int count) {
  return {static_cast<int>(units * index / count), static_cast<int>(units * (index + 1) / count)};
}

// A block's units of the second product, tile * entries + entry in [begin, end).
struct TileUnits {
  int entries;
  WorkRange range;

  __device__ int tile_begin() const { return range.begin / entries; }
  __device__ int tile_end() const { return (range.end + entries - 1) / entries; }
  // How many of a tile's units are this block's.
  __device__ int of_tile(int tile) const {
    return max(0, min(range.end, (tile + 1) * entries) - max(range.begin, tile * entries));
  }
  // The tiles of one entry.
  __device__ int first_tile(int entry) const {
    return range.begin / entries + (entry < range.begin % entries ? 1 : 0);
  }
  __device__ int last_tile(int entry) const {
    return range.end / entries + (entry < range.end % entries ? 1 : 0);
  }
};

// Every kWarps-th of a block's jobs in order of entry, then tile.
struct TileJobs {
  TileUnits units;
  int entry = 0;
  int tile = 0;

  __device__ TileJobs(const TileUnits& of, int skip) : units(of), tile(of.first_tile(0) + skip) {}
  // Settles on the job, or is false when there is none.
  __device__ bool settle() {
    int last = units.last_tile(entry);
    while (tile >= last) {
      if (++entry >= units.entries) return false;
      tile += units.first_tile(entry) - last;
      last = units.last_tile(entry);
    }
    return true;
  }
};

}  // namespace copse::kernels::cuda
