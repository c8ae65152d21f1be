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

constexpr int threads = multiply_threads + 32;
constexpr int finished_tiles_max = 64;  // of one block: moe_tiles_max / 64 multiprocessors
constexpr int small_pairs = 32;

struct StreamCall {
  MoeExperts<Bf16> call;
  Bf16* activations;  // [pairs in sorted order][activation_stride]
  float* products;    // [pairs][down_parts][hidden]; null: a small call, kept in shared memory
  unsigned* barrier;
  int* tile_counts;
  SortedPairs sorted;  // pair null: sort here
  int entries_max;     // room for entries in shared memory
};

// Tiles that a warp multiplies with the same rows.
struct WorkItem {
  int second;  // 1: of the second product
  int entry;
  int part;   // of the inputs, in the second product
  int count;  // rows
  BlockShare blocks;
  // Tiles first + step * stride, step < steps; this warp has those in `own`.
  int first;
  int stride;
  int steps;
  WorkRange own;
};

// What would fill registers, or spill out of them into memory that a fence of the grid's barrier
// makes slow. All threads write the same, so nobody waits.
struct BlockState {
  SortedPairs lists;
  WorkRange jobs;
  TileUnits units;
  TileRounds rounds;
  int parts;
  WorkItem items[multiply_warps];
};

template <ExpertCodec kCodec>
struct SharedLayout {
  static constexpr int ring = 0;
  static constexpr int barriers = ring + RingMemory<kCodec>::values_bytes;
  static constexpr int sums = barriers + RingMemory<kCodec>::barrier_bytes;
  static constexpr int finished = sums + TileSums::bytes;
  static constexpr int state = finished + finished_tiles_max * 4;
  static constexpr int lists = state + static_cast<int>(sizeof(BlockState));
};

template <ExpertCodec kCodec>
class Block {
 public:
  __device__ Block(const StreamCall& stream, std::byte* shared)
      : stream_(stream),
        call_(stream.call),
        shared_(shared),
        state_(*reinterpret_cast<BlockState*>(shared + Layout::state)),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        sums_(reinterpret_cast<float*>(shared + Layout::sums), warp_, lane_) {}

  __device__ void run() {
    const RingMemory<kCodec> memory(shared_ + Layout::ring, shared_ + Layout::barriers);
    if (threadIdx.x == multiply_threads) memory.initialize();
    sort();
    const int entries = *state_.lists.entries;
    if (entries == 0) {
      zero();
      return;
    }
    deal(entries);
    if (warp_ == multiply_warps) {
      fetch(WeightFetch<kCodec>(memory, lane_));
    } else {
      multiply(Ring(memory, warp_, lane_));
    }
  }

 private:
  using Layout = SharedLayout<kCodec>;
  using Ring = WeightRing<kCodec>;

