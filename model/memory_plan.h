#pragma once
// What a rank holds in memory, known before anything is read: from a checkpoint's headers, the
// config and the limits of a worker. Behind `copse inspect`, and the worker's choice of page count.
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config/drafter_config.h"
#include "model/deepseek/target_model.h"
#include "model/deepseek/target_shard.h"
#include "model/dflash/drafter_model.h"
#include "model/weights/load_plan.h"

namespace copse {

// Bytes on one rank. A page id costs latent_page + draft_page.
struct RankMemory {
  std::uint64_t target_weights = 0;
  std::uint64_t target_workspace = 0;
  std::uint64_t latent_page = 0;     // one page, all layers
  std::uint64_t latent_scratch = 0;  // all slots
  std::uint64_t drafter_weights = 0;
  std::uint64_t drafter_workspace = 0;
  std::uint64_t draft_page = 0;  // one page, all layers, this rank's heads

  std::uint64_t page() const { return latent_page + draft_page; }
  std::uint64_t fixed() const {
    return target_weights + target_workspace + latent_scratch + drafter_weights + drafter_workspace;
  }
};

std::uint64_t target_workspace_bytes(const ModelConfig& config, const TargetShard& shard,
                                     const TargetOptions& options);
std::uint64_t latent_page_bytes(const ModelConfig& config);
std::uint64_t latent_scratch_bytes(const ModelConfig& config, int slots);
std::uint64_t draft_page_bytes(const DrafterConfig& config, const Shard& shard);
std::uint64_t drafter_workspace_bytes(const DrafterConfig& config, const Shard& shard,
                                      const DrafterOptions& options, int vocabulary_local);

// One rank's part of a checkpoint.
struct RankReport {
  TargetShard shard;
  std::vector<PlannedSlice> target;   // every tensor slice the rank reads, in load order
  std::vector<PlannedSlice> drafter;  // empty without a drafter
  std::uint64_t file_bytes = 0;       // read from both checkpoints
  RankMemory memory;
};

struct CheckpointReport {
  ModelConfig config;
  std::optional<DrafterConfig> drafter;
  std::vector<RankReport> ranks;  // [tp]
};

struct InspectOptions {
  int tp = 1;
  TargetOptions target;
  DrafterOptions drafter;
  int slots = 0;
};

// Reads configs and headers alone, and refuses what a load would refuse for its names, shapes or
// types. `drafter` empty: none.
Result<CheckpointReport> inspect_checkpoint(const std::string& target, const std::string& drafter,
                                            const InspectOptions& options);

}  // namespace copse
