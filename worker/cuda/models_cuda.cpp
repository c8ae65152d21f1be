#include "worker/cuda/models_cuda.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/log.h"
#include "kernels/common/cuda/device.h"
#include "model/config/drafter_config.h"
#include "model/config/model_config.h"

namespace copse {

namespace cuda = kernels::cuda;

namespace {

constexpr double kMiB = 1 << 20;

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}
int pages_of(int tokens) {
  return (tokens + limits::page_tokens - 1) / limits::page_tokens;
}
std::string mib(std::uint64_t bytes) {
  return std::to_string(static_cast<std::uint64_t>(static_cast<double>(bytes) / kMiB)) + " MiB";
}

}  // namespace

template <class T>
Result<std::unique_ptr<CudaModels<T>>> CudaModels<T>::load(const CudaEngineOptions& options,
                                                           DeviceCollective& group,
                                                           const LoadObserver& progress) {
  std::unique_ptr<CudaModels> models(new CudaModels(options, group));
  COPSE_RETURN_IF_ERROR(models->read_configs());
  COPSE_RETURN_IF_ERROR(models->place());
  COPSE_RETURN_IF_ERROR(models->allocate());
  COPSE_RETURN_IF_ERROR(models->load_weights(progress));
  return models;
}

template <class T>
Status CudaModels<T>::read_configs() {
  const EngineOptions& engine = options_.engine;
  COPSE_TRY(config_, read_model_config(engine.model));
  if (!options_.dummy) {
    COPSE_TRY(target_files_, Checkpoint::open(engine.model));
  }
  if (engine.drafter.empty()) return {};
  COPSE_TRY(drafter_config_, read_drafter_config(engine.drafter));
  COPSE_RETURN_IF_ERROR(check_drafter_fits(*drafter_config_, config_));
  if (drafter_config_->block_size > limits::draft_block) {
    return Error{ErrorCode::unsupported, "block_size", "is above the longest draft block"};
  }
  if (!options_.dummy) {
    COPSE_TRY(drafter_files_, Checkpoint::open(engine.drafter));
  }
  return {};
}

template <class T>
Status CudaModels<T>::place() {
  const EngineOptions& engine = options_.engine;
  const Shard shard = {group_.rank(), group_.world_size()};
  sequences_max_ = std::bit_ceil(static_cast<unsigned>(engine.slots));
  rows_max_ = limits::step_rows;
  context_tokens_ = std::min(config_.positions_max, limits::sequence_tokens);
  if (drafter_config_) context_tokens_ = std::min(context_tokens_, drafter_config_->positions_max);
  if (engine.context_tokens > 0) context_tokens_ = std::min(context_tokens_, engine.context_tokens);
  table_pages_ = pages_of(context_tokens_) + limits::plan_entry_pages;

  const TargetSpecs specs = target_specs(config_);
  if (target_files_) {
    COPSE_RETURN_IF_ERROR(check_target_tensors(*target_files_, config_, specs));
    target_plan_.emplace(*target_files_, config_.quantization);
  }
  target_weights_.emplace(target_plan_ ? &*target_plan_ : nullptr, arena_);
  CudaTargetOptions target;
  target.rows_max = rows_max_;
  target.logit_rows_max = rows_max_;
  target.sequences_max = sequences_max_;
  target.verify = options_.verify;
  if (drafter_config_) target.feature_layers = drafter_config_->target_layer_ids;
  target_.emplace(config_, target, shard, group_, gemm_);
  target_->place(specs, *target_weights_, arena_);
  if (target_plan_) COPSE_RETURN_IF_ERROR(target_plan_->status());

  if (drafter_config_) {
    const DrafterSpecs drafter_names = drafter_specs(*drafter_config_);
    if (drafter_files_) {
      COPSE_RETURN_IF_ERROR(check_drafter_tensors(*drafter_files_, drafter_names));
      drafter_plan_.emplace(*drafter_files_, QuantizationConfig{});
    }
    drafter_weights_.emplace(drafter_plan_ ? &*drafter_plan_ : nullptr, arena_);
    CudaDrafterOptions drafter;
    drafter.sequences_max = sequences_max_;
    drafter.context_rows_max =
        std::max(limits::tree_nodes, sequences_max_ * 2 * drafter_config_->block_size);
    drafter.table_pages = table_pages_;
    drafter_.emplace(*drafter_config_, drafter, shard, *target_, group_, gemm_);
    drafter_->place(drafter_names, *drafter_weights_, arena_);
    if (drafter_plan_) COPSE_RETURN_IF_ERROR(drafter_plan_->status());
  }
  gemm_bytes_ = target_->gemm_workspace_bytes();
  if (drafter_) gemm_bytes_ = std::max(gemm_bytes_, drafter_->gemm_workspace_bytes());
  arena_.place("workspace of products", gemm_bytes_, gemm_workspace_);
  round_.emplace(CudaRoundParts<T>{&*target_, drafter(), &cache_, &draft_cache_, &group_,
                                   engine.slots, sequences_max_, rows_max_, table_pages_,
                                   context_tokens_});
  round_->place(arena_);
  return choose_pages(cuda::device_info().memory_bytes);
}

