#pragma once
// INT4 and up to eight rows of activations: the case that decides how fast a step is.
//
// Widening a nibble to bf16 takes two operations on the pipe that does logic, and that pipe was the
// bound. To an 8-bit integer it takes one: a nibble in two's complement in the upper half of a byte
// is 16 times the value. So the products are integer ones. A row's activations in a stage (128 to
// 256 inputs of it) become 16-bit integers, 1 / 65024 of their largest apart, which is finer than
// bf16 is for all but those 256 times smaller than the largest; an integer is two digits of 8 bits,
// and the digits are two neighbouring columns of the instruction, which a lane gets both and joins
// exactly. That makes four (row, group of 32 inputs) in the eight columns:
//
//   kRows 2   two rows, and both groups of a block side by side: lane t has row t % 2, group t / 2
//   kRows 4   four rows: lane t has row t
//   kRows 8   four rows twice
//
// Every lane scales its own group in float32; lanes with other groups of a row are added once a
// tile (PairValues).
#include <type_traits>

#include "kernels/moe_experts/moe_mma.cuh"
#include "kernels/moe_experts/moe_values.cuh"
#include "kernels/moe_experts/moe_warps.h"

namespace copse::kernels::cuda {

// Eight bf16 of activations as digits, in the order of nibbles of a word: b[0] against the even
// ones, b[1] against the odd ones.
struct Digits {
  std::uint32_t b[2];
};

// How to make the integers of one row in one stage, by a lane whose column has one of the digits.
struct Quantizer {
  float inverse;
  float magic;             // adding it leaves an integer in the lower bits; the upper digit rounds
  std::uint32_t selector;  // of the digit's byte

  // largest: bits of the largest |x|, as bf16.
  __device__ Quantizer(std::uint32_t largest, bool upper) {
    inverse = largest < 0x1000u ? 0.0f : 32512.0f / __uint_as_float(largest << 16);
    magic = upper ? 12582912.0f + 128.0f : 12582912.0f;
    selector = upper ? 0x0051u : 0x0040u;
  }
  // What the integer 1 stands for, times the 16 that the weights are too large; not a number where
  // an activation is infinite or not a number.
  __device__ static float unit(std::uint32_t largest) {
    const float unit = __uint_as_float(largest << 16) * (1.0f / (32512.0f * 16.0f));
    return largest < 0x7f80u ? unit : __uint_as_float(0x7fffffffu);
  }
  __device__ std::uint32_t integer(std::uint32_t bits) const {
    return __float_as_uint(fmaf(__uint_as_float(bits), inverse, magic));
  }
  __device__ Digits digits(const uint4& x) const {
    const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
    std::uint32_t whole[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      whole[2 * i] = integer(words[i] << 16);
      whole[2 * i + 1] = integer(words[i] & 0xffff0000u);
    }
    const auto four = [&](int a, int b, int c, int d) {
      return __byte_perm(__byte_perm(whole[a], whole[b], selector),
                         __byte_perm(whole[c], whole[d], selector), 0x5410);
    };
    return {{four(0, 4, 1, 5), four(2, 6, 3, 7)}};
  }
};

// Largest magnitude among the octets of a column's four lanes, as bits of bf16.
template <int kCount>
__device__ inline std::uint32_t largest_of(const uint4 (&x)[kCount]) {
  std::uint32_t two = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    two = __vmaxu2(two, __vmaxu2(__vmaxu2(x[i].x & 0x7fff7fffu, x[i].y & 0x7fff7fffu),
                                 __vmaxu2(x[i].z & 0x7fff7fffu, x[i].w & 0x7fff7fffu)));
  }
  std::uint32_t one = max(two & 0xffffu, two >> 16);
  one = max(one, __shfl_xor_sync(0xffffffffu, one, 1));
  return max(one, __shfl_xor_sync(0xffffffffu, one, 2));
}

__device__ inline void multiply_add_int8(int (&sum)[4], const std::uint32_t (&a)[4],
                                         const Digits& x) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(x.b[0]), "r"(x.b[1]));
}

template <ExpertCodec kCodec, int kRows>
class Int4Stage {
 public:
  static constexpr int blocks = stage_blocks(kCodec);
  static constexpr int sets = kRows == 8 ? 2 : 1;
  static constexpr bool pairs = kRows == 2;
  using Values = std::conditional_t<pairs, PairValues, RowValues<sets>>;
  static constexpr int rows_of_lane = sets;  // whose activations a lane loads

