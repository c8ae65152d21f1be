#pragma once
// The loading role: one thread fills the ring with chunks of keys, one brings each item's queries.
#include "kernels/verify_attention/hopper_tile.cuh"

namespace copse::kernels::cuda::hopper {

// One of the block's chunks after another, from `row` of the map on.
template <int n>
__device__ RingPlace load_block(const Tile<n>& tile, const CUtensorMap& map, int row,
                                RingPlace place) {
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::uint32_t full = tile.chunk_full(place.index);
    barrier_wait(tile.chunk_empty(place.index), place.parity);
    barrier_expect(full, chunk_bytes);
    copy_box(tile.slot(place.index), map, chunk_column(chunk), row, full);
    place = place.plus(1, Tile<n>::slots);
  }
  return place;
}

template <int n>
__device__ void load_keys(const Arguments& args, const Tile<n>& tile) {
  RingPlace place = {0, 1};  // parity 1: the first turn waits for nobody
  for (Work work(args); work.exists(); work.next(args)) {
    const int scratch_row = work.item->slot * args.call.scratch_rows;
    const PageId* pages = work.item->pages;
    int page = work.item->first_page;
    for (int block = work.first_block; block < work.last_block; ++block) {
      if (work.tail(block)) {
        const int node = (block - work.prefix_blocks) * verify_block_tokens;
        place = load_block(tile, args.scratch, scratch_row + node, place);
        continue;
      }
      // The next page's id comes while this one's chunks wait for room.
      const int row = page * verify_block_tokens;
      if (block + 1 < work.prefix_blocks) page = pages[block + 1];
      place = load_block(tile, args.pages, row, place);
    }
  }
}

template <int n>
__device__ void load_queries(const Arguments& args, const CUtensorMap& map, const Tile<n>& tile) {
  unsigned parity = 1;
  for (Work work(args); work.exists(); work.next(args)) {
    const int row = first_query<n>(args, *work.item);
    barrier_wait(tile.query_empty(), parity);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      barrier_expect(tile.query_full(chunk), Tile<n>::query_chunk_bytes);
      copy_box(tile.queries(chunk), map, chunk_column(chunk), row, tile.query_full(chunk));
    }
    parity ^= 1;
  }
}

}  // namespace copse::kernels::cuda::hopper
