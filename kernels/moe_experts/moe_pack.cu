// Checkpoint layout, or random numbers, into expert_layout.h's tiles: one thread an octet.
#include <cuda_runtime.h>

#include <cmath>

#include "base/check.h"
#include "kernels/common/cuda/status.h"
#include "kernels/moe_experts/moe_experts_cuda.h"
#include "kernels/moe_experts/packed_linear.h"

namespace copse::kernels::cuda {
namespace {

using expert_layout::Packed;

constexpr int threads = 256;

// Eight values in the codec's own bits, in order: 8, 4, 2 or 1 words.
struct Octet {
  std::uint32_t words[8];
};

__host__ __device__ constexpr int octet_words(ExpertCodec codec) {
  return codec == ExpertCodec::f32
             ? 8
             : (codec == ExpertCodec::bf16 ? 4 : (codec == ExpertCodec::fp8_block ? 2 : 1));
}

// The octet that stands for eight zeros.
__device__ Octet zeros(ExpertCodec codec) {
  Octet octet = {};
  if (octet_words(codec) == 1) octet.words[0] = 0x88888888u;
  return octet;
}

__device__ std::uint32_t hash(std::uint64_t key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdull;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ull;
  key ^= key >> 33;
  return static_cast<std::uint32_t>(key);
}

// One matrix [rows][inputs] as a checkpoint has it.
struct Stored {
  StoredMatrix matrix;
  ExpertCodec codec;
  int inputs;

  __device__ Octet octet(int row, int first) const {
    Octet result = zeros(codec);
    const int count = min(8, inputs - first);
    const std::int64_t at = static_cast<std::int64_t>(row) * inputs + first;
    if (octet_words(codec) == 1) {
      result.words[0] = static_cast<const std::uint32_t*>(matrix.values)[at / 8];
      return result;
    }
    for (int i = 0; i < count; ++i) {
      if (codec == ExpertCodec::f32) {
        result.words[i] = static_cast<const std::uint32_t*>(matrix.values)[at + i];
      } else if (codec == ExpertCodec::bf16) {
        const std::uint32_t bits = static_cast<const std::uint16_t*>(matrix.values)[at + i];
        result.words[i / 2] |= bits << (16 * (i % 2));
      } else {
        const std::uint32_t bits = static_cast<const std::uint8_t*>(matrix.values)[at + i];
        result.words[i / 4] |= bits << (8 * (i % 4));
      }
    }
    return result;
  }
  // Bits of the scale: bf16's in the lower half.
  __device__ std::uint32_t scale(int row, int first) const {
    if (codec == ExpertCodec::fp8_block) {
      const int columns = (inputs + expert_layout::fp8_block - 1) / expert_layout::fp8_block;
      const std::int64_t block = static_cast<std::int64_t>(row / expert_layout::fp8_block);
      return static_cast<const std::uint32_t*>(
          matrix.scales)[block * columns + first / expert_layout::fp8_block];
    }
    const int columns = (inputs + expert_layout::int4_group - 1) / expert_layout::int4_group;
    const std::int64_t at =
        static_cast<std::int64_t>(row) * columns + first / expert_layout::int4_group;
    if (codec == ExpertCodec::int4_group)
      return static_cast<const std::uint16_t*>(matrix.scales)[at];
    return static_cast<const std::uint32_t*>(matrix.scales)[at];
  }
};

struct Random {
  std::uint64_t seed;
  ExpertCodec codec;
  int inputs;
  float spread;  // standard deviation of a value

