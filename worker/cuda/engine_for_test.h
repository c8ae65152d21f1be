#pragma once
// The embedded pair on a GPU, driven by plans as the scheduler would write them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "transport/collective/device_collective_local.h"
#include "worker/cuda/engine_cuda.h"
#include "worker/round_for_test.h"

namespace copse::testing {

inline CudaEngineOptions embedded_pair(bool float32, bool graphs = true) {
  CudaEngineOptions options;
  options.engine.model = "models/sapling";
  options.engine.drafter = "models/sapling-dflash";
  options.engine.slots = 4;
  options.engine.pages = 160;
  options.float32 = float32;
  options.graphs = graphs;
  return options;
}

class CudaDriver {
 public:
  explicit CudaDriver(const CudaEngineOptions& options) : group_(make_local_device_collective()) {
    auto engine = load_cuda_engine(options, *group_, clock_, {});
    EXPECT_TRUE(engine.ok()) << describe(engine.error());
    if (engine.ok()) engine_ = std::move(engine).value();
  }
  bool loaded() const { return engine_ != nullptr; }
  StepEngine& engine() { return *engine_; }

  struct Running {
    int slot = 0;
    std::uint32_t generation = 0;
    Request request;
    Generated out;
    std::vector<Digest> digests;
  };

  // Prefilled up to and including its first token. Each slot has pages of its own, given at once.
  Running begin(const Request& request, int slot) {
    Running running{slot, ++generation_, request, {}, {}};
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
    for (std::size_t at = 0; at < request.prompt.size();) {
      const std::size_t count =
          std::min(request.prompt.size() - at, static_cast<std::size_t>(request.chunk));
      PrefillChunk chunk;
      chunk.slot = open.slot;
      chunk.generation = open.generation;
      chunk.start = static_cast<std::uint32_t>(at);
      chunk.last = at + count == request.prompt.size();
      const auto from = request.prompt.begin() + static_cast<std::ptrdiff_t>(at);
      chunk.tokens.assign(from, from + static_cast<std::ptrdiff_t>(count));
      for (int page = 0; page < kPages && at == 0; ++page) {
        chunk.new_pages.push_back(slot * kPages + page);
      }
      plan.prefill.clear();
      plan.prefill.push_back(chunk);
      run(plan, {&running});
      plan = {};
      at += count;
    }
    return running;
  }

  static DecodeEntry entry_for(const Running& running) {
    DecodeEntry entry;
    entry.slot = static_cast<std::uint16_t>(running.slot);
    entry.generation = running.generation;
    entry.mode = running.request.mode;
    entry.node_budget = static_cast<std::uint16_t>(running.request.budget);
    return entry;
  }

  void step(const std::vector<Running*>& all) {
    StepPlan plan;
    std::vector<Running*> live;
    for (Running* running : all) {
      if (running->out.finish != FinishReason::none) continue;
      plan.decode.push_back(entry_for(*running));
      live.push_back(running);
    }
    run(plan, live);
  }

  void run(const StepPlan& plan, const std::vector<Running*>& live) {
    const Status begun = engine_->begin(plan);
    ASSERT_TRUE(begun.ok()) << describe(begun.error());
    take(live);
  }
  void take(const std::vector<Running*>& live) {
    const auto result = engine_->finish();
    ASSERT_TRUE(result.ok()) << describe(result.error());
    ASSERT_EQ(result->slots.size(), live.size());
    for (std::size_t i = 0; i < live.size(); ++i) {
      const SlotResult& slot = result->slots[i];
      Generated& out = live[i]->out;
      out.tokens.insert(out.tokens.end(), slot.tokens.begin(), slot.tokens.end());
      if (slot.walk_length > 0) out.walks.push_back(slot.walk_length);
      out.finish = slot.finish;
      live[i]->digests.push_back(slot.digest);
    }
  }

  void end(const Running& running) {
    StepPlan plan;
    plan.released.push_back({static_cast<std::uint16_t>(running.slot), running.generation});
    run(plan, {});
  }

  Running finished(const Request& request, int slot = 0) {
    Running running = begin(request, slot);
    for (int i = 0; i < request.max_tokens && running.out.finish == FinishReason::none; ++i) {
      step({&running});
    }
    end(running);
    return running;
  }
  Generated generate(const Request& request) { return finished(request).out; }

 private:
  static constexpr int kPages = 40;

  SteadyClock clock_;
  std::unique_ptr<DeviceCollective> group_;
  std::unique_ptr<StepEngine> engine_;
  std::uint32_t generation_ = 0;
};

}  // namespace copse::testing
