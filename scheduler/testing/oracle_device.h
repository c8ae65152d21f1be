#pragma once
// A device made of arithmetic, for tests and the simulator: it runs step plans as strictly as the
// real one must, and everybody knows what its model answers. The next token is a hash of the whole
// prefix, which is read back from the cache pages: a page with two owners gives a wrong token.
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_worker.h"

namespace copse {

struct OracleModel {
  std::uint64_t seed = 1;
  std::uint32_t vocabulary = 512;
  std::uint32_t context_tokens = 1024;
  std::uint32_t pages = 64;
  std::uint32_t slots = 8;
  std::uint32_t draft_block = 8;
  std::uint32_t accept_percent = 70;  // chance that the drafter's first guess is the target's token
  EndTokens end_tokens{0};

  // The target's token after `prefix`, never an end token while `drawn` < min_tokens.
  TokenId next(std::span<const TokenId> prefix, const SamplingParams& sampling, std::uint32_t drawn,
               std::uint32_t min_tokens) const;
  // The whole answer, and how it ends.
  struct Answer {
    std::vector<TokenId> tokens;
    FinishReason finish = FinishReason::none;
  };
  Answer answer(const Submit& request) const;
  WorkerReady ready(std::uint32_t epoch) const;
};

class OracleDevice {
 public:
  explicit OracleDevice(OracleModel model);

  // Every rank computes the same; rank 0 alone reports tokens. Error: the plan breaks a rule.
  Result<StepResult> run(const StepPlan& plan, int rank = 0);

 private:
  struct Node {
    TokenId token = 0;
    int parent = 0;
  };
  struct Slot {
    bool open = false;
    bool done = false;
    std::uint32_t generation = 0;
    std::uint32_t length = 0;
    std::uint32_t prefilled = 0;
    TokenId bonus = -1;  // none before the last chunk
    SlotOpen params;
    std::uint32_t drawn = 0;  // of the whole request
    std::vector<PageId> pages;
    Digest digest = 0;
  };
  Status open(const StepPlan& plan);
  Status append_pages(std::uint16_t index, const PlanPages& pages);
  Status write(Slot& slot, std::uint32_t position, TokenId token);
  std::vector<TokenId> prefix(const Slot& slot) const;
  Result<Slot*> slot_of(std::uint16_t index, std::uint32_t generation);
  Result<SlotResult> prefill(const PrefillChunk& chunk);
  Result<SlotResult> round(const DecodeEntry& entry);
  std::vector<Node> draft(const std::vector<TokenId>& prefix, const DecodeEntry& entry,
                          const Slot& slot) const;
  void deliver(Slot& slot, TokenId token, SlotResult& result);

  OracleModel model_;
  std::vector<Slot> slots_;
  std::vector<TokenId> cache_;            // page by page
  std::vector<std::int32_t> page_owner_;  // slot, -1: none
  StepId last_step_ = 0;
};

}  // namespace copse