  __device__ void sort() {
    int* memory = reinterpret_cast<int*>(shared_ + Layout::lists);
    const int room = stream_.entries_max;
    state_.lists = {memory, memory + 1, memory + 1 + room, memory + 2 + 2 * room};
    const SortInput in = {call_.ids, call_.rows, call_.experts_per_token, call_.shape.first_expert,
                          call_.shape.experts};
    if (call_.rows == 1) {
      sort_row(in, lane_, state_.lists);
    } else if (stream_.sorted.pair != nullptr) {
      state_.lists = stream_.sorted;
    } else {
      sort_pairs(in, reinterpret_cast<int*>(shared_ + Layout::ring), state_.lists);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies will write there
    }
    __syncthreads();
  }
  __device__ void zero() const {
    const std::int64_t count = std::int64_t{call_.rows} * call_.shape.hidden;
    for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
         i += std::int64_t{gridDim.x} * threads) {
      call_.y[i] = 0;
    }
  }
  __device__ void deal(int entries) {
    const int block = static_cast<int>(blockIdx.x);
    const int blocks = static_cast<int>(gridDim.x);
    state_.jobs = part_of(entries * call_.shape.gate_up().tiles(), block, blocks);
    state_.parts = down_parts(call_.shape);
    const int shares = entries * state_.parts;
    // Who got one job more than others should get no tile more.
    const int turned = blocks - 1 - block;
    const int tiles = call_.shape.down().tiles();
    if (stream_.products == nullptr) {
      state_.units.set_whole(shares, part_of(tiles, turned, blocks));
    } else {
      state_.units.set(shares, part_of(shares * tiles, turned, blocks));
    }
    state_.rounds.set(state_.units);
  }
  __device__ int rows_of_entry(int entry) const {
    return min(state_.lists.first[entry + 1] - state_.lists.first[entry], entry_rows);
  }
  // Blocks of a share of the second product.
  __device__ BlockShare blocks_of_part(int part) const {
    const int blocks = call_.shape.down().blocks();
    const WorkRange range = part_of(blocks, part, state_.parts);
    constexpr int stage = stage_blocks(kCodec);
    return {range.begin, stage, range.end,
            ((blocks + state_.parts - 1) / state_.parts + stage - 1) / stage};
  }
  __device__ Products products_here() const {
    if (stream_.products != nullptr) return {stream_.products, call_.shape.hidden};
    return {reinterpret_cast<float*>(shared_ + Layout::sums) - state_.units.begin_tile * 16,
            state_.units.tiles().size() * 16};
  }
  __device__ const std::byte* expert(int entry) const {
    return call_.packed +
           static_cast<std::size_t>(state_.lists.expert[entry]) * call_.shape.expert_bytes();
  }

  __device__ void fetch(WeightFetch<kCodec> ring) const {
    constexpr int block_size = expert_layout::block_bytes(kCodec);
    constexpr int stage_bytes = RingMemory<kCodec>::stage_bytes;
    const Packed gate_up = call_.shape.gate_up();
    const int tile_bytes = static_cast<int>(gate_up.tile_bytes());
    int entry = state_.jobs.begin / gate_up.tiles();
    int tile = state_.jobs.begin - entry * gate_up.tiles();
#pragma unroll 1
    for (int job = state_.jobs.begin; job < state_.jobs.end; ++job) {
      const std::byte* from = expert(entry) + static_cast<std::size_t>(tile) * gate_up.tile_bytes();
#pragma unroll 1
      for (int done = 0; done < tile_bytes; done += stage_bytes) {
        ring.run(from + done, min(stage_bytes, tile_bytes - done));
      }
      entry += ++tile == gate_up.tiles() ? 1 : 0;
      tile = tile == gate_up.tiles() ? 0 : tile;
    }
    const Packed down = call_.shape.down();
#pragma unroll 1
    for (int number = 0; number < state_.rounds.count; ++number) {
      TileRound round(state_.units, state_.rounds, number, min(lane_, multiply_warps - 1));
      if (lane_ >= multiply_warps) round.own.end = round.own.begin;
      const int share = min(round.share, state_.units.shares - 1);
      const BlockShare blocks = blocks_of_part(share % state_.parts);
      const std::byte* from = expert(share / state_.parts) + gate_up.bytes();
#pragma unroll 1
      for (int step = 0; step < round.steps; ++step) {
        const int tile = round.tile(step);
        const bool there = round.has(tile);
        const std::byte* of_tile = from + static_cast<std::size_t>(tile) * down.tile_bytes();
#pragma unroll 1
        for (int s = 0; s < blocks.stages; ++s) {
          const int first = blocks.first + s * blocks.step;
          const int count = there ? max(0, min(stage_blocks(kCodec), blocks.end - first)) : 0;
          ring.slots(of_tile + first * block_size, count * block_size);
        }
      }
    }
  }
  // One loop for both products, so that their code, which a launch meets cold, is there once.
  __device__ void multiply(Ring ring) {
    const int tiles = call_.shape.gate_up().tiles();
    WorkItem& item = state_.items[warp_];
    item.second = 0;
    item.entry = state_.jobs.begin / tiles - 1;
    item.part = 0;
    item.blocks = slots_of_tile<kCodec>(call_.shape.gate_up().blocks(), warp_);
    item.stride = 1;
    item.first = state_.jobs.begin - (item.entry + 1) * tiles;
    int job = state_.jobs.begin;
    int round = 0;
#pragma unroll 1
    while (true) {
      if (job < state_.jobs.end) {
        const int steps = min(tiles - item.first, state_.jobs.end - job);
        item.steps = steps;
        item.own = {item.first, item.first + steps};
        job += steps;
        item.entry = next_entry(item);
      } else {
        if (round == 0) grid_barrier(stream_.barrier, gridDim.x);
        if (round >= state_.rounds.count) break;
        take_round(TileRound(state_.units, state_.rounds, round, warp_), item);
        ++round;
      }
      __syncwarp();
      item.count = rows_of_entry(item.entry);
      multiply_item(ring, item);
      __syncwarp();
      item.first = 0;
    }
    finish();
  }
  // All lanes write what all have read.
  __device__ int next_entry(const WorkItem& item) const {
    const int entry = item.entry + 1;
    __syncwarp();
    return entry;
  }
  __device__ void take_round(const TileRound& round, WorkItem& item) const {
    const int share = min(round.share, state_.units.shares - 1);
    const int entry = share / state_.parts;
    const int part = share - entry * state_.parts;
    item.second = 1;
    item.entry = entry;
    item.part = part;
    item.blocks = blocks_of_part(part);
    item.first = round.first;
    item.stride = round.stride;
    item.steps = round.steps;
    item.own = round.own;
  }
  __device__ void multiply_item(Ring& ring, const WorkItem& item) {
    const int rows = item.count;
    const bool few = item.blocks.stages <= held_stages(kCodec) && rows <= 8;
    if (is_int4(kCodec) && few && rows <= 2) {
      multiply_few<is_int4(kCodec) ? 2 : 8>(ring, item);
    } else if (is_int4(kCodec) && few && rows <= 4) {
      multiply_few<is_int4(kCodec) ? 4 : 8>(ring, item);
    } else if (few) {
      multiply_few<8>(ring, item);
    } else if (rows <= 8) {
      multiply_more<1>(ring, item);
    } else if (rows <= 16) {
      multiply_more<2>(ring, item);
    } else {
      multiply_more<4>(ring, item);
    }
  }
  template <int kRows>
  __device__ void multiply_few(Ring& ring, const WorkItem& item) {
    using Held = HeldRows<kCodec, kRows>;
    using Stage = typename Held::Stage;
    using Values = typename Held::Values;
    const Bf16* row[Stage::rows_of_lane];
    int inputs[Stage::rows_of_lane];
#pragma unroll
    for (int i = 0; i < Stage::rows_of_lane; ++i) {
      const int n = Stage::row_of_lane(i, lane_);
      row[i] = row_of_item(item, n);
      inputs[i] = n < item.count ? width_of(item) : 0;
    }
    Held held;
    held.load(row, inputs, item.blocks, lane_);
    float* out[Values::rows];
    products_of_item<Values>(item, 0, out);
#pragma unroll 1
    for (int step = 0; step < item.steps; ++step) {
      const int tile = item.first + step * item.stride;
      const bool there = tile >= item.own.begin && tile < item.own.end;
      float sum[Values::sums] = {};
      multiply_held<kCodec, kRows>(ring, held, item.blocks, there, lane_, sum);
      float values[Values::count];
      Values::join(sum, lane_, values);
      if (item.second == 0) {
        add_parts<Values, 1>(item, tile, 0, step + 1 == item.steps, values);
      } else if (there) {
        store_products<Values>(tile, out, values);
      }
    }
  }
  template <int kTiles>
  __device__ void multiply_more(Ring& ring, const WorkItem& item) {
    RowPointers<kTiles> rows;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int n = j * 8 + lane_ / 4;
      rows.inputs[j] = n < item.count ? width_of(item) : 0;
      rows.row[j] = row_of_item(item, n);
    }
