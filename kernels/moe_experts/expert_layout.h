#pragma once
// How a GPU holds the weights of experts: in tiles of 16 rows, each a run of blocks along the
// inputs, and a block is what one warp feeds to its matrix instructions with 16-byte loads. Nothing
// of it is ever widened in memory.
//
//   matrix   tiles, tile after tile. down: 16 of its rows. gate and up together ("paired"): rows
//            0-7 of a tile are rows 8j .. 8j+7 of gate, rows 8-15 the same of up, so that
//            silu(gate)
//            * up needs no exchange between lanes.
//   tile     ceil(inputs / block_inputs) blocks; what lies beyond the matrix is zero.
//   block    16 rows x block_inputs values, then its scales. An octet is 8 neighbouring inputs of
//            one row; lane 4 * (row % 8) + octet % 4 of a warp uses it.
//
//   codec           block_inputs  octets of a block, in order of address              scales
//   bf16            32            [row / 8][row % 8][octet] of 16 bytes               none
//   f32             32            [row / 8][row % 8][octet] of 32 bytes               none
//   fp8_block       128           [octet / 4][row % 8][octet % 4][row / 8] of 8       float [row /
//   8] int4_group      64            [row % 8][octet % 4][octet / 4][row / 8] of 4       bf16 [row
//   % 8] int4_group_f32  64            as above                          float     [octet / 4][row
//   / 8]
//
// Within an octet, fp8 bytes stand as 2 0 3 1 | 6 4 7 5 and int4 values as 0 2 4 6 1 3 5 7 (lowest
// bits first): pairs of neighbours come out of one shift and one mask in both halves of a word. An
// int4 value stands in two's complement, so that its bits in the upper half of a byte are 16 times
// it.
#include <cstddef>
#include <cstdint>

namespace copse::kernels::cuda {

// fp8_block: e4m3 with a float32 scale for each 128 x 128. int4_group: value = nibble - 8, with a
// scale for each 32 inputs of a row, in bf16 or float32.
enum class ExpertCodec : std::uint8_t { bf16, f32, fp8_block, int4_group, int4_group_f32 };

namespace expert_layout {

inline constexpr int tile_rows = 16;
inline constexpr int octet = 8;
inline constexpr int fp8_block = 128;
inline constexpr int int4_group = 32;

constexpr int block_inputs(ExpertCodec codec) {
  switch (codec) {
    case ExpertCodec::bf16:
    case ExpertCodec::f32:
      return 32;
    case ExpertCodec::fp8_block:
      return 128;
    case ExpertCodec::int4_group:
    case ExpertCodec::int4_group_f32:
      return 64;
  }
  return 0;
}

// Of a block's values, without its scales.
constexpr int value_bytes(ExpertCodec codec) {
  switch (codec) {
    case ExpertCodec::bf16:
      return 1024;
    case ExpertCodec::f32:
    case ExpertCodec::fp8_block:
      return 2048;
    case ExpertCodec::int4_group:
    case ExpertCodec::int4_group_f32:
      return 512;
  }
  return 0;
}

// Multiples of 16, the unit of bulk copies.
constexpr int block_bytes(ExpertCodec codec) {
  switch (codec) {
    case ExpertCodec::bf16:
    case ExpertCodec::f32:
      return value_bytes(codec);
    case ExpertCodec::fp8_block:
      return value_bytes(codec) + 16;
    case ExpertCodec::int4_group:
      return value_bytes(codec) + 64;
    case ExpertCodec::int4_group_f32:
      return value_bytes(codec) + 128;
  }
  return 0;
}

// Where the octet `index` of row `row` begins in a block.
constexpr int octet_offset(ExpertCodec codec, int row, int index) {
  const int lane = row % 8 * 4 + index % 4;
  switch (codec) {
    case ExpertCodec::bf16:
      return (row / 8 * 32 + lane) * 16;
    case ExpertCodec::f32:
      return (row / 8 * 32 + lane) * 32;
    case ExpertCodec::fp8_block:
      return (index / 4 * 32 + lane) * 16 + row / 8 * 8;
    case ExpertCodec::int4_group:
    case ExpertCodec::int4_group_f32:
      return lane * 16 + (index / 4 * 2 + row / 8) * 4;
  }
  return 0;
}

// Where the scale of that octet stands. Not for codecs without scales.
constexpr int scale_offset(ExpertCodec codec, int row, int index) {
  const int values = value_bytes(codec);
  if (codec == ExpertCodec::fp8_block) return values + row / 8 * 4;
  const int at = row % 8 * 4 + index / 4 * 2 + row / 8;
  return values + at * (codec == ExpertCodec::int4_group ? 2 : 4);
}

constexpr int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

// A packed matrix. paired: `rows` of gate and as many of up.
struct Packed {
  ExpertCodec codec = ExpertCodec::bf16;
  int rows = 0;
  int inputs = 0;
  bool paired = false;

  constexpr int tiles() const { return divide_up(rows, paired ? tile_rows / 2 : tile_rows); }
  constexpr int blocks() const { return divide_up(inputs, block_inputs(codec)); }
  constexpr std::size_t tile_bytes() const {
    return static_cast<std::size_t>(blocks()) * static_cast<std::size_t>(block_bytes(codec));
  }
  constexpr std::size_t bytes() const { return static_cast<std::size_t>(tiles()) * tile_bytes(); }
};

}  // namespace expert_layout
}  // namespace copse::kernels::cuda