template <class T>
Status CudaModels<T>::choose_pages(std::uint64_t memory_bytes) {
  const EngineOptions& engine = options_.engine;
  cache_.layers = config_.layers;
  cache_.width = config_.latent_width();
  cache_.slots = engine.slots;
  cache_.scratch_rows = limits::tree_nodes + 1;
  std::size_t values = size(cache_.layers) * size(cache_.width);
  if (drafter_config_) {
    draft_cache_.layers = drafter_config_->layers;
    draft_cache_.width = drafter_->cache_width();
    values += 2 * size(draft_cache_.layers) * size(draft_cache_.width);
  }
  const std::uint64_t page_bytes = values * limits::page_tokens * sizeof(T);
  const std::uint64_t scratch = cache_.layer_scratch_values() * size(cache_.layers) * sizeof(T);
  const std::uint64_t fixed = arena_.bytes() + scratch;
  const auto allowed =
      static_cast<std::uint64_t>(options_.memory_fraction * static_cast<double>(memory_bytes));
  const std::uint64_t room = allowed > fixed ? (allowed - fixed) / page_bytes : 0;
  std::uint64_t wanted = static_cast<std::uint64_t>(engine.pages);
  if (wanted == 0 && engine.kv_memory_mb > 0) {
    wanted = (static_cast<std::uint64_t>(engine.kv_memory_mb) << 20) / page_bytes;
  }
  if (wanted == 0) wanted = std::min<std::uint64_t>(room, size(engine.slots) * size(table_pages_));
  const std::uint64_t pages = std::min<std::uint64_t>(wanted, limits::pages);
  if (pages == 0 || pages > room) {
    return Error{ErrorCode::resource_exhausted, "device",
                 "needs " + mib(fixed + std::max<std::uint64_t>(pages, 1) * page_bytes) + " (" +
                     mib(fixed) + " for weights and workspace), and may use " + mib(allowed) +
                     " of " + mib(memory_bytes)};
  }
  cache_.pages_count = static_cast<int>(pages);
  draft_cache_.pages_count = cache_.pages_count;
  context_tokens_ = static_cast<int>(std::min<std::uint64_t>(
      static_cast<std::uint64_t>(context_tokens_), pages * limits::page_tokens));
  place_caches();
  spdlog::info(
      "memory of the device: {} weights and workspace, {} scratch, {} in {} pages of {} "
      "tokens; {} of {} may be used",
      mib(fixed - scratch), mib(scratch), mib(pages * page_bytes), pages, limits::page_tokens,
      mib(allowed), mib(memory_bytes));
  return {};
}

template <class T>
void CudaModels<T>::place_caches() {
  const std::size_t before = arena_.bytes();
  arena_.place("latent pages", size(cache_.layers) * cache_.layer_page_values(), cache_.pages);
  arena_.place("latent scratch", size(cache_.layers) * cache_.layer_scratch_values(),
               cache_.scratch);
  if (drafter_config_) {
    const std::size_t values = size(draft_cache_.layers) * draft_cache_.layer_values();
    arena_.place("drafter keys", values, draft_cache_.keys);
    arena_.place("drafter values", values, draft_cache_.values);
  }
  cache_bytes_ = arena_.bytes() - before;
}

template <class T>
Status CudaModels<T>::allocate() {
  COPSE_RETURN_IF_ERROR(arena_.allocate());
  COPSE_TRY(gemm_store_, cuda::DenseGemm::create(gemm_workspace_, gemm_bytes_));
  gemm_ = &*gemm_store_;
  return {};
}

template <class T>
Status CudaModels<T>::load_weights(const LoadObserver& progress) {
  const auto stage = [&](const char* name) -> OnWeightsRead {
    return [&progress, name](std::uint64_t done, std::uint64_t total) {
      if (progress) progress(name, done, total);
    };
  };
  COPSE_RETURN_IF_ERROR(target_weights_->load(stage("weights")));
  COPSE_RETURN_IF_ERROR(target_->finish_load());
  weight_bytes_ = target_weights_->bytes();
  if (drafter_) {
    COPSE_RETURN_IF_ERROR(drafter_weights_->load(stage("drafter")));
    COPSE_RETURN_IF_ERROR(drafter_->finish_load());
    weight_bytes_ += drafter_weights_->bytes();
  }
  // Readers and staging memory are of no use any more.
  target_weights_.reset();
  drafter_weights_.reset();
  target_plan_.reset();
  drafter_plan_.reset();
  target_files_.reset();
  drafter_files_.reset();
  return {};
}

template class CudaModels<float>;
template class CudaModels<Bf16>;

}  // namespace copse
