#pragma once
// Step 3: who owns which page of the one KV pool. Pages are promised at admission, handed out as a
// sequence grows, and rest in quarantine after it ends until no plan on the way names them.
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace copse {

class KvPages {
 public:
  using Owner = std::uint16_t;  // index of the slot that holds the pages

  // `pages` ids 0 .. pages-1, and at most `owners` owners.
  KvPages(int pages, int owners);

  int total() const { return static_cast<int>(state_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int available() const { return free() - promised_; }  // for new promises
  int quarantined() const { return quarantined_; }
  int used() const { return total() - free(); }  // owned or in quarantine
  int owned(Owner owner) const { return static_cast<int>(holders_[owner].pages.size()); }

  // Promises `count` pages to an owner that holds nothing. False: too few free pages are
  // unpromised.
  bool reserve(Owner owner, int count);
  // A page out of the owner's promise, which must not be used up.
  PageId take(Owner owner);
  // Gives back all pages and what is left of the promise. `last_named` is the last plan that names
  // them; with no such plan on the way they are free at once.
  void release(Owner owner, StepId last_named);
  // Every plan up to `step` is answered: the pages that waited for it are free.
  void answered(StepId step);

  // free + owned + quarantined = total, each page in one place, promises covered by free pages.
  Status check() const;

 private:
  static constexpr std::int32_t kFree = -1;
  static constexpr std::int32_t kQuarantined = -2;
  struct Holder {
    std::vector<PageId> pages;
    int promised = 0;  // not yet taken
  };
  struct Quarantine {
    StepId until = 0;
    std::vector<PageId> pages;
  };
  void give(std::span<const PageId> pages);
  Status check_marks(std::span<const PageId> pages, std::int32_t mark,
                     std::vector<std::uint8_t>& seen) const;

  std::vector<std::int32_t> state_;  // per page: kFree, kQuarantined or its owner
  std::vector<PageId> free_;         // last in, first out: recently used pages are warm
  std::vector<Holder> holders_;
  std::deque<Quarantine> quarantine_;
  int promised_ = 0;
  int quarantined_ = 0;
  StepId answered_ = 0;
};

}  // namespace copse
