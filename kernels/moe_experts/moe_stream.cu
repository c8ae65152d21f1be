// The experts of a layer in one launch that streams weights at the memory's pace.
//
// One block a multiprocessor, all resident. Each sorts the pairs for itself, then makes its part of
// the activations (warps split the inputs, a tile's sums meet in shared memory), waits for all
// blocks, makes its part of the second product (a warp makes a whole tile), and adds the products
// of the tiles that it finishes. Every warp fetches its weights through moe_ring.cuh, ahead of all
// that.
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/moe_experts/moe_dispatch.h"
#include "kernels/moe_experts/moe_plan.cuh"
#include "kernels/moe_experts/moe_reduce.cuh"
#include "kernels/moe_experts/moe_run.cuh"
#include "kernels/moe_experts/moe_stream.h"

namespace copse::kernels::cuda {
namespace {

using expert_layout::Packed;

constexpr int warps = reduce_warps;
constexpr int threads = 32 * warps;
constexpr int finished_tiles_max = 64;  // of one block: moe_tiles_max / 64 multiprocessors

// What a call's blocks share.
struct StreamCall {
  MoeExperts<Bf16> call;
  Bf16* activations;  // [pairs in sorted order][activation_stride]
  float* products;    // [pairs][hidden]
  unsigned* barrier;
  int* tile_counts;
  SortedPairs sorted;  // pair null: sort here
  int entries_max;     // room for entries in shared memory
};

template <ExpertCodec kCodec>
struct SharedLayout {
  static constexpr int ring = 0;
  static constexpr int barriers = ring + warps * WeightRing<kCodec>::warp_bytes;
  static constexpr int reduce = barriers + warps * WeightRing<kCodec>::slots * 8;
  static constexpr int finished = reduce + reduce_bytes;
  static constexpr int lists = finished + finished_tiles_max * 4;
};

// The runs of blocks that one warp multiplies, in order: its part of the inputs in each job of the
// first product, then whole tiles of the second.
template <ExpertCodec kCodec>
struct WeightFeed {
  const std::byte* packed;
  std::size_t expert_bytes;
  Packed gate_up;
  Packed down;
  const int* entry_expert;
  WorkRange jobs;    // of the first product, what is left
  WorkRange blocks;  // this warp's part of the inputs
  TileJobs tiles;

  __device__ const std::byte* expert(int entry) const {
    return packed + static_cast<std::size_t>(entry_expert[entry]) * expert_bytes;
  }
  __device__ bool next(const std::byte*& from, int& count) {
    constexpr std::size_t block_size = expert_layout::block_bytes(kCodec);
    if (jobs.begin < jobs.end) {
      const int tile = jobs.begin % gate_up.tiles();
      from = expert(jobs.begin / gate_up.tiles()) + tile * gate_up.tile_bytes() +
             blocks.begin * block_size;
      count = blocks.end - blocks.begin;
      ++jobs.begin;
      return true;
    }
    if (tiles.entry >= tiles.units.entries || !tiles.settle()) return false;
    from = expert(tiles.entry) + gate_up.bytes() + tiles.tile * down.tile_bytes();
    count = down.blocks();
    tiles.tile += warps;
    return true;
  }
};

template <ExpertCodec kCodec>
class Block {
 public:
  __device__ Block(const StreamCall& stream, std::byte* shared)
      : stream_(stream),
        call_(stream.call),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    sort();
    const Packed gate_up = call_.shape.gate_up();
    const Packed down = call_.shape.down();
    const int block = static_cast<int>(blockIdx.x);
    const int blocks = static_cast<int>(gridDim.x);
    const int entries = *lists_.entries;
    if (entries == 0) {
      zero(block, blocks);
      return;
    }
    const WorkRange jobs = part_of(std::int64_t{entries} * gate_up.tiles(), block, blocks);
    const WorkRange inputs = part_of(gate_up.blocks(), warp_, warps);
    const TileUnits units = {entries, part_of(std::int64_t{entries} * down.tiles(), block, blocks)};
    WeightRing<kCodec> ring(shared_ + Layout::ring + warp_ * WeightRing<kCodec>::warp_bytes,
                            reinterpret_cast<std::uint64_t*>(shared_ + Layout::barriers) +
                                warp_ * WeightRing<kCodec>::slots,
                            lane_);
    WeightFeed<kCodec> feed = {
        call_.packed, call_.shape.expert_bytes(), gate_up, down, lists_.expert, jobs,
        inputs,       TileJobs(units, warp_)};
    for (int i = 0; i < WeightRing<kCodec>::slots; ++i) ring.fetch(feed);
    for (int job = jobs.begin; job < jobs.end; ++job) {
      activate(ring, feed, inputs, job / gate_up.tiles(), job % gate_up.tiles(), job);
    }
    grid_barrier(stream_.barrier, gridDim.x);
    TileJobs mine(units, warp_);
    while (mine.settle()) {
      multiply_tile(ring, feed, mine.entry, mine.tile, down);
      mine.tile += warps;
    }
    finish(units);
  }

