#pragma once
// What the roles of the hopper version share: the kernel's arguments, its shared memory and the
// barriers between roles. README.md draws the pipeline.
//
// A tile has n queries. Operands are swapped: a block's 64 keys are the rows (M) of the scores'
// product, the queries its columns (N), so few queries waste nothing:
//   scores  [64 keys][n]    = keys [64][576] * queries^T
//   outputs [512][n]       += values^T [512][64 keys] * weights [64 keys][n]
// Keys come in chunks of 64 columns, the rope's first: chunk c of a block has columns
// chunk_column(c). Chunk 1 + v is the v-th 64 values.
#include <cstddef>

#include "kernels/verify_attention/hopper.cuh"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda::hopper {

inline constexpr int latent = 512;
inline constexpr int width = 576;
inline constexpr int chunk_columns = 64;
inline constexpr int chunks = width / chunk_columns;
inline constexpr int value_chunks = latent / chunk_columns;
inline constexpr int row_bytes = chunk_columns * 2;
inline constexpr int chunk_bytes = verify_block_tokens * row_bytes;
inline constexpr int queries_max = 72;  // of a tile
inline constexpr int slots_max = 27;    // of the ring of chunks
inline constexpr int shared_bytes = 227 * 1024;

// Warpgroups.
inline constexpr int threads = 512;
inline constexpr int load_group = 0;    // warp 0 loads keys, warp 1 queries
inline constexpr int score_group = 1;   // scores and softmax
inline constexpr int output_group = 2;  // and 3: half of the value chunks each
inline constexpr int output_threads = 256;
inline constexpr int group_threads = 128;
inline constexpr int group_warps = 4;

// Named barriers; 0 is __syncthreads.
inline constexpr int score_barrier = 1;
inline constexpr int output_barrier = 2;
inline constexpr int clear_barrier = 3;  // and 4: each output group's own

__device__ inline int chunk_column(int chunk) {
  return (chunk == 0 ? chunks - 1 : chunk - 1) * chunk_columns;
}

inline constexpr float no_score = -1e30f;  // the reference of a query that saw nothing yet

struct Arguments {
  VerifyArguments<Bf16> call;
  // Where the block's shared memory begins. The kernel could ask, but a parameter is known to be
  // the same in all lanes, so that addresses are reckoned in uniform registers, as products want
  // them.
  std::uint32_t shared_begin;
  CUtensorMap queries[3];  // [rows * heads][576], boxes of n rows x 64 columns; by tiling
  CUtensorMap pages;       // [pages * 64][576], boxes of 64 x 64
  CUtensorMap scratch;     // [slots * scratch_rows][576], boxes of 64 x 64
};

// Small things at the end of shared memory, in one place for tiles of every size.
struct Small {
  std::uint64_t masks[queries_max];  // bit t: the query sees the block's token t
  float reference[queries_max];  // exponents of 2 are relative to it; no_score: it saw nothing yet
  float base[queries_max];       // the same, but then zero
  float of_warp[group_warps][queries_max];  // a warp's largest scores, or sums
  float move[queries_max];                  // factor of the reference's last move
  float step[queries_max];                  // what that adds to scores relative to it
  float rescale[2][queries_max];            // of outputs so far, before the block's weights
  float2 stats[2][queries_max];             // of the whole item: reference, sum of weights
  int rescales[2];                          // whether rescale is to be applied
  std::uint64_t query_full[chunks], query_empty;
  std::uint64_t weights_full[2], weights_empty[2];  // a buffer of weights each
  std::uint64_t scores_done;                        // keys of a block were multiplied
  std::uint64_t merge_full;
  std::uint64_t chunk_full[slots_max], chunk_empty[slots_max];
};
inline constexpr int small_at = (shared_bytes - static_cast<int>(sizeof(Small))) / 16 * 16;

extern __shared__ __align__(1024) unsigned char hopper_memory[];

__device__ inline Small& small_of() {
  return *reinterpret_cast<Small*>(hopper_memory + small_at);
}

// Barriers by address, all arithmetic on it, so that it stays in uniform registers.
struct Barriers {
  std::uint32_t address;  // of shared memory

