#pragma once
// How the fast kernels divide a block's work.
#include "kernels/moe_experts/expert_layout.h"

namespace copse::kernels::cuda {

// Warps that multiply; one more fetches. 14: 7168 inputs are 14 times 8 blocks of INT4 or 4 of FP8.
inline constexpr int multiply_warps = 14;
inline constexpr int multiply_threads = 32 * multiply_warps;

// Blocks that a warp multiplies between two waits: about 2 KB.
constexpr int stage_blocks(ExpertCodec codec) {
  if (codec == ExpertCodec::fp8_block || codec == ExpertCodec::f32) return 1;
  return codec == ExpertCodec::bf16 ? 2 : 4;
}
// Blocks whose activations of eight rows a warp can hold in registers: 512 inputs.
constexpr int held_blocks(ExpertCodec codec) {
  return 512 / expert_layout::block_inputs(codec);
}
constexpr int held_stages(ExpertCodec codec) {
  return held_blocks(codec) / stage_blocks(codec);
}

// A warp's share of a run of blocks, stage by stage: stage i has blocks first + i * step .. of
// those below `end`, at most stage_blocks.
struct BlockShare {
  int first;
  int step;
  int end;
  int stages;
};

}  // namespace copse::kernels::cuda
