#pragma once
// The embedded pair in one process, and rounds of it without a coordinator: plans are written by
// hand as the scheduler would.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/config/drafter_config.h"
#include "model/config/model_config.h"
#include "model/dflash/drafter_model.h"
#include "transport/collective/local.h"
#include "worker/round.h"

namespace copse::testing {

struct Generated {
  std::vector<TokenId> tokens;  // the prefill's own first
  std::vector<int> walks;       // of each round, untruncated
  FinishReason finish = FinishReason::none;
  bool operator==(const Generated&) const = default;
};

struct Request {
  std::vector<TokenId> prompt;
  int max_tokens = 96;
  SamplingParams sampling;
  DraftMode mode = DraftMode::none;
  int budget = 0;
  std::vector<TokenId> end_tokens;
  bool ignore_end = false;
  int min_tokens = 0;
  int chunk = 256;
};

class TestEngine {
 public:
  static constexpr int slots = 8;
  static constexpr int page_count = 160;

  explicit TestEngine(Collective& group, bool with_drafter = true) : group_(group), threads_(1) {
    const auto target_config = read_model_config("models/sapling");
    const auto drafter_config = read_drafter_config("models/sapling-dflash");
    EXPECT_TRUE(target_config.ok() && drafter_config.ok());
    TargetOptions options;
    options.rows_max = options.logit_rows_max = limits::step_rows;
    if (with_drafter) options.feature_layers = drafter_config->target_layer_ids;
    auto target = TargetModel::load("models/sapling", *target_config, options, group_, threads_);
    EXPECT_TRUE(target.ok()) << describe(target.error());
    target_ = std::move(target).value();
    if (with_drafter) {
      auto drafter = DrafterModel::load("models/sapling-dflash", *drafter_config,
                                        {slots, draft_context_rows_max(slots)}, target_->tables(),
                                        group_, threads_);
      EXPECT_TRUE(drafter.ok()) << describe(drafter.error());
      drafter_ = std::move(drafter).value();
      draft_cache_ = std::make_unique<DraftCache>(drafter_->cache_shape(page_count));
    }
    LatentCache::Shape shape;
    shape.layers = target_config->layers;
    shape.width = target_config->latent_width();
    shape.pages = page_count;
    shape.slots = slots;
    cache_ = std::make_unique<LatentCache>(shape);
    slot_table_ = std::make_unique<SlotTable>(slots, page_count, target_config->positions_max);
    round_ = std::make_unique<Round>(RoundParts{target_.get(), cache_.get(), drafter_.get(),
                                                draft_cache_.get(), &group_, &threads_,
                                                slot_table_.get(), &clock_});
    for (PageId page = page_count - 1; page >= 0; --page) free_pages_.push_back(page);
  }

  Round& round() { return *round_; }
  SlotTable& table() { return *slot_table_; }

  // A request in a slot, prefilled up to and including its first token.
  struct Running {
    int slot = 0;
    std::uint32_t generation = 0;
    Request request;
    Generated out;
    int pages = 0;
    std::vector<PageId> owned;
  };

  Running begin(const Request& request, int slot, std::uint32_t generation = 0) {
    if (generation == 0) generation = ++generation_;
    Running running{slot, generation, request, {}, 0, {}};
    StepPlan plan;
    SlotOpen open;
    open.slot = static_cast<std::uint16_t>(slot);
    open.generation = running.generation;
    open.sampling = request.sampling;
    open.remaining_tokens = static_cast<std::uint32_t>(request.max_tokens);
    open.min_tokens = static_cast<std::uint32_t>(request.min_tokens);
    open.ignore_end = request.ignore_end;
    for (const TokenId token : request.end_tokens) open.end_tokens.push_back(token);
    plan.opened.push_back(open);
    const auto& prompt = request.prompt;
    for (std::size_t at = 0; at < prompt.size();) {
      const std::size_t count =
          std::min(prompt.size() - at, static_cast<std::size_t>(request.chunk));
      PrefillChunk chunk;
      chunk.slot = open.slot;
      chunk.generation = open.generation;
      chunk.start = static_cast<std::uint32_t>(at);
      chunk.last = at + count == prompt.size();
      chunk.tokens.assign(prompt.begin() + static_cast<std::ptrdiff_t>(at),
                          prompt.begin() + static_cast<std::ptrdiff_t>(at + count));
      chunk.new_pages = pages_for(running, static_cast<int>(at + count));
      plan.prefill.clear();
      plan.prefill.push_back(chunk);
      run(plan);
      take(running, round_->outcomes()[0]);
      plan = {};
      at += count;
    }
    return running;
  }

  // One round over all that are not finished.
  void step(std::vector<Running>& all) {
    StepPlan plan;
    std::vector<Running*> live;
    for (Running& running : all) {
      if (running.out.finish != FinishReason::none) continue;
      plan.decode.push_back(entry_for(running));
      live.push_back(&running);
    }
    run(plan);
    for (std::size_t i = 0; i < live.size(); ++i) take(*live[i], round_->outcomes()[i]);
  }

  DecodeEntry entry_for(Running& running) {
    DecodeEntry entry;
    entry.slot = static_cast<std::uint16_t>(running.slot);
    entry.generation = running.generation;
    entry.mode = running.request.mode;
    entry.node_budget = static_cast<std::uint16_t>(running.request.budget);
    entry.new_pages = pages_for(running, (*slot_table_)[running.slot].length + limits::draft_block);
    return entry;
  }

  void end(Running& running) {
    StepPlan plan;
    plan.released.push_back({static_cast<std::uint16_t>(running.slot), running.generation});
    run(plan);
    // In the order they were taken from, so that equal requests get equal pages.
    for (auto page = running.owned.rbegin(); page != running.owned.rend(); ++page) {
      free_pages_.push_back(*page);
    }
  }

  Generated generate(const Request& request, int slot = 0) {
    std::vector<Running> all = {begin(request, slot)};
    while (all[0].out.finish == FinishReason::none) step(all);
    end(all[0]);
    return all[0].out;
  }

  void run(const StepPlan& plan) {
    const Status status = round_->run(plan);
    ASSERT_TRUE(status.ok()) << describe(status.error());
  }

  static void take(Running& running, const SlotOutcome& outcome) {
    running.out.tokens.insert(running.out.tokens.end(), outcome.tokens.begin(),
                              outcome.tokens.begin() + outcome.token_count);
    running.out.finish = outcome.finish;
    if (outcome.walk_length > 0) running.out.walks.push_back(outcome.walk_length);
  }

 private:
  PlanPages pages_for(Running& running, int tokens) {
    PlanPages pages;
    while (running.pages * limits::page_tokens < tokens) {
      running.owned.push_back(free_pages_.back());
      free_pages_.pop_back();
      pages.push_back(running.owned.back());
      ++running.pages;
    }
    return pages;
  }

  Collective& group_;
  ThreadPool threads_;
  SteadyClock clock_;
  std::unique_ptr<TargetModel> target_;
  std::unique_ptr<DrafterModel> drafter_;
  std::unique_ptr<LatentCache> cache_;
  std::unique_ptr<DraftCache> draft_cache_;
  std::unique_ptr<SlotTable> slot_table_;
  std::unique_ptr<Round> round_;
  std::vector<PageId> free_pages_;
  std::uint32_t generation_ = 0;
};

// Loaded once a test program: a group of one.
inline TestEngine& local_engine() {
  static const std::unique_ptr<Collective> group = make_local_collective();
  static TestEngine engine(*group);
  return engine;
}

}  // namespace copse::testing
