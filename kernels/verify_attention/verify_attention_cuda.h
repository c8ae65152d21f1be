#pragma once
// verify_attention on the GPU; what is computed stands in verify_attention.h. T is float or Bf16:
// queries, caches and outputs are T, all arithmetic is float32 (bf16 products on tensor cores).
//
// Once a step: verify_plan, which reads the sequences' lengths on the device and splits their key
// blocks evenly over the multiprocessors. Then once a layer: verify_attention with the same shape,
// sequences and workspace. Both are capture-safe: nothing is read by the host, grids are fixed by
// the shape. A sequence with rows == 0 is a no-op; out rows of no sequence are not written.
//
// The order of a sum depends on the plan, so on all lengths of the batch, but not on the run or the
// rank: the same lengths give the same bits. VerifyVersion::naive keeps the order of
// docs/decisions/0002 (a row's bits depend on its visible tokens alone).
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/verify_attention/verify_attention.h"

namespace copse::kernels::cuda {

// The ladder of README.md.
enum class VerifyVersion : std::uint8_t {
  automatic,    // hopper where it can run, else portable
  naive,        // a block per (row, head), which reads all visible tokens by itself
  portable,     // splits of the keys, rows * heads packed in M; needs latent <= 512, rope <= 64
  prefix_tail,  // portable over the prefix, one warp per (row, head) over the tree, then a merge
  hopper,       // bf16, latent 512, rope 64, compute capability 9.0: bulk copies and wgmma
};

// Sizes, the same for all layers of a step. Dimensions are multiples of 8, except for naive.
struct VerifyShape {
  int heads = 0;  // of this rank, >= 1
  int latent = 0;
  int rope = 0;
  int scratch_rows = 0;
  int sequences_max = 0;          // S: entries of `sequences`, at most limits::batch_sequences
  int rows_per_sequence_max = 0;  // N: bound of VerifySequence::rows
  VerifyVersion version = VerifyVersion::automatic;
};

template <class T>
struct VerifyAttentionCall {
  VerifyShape shape;
  float scale = 0;
  int rows = 0;                // of q and out: every first_row + rows is at most this
  int pages_count = 0;         // of `pages`
  int slots = 0;               // of `scratch`
  const T* q = nullptr;        // [rows][heads][latent + rope]
  const T* pages = nullptr;    // [pages_count][64][latent + rope] of this layer
  const T* scratch = nullptr;  // [slots][scratch_rows][latent + rope] of this layer
  T* out = nullptr;            // [rows][heads][latent]
  const VerifySequence* sequences = nullptr;  // device memory, [S], its pointers too
  void* workspace = nullptr;                  // 256-byte aligned; need not be initialised
};

// Device bytes that verify_plan and verify_attention need for this shape.
template <class T>
std::size_t verify_workspace_bytes(const VerifyShape& shape);

// Reads sequences (rows, prefix_length), writes the plan into workspace.
template <class T>
Status verify_plan(const VerifyShape& shape, const VerifySequence* sequences, void* workspace,
                   Stream stream);

// q, pages, scratch and out are 16-byte aligned.
template <class T>
Status verify_attention(const VerifyAttentionCall<T>& call, Stream stream);

// What `automatic` means here, for this type and shape.
template <class T>
VerifyVersion verify_version(const VerifyShape& shape);

}  // namespace copse::kernels::cuda
