#pragma once
// A warp's product of a run of blocks, as they come from its ring, with rows of activations.
#include "kernels/moe_experts/moe_int4.cuh"
#include "kernels/moe_experts/moe_ring.cuh"

namespace copse::kernels::cuda {

// A stage of any other codec with eight rows.
template <ExpertCodec kCodec>
class PlainStage {
 public:
  using Values = MmaValues;
  static constexpr int rows_of_lane = 1;

  __device__ static int row_of_lane(int, int lane) { return lane / 4; }
  __device__ void load(const Bf16* const (&row)[1], const int (&inputs)[1], int first, int lane) {
    const RowPointers<1> rows = {{row[0]}, {inputs[0]}};
#pragma unroll
    for (int i = 0; i < stage_blocks(kCodec); ++i) {
      rows.load(first + i * expert_layout::block_inputs(kCodec), lane, x_[i]);
    }
  }
  __device__ void multiply(const std::byte* slot, int count, int lane, float (&sum)[4]) const {
    float(&one)[1][4] = *reinterpret_cast<float(*)[1][4]>(&sum);
#pragma unroll
    for (int i = 0; i < stage_blocks(kCodec); ++i) {
      if (i >= count) break;
      multiply_block<kCodec, 1>(slot + i * expert_layout::block_bytes(kCodec), lane, x_[i], one);
    }
  }

 private:
  uint4 x_[stage_blocks(kCodec)][block_groups<kCodec>()][1];
};

constexpr bool is_int4(ExpertCodec codec) {
  return codec == ExpertCodec::int4_group || codec == ExpertCodec::int4_group_f32;
}
template <ExpertCodec kCodec, int kRows>
struct StageOf {
  using Type = PlainStage<kCodec>;
};
template <ExpertCodec kCodec, int kRows>
requires(is_int4(kCodec)) struct StageOf<kCodec, kRows> {
  using Type = Int4Stage<kCodec, kRows>;
};

// This lane's activations of up to kRows rows for a share of up to held_stages stages, to serve
// many tiles.
template <ExpertCodec kCodec, int kRows>
struct HeldRows {
  using Stage = typename StageOf<kCodec, kRows>::Type;
  using Values = typename Stage::Values;

  Stage stages[held_stages(kCodec)];

  // row, inputs: of rows Stage::row_of_lane.
  __device__ void load(const Bf16* const (&row)[Stage::rows_of_lane],
                       const int (&inputs)[Stage::rows_of_lane], const BlockShare& share,
                       int lane) {
    constexpr int block_inputs = expert_layout::block_inputs(kCodec);
    int end[Stage::rows_of_lane];
#pragma unroll
    for (int i = 0; i < Stage::rows_of_lane; ++i) end[i] = min(inputs[i], share.end * block_inputs);
#pragma unroll
    for (int s = 0; s < held_stages(kCodec); ++s) {
      if (s < share.stages) {
        stages[s].load(row, end, (share.first + s * share.step) * block_inputs, lane);
      } else {
        stages[s] = Stage{};  // defined on every way, so that all of it can stay in registers
      }
    }
  }
};

// sum += the share's blocks, as they come from the ring, times the rows that are held. `there`:
// this warp has a tile; if not, the stages pass by.
template <ExpertCodec kCodec, int kRows, int kStage = 0>
__device__ inline void multiply_held(WeightRing<kCodec>& ring, const HeldRows<kCodec, kRows>& rows,
                                     const BlockShare& share, bool there, int lane,
                                     float (&sum)[HeldRows<kCodec, kRows>::Values::sums]) {
  constexpr int stage = stage_blocks(kCodec);
  if constexpr (kStage < held_stages(kCodec)) {
    if (kStage >= share.stages) return;
    const std::byte* slot = ring.wait();
    const int count = there ? share.end - share.first - kStage * share.step : 0;
    if (count >= stage) {  // without a branch between blocks
      rows.stages[kStage].multiply(slot, stage, lane, sum);
    } else if (count > 0) {
      rows.stages[kStage].multiply(slot, count, lane, sum);
    }
    ring.release();
    multiply_held<kCodec, kRows, kStage + 1>(ring, rows, share, there, lane, sum);
  }
}

// sums += the same for more rows than are held.
template <ExpertCodec kCodec, int kTiles>
__device__ inline void multiply_share(WeightRing<kCodec>& ring, const RowPointers<kTiles>& rows,
                                      const BlockShare& share, bool there, int lane,
                                      float (&sum)[kTiles][4]) {
  constexpr int block_inputs = expert_layout::block_inputs(kCodec);
  constexpr int block_size = expert_layout::block_bytes(kCodec);
#pragma unroll 1
  for (int s = 0; s < share.stages; ++s) {
    const std::byte* slot = ring.wait();
    const int first = share.first + s * share.step;
    const int count = there ? min(stage_blocks(kCodec), share.end - first) : 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      uint4 x[block_groups<kCodec>()][kTiles];
      rows.load((first + i) * block_inputs, lane, x);
      multiply_block<kCodec, kTiles>(slot + i * block_size, lane, x, sum);
    }
    ring.release();
  }
}

}  // namespace copse::kernels::cuda
