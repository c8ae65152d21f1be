#include "coordinator/digest_vote.h"

#include <algorithm>

#include "base/digest.h"

namespace copse {

std::uint64_t signature(const StepResult& result) {
  DigestChain chain(result.step);
  chain.add(result.slots.size());
  for (const SlotResult& slot : result.slots) {
    chain.add(slot.slot).add(slot.generation).add(slot.digest).add(slot.length);
    chain.add(slot.draft_nodes).add(slot.walk_length).add(static_cast<std::uint8_t>(slot.finish));
  }
  return chain.value();
}

std::vector<int> dissenters(std::span<const std::uint64_t> signatures) {
  std::ptrdiff_t most = 0;
  std::uint64_t common = 0;
  for (std::uint64_t candidate : signatures) {
    const auto votes = std::count(signatures.begin(), signatures.end(), candidate);
    if (votes > most) most = votes, common = candidate;
  }
  const bool majority = 2 * most > static_cast<std::ptrdiff_t>(signatures.size());
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < signatures.size(); ++rank) {
    if (!majority || signatures[rank] != common) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace copse
