#pragma once
// Steps 6-7 on a GPU: the target's token after each row of logits, the same on every rank. As
// worker/sampler.h: the collectives that kernels/sample leaves to its caller stand here.
#include "kernels/common/cuda/device_memory.h"
#include "kernels/round_state/round_state.h"
#include "kernels/sample/sample_cuda.h"
#include "model/shard.h"
#include "transport/collective/device_collective.h"

namespace copse {

class CudaSampler {
 public:
  using Stream = kernels::cuda::Stream;

  CudaSampler(int rows_max, int vocabulary, const VocabularyShard& shard, DeviceCollective& group);
  void place(kernels::cuda::DeviceArena& arena);

  // Of every packed row, or of those in logit_rows [rows]; tokens [rows]. logits
  // [rows][shard.local].
  struct Rows {
    const float* logits = nullptr;
    int rows = 0;
    int rows_per_sequence = 1;
    const std::int32_t* logit_rows = nullptr;
    bool filtered = false;  // some slot of the batch has top-k, top-p or min-p
  };
  Status draw(const Rows& rows, const kernels::cuda::RoundArrays& arrays, TokenId* tokens,
              Stream stream);

 private:
  Status thresholds(const kernels::cuda::SampleCall& call, Stream stream);
  Status gather(const void* mine, void* all, std::size_t bytes, Stream stream);

  int rows_max_;
  int vocabulary_;
  VocabularyShard shard_;
  DeviceCollective& group_;
  kernels::SampleChoice* mine_ = nullptr;           // [rows_max][slices]
  kernels::SampleChoice* all_ = nullptr;            // [world_size][rows_max][slices]
  float* maxima_ = nullptr;                         // [rows_max][slices]
  float* all_maxima_ = nullptr;                     // [world_size][rows_max][slices]
  kernels::SampleThreshold* thresholds_ = nullptr;  // [rows_max]
  kernels::cuda::SampleFilterArrays filter_;
};

}  // namespace copse
