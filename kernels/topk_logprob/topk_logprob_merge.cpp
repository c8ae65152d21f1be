#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/topk_logprob/topk_leaves.h"

namespace copse::kernels {
namespace {

struct Leaf {
  float largest;
  float sum;
};

Leaf join(Leaf a, Leaf b) {
  const float largest = a.largest > b.largest ? a.largest : b.largest;
  if (largest == minus_infinity) return {largest, a.sum + b.sum};
  return {largest, a.sum * exp_fixed(a.largest - largest) + b.sum * exp_fixed(b.largest - largest)};
}

// Leaves in vocabulary order, joined as ((0+1)+(2+3))+((4+5)+(6+7)).
float log_sum_exp(std::span<Leaf> leaves) {
  for (std::size_t width = 1; width < leaves.size(); width *= 2) {
    for (std::size_t i = 0; i + width < leaves.size(); i += 2 * width) {
      leaves[i] = join(leaves[i], leaves[i + width]);
    }
  }
  return leaves[0].largest + static_cast<float>(std::log(static_cast<double>(leaves[0].sum)));
}

}  // namespace

void topk_logprob_merge(const TopkShape& shape, std::span<const TopkWord> parts,
                        std::span<float> log_probs, std::span<TokenId> token_ids) {
  const auto world = static_cast<std::size_t>(shape.world_size);
  const auto leaves = static_cast<std::size_t>(shape.leaves());
  const auto k = static_cast<std::size_t>(shape.k);
  CHECK(world <= limits::world_size && parts.size() >= world * shape.part_words());
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    std::array<Leaf, limits::world_size * limits::reduction_leaves> all;
    std::array<const TopkWord*, limits::world_size> heads;
    for (std::size_t rank = 0; rank < world; ++rank) {
      const TopkWord* part = parts.data() + rank * shape.part_words() + row * (leaves + k);
      for (std::size_t i = 0; i < leaves; ++i) {
        all[rank * leaves + i] = {part[i].value, std::bit_cast<float>(part[i].bits)};
      }
      heads[rank] = part + leaves;
    }
    const float lse = log_sum_exp(std::span(all).first(world * leaves));
    std::array<std::size_t, limits::world_size> taken{};
    for (std::size_t i = 0; i < k; ++i) {
      std::size_t best = world;
      for (std::size_t rank = 0; rank < world; ++rank) {
        if (taken[rank] == k) continue;
        if (best == world || better_candidate(heads[rank][taken[rank]], heads[best][taken[best]])) {
          best = rank;
        }
      }
      const TopkWord word = heads[best][taken[best]++];
      log_probs[row * k + i] = word.value - lse;
      token_ids[row * k + i] = static_cast<TokenId>(word.bits);
    }
  }
}

}  // namespace copse::kernels