#pragma unroll 1
    for (int step = 0; step < item.steps; ++step) {
      const int tile = item.first + step * item.stride;
      const bool there = tile >= item.own.begin && tile < item.own.end;
      float sum[kTiles][4] = {};
      multiply_share<kCodec, kTiles>(ring, rows, item.blocks, there, lane_, sum);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (item.second == 0) {
          add_parts<MmaValues, kTiles>(item, tile, j, step + 1 == item.steps && j + 1 == kTiles,
                                       sum[j]);
        } else if (there) {
          float* out[MmaValues::rows];
          products_of_item<MmaValues>(item, j * 8, out);
          store_products<MmaValues>(tile, out, sum[j]);
        }
      }
    }
  }

  // Row n of the item's expert: of x, or of the activations.
  __device__ int width_of(const WorkItem& item) const {
    return item.second ? activation_stride(call_.shape) : call_.shape.hidden;
  }
  __device__ const Bf16* row_of_item(const WorkItem& item, int n) const {
    const int place = state_.lists.first[item.entry] + min(n, item.count - 1);
    const int row = item.second ? place : row_of(state_.lists.pair[place]);
    return (item.second ? stream_.activations : call_.x) +
           static_cast<std::int64_t>(row) * width_of(item);
  }
  // Sums of tile `tile` for rows 8 * j ..; kTiles such for each tile.
  template <class Values, int kTiles>
  __device__ void add_parts(const WorkItem& item, int tile, int j, bool last,
                            const float (&values)[Values::count]) {
    if (sums_.empty()) first_sum_ = tile * kTiles + j;
    const int first = first_sum_;
    sums_.add(values, last, [&](int index, const float(&total)[Values::count]) {
      const int sum = first + index;
      store_activations<Values>(item, sum / kTiles, sum % kTiles * 8, total);
    });
  }
  // Rows first .. of the item, gate's and up's outputs 8 * tile ...
  template <class Values>
  __device__ void store_activations(const WorkItem& item, int tile, int first,
                                    const float (&total)[Values::count]) const {
    const int stride = activation_stride(call_.shape);
    Bf16* out = stream_.activations +
                static_cast<std::int64_t>(state_.lists.first[item.entry] + first) * stride +
                tile * 8 + lane_ / 4;
#pragma unroll
    for (int i = 0; i < Values::rows; ++i) {
      float gate;
      float up;
      const bool here = Values::gate_up(total, i, lane_, gate, up);
      const int n = Values::row(i, lane_);
      if (here && first + n < item.count) {
        out[static_cast<std::int64_t>(n) * stride] = silu_times(gate, up);
      }
    }
  }
  __device__ static Bf16 silu_times(float gate, float up) {
    return from_float<Bf16>(__fdividef(gate, 1.0f + __expf(-gate)) * up);
  }
  // Where the products of this lane's rows, first .., of output lane / 4 of tile 0 go; null:
  // nowhere.
  template <class Values>
  __device__ void products_of_item(const WorkItem& item, int first,
                                   float* (&out)[Values::rows]) const {
    const Products products = products_here();
#pragma unroll
    for (int i = 0; i < Values::rows; ++i) {
      const int n = first + Values::row(i, lane_);
      const int number = state_.lists.pair[state_.lists.first[item.entry] + min(n, item.count - 1)];
      const int pair = row_of(number) * call_.experts_per_token + slot_of(number);
      out[i] = n < item.count ? products.at(pair, item.part, state_.parts, lane_ / 4) : nullptr;
    }
  }
  template <class Values>
  __device__ void store_products(int tile, float* const (&out)[Values::rows],
                                 const float (&values)[Values::count]) const {
    const bool upper = tile * 16 + 8 < call_.shape.hidden;
#pragma unroll
    for (int i = 0; i < Values::rows; ++i) {
      if (out[i] != nullptr) Values::store(values, i, lane_, upper, out[i] + tile * 16);
    }
  }

  // Tiles of which this block made all products, or the last ones, become y.
  __device__ void finish() {
    const WorkRange tiles = state_.units.tiles();
    int* finished = reinterpret_cast<int*>(shared_ + Layout::finished);
    multipliers_barrier();
    if (stream_.products == nullptr) {
      add_products<false>(tiles, finished);
      return;
    }
    if (static_cast<int>(threadIdx.x) < tiles.size()) {
      const int tile = tiles.begin + static_cast<int>(threadIdx.x);
      const int own = state_.units.of_tile(tile);
      finished[threadIdx.x] =
          own > 0 && count_units(stream_.tile_counts + tile, own, state_.units.shares) ? 1 : 0;
    }
    multipliers_barrier();
    add_products<true>(tiles, finished);
  }
  // Four outputs of a row a thread. kFromOthers: other blocks wrote some of the products.
  template <bool kFromOthers>
  __device__ void add_products(const WorkRange& tiles, const int* finished) const {
    const int fours = tiles.size() * 4;
    if (fours == 0) return;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < call_.rows * fours; i += multiply_threads) {
      const int row = i / fours;
      const int four = i - row * fours;
      const int output = tiles.begin * 16 + four * 4;
      if (output >= call_.shape.hidden || (kFromOthers && finished[four / 4] == 0)) continue;
      *reinterpret_cast<float4*>(call_.y + static_cast<std::int64_t>(row) * call_.shape.hidden +
                                 output) = row_sum<kFromOthers>(row, output);
    }
  }
  template <bool kFromOthers>
  __device__ float4 row_sum(int row, int output) const {
    const Products products = products_here();
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int part = 0; part < state_.parts; ++part) {
#pragma unroll 4
      for (int slot = 0; slot < call_.experts_per_token; ++slot) {
        const int pair = row * call_.experts_per_token + slot;
        const int id = call_.ids[pair];
        const int expert = id - call_.shape.first_expert;
        const bool here = id >= 0 && expert >= 0 && expert < call_.shape.experts;
        const float weight = here ? call_.weights[pair] : 0.0f;
        const auto* from =
            reinterpret_cast<const float4*>(products.at(pair, part, state_.parts, output));
        float4 value = make_float4(0, 0, 0, 0);
        if (here) value = kFromOthers ? __ldcg(from) : *from;
        sum.x = fmaf(weight, value.x, sum.x);
        sum.y = fmaf(weight, value.y, sum.y);
        sum.z = fmaf(weight, value.z, sum.z);
        sum.w = fmaf(weight, value.w, sum.w);
      }
    }
    return sum;
  }

  const StreamCall& stream_;
  const MoeExperts<Bf16>& call_;
  std::byte* shared_;
  BlockState& state_;
  int warp_;
  int lane_;
  TileSums sums_;
  int first_sum_ = 0;  // of those that wait in sums_: tile * tiles of rows + tile of rows
};

