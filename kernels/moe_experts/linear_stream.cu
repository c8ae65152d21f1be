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

constexpr int warps = reduce_warps;
constexpr int threads = 32 * warps;
constexpr int chunk_rows = 32;

template <ExpertCodec kCodec>
struct SharedLayout {
  static constexpr int ring = 0;
  static constexpr int barriers = ring + warps * WeightRing<kCodec>::warp_bytes;
  static constexpr int reduce = barriers + warps * WeightRing<kCodec>::slots * 8;
  static constexpr int bytes = reduce + reduce_bytes;
};

// Jobs are tiles in order, each once for every chunk of rows: later chunks find the tile in L2.
template <ExpertCodec kCodec>
struct TileFeed {
  const std::byte* packed;
  Packed layout;
  int chunks;
  WorkRange jobs;
  WorkRange blocks;

  __device__ bool next(const std::byte*& from, int& count) {
    if (jobs.begin >= jobs.end) return false;
    from = packed + jobs.begin / chunks * layout.tile_bytes() +
           static_cast<std::size_t>(blocks.begin) * expert_layout::block_bytes(kCodec);
    count = blocks.end - blocks.begin;
    ++jobs.begin;
    return true;
  }
};

template <ExpertCodec kCodec, class Y>
class LinearBlock {
 public:
  __device__ LinearBlock(const QuantizedLinear<Bf16, Y>& call, std::byte* shared)
      : call_(call),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        blocks_(part_of(call.shape.layout().blocks(), warp_, warps)) {}

  __device__ void run() {
    const Packed layout = call_.shape.layout();
    const int chunks = expert_layout::divide_up(call_.rows, chunk_rows);
    const WorkRange jobs = part_of(std::int64_t{layout.tiles()} * chunks,
                                   static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    WeightRing<kCodec> ring(shared_ + Layout::ring + warp_ * WeightRing<kCodec>::warp_bytes,
                            reinterpret_cast<std::uint64_t*>(shared_ + Layout::barriers) +
                                warp_ * WeightRing<kCodec>::slots,
                            lane_);
    TileFeed<kCodec> feed = {call_.packed, layout, chunks, jobs, blocks_};
    for (int i = 0; i < WeightRing<kCodec>::slots; ++i) ring.fetch(feed);
    for (int job = jobs.begin; job < jobs.end; ++job) {
      const int first = job % chunks * chunk_rows;
      const int count = min(call_.rows - first, chunk_rows);
      if (count <= 8) {
        multiply<1>(ring, feed, job, job / chunks, first, count);
      } else if (count <= 16) {
        multiply<2>(ring, feed, job, job / chunks, first, count);
      } else {
        multiply<4>(ring, feed, job, job / chunks, first, count);
      }
    }
  }

 private:
  using Layout = SharedLayout<kCodec>;

  template <int kTiles>
  __device__ void multiply(WeightRing<kCodec>& ring, TileFeed<kCodec>& feed, int job, int tile,
                           int first, int count) {
    RowPointers<kTiles> rows;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = j * 8 + lane_ / 4;
      rows.inputs[j] = n < count ? call_.shape.inputs : 0;
      rows.row[j] = call_.x + static_cast<std::int64_t>(first + n) * call_.shape.inputs;
    }
    float sum[kTiles][4] = {};
    multiply_run<kCodec, kTiles>(ring, feed, rows,
                                 blocks_.begin * expert_layout::block_inputs(kCodec),
                                 blocks_.end - blocks_.begin, lane_, sum);
    const int output = tile * 16 + lane_ / 4;
    const int outputs = call_.shape.outputs;
    reduce_tiles<kTiles>(reinterpret_cast<float4*>(shared_ + Layout::reduce), turn_, job, warp_,
                         lane_, sum, [&](int j, const float4& total) {
                           const float values[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
                           for (int i = 0; i < 4; ++i) {
                             const int n = j * 8 + lane_ % 4 * 2 + i % 2;
                             const int at = output + i / 2 * 8;
                             if (n >= count || at >= outputs) continue;
                             call_.y[static_cast<std::int64_t>(first + n) * outputs + at] =
                                 from_float<Y>(values[i]);
                           }
                         });
  }

  const QuantizedLinear<Bf16, Y>& call_;
  std::byte* shared_;
  int warp_;
  int lane_;
  WorkRange blocks_;
  int turn_ = 0;
};

template <ExpertCodec kCodec, class Y>
__global__ void __launch_bounds__(threads, 1)
    linear_kernel(const __grid_constant__ QuantizedLinear<Bf16, Y> call) {
  extern __shared__ __align__(128) std::byte shared[];
  LinearBlock<kCodec, Y>(call, shared).run();
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
