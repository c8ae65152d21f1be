#pragma once
// Step 6 on a GPU: one rank's shard of the target, the same operations as model/deepseek in the
// same order, as launches that a graph can capture. T is Bf16, or float for the mode that parity
// tests use. The residual stream and what is summed over ranks are float32.
#include <memory>
#include <vector>

#include "kernels/linear/linear_cuda.h"
#include "kernels/rope/rope.h"
#include "kernels/verify_attention/verify_attention_cuda.h"
#include "model/cuda/cuda_batch.h"
#include "model/cuda/cuda_experts.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/pass_observer.h"
#include "model/deepseek/target_shard.h"
#include "model/deepseek/target_specs.h"
#include "transport/collective/device_collective.h"

namespace copse {

struct CudaTargetOptions {
  int rows_max = 0;        // of one pass
  int logit_rows_max = 0;  // of one pass
  int sequences_max = 0;
  std::vector<int> feature_layers;  // ascending; -1 is the embedding's output
  kernels::cuda::VerifyVersion verify = kernels::cuda::VerifyVersion::automatic;
};

template <class T>
struct CudaLayerWeights {
  DeviceVector input_norm;
  DeviceMatrix<T> low_rank;  // [q_lora + latent + rope][hidden]: q_a_proj above kv_a_proj
  DeviceVector q_a_norm;
  DeviceVector kv_a_norm;
  DeviceMatrix<T> q;             // [h * (nope + rope)][q_lora or hidden]
  DeviceMatrix<T> absorb_key;    // [h * latent][nope]
  DeviceMatrix<T> absorb_value;  // [h * value][latent]
  DeviceMatrix<T> o;             // [hidden][h * value]
  DeviceVector post_attention_norm;
  DeviceMatrix<T> gate_up;  // [2 * inner][hidden] of the dense MLP or the shared expert
  DeviceMatrix<T> down;     // [hidden][inner]
  DeviceMatrix<T> router;   // [experts][hidden]
  DeviceVector router_bias;
  CudaExperts<T> experts;
};

template <class T>
class CudaTarget {
 public:
  using Stream = kernels::cuda::Stream;

  CudaTarget(const ModelConfig& config, const CudaTargetOptions& options, const Shard& shard,
             DeviceCollective& group, kernels::cuda::DenseGemm*& gemm);

  // Places weights and workspace. This object must not move until arena.allocate() has run.
  void place(const TargetSpecs& specs, DeviceWeightPlan<T>& weights,
             kernels::cuda::DeviceArena& arena);
  // After the weights are loaded.
  Status finish_load();

  // Launches one pass. Results are in logits() and features() when the stream gets there.
  Status forward(const CudaBatch& batch, const CudaLatentCache<T>& cache, Stream stream);

  // Told of every part from now on, none: null. Outlives its use.
  void observe(PassObserver* observer) { observer_ = observer; }
  const CudaExperts<T>& experts(int layer) const {
    return layers_[static_cast<std::size_t>(layer)].experts;
  }

  const float* logits() const { return ws_.logits; }  // [batch.logits()][vocabulary().local]
  const T* features() const { return ws_.features; }  // [rows][feature_width()]
  int feature_width() const;
  // Enough for the products of the largest pass.
  std::size_t gemm_workspace_bytes() const;
  const ModelConfig& config() const { return config_; }
  const VocabularyShard& vocabulary() const { return shard_.vocabulary; }
  const TargetShard& shard() const { return shard_; }

  // What the drafter shares.
  Status embed(const TokenId* tokens, int rows, float* out, Stream stream);
  Status head(const T* normed, int rows, float* logits, Stream stream);

 private:
  // R = rows_max, h = heads of this rank.
  struct Workspace {
    float* residual = nullptr;  // [R][hidden]
    T* normed = nullptr;        // [R][hidden]
    float* part = nullptr;      // [R][hidden] this rank's part of a split sum, then the sum
    float* angles = nullptr;    // [R][rope]
    T* low_rank = nullptr;      // [R][q_lora + latent + rope]
    T* q = nullptr;             // [R][h][nope + rope]
    T* q_absorbed = nullptr;    // [R][h][latent + rope]
    T* attended = nullptr;      // [R][h][latent]
    T* values = nullptr;        // [R][h][value]
    T* activation = nullptr;    // [R][inner]
    float* scores = nullptr;    // [R][experts]
    std::int32_t* expert_ids = nullptr;  // [R][experts_per_token]
    float* expert_weights = nullptr;     // [R][experts_per_token]
    T* features = nullptr;               // [R][feature_width]
    float* head_rows = nullptr;          // [logit rows][hidden]
    float* logits = nullptr;             // [logit rows][vocabulary_local]
    std::byte* verify = nullptr;
    std::byte* moe = nullptr;
    std::size_t moe_bytes = 0;
  };

  void place_attention(const AttentionSpecs& specs, DeviceWeightPlan<T>& weights,
                       CudaLayerWeights<T>& layer);
  void place_mlp(const MlpSpecs& specs, Range inner, DeviceWeightPlan<T>& weights,
                 CudaLayerWeights<T>& layer);
  void place_workspace(kernels::cuda::DeviceArena& arena);
  int shared_width() const;  // widest gate_up / 2

  Status attention(int layer, const CudaBatch& batch, const CudaLatentCache<T>& cache,
                   Stream stream);
  Status absorbed_queries(const CudaLayerWeights<T>& w, int rows, Stream stream);
  Status mlp(int layer, const CudaBatch& batch, Stream stream);
  // Router scores, and the shared expert's activation where there is one, in one launch.
  Status scores_and_shared(const CudaLayerWeights<T>& w, int rows, Stream stream);
  // part = (or +=) down(activation).
  Status down(const CudaLayerWeights<T>& w, int rows, bool accumulate, Stream stream);
  Status no_part(int rows, Stream stream);
  Status after(PassPart part, int layer, Stream stream);
  // No layer: of the middle of one.
  static constexpr int kNoLayer = -2;
  // residual += part summed over ranks, captured if wanted, normed by `norm`.
  Status add_part(int layer_done, const DeviceVector* norm, int rows, Stream stream);
  Status logits_of(const CudaBatch& batch, Stream stream);
  T* feature_slice(int layer) const;  // null where the layer is not wanted
  kernels::cuda::VerifyShape verify_shape(int sequences, int rows_per_sequence) const;
  std::size_t verify_bytes() const;

  ModelConfig config_;
  CudaTargetOptions options_;
  TargetShard shard_;
  DeviceCollective& group_;
  kernels::cuda::DenseGemm*& gemm_;
  kernels::RopeTable rope_;
  float* inv_freq_ = nullptr;  // [rope / 2]
  DeviceMatrix<T> embedding_;  // [rows of this shard][hidden]
  DeviceMatrix<T> head_;       // [vocabulary rows of this shard][hidden]
  DeviceVector norm_;
  std::vector<CudaLayerWeights<T>> layers_;
  Workspace ws_;
  PassObserver* observer_ = nullptr;
};

}  // namespace copse
