#pragma once
// The kernel of stream_gemm.cu.
#include <algorithm>

#include "kernels/common/cuda/cluster.cuh"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/linear/tensor_copy.cuh"
#include "kernels/linear/warpgroup.cuh"

namespace copse::kernels::cuda::stream_gemm {

using namespace tensor_copy;

constexpr int stage_inputs = 128;
constexpr int box_inputs = 64;              // 128 bytes: the widest box with a swizzle
constexpr int weight_rows = 64;             // of a block: what a warpgroup multiplies at once
constexpr int groups = 2;                   // warpgroups that multiply, each half of a stage
constexpr int threads = groups * 128 + 32;  // one more warp fetches

// Where the sums of one product go.
struct Output {
  void* y;
  std::int64_t y_stride;
  std::int64_t y_batch_stride;
  int outputs;
  bool float_out;
  bool accumulate;
  bool swiglu;
  bool wide;  // four outputs at once
};

// One product, or two of the same x.
struct Args {
  CUtensorMap weight[2];
  CUtensorMap x;
  Output out[2];
  int first_tiles;  // blocks along y that are the first product's
  int rows;
  int stages;  // of all inputs
};

// Extents of one instance. Shared memory: stages, each of the weight's two boxes of inputs, then
// x's two, and in the end in the same place the sums of each warpgroup; then the barriers. Two
// blocks fit a multiprocessor: the next kernel's fetch while this one's multiply.
template <int kOctets>
struct Shape {
  static constexpr int x_rows = kOctets * 8;
  static constexpr int weight_box = weight_rows * box_inputs * 2;  // bytes
  static constexpr int x_box = x_rows * box_inputs * 2;
  static constexpr int stage_bytes = 2 * (weight_box + x_box);
  static constexpr int stages = std::clamp(100 * 1024 / stage_bytes, 3, 8);
  static constexpr int sum_stride = weight_rows + 4;  // floats; no two lanes in one bank
  static constexpr int part_floats = x_rows * sum_stride;
  static constexpr int barriers_at = stages * stage_bytes;
  static_assert(groups * part_floats * 4 <= barriers_at);
  static constexpr int bytes = barriers_at + 2 * stages * 8 + 1024;  // the stages begin at 1024
};

// What a block computes: `tile` of a product, whose weights stand there.
struct Place {
  int product = 0;
  int tile = 0;
  int first_stage = 0;  // of all stages; then every `step`-th
  int step = 1;
  int count = 0;       // stages of this block
  int row = 0;         // first weight row of the tile's first half
  int second_row = 0;  // of its second: with a SwiGLU the ups
};

__device__ inline Place place_of(const Args& args) {
  constexpr int half = weight_rows / 2;
  Place place;
  const int block = static_cast<int>(blockIdx.y);
  place.product = block >= args.first_tiles ? 1 : 0;
  place.tile = place.product == 0 ? block : block - args.first_tiles;
  const Output& out = args.out[place.product];
  // The blocks of a cluster take turns: what they read at one time lies side by side.
  place.first_stage = static_cast<int>(blockIdx.x);
  place.step = static_cast<int>(gridDim.x);
  place.count = max(0, (args.stages - place.first_stage + place.step - 1) / place.step);
  place.row = place.tile * (out.swiglu ? half : 2 * half);
  place.second_row = out.swiglu ? out.outputs + place.row : place.row + half;
  return place;
}

// One thread fetches. Weights do not depend on the kernel in front: as many stages as there is room
// for are asked for before it has ended.
template <class S>
__device__ void fetch(const CUtensorMap& weight_map, const CUtensorMap& x_map, const Place& place,
                      std::uint32_t shared) {
  const int batch = static_cast<int>(blockIdx.z);
  const auto full = [&](int i) {
    return shared + S::barriers_at + static_cast<std::uint32_t>(i % S::stages * 8);
  };
  const auto stage = [&](int i) {
    return shared + static_cast<std::uint32_t>(i % S::stages * S::stage_bytes);
  };
  const auto fetch_weight = [&](int i) {
    barrier_expect(full(i), S::stage_bytes);
    for (int k = 0; k < 2; ++k) {
      const int column = (place.first_stage + i * place.step) * stage_inputs + k * box_inputs;
      const std::uint32_t to = stage(i) + static_cast<std::uint32_t>(k * S::weight_box);
      copy_box(to, weight_map, column, place.row, batch, full(i));
      copy_box(to + S::weight_box / 2, weight_map, column, place.second_row, batch, full(i));
    }
  };
  const auto fetch_x = [&](int i) {
    for (int k = 0; k < 2; ++k) {
      const int column = (place.first_stage + i * place.step) * stage_inputs + k * box_inputs;
      copy_box(stage(i) + static_cast<std::uint32_t>(2 * S::weight_box + k * S::x_box), x_map,
               column, 0, batch, full(i));
    }
  };
  const int ahead = min(place.count, S::stages);
  for (int i = 0; i < ahead; ++i) fetch_weight(i);
  prefetch_map(x_map);
  wait_for_previous();
  for (int i = 0; i < ahead; ++i) fetch_x(i);
  for (int i = ahead; i < place.count; ++i) {
    const auto empty = full(i) + static_cast<std::uint32_t>(S::stages * 8);
    barrier_wait(empty, static_cast<unsigned>(i / S::stages - 1) & 1);
    fetch_weight(i);
    fetch_x(i);
  }
}

// Each warpgroup multiplies its half of every stage.
template <int kOctets>
__device__ void multiply(std::uint32_t shared, int count, float (&sums)[kOctets][4]) {
  using S = Shape<kOctets>;
  const std::uint32_t group = threadIdx.x / 128;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t full =
        shared + S::barriers_at + static_cast<std::uint32_t>(i % S::stages * 8);
    const std::uint32_t stage = shared + static_cast<std::uint32_t>(i % S::stages * S::stage_bytes);
    barrier_wait(full, static_cast<unsigned>(i / S::stages) & 1);
    const std::uint32_t weight = stage + group * S::weight_box;
    const std::uint32_t x = stage + 2 * S::weight_box + group * S::x_box;
    warpgroup::begin();
#pragma unroll
    for (std::uint32_t k = 0; k < box_inputs * 2; k += 32) {
      warpgroup::multiply(sums, warpgroup::matrix(weight + k), warpgroup::matrix(x + k));
    }
    warpgroup::commit();
    warpgroup::wait<0>();
    if (threadIdx.x % 128 == 0) barrier_arrive(full + S::stages * 8);
  }
}

