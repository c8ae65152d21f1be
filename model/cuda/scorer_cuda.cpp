#include "model/cuda/scorer_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/kv_commit/kv_commit_cuda.h"
#include "model/cuda/target_cuda.h"
#include "model/weights/checkpoint.h"

namespace copse {

namespace cuda = kernels::cuda;

namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Rows of one pass, on the host.
struct Pass {
  int prefix = 0;
  std::span<const TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::uint64_t> ancestors;  // empty: a causal chain
  int mask_words() const { return (static_cast<int>(tokens.size()) + 63) / 64; }
};

Pass tree_pass(const ScoreInput& input) {
  Pass pass;
  pass.prefix = input.prefix_length;
  pass.tokens = input.tree_token_ids;
  const std::size_t words = size(pass.mask_words());
  pass.ancestors.resize(pass.tokens.size() * words);
  for (std::size_t r = 0; r < pass.tokens.size(); ++r) {
    const int parent = input.tree_parents[r];
    pass.positions.push_back(parent < 0 ? pass.prefix : pass.positions[size(parent)] + 1);
    std::uint64_t* own = pass.ancestors.data() + r * words;
    if (parent >= 0) std::copy_n(pass.ancestors.data() + size(parent) * words, words, own);
    own[r / 64] |= std::uint64_t{1} << (r % 64);
  }
  return pass;
}

template <class T>
class Scorer final : public CudaScorer {
 public:
  Scorer(const ModelConfig& config, DeviceCollective& group)
      : config_(config), group_(group), rows_max_(limits::tree_nodes + 1) {}
  ~Scorer() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Status load(const CudaScoreOptions& options, const OnWeightsRead& progress);
  Result<ScoreOutput> score(const ScoreInput& input) override;
  const ModelConfig& config() const override { return config_; }

 private:
  Status make_cache(int tokens);
  Status run(const Pass& pass);
  Status commit(int rows);
  Status read_logits(int rows, std::vector<float>& into);
  Status read_features(int rows, ScoreOutput& output);
  void take_layer(const std::vector<float>& features, int layer, std::vector<float>& into) const;

  ModelConfig config_;
  DeviceCollective& group_;
  int rows_max_;
  cudaStream_t stream_ = nullptr;
  std::vector<int> layers_;  // whose outputs are kept
  cuda::DeviceArena arena_;
  std::byte* gemm_workspace_ = nullptr;
  std::optional<cuda::DenseGemm> gemm_store_;
  cuda::DenseGemm* gemm_ = nullptr;
  std::optional<CudaTarget<T>> target_;
  float* all_logits_ = nullptr;  // [world_size][rows][local]
  TokenId* tokens_ = nullptr;    // [rows]
  std::int32_t* positions_ = nullptr;
  std::uint64_t* ancestors_ = nullptr;  // [rows][mask words]
  kernels::VerifySequence* sequence_ = nullptr;
  std::int32_t* commit_ = nullptr;  // [3]: rows, slot, first position
  std::optional<cuda::DeviceArena> cache_arena_;
  PageId* page_table_ = nullptr;
  int table_pages_ = 0;
  CudaLatentCache<T> cache_;
};

template <class T>
Status Scorer<T>::load(const CudaScoreOptions& options, const OnWeightsRead& progress) {
  layers_ = {0, config_.layers - 2};
  std::ranges::sort(layers_);
  layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
  COPSE_TRY(const Checkpoint files, Checkpoint::open(options.model));
  const TargetSpecs specs = target_specs(config_);
  COPSE_RETURN_IF_ERROR(check_target_tensors(files, config_, specs));
  LoadPlan plan(files, config_.quantization);
  DeviceWeightPlan<T> weights(&plan, arena_);
  CudaTargetOptions target;
  target.rows_max = rows_max_;
  target.logit_rows_max = rows_max_;
  target.sequences_max = 1;
  target.feature_layers = layers_;
  target.verify = options.verify;
  target_.emplace(config_, target, Shard{group_.rank(), group_.world_size()}, group_, gemm_);
  target_->place(specs, weights, arena_);
  COPSE_RETURN_IF_ERROR(plan.status());
  const std::size_t rows = size(rows_max_);
  arena_.place("logits of all ranks",
               rows * size(target_->vocabulary().local) * size(group_.world_size()), all_logits_);
  arena_.place("tokens", rows, tokens_);
  arena_.place("positions", rows, positions_);
  arena_.place("ancestors", rows * ((rows + 63) / 64), ancestors_);
  arena_.place("sequence", 1, sequence_);
  arena_.place("commit", 3, commit_);
  arena_.place("workspace of products", target_->gemm_workspace_bytes(), gemm_workspace_);
  COPSE_RETURN_IF_ERROR(arena_.allocate());
  COPSE_TRY(gemm_store_, cuda::DenseGemm::create(gemm_workspace_, target_->gemm_workspace_bytes()));
  gemm_ = &*gemm_store_;
  COPSE_RETURN_IF_ERROR(weights.load(progress));
  COPSE_RETURN_IF_ERROR(target_->finish_load());
  return cuda::cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                           "cudaStreamCreate");
}