 private:
  using Layout = SharedLayout<kCodec>;

  __device__ void sort() {
    int* memory = reinterpret_cast<int*>(shared_ + Layout::lists);
    if (stream_.sorted.pair != nullptr) {
      lists_ = stream_.sorted;
      return;
    }
    const int room = stream_.entries_max;
    lists_ = {memory, memory + 1, memory + 1 + room, memory + 2 + 2 * room};
    const SortInput in = {call_.ids, call_.rows, call_.experts_per_token, call_.shape.first_expert,
                          call_.shape.experts};
    sort_pairs(in, reinterpret_cast<int*>(shared_ + Layout::ring), lists_);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies will write there
    __syncthreads();
  }
  __device__ void zero(int block, int blocks) const {
    const std::int64_t count = std::int64_t{call_.rows} * call_.shape.hidden;
    for (std::int64_t i = std::int64_t{block} * threads + threadIdx.x; i < count;
         i += std::int64_t{blocks} * threads) {
      call_.y[i] = 0;
    }
  }
  __device__ int entry_rows_of(int entry) const {
    return min(lists_.first[entry + 1] - lists_.first[entry], entry_rows);
  }

  template <int kTiles>
  __device__ RowPointers<kTiles> rows_of_x(int entry) const {
    RowPointers<kTiles> rows;
    const int first = lists_.first[entry];
    const int count = entry_rows_of(entry);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = j * 8 + lane_ / 4;
      rows.inputs[j] = n < count ? call_.shape.hidden : 0;
      const int row = n < count ? lists_.pair[first + n] / call_.experts_per_token : 0;
      rows.row[j] = call_.x + static_cast<std::int64_t>(row) * call_.shape.hidden;
    }
    return rows;
  }
  template <int kTiles>
  __device__ RowPointers<kTiles> rows_of_activations(int entry) const {
    RowPointers<kTiles> rows;
    const int count = entry_rows_of(entry);
    const int stride = activation_stride(call_.shape);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = j * 8 + lane_ / 4;
      rows.inputs[j] = n < count ? stride : 0;
      rows.row[j] =
          stream_.activations + static_cast<std::int64_t>(lists_.first[entry] + n) * stride;
    }
    return rows;
  }

  __device__ void activate(WeightRing<kCodec>& ring, WeightFeed<kCodec>& feed,
                           const WorkRange& inputs, int entry, int tile, int turn) {
    const int count = entry_rows_of(entry);
    if (count <= 8) {
      activate_rows<1>(ring, feed, inputs, entry, tile, turn);
    } else if (count <= 16) {
      activate_rows<2>(ring, feed, inputs, entry, tile, turn);
    } else {
      activate_rows<4>(ring, feed, inputs, entry, tile, turn);
    }
  }
  template <int kTiles>
  __device__ void activate_rows(WeightRing<kCodec>& ring, WeightFeed<kCodec>& feed,
                                const WorkRange& inputs, int entry, int tile, int turn) {
    float sum[kTiles][4] = {};
    multiply_run<kCodec, kTiles>(ring, feed, rows_of_x<kTiles>(entry),
                                 inputs.begin * expert_layout::block_inputs(kCodec),
                                 inputs.end - inputs.begin, lane_, sum);
    const int count = entry_rows_of(entry);
    const int stride = activation_stride(call_.shape);
    Bf16* out = stream_.activations + static_cast<std::int64_t>(lists_.first[entry]) * stride +
                tile * 8 + lane_ / 4;
    reduce_tiles<kTiles>(
        reinterpret_cast<float4*>(shared_ + Layout::reduce), reduce_turn_, turn, warp_, lane_, sum,
        [&](int j, const float4& total) {
          const int n = j * 8 + lane_ % 4 * 2;
          if (n < count) out[static_cast<std::int64_t>(n) * stride] = silu_times(total.x, total.z);
          if (n + 1 < count) {
            out[static_cast<std::int64_t>(n + 1) * stride] = silu_times(total.y, total.w);
          }
        });
  }
  __device__ static Bf16 silu_times(float gate, float up) {
    return from_float<Bf16>(gate / (1.0f + __expf(-gate)) * up);
  }

  __device__ void multiply_tile(WeightRing<kCodec>& ring, WeightFeed<kCodec>& feed, int entry,
                                int tile, const Packed& down) {
    const int count = entry_rows_of(entry);
    if (count <= 8) {
      multiply_tile_rows<1>(ring, feed, entry, tile, down);
    } else if (count <= 16) {
      multiply_tile_rows<2>(ring, feed, entry, tile, down);
    } else {
      multiply_tile_rows<4>(ring, feed, entry, tile, down);
    }
  }
  template <int kTiles>
  __device__ void multiply_tile_rows(WeightRing<kCodec>& ring, WeightFeed<kCodec>& feed, int entry,
                                     int tile, const Packed& down) {
    float sum[kTiles][4] = {};
    multiply_run<kCodec, kTiles>(ring, feed, rows_of_activations<kTiles>(entry), 0, down.blocks(),
                                 lane_, sum);
    const int count = entry_rows_of(entry);
    const int* pairs = lists_.pair + lists_.first[entry];
    const int output = tile * 16 + lane_ / 4;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = j * 8 + lane_ % 4 * 2 + i;
        if (n >= count) continue;
        float* out =
            stream_.products + static_cast<std::int64_t>(pairs[n]) * call_.shape.hidden + output;
        out[0] = sum[j][i];
        if (output + 8 < call_.shape.hidden) out[8] = sum[j][2 + i];
      }
    }
  }

  // Tiles of which this block made all products, or the last ones, become y.
  __device__ void finish(const TileUnits& units) {
    int* finished = reinterpret_cast<int*>(shared_ + Layout::finished);
    const int first = units.tile_begin();
    const int last = units.tile_end();
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < last - first) {
      const int tile = first + static_cast<int>(threadIdx.x);
      const int own = units.of_tile(tile);
      finished[threadIdx.x] =
          own > 0 && count_units(stream_.tile_counts + tile, own, units.entries) ? 1 : 0;
    }
    __syncthreads();
    for (int tile = first; tile < last; ++tile) {
      if (finished[tile - first] != 0) add_products(tile);
    }
  }
  // Four outputs of a row a thread.
  __device__ void add_products(int tile) const {
    const int output = tile * 16 + static_cast<int>(threadIdx.x) % 4 * 4;
    if (output >= call_.shape.hidden) return;
    for (int row = static_cast<int>(threadIdx.x) / 4; row < call_.rows; row += threads / 4) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
      for (int slot = 0; slot < call_.experts_per_token; ++slot) {
        const int pair = row * call_.experts_per_token + slot;
        const int expert = call_.ids[pair] - call_.shape.first_expert;
        const bool here = call_.ids[pair] >= 0 && expert >= 0 && expert < call_.shape.experts;
        const float weight = here ? call_.weights[pair] : 0.0f;
        float4 part = make_float4(0, 0, 0, 0);
        if (here) {
          part = __ldcg(reinterpret_cast<const float4*>(
              stream_.products + static_cast<std::int64_t>(pair) * call_.shape.hidden + output));
        }
        sum.x = fmaf(weight, part.x, sum.x);
        sum.y = fmaf(weight, part.y, sum.y);
        sum.z = fmaf(weight, part.z, sum.z);
        sum.w = fmaf(weight, part.w, sum.w);
      }
      *reinterpret_cast<float4*>(call_.y + static_cast<std::int64_t>(row) * call_.shape.hidden +
                                 output) = sum;
    }
  }

  const StreamCall& stream_;
  const MoeExperts<Bf16>& call_;
  std::byte* shared_;
  int warp_;
  int lane_;
  int reduce_turn_ = 0;
  SortedPairs lists_ = {};
};

