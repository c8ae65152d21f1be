#pragma once
// What one rank holds on its device: both models, both caches and all workspace, planned by name,
// checked against the memory there is, then allocated at once.
#include <memory>
#include <optional>

#include "kernels/linear/linear_cuda.h"
#include "model/cuda/drafter_cuda.h"
#include "model/cuda/target_cuda.h"
#include "model/weights/checkpoint.h"
#include "worker/cuda/engine_cuda.h"
#include "worker/cuda/round_cuda.h"

namespace copse {

template <class T>
class CudaModels {
 public:
  // Reads configs and headers, places everything, allocates, loads.
  static Result<std::unique_ptr<CudaModels>> load(const CudaEngineOptions& options,
                                                  DeviceCollective& group,
                                                  const LoadObserver& progress);

  CudaTarget<T>& target() { return *target_; }
  CudaDrafter<T>* drafter() { return drafter_ ? &*drafter_ : nullptr; }
  CudaRound<T>& round() { return *round_; }
  const CudaLatentCache<T>& cache() const { return cache_; }
  int sequences_max() const { return sequences_max_; }
  int rows_max() const { return rows_max_; }
  int pages() const { return cache_.pages_count; }
  int context_tokens() const { return context_tokens_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }
  std::uint64_t cache_bytes() const { return cache_bytes_; }

 private:
  CudaModels(const CudaEngineOptions& options, DeviceCollective& group)
      : options_(options), group_(group) {}

  Status read_configs();
  Status place();
  // How many pages fit beside what is placed, and the longest sequence then.
  Status choose_pages(std::uint64_t memory_bytes);
  void place_caches();
  Status allocate();
  Status load_weights(const LoadObserver& progress);

  CudaEngineOptions options_;
  DeviceCollective& group_;
  ModelConfig config_;
  std::optional<DrafterConfig> drafter_config_;
  std::optional<Checkpoint> target_files_;
  std::optional<Checkpoint> drafter_files_;
  std::optional<LoadPlan> target_plan_;
  std::optional<LoadPlan> drafter_plan_;
  kernels::cuda::DeviceArena arena_;
  std::optional<DeviceWeightPlan<T>> target_weights_;
  std::optional<DeviceWeightPlan<T>> drafter_weights_;
  std::byte* gemm_workspace_ = nullptr;
  std::size_t gemm_bytes_ = 0;
  std::optional<kernels::cuda::DenseGemm> gemm_store_;
  kernels::cuda::DenseGemm* gemm_ = nullptr;
  std::optional<CudaTarget<T>> target_;
  std::optional<CudaDrafter<T>> drafter_;
  CudaLatentCache<T> cache_;
  CudaDraftCache<T> draft_cache_;
  std::optional<CudaRound<T>> round_;
  int sequences_max_ = 0;
  int rows_max_ = 0;
  int table_pages_ = 0;
  int context_tokens_ = 0;
  std::uint64_t weight_bytes_ = 0;
  std::uint64_t cache_bytes_ = 0;
};

}  // namespace copse