template <ExpertCodec kCodec>
__global__ void __launch_bounds__(threads, 1)
    stream_kernel(const __grid_constant__ StreamCall call) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // bulk copies; stream_applies says no before
  extern __shared__ __align__(128) std::byte shared[];
  Block<kCodec>(call, shared).run();
#endif
}

__global__ void __launch_bounds__(512) sort_kernel(SortInput in, SortedPairs out) {
  extern __shared__ int scratch[];
  sort_pairs(in, scratch, out);
}

int entries_max(const MoeExperts<Bf16>& call) {
  const int pairs = call.rows * call.experts_per_token;
  return std::min(call.shape.experts, pairs) + pairs / entry_rows + 1;
}

// Whether all products of a block's whole tiles fit where the first product's sums met.
bool is_small(const MoeExperts<Bf16>& call) {
  const int pairs = call.rows * call.experts_per_token;
  const int tiles =
      expert_layout::divide_up(call.shape.down().tiles(), device_info().multiprocessors);
  return pairs <= small_pairs && pairs * down_parts(call.shape) * tiles * 64 <= TileSums::bytes;
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
  static_assert(RingMemory<kCodec>::values_bytes >= 4 * sort_scratch_words(limits::experts));
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
  if (is_small(call)) stream.products = nullptr;
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
