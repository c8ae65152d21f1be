#include "worker/slot_table.h"

#include <algorithm>
#include <string>

#include "base/digest.h"

namespace copse {
namespace {

Error refused(const char* field, std::uint16_t slot, const char* why) {
  return {ErrorCode::invalid_argument, field, "slot " + std::to_string(slot) + ": " + why};
}

int bounded_int(std::uint32_t value) {
  return static_cast<int>(std::min<std::uint32_t>(value, 1u << 30));
}

}  // namespace

SlotTable::SlotTable(int slots, int pages, int context_tokens)
    : pages_(pages),
      context_tokens_(context_tokens),
      // Two rounds ahead of the context's end may be reserved.
      table_pages_((context_tokens + limits::page_tokens - 1) / limits::page_tokens +
                   limits::plan_entry_pages),
      slots_(static_cast<std::size_t>(slots)),
      page_tables_(static_cast<std::size_t>(slots) * static_cast<std::size_t>(table_pages_)),
      page_counts_(static_cast<std::size_t>(slots)) {}

Status SlotTable::release(const SlotRelease& release) {
  if (release.slot >= slots_.size()) return refused("released", release.slot, "does not exist");
  Slot& slot = slots_[release.slot];
  if (!slot.open || slot.generation != release.generation) {
    return refused("released", release.slot, "is not open in this generation");
  }
  slot.open = false;
  return {};
}

Status SlotTable::open(const SlotOpen& open) {
  if (open.slot >= slots_.size()) return refused("opened", open.slot, "does not exist");
  Slot& slot = slots_[open.slot];
  if (slot.open) return refused("opened", open.slot, "is still open");
  if (open.remaining_tokens == 0) return refused("opened", open.slot, "may emit no token");
  // Everything of the last sequence goes: a shorter one must run as if first.
  slot = Slot();
  slot.open = true;
  slot.generation = open.generation;
  slot.sampling = open.sampling;
  slot.remaining = bounded_int(open.remaining_tokens);
  slot.drawn = bounded_int(open.drawn_tokens);
  slot.min_tokens = bounded_int(open.min_tokens);
  slot.ignore_end = open.ignore_end;
  slot.end_token_count = static_cast<int>(open.end_tokens.size());
  std::ranges::copy(open.end_tokens, slot.end_token_ids.begin());
  slot.digest = DigestChain()
                    .add(open.slot)
                    .add(open.generation)
                    .add(open.sampling.seed)
                    .add(open.sampling.choice)
                    .add(open.remaining_tokens)
                    .add(open.drawn_tokens)
                    .add(slot.end_tokens())
                    .value();
  page_counts_[open.slot] = 0;
  return {};
}

Result<int> SlotTable::enter(std::uint16_t index, std::uint32_t generation,
                             const PlanPages& new_pages) {
  if (index >= slots_.size()) return refused("slot", index, "does not exist");
  const Slot& slot = slots_[index];
  if (!slot.open || slot.generation != generation) {
    return refused("generation", index, "is not open in this generation");
  }
  int& count = page_counts_[index];
  if (static_cast<int>(new_pages.size()) > table_pages_ - count) {
    return refused("new_pages", index, "has more pages than the context has room for");
  }
  for (const PageId page : new_pages) {
    if (page < 0 || page >= pages_) return refused("new_pages", index, "got an unknown page");
    page_tables_[index * static_cast<std::size_t>(table_pages_) +
                 static_cast<std::size_t>(count++)] = page;
  }
  return static_cast<int>(index);
}

std::span<const PageId> SlotTable::pages(int slot) const {
  const auto index = static_cast<std::size_t>(slot);
  return std::span(page_tables_)
      .subspan(index * static_cast<std::size_t>(table_pages_),
               static_cast<std::size_t>(page_counts_[index]));
}

int SlotTable::capacity(int slot) const {
  return page_counts_[static_cast<std::size_t>(slot)] * limits::page_tokens;
}

SlotTable::Place SlotTable::place(int slot, int position) const {
  const std::span<const PageId> table = pages(slot);
  const auto page = static_cast<std::size_t>(position / limits::page_tokens);
  CHECK(position >= 0 && page < table.size());
  return {table[page], position % limits::page_tokens};
}

}  // namespace copse