template <ExpertCodec kCodec>
__global__ void __launch_bounds__(threads, 1)
    stream_kernel(const __grid_constant__ StreamCall call) {
  extern __shared__ __align__(128) std::byte shared[];
  Block<kCodec>(call, shared).run();
}

__global__ void __launch_bounds__(512) sort_kernel(SortInput in, SortedPairs out) {
  extern __shared__ int scratch[];
  sort_pairs(in, scratch, out);
}

int entries_max(const MoeExperts<Bf16>& call) {
  const int pairs = call.rows * call.experts_per_token;
  return std::min(call.shape.experts, pairs) + pairs / entry_rows + 1;
}

// Rows beyond one pass of masks are sorted once, by a launch of its own.
Status sort_first(StreamCall& stream, std::size_t sorted_offset, Stream on) {
  const MoeExperts<Bf16>& call = stream.call;
  auto* words = reinterpret_cast<int*>(call.workspace + sorted_offset);
  const int room = entries_max(call);
  stream.sorted = {words, words + 1, words + 1 + room, words + 2 + 2 * room};
  const SortInput in = {call.ids, call.rows, call.experts_per_token, call.shape.first_expert,
                        call.shape.experts};
  const int shared = 4 * sort_scratch_words(call.shape.experts);
  sort_kernel<<<1, 512, static_cast<std::size_t>(shared), on>>>(in, stream.sorted);
  return launched("moe_experts sort");
}