  __device__ std::uint32_t bits(int row, int at) const {
    return hash(seed + (static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint32_t>(at)));
  }
  __device__ float uniform(int row, int at) const {  // of deviation 1
    return (static_cast<float>(bits(row, at)) * 0x1p-32f - 0.5f) * 3.4641016f;
  }
  __device__ Octet octet(int row, int first) const {
    Octet result = zeros(codec);
    if (octet_words(codec) == 1) {
      result.words[0] = bits(row, first);
      return result;
    }
    for (int i = 0; i < 8 && first + i < inputs; ++i) {
      if (codec == ExpertCodec::f32) {
        result.words[i] = __float_as_uint(spread * uniform(row, first + i));
      } else if (codec == ExpertCodec::bf16) {
        const std::uint32_t half = to_bf16(spread * uniform(row, first + i)).bits;
        result.words[i / 2] |= half << (16 * (i % 2));
      } else {  // sign, exponents of 1/4 to 2, mantissa: deviation about 1.6
        const std::uint32_t random = bits(row, first + i);
        const std::uint32_t byte = (random & 0x87u) | (5u + (random >> 8 & 3u)) << 3;
        result.words[i / 4] |= byte << (8 * (i % 4));
      }
    }
    return result;
  }
  __device__ std::uint32_t scale(int row, int first) const {
    const float part = 0.75f + 0.5f * (static_cast<float>(bits(~row, first)) * 0x1p-32f);
    if (codec == ExpertCodec::fp8_block) {
      const int block = row / expert_layout::fp8_block;
      const float same = 0.75f + 0.5f * (static_cast<float>(bits(~block, first)) * 0x1p-32f);
      return __float_as_uint(spread * same / 1.6f);
    }
    const float value = spread * part / 4.6f;
    return codec == ExpertCodec::int4_group ? to_bf16(value).bits : __float_as_uint(value);
  }
};

// The order of values within an octet that expert_layout.h states.
__device__ void store_octet(std::byte* block, ExpertCodec codec, int row, int index, Octet octet) {
  auto* to =
      reinterpret_cast<std::uint32_t*>(block + expert_layout::octet_offset(codec, row, index));
  if (codec == ExpertCodec::fp8_block) {
    to[0] = __byte_perm(octet.words[0], 0, 0x1302);
    to[1] = __byte_perm(octet.words[1], 0, 0x1302);
  } else if (octet_words(codec) == 1) {
    std::uint32_t word = 0;
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t nibble = (octet.words[0] >> (4 * i) & 15u) ^ 8u;
      word |= nibble << (i % 2 * 16 + i / 2 * 4);
    }
    to[0] = word;
  } else {
    for (int i = 0; i < octet_words(codec); ++i) to[i] = octet.words[i];
  }
}

// Whether the octet is the one of its scale's that writes the scale.
__device__ bool brings_scale(ExpertCodec codec, int row, int index) {
  if (codec == ExpertCodec::bf16 || codec == ExpertCodec::f32) return false;
  if (codec == ExpertCodec::fp8_block) return row % 8 == 0 && index == 0;
  return index % 4 == 0;
}

// The matrix of row `row` of a tile, and which of its rows that is.
struct Place {
  bool second;
  int row;
};
__device__ Place place(const Packed& packed, int tile, int row) {
  if (!packed.paired) return {false, tile * 16 + row};
  return {row >= 8, tile * 8 + row % 8};
}

template <class Source>
__device__ void pack_octet(const Packed& packed, const Source& first, const Source& second,
                           std::byte* to, std::int64_t index) {
  const int octets = expert_layout::block_inputs(packed.codec) / 8;
  const int octet = static_cast<int>(index % octets);
  const int row = static_cast<int>(index / octets % 16);
  const std::int64_t block = index / octets / 16;
  const int tile = static_cast<int>(block / packed.blocks());
  const int input = (static_cast<int>(block % packed.blocks()) * octets + octet) * 8;
  const Place at = place(packed, tile, row);
  const Source& source = at.second ? second : first;
  const bool inside = at.row < packed.rows && input < packed.inputs;
  std::byte* memory = to + block * expert_layout::block_bytes(packed.codec);
  store_octet(memory, packed.codec, row, octet,
              inside ? source.octet(at.row, input) : zeros(packed.codec));
  if (!brings_scale(packed.codec, row, octet)) return;
  const std::uint32_t scale = inside ? source.scale(at.row, input) : 0;
  std::byte* scale_at = memory + expert_layout::scale_offset(packed.codec, row, octet);
  if (packed.codec == ExpertCodec::int4_group) {
    *reinterpret_cast<std::uint16_t*>(scale_at) = static_cast<std::uint16_t>(scale);
  } else {
    *reinterpret_cast<std::uint32_t*>(scale_at) = scale;
  }
}

__host__ __device__ std::int64_t octets_of(const Packed& packed) {
  const std::int64_t blocks = static_cast<std::int64_t>(packed.tiles()) * packed.blocks();
  return blocks * 16 * (expert_layout::block_inputs(packed.codec) / 8);
}

template <class Source>
__global__ void __launch_bounds__(threads)
    pack_kernel(Packed packed, Source first, Source second, std::byte* to) {
  const std::int64_t count = octets_of(packed);
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    pack_octet(packed, first, second, to, i);
  }
}

