#include "model/token_tables.h"

#include <algorithm>
#include <limits>

#include "transport/collective/collective.h"

namespace copse {

void TokenTables::plan(LoadPlan& plan, const LinearSpec& embedding, const LinearSpec& head) {
  plan.matrix(embedding, rows_, {0, embedding.columns},
              [this](HostMatrix values) { embedding_ = std::move(values); });
  plan.packed(head, {shard_.begin, shard_.begin + shard_.rows}, {0, head.columns}, head_);
}

Status TokenTables::embed(std::span<const TokenId> tokens, kernels::Matrix out,
                          Collective& group) const {
  CHECK(out.stride == out.columns && out.rows == static_cast<int>(tokens.size()));
  for (int r = 0; r < out.rows; ++r) {
    const TokenId token = tokens[static_cast<std::size_t>(r)];
    CHECK(token >= 0 && token < vocabulary_);
    const bool own = token >= rows_.begin && token < rows_.end;
    for (int c = 0; c < out.columns; ++c) {
      out.row(r)[c] = own ? embedding_.at(token - rows_.begin, c) : 0.0f;
    }
  }
  if (rows_.size() == vocabulary_) return {};
  return group.all_reduce_sum(
      std::span(out.data, tokens.size() * static_cast<std::size_t>(out.columns)));
}

void TokenTables::logits(kernels::ConstMatrix x, kernels::Matrix out, ThreadPool& threads) const {
  CHECK(out.columns == shard_.local);
  if (shard_.rows > 0 && x.rows > 0) {
    kernels::linear(x, head_, {out.data, out.rows, shard_.rows, out.stride}, threads);
  }
  for (int r = 0; r < out.rows && shard_.rows < shard_.local; ++r) {
    std::fill(out.row(r) + shard_.rows, out.row(r) + shard_.local,
              -std::numeric_limits<float>::infinity());
  }
}

}  // namespace copse
