#pragma once
// What a row sees, as device code, and the arguments that all versions share.
#include <cuda_runtime.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/verify_attention/verify_plan.cuh"

namespace copse::kernels::cuda {

// A call as kernels get it. Sizes as in VerifyAttentionCall.
template <class T>
struct VerifyArguments {
  int heads;
  int latent;
  int width;  // latent + rope
  int scratch_rows;
  int sequences_max;
  int tile_queries;
  float scale;
  const T* q;
  const T* pages;
  const T* scratch;
  T* out;
  const VerifySequence* sequences;
  VerifyWorkspace workspace;
};

int portable_tile_queries(bool bf16);
// The ways to cut a sequence of `queries` (row, head) pairs that hopper has kernels for.
void hopper_tilings(int queries, VerifyPlanShape* plan);

// Each version launches what it needs for one layer.
template <class T>
Status launch_verify_naive(const VerifyArguments<T>& args, int rows_max, Stream stream);
template <class T>
Status launch_verify_portable(const VerifyArguments<T>& args, const VerifyPlanShape& plan,
                              Stream stream);
template <class T>
Status launch_verify_tail(const VerifyArguments<T>& args, int rows_max, Stream stream);
// The whole layer, merge included.
Status launch_verify_hopper(const VerifyAttentionCall<Bf16>& call,
                            const VerifyArguments<Bf16>& arguments, const VerifyPlanShape& plan,
                            Stream stream);
// extra: partial results of each tile beyond its splits (prefix_tail: 1).
template <class T>
Status launch_verify_merge(const VerifyArguments<T>& args, int rows_max, int extra, Stream stream);

#ifdef __CUDACC__
// Whether row sees node of its own sequence. The mask is not read for nodes after the row.
__device__ inline bool sees(const VerifySequence& sequence, int row, int node) {
  if (node > row) return false;
  if (sequence.ancestors == nullptr) return true;
  const std::uint64_t word =
      sequence.ancestors[static_cast<std::ptrdiff_t>(row) * sequence.mask_words + node / 64];
  return (word >> (node % 64) & 1) != 0;
}

template <class T>
__device__ inline const T* prefix_row(const VerifyArguments<T>& args,
                                      const VerifySequence& sequence, int position) {
  const std::ptrdiff_t page = sequence.pages[position / verify_block_tokens];
  return args.pages + (page * verify_block_tokens + position % verify_block_tokens) * args.width;
}
template <class T>
__device__ inline const T* scratch_row(const VerifyArguments<T>& args,
                                       const VerifySequence& sequence, int node) {
  return args.scratch +
         (static_cast<std::ptrdiff_t>(sequence.slot) * args.scratch_rows + node) * args.width;
}

// Of the packed query of a sequence: its place in q (times width) and out (times latent).
__device__ inline std::ptrdiff_t query_place(const VerifySequence& sequence, int heads, int query) {
  return static_cast<std::ptrdiff_t>(sequence.first_row) * heads + query;
}
#endif

}  // namespace copse::kernels::cuda