// The sums of one warp to shared memory. A thread holds outputs lane / 4 and 8 further of rows
// 2 * (lane % 4) and the next.
template <int kOctets>
__device__ void share(const float (&sums)[kOctets][4], std::uint32_t shared) {
  using S = Shape<kOctets>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at =
      warp / 4 * S::part_floats + lane % 4 * 2 * S::sum_stride + warp % 4 * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < kOctets; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int offset = at + (n * 8 + i % 2) * S::sum_stride + i / 2 * 8;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + static_cast<std::uint32_t>(offset * 4)),
                   "f"(sums[n][i])
                   : "memory");
    }
  }
}

// Four outputs of row m from output o of the tile: the parts of all warpgroups and blocks, in one
// order.
template <class S>
__device__ float4 total(std::uint32_t shared, int cluster, int m, int o) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int rank = 0; rank < cluster; ++rank) {
#pragma unroll
    for (int part = 0; part < groups; ++part) {
      const int at = part * S::part_floats + m * S::sum_stride + o;
      const float4 more = load_of_rank(shared + static_cast<std::uint32_t>(at * 4), rank);
      sum.x += more.x;
      sum.y += more.y;
      sum.z += more.z;
      sum.w += more.w;
    }
  }
  return sum;
}

__device__ inline float gated(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

__device__ inline void put(const Output& out, std::int64_t at, int count, const float4& four) {
  const float values[4] = {four.x, four.y, four.z, four.w};
  if (out.wide && count >= 4) {
    if (out.float_out) {
      float4* to = reinterpret_cast<float4*>(static_cast<float*>(out.y) + at);
      const float4 before = out.accumulate ? *to : make_float4(0, 0, 0, 0);
      *to = make_float4(before.x + four.x, before.y + four.y, before.z + four.z, before.w + four.w);
    } else {
      ushort4 bits;
      bits.x = from_float<Bf16>(four.x).bits;
      bits.y = from_float<Bf16>(four.y).bits;
      bits.z = from_float<Bf16>(four.z).bits;
      bits.w = from_float<Bf16>(four.w).bits;
      *reinterpret_cast<ushort4*>(static_cast<Bf16*>(out.y) + at) = bits;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= count) return;
    if (!out.float_out) {
      static_cast<Bf16*>(out.y)[at + i] = from_float<Bf16>(values[i]);
    } else {
      float* to = static_cast<float*>(out.y) + at + i;
      *to = out.accumulate ? *to + values[i] : values[i];
    }
  }
}

// The blocks of a cluster share out the rows.
template <class S>
__device__ void finish(const Args& args, const Place& place, std::uint32_t shared) {
  const Output& out = args.out[place.product];
  const int cluster = static_cast<int>(gridDim.x);
  const int quads = out.swiglu ? weight_rows / 8 : weight_rows / 4;
  const std::int64_t batch = std::int64_t{blockIdx.z} * out.y_batch_stride;
  for (int i = static_cast<int>(threadIdx.x);; i += threads) {
    const int m = static_cast<int>(blockIdx.x) + i / quads * cluster;
    if (m >= args.rows) return;
    const int o = i % quads * 4;
    const int output = place.tile * quads * 4 + o;
    if (output >= out.outputs) continue;
    float4 sum = total<S>(shared, cluster, m, o);
    if (out.swiglu) {
      const float4 up = total<S>(shared, cluster, m, o + weight_rows / 2);
      sum = make_float4(gated(sum.x, up.x), gated(sum.y, up.y), gated(sum.z, up.z),
                        gated(sum.w, up.w));
    }
    put(out, batch + m * out.y_stride + output, out.outputs - output, sum);
  }
}

template <int kOctets>
__global__ void __launch_bounds__(threads) stream_kernel(const __grid_constant__ Args args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = Shape<kOctets>;
  extern __shared__ std::uint8_t memory[];
  const std::uint32_t shared = (address(memory) + 1023) & ~1023u;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Place place = place_of(args);
  const CUtensorMap& weight_map = args.weight[place.product];
  if (warp == groups * 4 && lane == 0) {
    prefetch_map(weight_map);
    for (int i = 0; i < S::stages; ++i) {
      barrier_init(shared + S::barriers_at + static_cast<std::uint32_t>(i * 8), 1);
      barrier_init(shared + S::barriers_at + static_cast<std::uint32_t>((S::stages + i) * 8),
                   groups);
    }
    barrier_init_fence();
  }
  __syncthreads();
  let_next_start();
  if (warp == groups * 4) {
    if (lane == 0) fetch<S>(weight_map, args.x, place, shared);
    __syncwarp();
  } else {
    float sums[kOctets][4] = {};
    multiply<kOctets>(shared, place.count, sums);
    named_barrier(1, groups * 128);  // the stages are read; what follows takes their place
    share<kOctets>(sums, shared);
  }
  wait_for_previous();  // y may still be read by it
  cluster_barrier();
  finish<S>(args, place, shared);
  cluster_barrier();  // nobody leaves while others read its sums
#endif
}

}  // namespace copse::kernels::cuda::stream_gemm
