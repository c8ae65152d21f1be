#pragma once
// Rules 1 and 2: what a worker holds of each sequence between steps, so that a decode entry carries
// no tokens. All of it is a cache of the coordinator's truth: a restart rebuilds it by prefill.
//
// A plan is outside data: an entry that does not fit the held state is an Error (the group is out
// of step and restarts), never a CHECK. Nothing here allocates after construction.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "transport/messages/to_worker.h"

namespace copse {

struct Slot {
  bool open = false;
  std::uint32_t generation = 0;
  SamplingParams sampling;
  int remaining = 0;  // tokens that may still be emitted
  int drawn = 0;      // tokens emitted so far, over restarts
  int min_tokens = 0;
  bool ignore_end = false;
  std::array<TokenId, limits::end_token_ids> end_token_ids{};
  int end_token_count = 0;

  int length = 0;  // committed tokens, the bonus token excluded
  bool has_bonus = false;
  TokenId bonus = 0;  // drawn, not yet verified: the next round's root
  bool done = false;  // an entry for it is a no-op
  Digest digest = 0;
  // Committed tokens whose features wait to enter the drafter's cache: the last ones.
  int pending_features = 0;

  std::span<const TokenId> end_tokens() const {
    return std::span(end_token_ids).first(static_cast<std::size_t>(end_token_count));
  }
};

class SlotTable {
 public:
  // pages: ids 0 .. pages - 1 exist. context_tokens bounds a sequence, so its page table.
  SlotTable(int slots, int pages, int context_tokens);

  int slots() const { return static_cast<int>(slots_.size()); }
  int context_tokens() const { return context_tokens_; }

  Status release(const SlotRelease& release);
  Status open(const SlotOpen& open);
  // The index of an open slot of this generation, its new pages appended to its page table.
  Result<int> enter(std::uint16_t slot, std::uint32_t generation, const PlanPages& new_pages);

  Slot& operator[](int slot) { return slots_[static_cast<std::size_t>(slot)]; }
  std::span<const PageId> pages(int slot) const;
  // Tokens that the slot's pages can hold.
  int capacity(int slot) const;
  // Page and row of a committed position; position < capacity.
  struct Place {
    PageId page;
    int row;
  };
  Place place(int slot, int position) const;

 private:
  int pages_;
  int context_tokens_;
  int table_pages_;  // of one slot
  std::vector<Slot> slots_;
  std::vector<PageId> page_tables_;  // [slots][table_pages]
  std::vector<int> page_counts_;     // [slots]
};

}  // namespace copse
