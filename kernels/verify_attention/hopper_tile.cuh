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
  CUtensorMap queries;  // [rows * heads][576], boxes of n rows x 64 columns
  CUtensorMap pages;    // [pages * 64][576], boxes of 64 x 64
  CUtensorMap scratch;  // [slots * scratch_rows][576], boxes of 64 x 64
};

template <int n>
struct Tile {
  static constexpr int registers = n / 2;  // accumulators of a product, per thread
  static constexpr int query_chunk_bytes = n * row_bytes;
  static constexpr int weight_buffers = n <= 32 ? 2 : 1;
  static constexpr int weight_bytes = n * row_bytes;

  // Small things, behind the matrices.
  struct Small {
    std::uint64_t masks[n];            // bit t: the query sees the block's token t
    float reference[n];                // exponents are relative to it; base 2
    float of_warp[group_warps][n];     // a warp's largest scores, or sums
    float move[n];                     // factor of its last move
    float step[n];                     // what that adds to scores relative to it
    float rescale[weight_buffers][n];  // of outputs so far, before the block's weights
    float2 stats[weight_buffers][n];   // of the whole item: reference, sum of weights
    int rescales[weight_buffers];      // whether rescale is to be applied
    std::uint64_t query_full[chunks], query_empty;
    std::uint64_t weights_full[weight_buffers], weights_empty[weight_buffers];
    std::uint64_t chunk_full[32], chunk_empty[32];
  };

  static constexpr int queries_at = 0;
  static constexpr int weights_at = queries_at + chunks * query_chunk_bytes;
  static constexpr int ring_at = weights_at + weight_buffers * weight_bytes;
  static constexpr int ring_room = shared_bytes - ring_at - static_cast<int>(sizeof(Small));
  static constexpr int slots_fit = ring_room / chunk_bytes;
  static constexpr int slots = slots_fit < 32 ? slots_fit : 32;  // of the ring of chunks
  static constexpr int small_at = ring_at + slots * chunk_bytes;
  static constexpr int bytes = small_at + static_cast<int>(sizeof(Small));
  static_assert(slots >= chunks + 2 && bytes <= shared_bytes);

  std::uint32_t address;  // of this block's shared memory

  __device__ std::uint32_t queries(int chunk) const {
    return address + queries_at + chunk * query_chunk_bytes;
  }
  __device__ std::uint32_t weights(int buffer) const {
    return address + weights_at + buffer * weight_bytes;
  }
  __device__ std::uint32_t slot(int slot) const { return address + ring_at + slot * chunk_bytes; }
  // Barriers by address, all arithmetic on it, so that it stays in uniform registers.
  __device__ std::uint32_t query_full(int chunk) const {
    return address + small_at + offsetof(Small, query_full) + chunk * 8;
  }
  __device__ std::uint32_t query_empty() const {
    return address + small_at + offsetof(Small, query_empty);
  }
  __device__ std::uint32_t weights_full(int buffer) const {
    return address + small_at + offsetof(Small, weights_full) + buffer * 8;
  }
  __device__ std::uint32_t weights_empty(int buffer) const {
    return address + small_at + offsetof(Small, weights_empty) + buffer * 8;
  }
  __device__ std::uint32_t chunk_full(int slot) const {
    return address + small_at + offsetof(Small, chunk_full) + slot * 8;
  }
  __device__ std::uint32_t chunk_empty(int slot) const {
    return address + small_at + offsetof(Small, chunk_empty) + slot * 8;
  }
};

extern __shared__ __align__(1024) unsigned char hopper_memory[];

template <int n>
__device__ inline typename Tile<n>::Small& small_of() {
  return *reinterpret_cast<typename Tile<n>::Small*>(hopper_memory + Tile<n>::small_at);
}

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

// An item: where it stands, and what a role asks for block by block.
struct Work {
  const VerifyItem& item;
  int first_block, last_block, prefix_blocks;
  int rows, prefix_length;

  __device__ Work(const Arguments& args, int index)
      : item(args.call.workspace.items[index]),
        first_block(item.first_block),
        last_block(item.last_block),
        prefix_blocks(item.prefix_blocks),
        rows(item.rows),
        prefix_length(item.prefix_length) {}

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

// Splits of the item's tile that have stored their part, over all launches since the plan.
__device__ inline unsigned* tile_counter(const Arguments& args, const VerifyItem& item) {
  return args.call.workspace.counters + item.partial - item.split * item.tiles;
}

}  // namespace copse::kernels::cuda::hopper