// Pages in order, and the scratch of one slot.
template <class T>
Status Scorer<T>::make_cache(int tokens) {
  cache_.layers = config_.layers;
  cache_.width = config_.latent_width();
  cache_.pages_count = (tokens + limits::page_tokens - 1) / limits::page_tokens;
  cache_.slots = 1;
  cache_.scratch_rows = limits::tree_nodes + 1;
  table_pages_ = cache_.pages_count;
  cache_arena_.emplace();
  cache_arena_->place("pages", size(cache_.layers) * cache_.layer_page_values(), cache_.pages);
  cache_arena_->place("scratch", size(cache_.layers) * cache_.layer_scratch_values(),
                      cache_.scratch);
  cache_arena_->place("page table", size(table_pages_), page_table_);
  COPSE_RETURN_IF_ERROR(cache_arena_->allocate());
  std::vector<PageId> table(size(table_pages_));
  std::iota(table.begin(), table.end(), 0);
  return cuda::copy_to_device(page_table_, table.data(), table.size() * sizeof(PageId));
}

template <class T>
Status Scorer<T>::run(const Pass& pass) {
  const int rows = static_cast<int>(pass.tokens.size());
  kernels::VerifySequence sequence;
  sequence.rows = rows;
  sequence.prefix_length = pass.prefix;
  sequence.pages = page_table_;
  if (!pass.ancestors.empty()) {
    sequence.ancestors = ancestors_;
    sequence.mask_words = pass.mask_words();
  }
  const std::int32_t commit[3] = {rows, 0, pass.prefix};
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_device(tokens_, pass.tokens.data(), pass.tokens.size_bytes()));
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_device(positions_, pass.positions.data(), pass.positions.size() * 4));
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_device(ancestors_, pass.ancestors.data(), pass.ancestors.size() * 8));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(sequence_, &sequence, sizeof(sequence)));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(commit_, commit, sizeof(commit)));
  CudaBatch batch;
  batch.rows_per_sequence = rows;
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.sequence = sequence_;
  return target_->forward(batch, cache_, stream_);
}

template <class T>
Status Scorer<T>::commit(int rows) {
  cuda::KvCommitCall<T> call;
  call.layers = cache_.layers;
  call.slots = 1;
  call.scratch_rows = cache_.scratch_rows;
  call.pages_count = cache_.pages_count;
  call.width = cache_.width;
  call.scratch = cache_.scratch;
  call.pages = cache_.pages;
  call.sequences = 1;
  call.rows_max = rows;
  call.table_pages = table_pages_;
  call.counts = commit_;
  call.entry_slot = commit_ + 1;
  call.first_position = commit_ + 2;
  call.page_tables = page_table_;
  return cuda::kv_commit(call, stream_);
}

template <class T>
Status Scorer<T>::read_logits(int rows, std::vector<float>& into) {
  const VocabularyShard& own = target_->vocabulary();
  const std::size_t part = size(rows) * size(own.local);
  const float* from = target_->logits();
  const int world = group_.world_size();
  if (world > 1) {
    COPSE_RETURN_IF_ERROR(
        group_.all_gather(target_->logits(), all_logits_, part * sizeof(float), stream_));
    from = all_logits_;
  }
  COPSE_RETURN_IF_ERROR(cuda::cuda_status(cudaStreamSynchronize(stream_), "a forward pass"));
  COPSE_RETURN_IF_ERROR(group_.status());
  std::vector<float> all(part * size(world));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_host(all.data(), from, all.size() * sizeof(float)));
  const std::size_t vocabulary = size(config_.vocabulary);
  const std::size_t width = size(own.local);
  for (std::size_t r = 0; r < size(rows); ++r) {
    for (std::size_t first = 0, rank = 0; first < vocabulary; first += width, ++rank) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>((rank * size(rows) + r) * width);
      into.insert(into.end(), row,
                  row + static_cast<std::ptrdiff_t>(std::min(width, vocabulary - first)));
    }
  }
  return {};
}

