#pragma once
// How checkpoints encode weights, decoded to float32. Ranges are absolute rows and columns of the
// stored matrix, so that a slice that begins inside a block of scales decodes the same numbers.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/shard.h"

namespace copse {

// FP8 e4m3 ("fn"): bias 7, no infinities, 0x7f and 0xff are NaN.
float e4m3_to_float(std::uint8_t bits);

// DeepSeek-V3's FP8: value * scale[row / block][column / block]. `values` are the slice's bytes,
// row by row; `scales` the whole table, `scale_columns` wide.
std::vector<float> decode_fp8_block(std::span<const std::byte> values, Range rows, Range columns,
                                    std::span<const float> scales, int scale_columns, int block);

// compressed-tensors pack-quantized: 8 values an int32, lowest four bits first along the input
// dimension, stored value = q + 8. `packed` are the slice's words, row by row; columns.begin and
// size are multiples of 8. `scales` [rows][groups] are those of the slice's rows, its first column
// that of group columns.begin / group.
std::vector<float> decode_int4_group(std::span<const std::uint32_t> packed, Range rows,
                                     Range columns, std::span<const float> scales, int group);

// A NaN or an infinity among scales would spoil whole blocks silently.
bool all_finite(std::span<const float> values);

}  // namespace copse