  // Which row that is.
  __device__ static int row_of_lane(int set, int lane) {
    return pairs ? lane / 8 % 2 : lane / 8 + 4 * set;
  }
  // Inputs first .. of those rows; from inputs[set] on there are none.
  __device__ void load(const Bf16* const (&row)[sets], const int (&inputs)[sets], int first,
                       int lane) {
    // Of a pair a lane's column has one group of each block, of rows both.
    constexpr int groups = pairs ? blocks : 2 * blocks;
    const bool upper = lane / 4 % 2 == 0;
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      uint4 raw[groups];
#pragma unroll
      for (int i = 0; i < groups; ++i) {
        const int group = pairs ? 2 * i + lane / 16 : i;
        const int input = first + group * group_inputs + lane % 4 * 8;
        raw[i] = make_uint4(0, 0, 0, 0);
        if (input < inputs[set]) raw[i] = *reinterpret_cast<const uint4*>(row[set] + input);
      }
      const std::uint32_t largest = largest_of(raw);
      // Columns 2 * t and 2 * t + 1 are what lane t gets.
      unit_[set] = Quantizer::unit(__shfl_sync(0xffffffffu, largest, lane % 4 * 8));
      const Quantizer quantizer(largest, upper);
#pragma unroll
      for (int i = 0; i < groups; ++i) {
        const Digits digits = quantizer.digits(raw[i]);
        if (pairs) {
          const bool second = lane / 16 != 0;
          x_[2 * i][set] = {{second ? 0 : digits.b[0], second ? 0 : digits.b[1]}};
          x_[2 * i + 1][set] = {{second ? digits.b[0] : 0, second ? digits.b[1] : 0}};
        } else {
          x_[i][set] = digits;
        }
      }
    }
  }
  // sum += `count` blocks of a slot times the rows.
  __device__ void multiply(const std::byte* slot, int count, int lane,
                           float (&sum)[Values::sums]) const {
    float part[Values::sums] = {};
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      if (block >= count) break;
      const std::byte* memory = slot + block * expert_layout::block_bytes(kCodec);
      const uint4 words = load16(memory + lane * 16);
      std::uint32_t first[4];
      std::uint32_t second[4];
      widen(words.x, words.y, first);
      widen(words.z, words.w, second);
      if constexpr (pairs) {
        int products[4] = {};
        multiply_add_int8(products, first, x_[2 * block][0]);
        multiply_add_int8(products, second, x_[2 * block + 1][0]);
        scale(memory, lane % 4 / 2, lane, products, part[0], part[1]);
      } else {
#pragma unroll
        for (int set = 0; set < sets; ++set) {
          int products[4] = {};
          multiply_add_int8(products, first, x_[2 * block][set]);
          scale(memory, 0, lane, products, part[2 * set], part[2 * set + 1]);
          int more[4] = {};
          multiply_add_int8(more, second, x_[2 * block + 1][set]);
          scale(memory, 1, lane, more, part[2 * set], part[2 * set + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Values::sums; ++i) sum[i] = fmaf(unit_[i / 2], part[i], sum[i]);
  }

 private:
  // Rows g and g + 8: 16 times the values.
  __device__ static void widen(std::uint32_t low, std::uint32_t high, std::uint32_t (&a)[4]) {
    a[0] = low * 16u & 0xf0f0f0f0u;
    a[1] = high * 16u & 0xf0f0f0f0u;
    a[2] = low & 0xf0f0f0f0u;
    a[3] = high & 0xf0f0f0f0u;
  }
  // low, high += the scales of rows g and g + 8 in the group times the joined digits.
  __device__ static void scale(const std::byte* block, int group, int lane,
                               const int (&products)[4], float& low, float& high) {
    const std::byte* at = block + expert_layout::scale_offset(kCodec, lane / 4, 0);
    float2 scales;
    if constexpr (kCodec == ExpertCodec::int4_group) {
      const std::uint32_t both = *reinterpret_cast<const std::uint32_t*>(at + group * 4);
      scales = {__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u)};
    } else {
      scales = *reinterpret_cast<const float2*>(at + group * 8);
    }
    low = fmaf(scales.x, static_cast<float>(products[0] * 256 + products[1]), low);
    high = fmaf(scales.y, static_cast<float>(products[2] * 256 + products[3]), high);
  }

  Digits x_[2 * blocks][sets];
  float unit_[sets];
};

}  // namespace copse::kernels::cuda