template <ExpertCodec kCodec>
Status launch(const StreamCall& stream, Stream on) {
  const int lists =
      stream.sorted.pair != nullptr
          ? 0
          : 4 * (2 + 2 * stream.entries_max + stream.call.rows * stream.call.experts_per_token);
  const int shared = SharedLayout<kCodec>::lists + lists;
  static_assert(warps * WeightRing<kCodec>::warp_bytes >= 4 * sort_scratch_words(limits::experts));
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaFuncSetAttribute(stream_kernel<kCodec>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                  "moe_experts shared memory"));
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(device_info().multiprocessors));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = on;
  config.attrs = &together;
  config.numAttrs = 1;
  return cuda_status(cudaLaunchKernelEx(&config, stream_kernel<kCodec>, stream), "moe_experts");
}

}  // namespace

bool stream_applies(const ExpertShape& shape) {
  const DeviceInfo& device = device_info();
  return device.major >= 9 && device.multiprocessors >= moe_tiles_max / finished_tiles_max &&
         device.shared_memory_bytes >= stream_shared_bytes && shape.codec != ExpertCodec::f32 &&
         shape.hidden % 8 == 0 && shape.inner > 0 && shape.experts > 0;
}

Status stream_experts(const MoeExperts<Bf16>& call, Stream on) {
  check_moe_call(call);
  if (call.rows == 0) return {};
  const MoeWorkspaceParts parts =
      moe_workspace_parts(call.shape, call.rows, call.experts_per_token);
  StreamCall stream = {call,
                       reinterpret_cast<Bf16*>(call.workspace + parts.activations),
                       reinterpret_cast<float*>(call.workspace + parts.products),
                       reinterpret_cast<unsigned*>(call.workspace),
                       reinterpret_cast<int*>(call.workspace + parts.tile_counts),
                       {},
                       entries_max(call)};
  if (call.rows > sort_rows) COPSE_RETURN_IF_ERROR(sort_first(stream, parts.sorted, on));
  switch (call.shape.codec) {
    case ExpertCodec::bf16:
      return launch<ExpertCodec::bf16>(stream, on);
    case ExpertCodec::fp8_block:
      return launch<ExpertCodec::fp8_block>(stream, on);
    case ExpertCodec::int4_group:
      return launch<ExpertCodec::int4_group>(stream, on);
    case ExpertCodec::int4_group_f32:
      return launch<ExpertCodec::int4_group_f32>(stream, on);
    case ExpertCodec::f32:
      break;
  }
  CHECK(false);
  return {};
}

}  // namespace copse::kernels::cuda
