// quantized_linear in the manner of moe_stream.cu's first product: a block makes tiles of 16
// outputs for up to 32 rows, its warps split the inputs, each with a stream of weights of its own.
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/moe_experts/moe_plan.cuh"
#include "kernels/moe_experts/moe_reduce.cuh"
#include "kernels/moe_experts/moe_run.cuh"
#include "kernels/moe_experts/moe_stream.h"

namespace copse::kernels::cuda {
namespace {

using expert_layout::Packed;

constexpr int threads = multiply_threads + 32;
constexpr int chunk_rows = 32;

template <ExpertCodec kCodec>
struct SharedLayout {
  static constexpr int ring = 0;
  static constexpr int barriers = ring + RingMemory<kCodec>::values_bytes;
  static constexpr int sums = barriers + RingMemory<kCodec>::barrier_bytes;
  static constexpr int bytes = sums + TileSums::bytes;
};

template <ExpertCodec kCodec, class Y>
class LinearBlock {
 public:
  __device__ LinearBlock(const QuantizedLinear<Bf16, Y>& call, std::byte* shared)
      : call_(call),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        sums_(reinterpret_cast<float*>(shared + Layout::sums), warp_, lane_) {}

  __device__ void run() {
    const RingMemory<kCodec> memory(shared_ + Layout::ring, shared_ + Layout::barriers);
    if (threadIdx.x == multiply_threads) memory.initialize();
    __syncthreads();
    const Packed layout = call_.shape.layout();
    // Jobs are tiles in order, each once for every chunk of rows: later chunks find it in L2.
    const int chunks = expert_layout::divide_up(call_.rows, chunk_rows);
    const WorkRange jobs =
        part_of(layout.tiles() * chunks, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    if (warp_ == multiply_warps) {
      fetch(WeightFetch<kCodec>(memory, lane_), jobs, chunks);
      return;
    }
    WeightRing<kCodec> ring(memory, warp_, lane_);
#pragma unroll 1
    for (int job = jobs.begin; job < jobs.end; ++job) {
      const int first = job % chunks * chunk_rows;
      const int count = min(call_.rows - first, chunk_rows);
      if (count <= 8) {
        multiply<1>(ring, job / chunks, first, count);
      } else if (count <= 16) {
        multiply<2>(ring, job / chunks, first, count);
      } else {
        multiply<4>(ring, job / chunks, first, count);
      }
    }
  }

 private:
  using Layout = SharedLayout<kCodec>;

  __device__ void fetch(WeightFetch<kCodec> ring, const WorkRange& jobs, int chunks) const {
    constexpr int stage_bytes = RingMemory<kCodec>::stage_bytes;
    const int tile_bytes = static_cast<int>(call_.shape.layout().tile_bytes());
#pragma unroll 1
    for (int job = jobs.begin; job < jobs.end; ++job) {
      const std::byte* from =
          call_.packed + static_cast<std::size_t>(job / chunks) * call_.shape.layout().tile_bytes();
#pragma unroll 1
      for (int done = 0; done < tile_bytes; done += stage_bytes) {
        ring.run(from + done, min(stage_bytes, tile_bytes - done));
      }
    }
  }

  template <int kTiles>
  __device__ void multiply(WeightRing<kCodec>& ring, int tile, int first, int count) {
    RowPointers<kTiles> rows;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = j * 8 + lane_ / 4;
      rows.inputs[j] = n < count ? call_.shape.inputs : 0;
      rows.row[j] = call_.x + static_cast<std::int64_t>(first + n) * call_.shape.inputs;
    }
    float sum[kTiles][4] = {};
    multiply_share<kCodec, kTiles>(
        ring, rows, slots_of_tile<kCodec>(call_.shape.layout().blocks(), warp_), true, lane_, sum);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int before = sums_.empty() ? j : j - 1;  // two are together
      sums_.add(sum[j], j + 1 == kTiles, [&](int index, const float(&total)[4]) {
        store(tile * 16 + lane_ / 4, first, count, (before + index) * 8 + lane_ % 4 * 2, total);
      });
    }
  }
  // Rows n and n + 1 of a chunk, outputs `output` and output + 8.
  __device__ void store(int output, int first, int count, int n, const float (&total)[4]) const {
    const int outputs = call_.shape.outputs;
    Y* to = call_.y + static_cast<std::int64_t>(first + n) * outputs + output;
    if (n < count) {
      if (output < outputs) to[0] = from_float<Y>(total[0]);
      if (output + 8 < outputs) to[8] = from_float<Y>(total[2]);
    }
    if (n + 1 < count) {
      if (output < outputs) to[outputs] = from_float<Y>(total[1]);
      if (output + 8 < outputs) to[outputs + 8] = from_float<Y>(total[3]);
    }
  }

  const QuantizedLinear<Bf16, Y>& call_;
  std::byte* shared_;
  int warp_;
  int lane_;
  TileSums sums_;
};

template <ExpertCodec kCodec, class Y>
__global__ void __launch_bounds__(threads, 1)
    linear_kernel(const __grid_constant__ QuantizedLinear<Bf16, Y> call) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; stream_applies says no before
  extern __shared__ __align__(128) std::byte shared[];
  LinearBlock<kCodec, Y>(call, shared).run();
#endif
}

template <ExpertCodec kCodec, class Y>
Status launch(const QuantizedLinear<Bf16, Y>& call, Stream stream) {
  constexpr int shared = SharedLayout<kCodec>::bytes;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaFuncSetAttribute(linear_kernel<kCodec, Y>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                  "quantized_linear shared memory"));
  const int jobs = call.shape.layout().tiles() * expert_layout::divide_up(call.rows, chunk_rows);
  const auto blocks = static_cast<unsigned>(std::min(jobs, device_info().multiprocessors));
  linear_kernel<kCodec, Y><<<blocks, threads, static_cast<std::size_t>(shared), stream>>>(call);
  return launched("quantized_linear");
}

}  // namespace

bool stream_applies(const PackedLinear& shape) {
  const DeviceInfo& device = device_info();
  return device.major >= 9 && device.shared_memory_bytes >= stream_shared_bytes &&
         shape.codec != ExpertCodec::f32 && shape.inputs % 8 == 0;
}

template <class Y>
Status stream_linear(const QuantizedLinear<Bf16, Y>& call, Stream stream) {
  CHECK(call.rows >= 0 && call.shape.outputs >= 0 && call.shape.inputs > 0);
  if (call.rows == 0 || call.shape.outputs == 0) return {};
  switch (call.shape.codec) {
    case ExpertCodec::bf16:
      return launch<ExpertCodec::bf16>(call, stream);
    case ExpertCodec::fp8_block:
      return launch<ExpertCodec::fp8_block>(call, stream);
    case ExpertCodec::int4_group:
      return launch<ExpertCodec::int4_group>(call, stream);
    case ExpertCodec::int4_group_f32:
      return launch<ExpertCodec::int4_group_f32>(call, stream);
    case ExpertCodec::f32:
      break;
  }
  CHECK(false);
  return {};
}

template Status stream_linear(const QuantizedLinear<Bf16, float>&, Stream);
template Status stream_linear(const QuantizedLinear<Bf16, Bf16>&, Stream);

}  // namespace copse::kernels::cuda
