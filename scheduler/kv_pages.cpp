#include "scheduler/kv_pages.h"

#include <algorithm>
#include <utility>

#include "scheduler/planted_bugs.h"

namespace copse {

KvPages::KvPages(int pages, int owners)
    : state_(static_cast<std::size_t>(pages), kFree), holders_(static_cast<std::size_t>(owners)) {
  free_.reserve(state_.size());
  for (PageId page = pages; page-- > 0;) free_.push_back(page);  // the lowest id goes out first
}

bool KvPages::reserve(Owner owner, int count) {
  Holder& holder = holders_[owner];
  CHECK(holder.pages.empty() && holder.promised == 0);
  if (count > available()) return false;
  holder.promised = count;
  promised_ += count;
  return true;
}

PageId KvPages::take(Owner owner) {
  Holder& holder = holders_[owner];
  CHECK(holder.promised > 0 && !free_.empty());
  const PageId page = free_.back();
  free_.pop_back();
  --holder.promised;
  --promised_;
  state_[static_cast<std::size_t>(page)] = owner;
  holder.pages.push_back(page);
  return page;
}

void KvPages::release(Owner owner, StepId last_named) {
  Holder holder = std::exchange(holders_[owner], {});
  promised_ -= holder.promised;
  if (last_named <= answered_) return give(holder.pages);
  for (PageId page : holder.pages) state_[static_cast<std::size_t>(page)] = kQuarantined;
  quarantined_ += static_cast<int>(holder.pages.size());
  quarantine_.push_back({last_named, std::move(holder.pages)});
}

void KvPages::answered(StepId step) {
  answered_ = std::max(answered_, step);
  // Releases come in any order of last_named, but at most plans_in_flight values are on the way.
  std::erase_if(quarantine_, [&](const Quarantine& entry) {
    if (entry.until > answered_) return false;
    quarantined_ -= static_cast<int>(entry.pages.size());
    give(entry.pages);
    return true;
  });
}

void KvPages::give(std::span<const PageId> pages) {
  for (PageId page : pages) {
    if (planted(PlantedBug::double_free)) free_.push_back(page);
    CHECK(state_[static_cast<std::size_t>(page)] != kFree);
    state_[static_cast<std::size_t>(page)] = kFree;
    free_.push_back(page);
  }
}

Status KvPages::check_marks(std::span<const PageId> pages, std::int32_t mark,
                            std::vector<std::uint8_t>& seen) const {
  for (PageId page : pages) {
    const auto index = static_cast<std::size_t>(page);
    if (index >= state_.size() || state_[index] != mark || seen[index] != 0) {
      return Error{ErrorCode::internal, "pages", "a page is in two places or marked wrongly"};
    }
    seen[index] = 1;
  }
  return {};
}

Status KvPages::check() const {
  std::vector<std::uint8_t> seen(state_.size(), 0);
  COPSE_RETURN_IF_ERROR(check_marks(free_, kFree, seen));
  int promised = 0;
  for (std::size_t owner = 0; owner < holders_.size(); ++owner) {
    const Holder& holder = holders_[owner];
    COPSE_RETURN_IF_ERROR(check_marks(holder.pages, static_cast<std::int32_t>(owner), seen));
    promised += holder.promised;
  }
  int resting = 0;
  for (const Quarantine& entry : quarantine_) {
    COPSE_RETURN_IF_ERROR(check_marks(entry.pages, kQuarantined, seen));
    resting += static_cast<int>(entry.pages.size());
  }
  if (std::find(seen.begin(), seen.end(), 0) != seen.end()) {
    return Error{ErrorCode::internal, "pages", "a page is neither free nor owned"};
  }
  if (promised != promised_ || resting != quarantined_ || promised > free()) {
    return Error{ErrorCode::internal, "pages", "the page counts do not add up"};
  }
  return {};
}

}  // namespace copse