template <class T>
void Scorer<T>::take_layer(const std::vector<float>& features, int layer,
                           std::vector<float>& into) const {
  const auto hidden = static_cast<std::ptrdiff_t>(config_.hidden);
  const auto at = std::find(layers_.begin(), layers_.end(), layer) - layers_.begin();
  const auto width = static_cast<std::ptrdiff_t>(layers_.size()) * hidden;
  for (auto row = features.begin(); row != features.end(); row += width) {
    into.insert(into.end(), row + at * hidden, row + (at + 1) * hidden);
  }
}

template <class T>
Status Scorer<T>::read_features(int rows, ScoreOutput& output) {
  std::vector<T> stored(size(rows) * size(target_->feature_width()));
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_host(stored.data(), target_->features(), stored.size() * sizeof(T)));
  std::vector<float> features;
  for (const T value : stored) {
    if constexpr (sizeof(T) == 2) {
      features.push_back(to_float(value));
    } else {
      features.push_back(value);
    }
  }
  take_layer(features, 0, output.layer0_out);
  take_layer(features, config_.layers - 2, output.hidden_last_layer_in);
  return {};
}

template <class T>
Result<ScoreOutput> Scorer<T>::score(const ScoreInput& input) {
  ScoreOutput output;
  output.vocabulary = config_.vocabulary;
  output.hidden = config_.hidden;
  COPSE_RETURN_IF_ERROR(make_cache(static_cast<int>(input.input_ids.size())));
  const std::span<const TokenId> tokens = input.input_ids;
  for (std::size_t at = 0; at < tokens.size();) {
    Pass pass;
    pass.prefix = static_cast<int>(at);
    pass.tokens =
        tokens.subspan(at, std::min(size(limits::prefill_chunk_rows), tokens.size() - at));
    pass.positions.resize(pass.tokens.size());
    std::iota(pass.positions.begin(), pass.positions.end(), pass.prefix);
    const int rows = static_cast<int>(pass.tokens.size());
    COPSE_RETURN_IF_ERROR(run(pass));
    COPSE_RETURN_IF_ERROR(commit(rows));
    COPSE_RETURN_IF_ERROR(read_logits(rows, output.logits));
    COPSE_RETURN_IF_ERROR(read_features(rows, output));
    at += pass.tokens.size();
  }
  if (input.tree_token_ids.empty()) return output;
  if (input.tree_token_ids.size() > size(rows_max_)) {
    return Error{ErrorCode::resource_exhausted, "tree", "has too many nodes"};
  }
  COPSE_RETURN_IF_ERROR(run(tree_pass(input)));
  COPSE_RETURN_IF_ERROR(
      read_logits(static_cast<int>(input.tree_token_ids.size()), output.tree_logits));
  return output;
}

template <class T>
Result<std::unique_ptr<CudaScorer>> load_scorer(const CudaScoreOptions& options,
                                                const ModelConfig& config, DeviceCollective& group,
                                                const OnWeightsRead& progress) {
  auto scorer = std::make_unique<Scorer<T>>(config, group);
  COPSE_RETURN_IF_ERROR(scorer->load(options, progress));
  return std::unique_ptr<CudaScorer>(std::move(scorer));
}

}  // namespace

Result<std::unique_ptr<CudaScorer>> CudaScorer::load(const CudaScoreOptions& options,
                                                     DeviceCollective& group,
                                                     const OnWeightsRead& progress) {
  COPSE_TRY([[maybe_unused]] const cuda::DeviceInfo device, cuda::open_device(options.device));
  COPSE_TRY(const ModelConfig config, read_model_config(options.model));
  if (options.float32) return load_scorer<float>(options, config, group, progress);
  return load_scorer<Bf16>(options, config, group, progress);
}

}  // namespace copse