  __device__ std::uint32_t at(std::size_t offset, int index) const {
    return address + static_cast<std::uint32_t>(small_at + offset) +
           static_cast<std::uint32_t>(index) * 8;
  }
  __device__ std::uint32_t query_full(int chunk) const {
    return at(offsetof(Small, query_full), chunk);
  }
  __device__ std::uint32_t query_empty() const { return at(offsetof(Small, query_empty), 0); }
  __device__ std::uint32_t weights_full(int buffer) const {
    return at(offsetof(Small, weights_full), buffer);
  }
  __device__ std::uint32_t weights_empty(int buffer) const {
    return at(offsetof(Small, weights_empty), buffer);
  }
  __device__ std::uint32_t scores_done() const { return at(offsetof(Small, scores_done), 0); }
  __device__ std::uint32_t merge_full() const { return at(offsetof(Small, merge_full), 0); }
  __device__ std::uint32_t chunk_full(int slot) const {
    return at(offsetof(Small, chunk_full), slot);
  }
  __device__ std::uint32_t chunk_empty(int slot) const {
    return at(offsetof(Small, chunk_empty), slot);
  }
};

template <int n>
struct Tile : Barriers {
  static constexpr int registers = n / 2;  // accumulators of a product, per thread
  static constexpr int query_chunk_bytes = n * row_bytes;
  static constexpr int weight_buffers = n <= 32 ? 2 : 1;
  static constexpr int weight_bytes = n * row_bytes;
  // Whether most of a block's outputs wait until the next block's scores are done: these are in a
  // hurry, as the softmax follows them. Where memory is the bound there is nothing to gain.
  static constexpr bool scores_first = n > 32;

  static constexpr int queries_at = 0;
  static constexpr int weights_at = queries_at + chunks * query_chunk_bytes;
  static constexpr int ring_at = weights_at + weight_buffers * weight_bytes;
  static constexpr int slots_fit = (small_at - ring_at) / chunk_bytes;
  static constexpr int slots = slots_fit < slots_max ? slots_fit : slots_max;
  // A block of keys, and what is left of the one before while its outputs wait.
  static_assert(slots >= (scores_first ? chunks + value_chunks - 2 : 2 * chunks));

  __device__ std::uint32_t queries(int chunk) const {
    return address + queries_at + chunk * query_chunk_bytes;
  }
  __device__ std::uint32_t weights(int buffer) const {
    return address + weights_at + buffer * weight_bytes;
  }
  __device__ std::uint32_t slot(int slot) const { return address + ring_at + slot * chunk_bytes; }
};

// A place in a ring of `size` and the parity of its current turn.
struct RingPlace {
  int index = 0;
  unsigned parity = 0;

  __device__ RingPlace plus(int count, int size) const {
    RingPlace result = *this;
    result.index += count;
    if (result.index >= size) {
      result.index -= size;
      result.parity ^= 1;
    }
    return result;
  }
};

// An item: where it stands, and what a role asks for block by block. Items of a block of threads
// are grid apart; the entry after its last says so by itself, so that one read is enough.
struct Work {
  const VerifyItem* item;
  int index, items;
  int first_block, last_block, prefix_blocks;
  int rows, prefix_length;

  __device__ explicit Work(const Arguments& args) { read(args, static_cast<int>(blockIdx.x)); }
  __device__ void read(const Arguments& args, int at) {
    index = at;
    item = args.call.workspace.items + at;
    items = item->items;
    first_block = item->first_block;
    last_block = item->last_block;
    prefix_blocks = item->prefix_blocks;
    rows = item->rows;
    prefix_length = item->prefix_length;
  }
  __device__ bool exists() const { return index < items; }
  __device__ void next(const Arguments& args) { read(args, index + static_cast<int>(gridDim.x)); }

  __device__ bool tail(int block) const { return block >= prefix_blocks; }
  // Tokens of the block; the rest of its 64 rows are none.
  __device__ int tokens(int block) const {
    const int left = tail(block) ? rows - (block - prefix_blocks) * verify_block_tokens
                                 : prefix_length - block * verify_block_tokens;
    return min(left, verify_block_tokens);
  }
};

// Queries of the item's tile that exist.
template <int n>
__device__ inline int queries_of(const Arguments& args, const VerifyItem& item) {
  return min(n, item.rows * args.call.heads - item.tile * n);
}
// Row of q and out of the tile's first query.
template <int n>
__device__ inline int first_query(const Arguments& args, const VerifyItem& item) {
  return item.first_row * args.call.heads + item.tile * n;
}

// Where the partial results of the item's tile begin, in partial results: all splits of one tile
// stand together.
__device__ inline std::ptrdiff_t tile_partials(const VerifyItem& item) {
  return item.partial - item.split * item.tiles - item.tile + item.tile * item.splits;
}

// Splits of the item's tile that have stored their part, over all launches since the plan.
__device__ inline unsigned* tile_counter(const Arguments& args, const VerifyItem& item) {
  return args.call.workspace.counters + item.partial - item.split * item.tiles;
}

}  // namespace copse::kernels::cuda::hopper
