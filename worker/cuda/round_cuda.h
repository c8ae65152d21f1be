#pragma once
// Steps 4 to 7 on a GPU: the launches of one round and of one prefill chunk, in order, on a stream.
// Nothing is read by the host in between, so a captured graph of a shape serves every round of it.
//
//   read_plan -> (context -> draft -> top-k -> tree_build) -> prepare_verify -> forward -> sample
//   -> tree_accept -> kv_commit -> keep_features -> finish_round
#include <compare>

#include "kernels/common/cuda/device_memory.h"
#include "kernels/round_state/round_state.h"
#include "kernels/topk_logprob/topk_shape.h"
#include "model/cuda/drafter_cuda.h"
#include "model/cuda/target_cuda.h"
#include "worker/cuda/sampler_cuda.h"

namespace copse {

// What a round's launches depend on: each key is one graph.
struct RoundKey {
  int sequences = 1;
  int rows = 1;           // of a sequence, the root included; 1: nothing is drafted
  bool context = false;   // waiting features enter the drafter's cache though nothing is drafted
  bool filtered = false;  // top-k, top-p or min-p in the batch
  auto operator<=>(const RoundKey&) const = default;

  bool drafts() const { return rows > 1; }
};

// Everything outlives the round. drafter null: none.
template <class T>
struct CudaRoundParts {
  CudaTarget<T>* target = nullptr;
  CudaDrafter<T>* drafter = nullptr;
  CudaLatentCache<T>* cache = nullptr;
  CudaDraftCache<T>* draft_cache = nullptr;
  DeviceCollective* group = nullptr;
  int slots = 0;
  int sequences_max = 0;
  int rows_max = 0;        // of one pass
  int table_pages = 0;     // of one slot
  int context_tokens = 0;  // longest sequence
};

template <class T>
class CudaRound {
 public:
  using Stream = kernels::cuda::Stream;

  explicit CudaRound(const CudaRoundParts<T>& parts);
  // Must not move until arena.allocate() has run.
  void place(kernels::cuda::DeviceArena& arena);

  // Launches. Plans stand in start_plan(), prefill_plan(), round_plan() before; results in
  // results() after, [sequences] of a round or one of a chunk.
  Status start_slots(Stream stream);
  Status prefill(int rows, bool filtered, Stream stream);
  Status round(const RoundKey& key, Stream stream);

  kernels::cuda::StartPlan* start_plan() const { return start_plan_; }
  kernels::cuda::PrefillPlan* prefill_plan() const { return prefill_plan_; }
  kernels::cuda::RoundPlan* round_plan() const { return round_plan_; }
  kernels::cuda::RoundResult* results() const { return arrays_.results; }
  // Features of so many committed tokens of a slot can wait: two blocks.
  int waiting_max() const { return 2 * block(); }
  int block() const { return parts_.drafter == nullptr ? 0 : parts_.drafter->config().block_size; }

 private:
  kernels::cuda::RoundShape shape(int sequences, int rows) const;
  CudaBatch batch(int sequences, int rows) const;
  Status append_waiting(int sequences, Stream stream);
  Status draft(const RoundKey& key, Stream stream);
  Status build(const RoundKey& key, int k, Stream stream);
  Status accept(const RoundKey& key, Stream stream);
  Status commit(int sequences, int rows_max, const std::int32_t* accepted, Stream stream);

  CudaRoundParts<T> parts_;
  CudaSampler sampler_;
  kernels::cuda::RoundArrays arrays_;
  kernels::cuda::StartPlan* start_plan_ = nullptr;
  kernels::cuda::PrefillPlan* prefill_plan_ = nullptr;
  kernels::cuda::RoundPlan* round_plan_ = nullptr;
  std::int32_t* logit_row_ = nullptr;  // [1] of a prefill chunk
  T* waiting_ = nullptr;               // [slots][waiting_max][feature_width]
  T* entering_ = nullptr;              // [S][waiting_max][feature_width]
  kernels::TopkWord* part_ = nullptr;  // candidates of this rank
  kernels::TopkWord* parts_all_ = nullptr;
  float* log_probs_ = nullptr;  // [S][block][k]
  TokenId* token_ids_ = nullptr;
  TokenId* targets_ = nullptr;  // [rows_max]
};

}  // namespace copse
