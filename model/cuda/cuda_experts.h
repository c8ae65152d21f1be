#pragma once
// A layer's routed experts on a GPU, in the layout of kernels/moe_experts. In bf16 they keep the
// checkpoint's codec in memory; in the float32 mode they are widened.
#include <vector>

#include "kernels/moe_experts/moe_experts_cuda.h"
#include "model/cuda/device_weights.h"
#include "model/deepseek/target_shard.h"
#include "model/deepseek/target_specs.h"

namespace copse {

template <class T>
class CudaExperts {
 public:
  // specs: of all experts of the layer. This object must not move until the load is done.
  void place(const ModelConfig& config, const TargetShard& shard,
             const std::vector<MlpSpecs>& specs, DeviceWeightPlan<T>& weights);
  static std::size_t workspace_bytes(const ModelConfig& config, const TargetShard& shard,
                                     int rows_max);

  // y [rows][hidden] = this rank's part; workspace zero before the first call of all.
  Status run(const T* x, int rows, const std::int32_t* ids, const float* chosen_weights, float* y,
             std::byte* workspace, std::size_t workspace_bytes, kernels::cuda::Stream stream) const;
  const kernels::cuda::ExpertShape& shape() const { return shape_; }

 private:
  void place_expert(const MlpSpecs& specs, Range inner, int expert, DeviceWeightPlan<T>& weights);
  void place_matrix(const LinearSpec& spec, Range rows, Range columns, int which, int expert,
                    DeviceWeightPlan<T>& weights);
  Status take(int which, int expert, std::span<const std::byte> values,
              std::span<const std::byte> scales, DeviceWeightPlan<T>& weights);

  kernels::cuda::ExpertShape shape_;
  int experts_per_token_ = 0;
  std::byte* packed_ = nullptr;
  kernels::cuda::StoredExpert reading_;  // of the expert that is being read
};

}  // namespace copse
