#pragma once
// A warp's product of a run of blocks, as they come from its ring, with rows of activations.
#include "kernels/moe_experts/moe_mma.cuh"
#include "kernels/moe_experts/moe_ring.cuh"

namespace copse::kernels::cuda {

// sum += the next `blocks` blocks of the stream times the rows, whose inputs begin at `input`.
template <ExpertCodec kCodec, int kTiles, class Feed>
__device__ inline void multiply_run(WeightRing<kCodec>& ring, Feed& feed,
                                    const RowPointers<kTiles>& rows, int input, int blocks,
                                    int lane, float (&sum)[kTiles][4]) {
  constexpr int groups = block_groups<kCodec>();
  constexpr int stage = stage_blocks<kCodec>();
  constexpr int block_inputs = expert_layout::block_inputs(kCodec);
  constexpr int block_size = expert_layout::block_bytes(kCodec);
  for (int done = 0; done < blocks; done += stage) {
    const int first = input + done * block_inputs;
    if constexpr (kTiles == 1) {  // activations on their way while the weights are waited for
      uint4 x[stage][groups][1];
#pragma unroll
      for (int i = 0; i < stage; ++i) rows.load(first + i * block_inputs, lane, x[i]);
      const std::byte* memory = ring.wait();
#pragma unroll
      for (int i = 0; i < stage; ++i) {
        if (done + i < blocks) {
          multiply_block<kCodec, 1>(memory + i * block_size, lane, x[i], sum);
        }
      }
    } else {
      const std::byte* memory = ring.wait();
      for (int i = 0; i < min(stage, blocks - done); ++i) {
        uint4 x[groups][kTiles];
        rows.load(first + i * block_inputs, lane, x);
        multiply_block<kCodec, kTiles>(memory + i * block_size, lane, x, sum);
      }
    }
    ring.release(feed);
  }
}

}  // namespace copse::kernels::cuda
