#pragma once
// Step 4 on a GPU: one rank's shard of the DFlash drafter, the operations of model/dflash in the
// same order. Embedding and head are the target's.
#include <vector>

#include "model/cuda/cuda_batch.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/target_cuda.h"
#include "model/dflash/drafter_weights.h"

namespace copse {

struct CudaDrafterOptions {
  int sequences_max = 0;
  int context_rows_max = 0;  // of one append_context
  int table_pages = 0;       // most pages of a sequence
};

// One drafter pass over a block per sequence; all arrays in device memory.
struct CudaDraftBatch {
  int sequences = 1;
  const TokenId* tokens = nullptr;          // [sequences][block]
  const std::int32_t* positions = nullptr;  // [sequences][block]; -1: the sequence does not draft
  const std::int32_t* lengths = nullptr;    // [sequences] context in the pages; -1: likewise
  const std::int32_t* slots = nullptr;      // [sequences] rows of page_tables; -1: likewise
  const PageId* page_tables = nullptr;      // [slots][table_pages]
};

// Features of committed tokens into the drafter's pages.
template <class T>
struct CudaContextBatch {
  int sequences = 1;
  int rows_per_sequence = 1;
  const T* features = nullptr;              // [rows][feature_width]
  const std::int32_t* positions = nullptr;  // [rows]; -1: nothing
  const std::int32_t* slots = nullptr;      // [sequences]
  const PageId* page_tables = nullptr;      // [slots][table_pages]

  int rows() const { return sequences * rows_per_sequence; }
};

template <class T>
class CudaDrafter {
 public:
  using Stream = kernels::cuda::Stream;

  CudaDrafter(const DrafterConfig& config, const CudaDrafterOptions& options, const Shard& shard,
              CudaTarget<T>& target, DeviceCollective& group, kernels::cuda::DenseGemm*& gemm);

  void place(const DrafterSpecs& specs, DeviceWeightPlan<T>& weights,
             kernels::cuda::DeviceArena& arena);
  Status finish_load();

  Status append_context(const CudaContextBatch<T>& batch, const CudaDraftCache<T>& cache,
                        Stream stream);
  // Logits of every row of every block; those of row 0, the bonus token, are of no use.
  Status forward(const CudaDraftBatch& batch, const CudaDraftCache<T>& cache, Stream stream);

  const float* logits() const { return ws_.logits; }  // [sequences][block][vocabulary_local]
  const DrafterConfig& config() const { return config_; }
  std::size_t gemm_workspace_bytes() const;
  int cache_width() const { return shard_.kv_heads.size() * config_.head_dim; }

 private:
  struct LayerWeights {
    DeviceVector input_norm;
    DeviceVector post_attention_norm;
    DeviceMatrix<T> qkv;  // [(h + 2 g) * head_dim][hidden]
    DeviceMatrix<T> o;    // [hidden][h * head_dim]
    DeviceVector q_norm;
    DeviceVector k_norm;
    DeviceMatrix<T> gate_up;  // [2 * inner][hidden]
    DeviceMatrix<T> down;     // [hidden][inner]
  };
  // R = rows of the largest call; h, g = query and key/value heads of this rank.
  struct Workspace {
    float* residual = nullptr;  // [R][hidden]; the projected context of append_context
    T* normed = nullptr;        // [R][hidden]
    float* part = nullptr;      // [R][hidden]
    float* angles = nullptr;    // [R][head_dim]
    T* qkv = nullptr;           // [R][h + 2 g][head_dim]
    T* attended = nullptr;      // [R][h][head_dim]
    T* activation = nullptr;    // [R][inner]
    float* logits = nullptr;    // [sequences * block][vocabulary_local]
    float* attention = nullptr;
  };

  void place_workspace(kernels::cuda::DeviceArena& arena);
  Status norm_and_rotate(T* heads, int count, const DeviceVector& norm, int rows, Stream stream);
  Status write_pages(const CudaContextBatch<T>& batch, const T* rows, T* pages, Stream stream);
  Status attention(int layer, const CudaDraftBatch& batch, const CudaDraftCache<T>& cache,
                   Stream stream);
  Status mlp(const LayerWeights& w, int rows, Stream stream);
  Status add_part(const DeviceVector& norm, bool has_part, int rows, Stream stream);
  Status angles(const std::int32_t* positions, int rows, Stream stream);
  int q_width() const { return shard_.heads.part.size() * config_.head_dim; }
  int qkv_width() const { return q_width() + 2 * cache_width(); }

  DrafterConfig config_;
  CudaDrafterOptions options_;
  DrafterShard shard_;
  CudaTarget<T>& target_;
  DeviceCollective& group_;
  kernels::cuda::DenseGemm*& gemm_;
  kernels::RopeTable rope_;
  float* inv_freq_ = nullptr;  // [head_dim / 2]
  DeviceMatrix<T> fc_;         // [hidden][features of this rank]
  DeviceVector hidden_norm_;
  DeviceVector norm_;
  std::vector<LayerWeights> layers_;
  Workspace ws_;
};

}  // namespace copse
