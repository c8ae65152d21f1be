#include "worker/engine.h"

#include <algorithm>

#include "model/config/drafter_config.h"
#include "model/config/model_config.h"
#include "worker/cost_table.h"

namespace copse {
namespace {

std::uint32_t microseconds(std::int64_t ns) {
  return static_cast<std::uint32_t>(std::max<std::int64_t>(ns, 0) / 1000);
}

LatentCache::Shape latent_shape(const ModelConfig& config, int pages, int slots) {
  LatentCache::Shape shape;
  shape.layers = config.layers;
  shape.width = config.latent_width();
  shape.pages = pages;
  shape.slots = slots;
  return shape;
}

std::size_t page_bytes(const ModelConfig& target, const DrafterModel* drafter) {
  std::size_t floats =
      static_cast<std::size_t>(target.layers) * static_cast<std::size_t>(target.latent_width());
  if (drafter != nullptr) {
    const DraftCache::Shape shape = drafter->cache_shape(1);
    floats += 2 * static_cast<std::size_t>(shape.layers) *
              static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.head_dim);
  }
  return floats * limits::page_tokens * sizeof(float);
}

int page_count(const EngineOptions& options, int positions_max, std::size_t bytes_of_page) {
  if (options.pages > 0) return std::min(options.pages, limits::pages);
  std::size_t memory = static_cast<std::size_t>(options.kv_memory_mb) << 20;
  if (memory == 0) {
    const int tokens = std::min(positions_max, 4096) + limits::page_tokens;
    memory = std::min(
        static_cast<std::size_t>(options.slots * (tokens / limits::page_tokens)) * bytes_of_page,
        std::size_t{1} << 30);
  }
  return static_cast<int>(
      std::clamp<std::size_t>(memory / bytes_of_page, 1, static_cast<std::size_t>(limits::pages)));
}

}  // namespace

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options, Collective& group,
                                             const Clock& clock, const Progress& progress) {
  if (options.slots < 1 || options.slots > limits::batch_sequences) {
    return Error{ErrorCode::invalid_argument, "max-num-seqs", "is out of bounds"};
  }
  std::unique_ptr<Engine> engine(new Engine(group, clock, options.threads));
  COPSE_RETURN_IF_ERROR(engine->load_models(options, progress));
  engine->allocate(options);
  return engine;
}

Status Engine::load_models(const EngineOptions& options, const Progress& progress) {
  COPSE_TRY(const ModelConfig config, read_model_config(options.model));
  TargetOptions target_options;
  target_options.rows_max = limits::step_rows;
  target_options.logit_rows_max = limits::step_rows;
  DrafterConfig drafter_config;
  if (!options.drafter.empty()) {
    COPSE_TRY(drafter_config, read_drafter_config(options.drafter));
    COPSE_RETURN_IF_ERROR(check_drafter_fits(drafter_config, config));
    if (drafter_config.block_size > limits::draft_block) {
      return Error{ErrorCode::unsupported, "block_size", "is above the longest draft block"};
    }
    target_options.feature_layers = drafter_config.target_layer_ids;
  }
  COPSE_TRY(target_, TargetModel::load(options.model, config, target_options, group_, threads_,
                                       [&](std::uint64_t done, std::uint64_t total) {
                                         if (progress) progress("weights", done, total);
                                       }));
  if (options.drafter.empty()) return {};
  COPSE_TRY(drafter_, DrafterModel::load(options.drafter, drafter_config,
                                         {options.slots, draft_context_rows_max(options.slots)},
                                         target_->tables(), group_, threads_,
                                         [&](std::uint64_t done, std::uint64_t total) {
                                           if (progress) progress("drafter", done, total);
                                         }));
  return {};
}

void Engine::allocate(const EngineOptions& options) {
  const ModelConfig& config = target_->config();
  const int pages = page_count(options, config.positions_max, page_bytes(config, drafter_.get()));
  int context = std::min(
      {config.positions_max, limits::sequence_tokens,
       pages > limits::sequence_pages ? limits::sequence_tokens : pages * limits::page_tokens});
  if (drafter_) context = std::min(context, drafter_->config().positions_max);
  if (options.context_tokens > 0) context = std::min(context, options.context_tokens);
  cache_ = std::make_unique<LatentCache>(latent_shape(config, pages, options.slots));
  if (drafter_) draft_cache_ = std::make_unique<DraftCache>(drafter_->cache_shape(pages));
  slots_ = std::make_unique<SlotTable>(options.slots, pages, context);
  round_ = std::make_unique<Round>(RoundParts{target_.get(), cache_.get(), drafter_.get(),
                                              draft_cache_.get(), &group_, &threads_, slots_.get(),
                                              &clock_});
}

Status Engine::run(const StepPlan& plan) {
  const std::int64_t wall_before = group_.stats().wall_ns;
  const std::int64_t collective_cpu_before = group_.cpu_ns();
  const std::int64_t cpu_before = thread_cpu_ns() + threads_.workers_cpu_ns();
  COPSE_RETURN_IF_ERROR(round_->run(plan));
  const std::int64_t cpu = thread_cpu_ns() + threads_.workers_cpu_ns() - cpu_before;
  timing_ = round_->timing();
  timing_.collective_us = microseconds(group_.stats().wall_ns - wall_before);
  timing_.compute_cpu_us = microseconds(cpu - (group_.cpu_ns() - collective_cpu_before));
  return {};
}

StepResult Engine::result() const {
  StepResult result;
  result.timing = timing_;
  for (const SlotOutcome& outcome : round_->outcomes()) {
    SlotResult slot;
    slot.slot = static_cast<std::uint16_t>(outcome.slot);
    slot.generation = outcome.generation;
    slot.digest = outcome.digest;
    slot.length = static_cast<std::uint32_t>(outcome.length);
    slot.draft_nodes = static_cast<std::uint16_t>(outcome.draft_nodes);
    slot.walk_length = static_cast<std::uint16_t>(outcome.walk_length);
    slot.finish = outcome.finish;
    if (group_.rank() == 0) {
      slot.tokens.assign(outcome.tokens.begin(), outcome.tokens.begin() + outcome.token_count);
    }
    result.slots.push_back(std::move(slot));
  }
  return result;
}

Result<WorkerReady> Engine::measure() {
  WorkerReady ready;
  ready.slots = static_cast<std::uint32_t>(slots_->slots());
  ready.pages = static_cast<std::uint32_t>(cache_->shape().pages);
  ready.context_tokens = static_cast<std::uint32_t>(slots_->context_tokens());
  ready.vocabulary = static_cast<std::uint32_t>(target_->config().vocabulary);
  ready.draft_block = drafter_ ? static_cast<std::uint32_t>(drafter_->config().block_size) : 0;
  ready.weight_bytes = target_->weight_bytes() + (drafter_ ? drafter_->weight_bytes() : 0);
  ready.sharded_bytes = target_->sharded_bytes() + (drafter_ ? drafter_->sharded_bytes() : 0);
  ready.cache_bytes = cache_->bytes() + (draft_cache_ ? draft_cache_->bytes() : 0);
  for (const TokenId token : target_->config().end_tokens) {
    if (!ready.end_tokens.try_push(token)) break;
  }
  COPSE_TRY(ready.costs, measure_costs(
                             [this](const StepPlan& plan) -> Result<std::uint32_t> {
                               COPSE_RETURN_IF_ERROR(round_->run(plan));
                               return round_->timing().total_us;
                             },
                             slots_->context_tokens(), drafter_ != nullptr));
  return ready;
}

}  // namespace copse