// blockIdx.y: matrices `stride` bytes apart, each with numbers of its own.
__global__ void __launch_bounds__(threads)
    random_kernel(Packed packed, Random source, std::byte* to, std::size_t stride) {
  const std::int64_t count = octets_of(packed);
  source.seed += std::uint64_t{blockIdx.y} * 0x9e3779b97f4a7c15ull;
  Random second = source;
  second.seed ^= 0x5851f42d4c957f2dull;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    pack_octet(packed, source, second, to + blockIdx.y * stride, i);
  }
}

dim3 grid_of(const Packed& packed, int matrices) {
  const std::int64_t blocks = (octets_of(packed) + threads - 1) / threads;
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(blocks, 4096)),
              static_cast<unsigned>(matrices));
}

Status pack(const Packed& packed, const StoredMatrix& first, const StoredMatrix& second,
            std::byte* to, Stream stream) {
  if (packed.bytes() == 0) return {};
  const bool scaled = packed.codec != ExpertCodec::bf16 && packed.codec != ExpertCodec::f32;
  CHECK(octet_words(packed.codec) != 1 || packed.inputs % 8 == 0);
  CHECK(first.values != nullptr && (first.scales != nullptr) == scaled);
  pack_kernel<<<grid_of(packed, 1), threads, 0, stream>>>(
      packed, Stored{first, packed.codec, packed.inputs},
      Stored{second, packed.codec, packed.inputs}, to);
  return launched("packing weights");
}

Status fill(const Packed& packed, std::uint64_t seed, int matrices, std::byte* to,
            std::size_t stride, Stream stream) {
  if (packed.bytes() == 0 || matrices == 0) return {};
  const float spread = 1.0f / std::sqrt(static_cast<float>(packed.inputs));
  random_kernel<<<grid_of(packed, matrices), threads, 0, stream>>>(
      packed, Random{seed, packed.codec, packed.inputs, spread}, to, stride);
  return launched("random weights");
}

}  // namespace

Status pack_expert(const ExpertShape& shape, const StoredExpert& stored, std::byte* packed,
                   Stream stream) {
  COPSE_RETURN_IF_ERROR(pack(shape.gate_up(), stored.gate, stored.up, packed, stream));
  return pack(shape.down(), stored.down, stored.down, packed + shape.gate_up().bytes(), stream);
}

Status random_experts(const ExpertShape& shape, std::uint64_t seed, std::byte* packed,
                      Stream stream) {
  const std::size_t stride = shape.expert_bytes();
  COPSE_RETURN_IF_ERROR(fill(shape.gate_up(), seed, shape.experts, packed, stride, stream));
  return fill(shape.down(), ~seed, shape.experts, packed + shape.gate_up().bytes(), stride, stream);
}

Status pack_linear(const PackedLinear& shape, const StoredMatrix& stored, std::byte* packed,
                   Stream stream) {
  return pack(shape.layout(), stored, stored, packed, stream);
}

Status random_linear(const PackedLinear& shape, std::uint64_t seed, std::byte* packed,
                     Stream stream) {
  return fill(shape.layout(), seed, 1, packed, 0, stream);
}

}  // namespace copse::kernels::cuda
