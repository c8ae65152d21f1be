// Two plain launches: activations of every pair (row, chosen expert), then every row's sum over its
// pairs in order. A warp makes one tile of one pair or row.
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
#include "kernels/moe_experts/moe_dispatch.h"
#include "kernels/moe_experts/moe_workspace.h"
#include "kernels/moe_experts/octet.cuh"
#include "kernels/moe_experts/packed_linear.h"

namespace copse::kernels::cuda {
namespace {

constexpr int warps = 4;

__device__ inline int warp_index() {
  return static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / 32;
}
__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}

__device__ inline void sum_lanes(float (&sums)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) sums[i] = warp_sum(sums[i]);
}

// Index of the pair's expert on this rank, or -1.
template <class T>
__device__ inline int expert_of(const MoeExperts<T>& call, int pair) {
  const int expert = call.ids[pair] - call.shape.first_expert;
  return call.ids[pair] >= 0 && expert >= 0 && expert < call.shape.experts ? expert : -1;
}

template <ExpertCodec kCodec, class T>
__global__ void __launch_bounds__(32 * warps)
    activation_kernel(MoeExperts<T> call, T* activations) {
  const auto packed = call.shape.gate_up();
  const int pair = warp_index() / packed.tiles();
  const int tile = warp_index() % packed.tiles();
  if (pair >= call.rows * call.experts_per_token) return;
  const int expert = expert_of(call, pair);
  if (expert < 0) return;
  const std::byte* weights = call.packed + expert * call.shape.expert_bytes();
  float sums[16] = {};
  tile_dot<kCodec>(
      weights + tile * packed.tile_bytes(),
      call.x + static_cast<std::int64_t>(pair / call.experts_per_token) * packed.inputs,
      packed.inputs, lane_index(), sums);
  sum_lanes(sums);
  T* out = activations + static_cast<std::int64_t>(pair) * activation_stride(call.shape) + tile * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float gate = sums[i];
    if (lane_index() == i) out[i] = from_float<T>(gate / (1.0f + expf(-gate)) * sums[8 + i]);
  }
}

template <ExpertCodec kCodec, class T>
__global__ void __launch_bounds__(32 * warps) sum_kernel(MoeExperts<T> call, const T* activations) {
  const auto packed = call.shape.down();
  const int row = warp_index() / packed.tiles();
  const int tile = warp_index() % packed.tiles();
  if (row >= call.rows) return;
  float total = 0;  // of output tile * 16 + lane
  for (int slot = 0; slot < call.experts_per_token; ++slot) {
    const int pair = row * call.experts_per_token + slot;
    const int expert = expert_of(call, pair);
    if (expert < 0) continue;
    const std::byte* weights =
        call.packed + expert * call.shape.expert_bytes() + call.shape.gate_up().bytes();
    float sums[16] = {};
    tile_dot<kCodec>(weights + tile * packed.tile_bytes(),
                     activations + static_cast<std::int64_t>(pair) * activation_stride(call.shape),
                     packed.inputs, lane_index(), sums);
    sum_lanes(sums);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (lane_index() == i) total = fmaf(call.weights[pair], sums[i], total);
    }
  }
  const int output = tile * 16 + lane_index();
  if (lane_index() < 16 && output < packed.rows) {
    call.y[static_cast<std::int64_t>(row) * packed.rows + output] = total;
  }
}

template <ExpertCodec kCodec, class T, class Y>
__global__ void __launch_bounds__(32 * warps) linear_kernel(QuantizedLinear<T, Y> call) {
  const auto packed = call.shape.layout();
  const int row = warp_index() / packed.tiles();
  const int tile = warp_index() % packed.tiles();
  if (row >= call.rows) return;
  float sums[16] = {};
  tile_dot<kCodec>(call.packed + tile * packed.tile_bytes(),
                   call.x + static_cast<std::int64_t>(row) * packed.inputs, packed.inputs,
                   lane_index(), sums);
  sum_lanes(sums);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int output = tile * 16 + i;
    if (lane_index() == i && output < packed.rows) {
      call.y[static_cast<std::int64_t>(row) * packed.rows + output] = from_float<Y>(sums[i]);
    }
  }
}

unsigned blocks_for(std::int64_t warps_needed) {
  return static_cast<unsigned>((warps_needed + warps - 1) / warps);
}

}  // namespace

namespace portable {

template <class T>
Status moe_experts(const MoeExperts<T>& call, Stream stream) {
  check_moe_call(call);
  if (call.rows == 0) return {};
  const ExpertShape& shape = call.shape;
  auto* activations = reinterpret_cast<T*>(
      call.workspace + moe_workspace_parts(shape, call.rows, call.experts_per_token).activations);
  const std::int64_t pairs = std::int64_t{call.rows} * call.experts_per_token;
  return with_codec(shape.codec, [&]<ExpertCodec kCodec>() -> Status {
    if (shape.experts > 0 && shape.inner > 0) {
      activation_kernel<kCodec>
          <<<blocks_for(pairs * shape.gate_up().tiles()), 32 * warps, 0, stream>>>(call,
                                                                                   activations);
      COPSE_RETURN_IF_ERROR(launched("moe_experts activations"));
    }
    sum_kernel<kCodec>
        <<<blocks_for(std::int64_t{call.rows} * shape.down().tiles()), 32 * warps, 0, stream>>>(
            call, activations);
    return launched("moe_experts sums");
  });
}

template Status moe_experts(const MoeExperts<float>&, Stream);
template Status moe_experts(const MoeExperts<Bf16>&, Stream);

template <class T, class Y>
Status quantized_linear(const QuantizedLinear<T, Y>& call, Stream stream) {
  CHECK(call.rows >= 0 && call.shape.outputs >= 0 && call.shape.inputs > 0);
  if (call.rows == 0 || call.shape.outputs == 0) return {};
  const std::int64_t count = std::int64_t{call.rows} * call.shape.layout().tiles();
  return with_codec(call.shape.codec, [&]<ExpertCodec kCodec>() -> Status {
    linear_kernel<kCodec><<<blocks_for(count), 32 * warps, 0, stream>>>(call);
    return launched("quantized_linear");
  });
}

template Status quantized_linear(const QuantizedLinear<float, float>&, Stream);
template Status quantized_linear(const QuantizedLinear<Bf16, float>&, Stream);
template Status quantized_linear(const QuantizedLinear<Bf16, Bf16>&, Stream);

}  // namespace portable
}  // namespace copse::kernels::cuda
