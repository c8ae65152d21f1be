// Several sequences in one forward pass: a prefill chunk, a plain decode and a tree together give
// each sequence the bits it gets alone, from pages in any order; and no pass allocates.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/common/thread_pool.h"
#include "model/dflash/drafter_model.h"
#include "model/memory_plan.h"
#include "model/token_tables.h"
#include "tests/oracle/allocations.h"
#include "tests/oracle/oracle.h"
#include "transport/collective/local.h"

namespace copse::oracle {
namespace {

constexpr auto kTarget = "models/sapling";
constexpr auto kDrafter = "models/sapling-dflash";

std::vector<std::int32_t> counting(int from, int count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), from);
  return values;
}

// The rows of one sequence in a pass, and where its state is.
struct Part {
  int slot = 0;
  std::vector<PageId> pages;
  int prefix = 0;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;  // empty: a chain

  int rows() const { return static_cast<int>(tokens.size()); }
  std::vector<std::uint64_t> ancestors() const {
    std::vector<std::uint64_t> masks;
    for (std::size_t r = 0; r < parents.size(); ++r) {
      const auto parent = static_cast<std::size_t>(parents[r]);
      masks.push_back((parents[r] < 0 ? 0 : masks[parent]) | std::uint64_t{1} << r);
    }
    return masks;
  }
  std::vector<std::int32_t> positions() const {
    if (parents.empty()) return counting(prefix, rows());
    std::vector<std::int32_t> result;
    for (const int parent : parents) {
      result.push_back(parent < 0 ? prefix : result[static_cast<std::size_t>(parent)] + 1);
    }
    return result;
  }
};

// A pass over some parts, with all logits wanted; owns what the batch points to.
struct Pass {
  explicit Pass(std::vector<Part> of) : parts(std::move(of)) {
    for (const Part& part : parts) {
      SequenceRows sequence;
      sequence.first_row = static_cast<int>(tokens.size());
      sequence.rows = part.rows();
      sequence.prefix_length = part.prefix;
      sequence.scratch_slot = part.slot;
      sequence.pages = part.pages;
      masks.push_back(part.ancestors());
      sequence.parents = part.parents;
      sequence.ancestors = masks.back();
      sequence.mask_words = 1;
      sequences.push_back(sequence);
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      const auto more = part.positions();
      positions.insert(positions.end(), more.begin(), more.end());
    }
    // Growing `masks` moved the vectors but not what they hold.
    logit_rows = counting(0, static_cast<int>(tokens.size()));
  }
  ForwardBatch batch() const { return {tokens, positions, sequences, logit_rows}; }

  std::vector<Part> parts;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<SequenceRows> sequences;
  std::vector<std::vector<std::uint64_t>> masks;
  std::vector<std::int32_t> logit_rows;
};

class Batch : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = read_model_config(kTarget);
    ASSERT_TRUE(config.ok());
    options_ = {limits::step_rows, limits::step_rows, {1, 2, 3}};
    auto model = TargetModel::load(kTarget, *config, options_, *group_, threads_);
    ASSERT_TRUE(model.ok()) << describe(model.error());
    model_ = *std::move(model);
    cache_.emplace(LatentCache::Shape{config->layers, config->latent_width(), 8, 4});
    for (int layer = 0; layer < config->layers; ++layer) {  // what nobody wrote must not be read
      for (float& value : cache_->pages(layer)) value = std::nanf("");
      for (float& value : cache_->scratch(layer)) value = std::nanf("");
    }
    const Json golden = golden_json("models/golden/generation.json");
    for (const auto& prompt : golden) {
      if (prompt.at("prompt_ids").size() > 100)
        texts_.push_back(token_ids(prompt.at("prompt_ids")));
    }
    ASSERT_GE(texts_.size(), 3u);
  }

  // Prefills the first `length` tokens of a text and commits them.
  void prefill(const Part& part, int length, std::size_t text) {
    Part chunk = part;
    chunk.prefix = 0;
    chunk.tokens.assign(texts_[text].begin(), texts_[text].begin() + length);
    chunk.parents.clear();
    ASSERT_TRUE(model_->forward(Pass({chunk}).batch(), *cache_).ok());
    for (int layer = 0; layer < cache_->shape().layers; ++layer) {
      for (int p = 0; p < length; ++p) {
        const auto row = cache_->scratch_row(layer, part.slot, p);
        const PageId page = part.pages[static_cast<std::size_t>(p / limits::page_tokens)];
        std::copy(row.begin(), row.end(),
                  cache_->page_row(layer, page, p % limits::page_tokens).begin());
      }
    }
  }

  std::vector<Part> three_sequences() {
    const auto tail = [&](std::size_t text, int from, int count) {
      return std::vector<TokenId>(texts_[text].begin() + from, texts_[text].begin() + from + count);
    };
    std::vector<Part> parts = {
        {2, {5, 1}, 70, tail(0, 70, 30), {}},
        {0, {7}, 64, tail(1, 64, 1), {}},
        {3, {0, 6}, 100, {11, 40, 41, 500, 42, 43, 44}, {-1, 0, 0, 1, 1, 2, 5}},
    };
    prefill(parts[0], 70, 0);
    prefill(parts[1], 64, 1);
    prefill(parts[2], 100, 2);
    return parts;
  }

  std::unique_ptr<Collective> group_ = make_local_collective();
  ThreadPool threads_{2};
  TargetOptions options_;
  std::unique_ptr<TargetModel> model_;
  std::optional<LatentCache> cache_;
  std::vector<std::vector<TokenId>> texts_;
};

TEST_F(Batch, EachSequenceGetsTheBitsItGetsAlone) {
  const std::vector<Part> parts = three_sequences();
  std::vector<float> logits, features;
  for (const Part& part : parts) {
    const auto alone = model_->forward(Pass({part}).batch(), *cache_);
    ASSERT_TRUE(alone.ok());
    logits.insert(logits.end(), alone->logits.begin(), alone->logits.end());
    features.insert(features.end(), alone->features.begin(), alone->features.end());
  }
  const auto together = model_->forward(Pass(parts).batch(), *cache_);
  ASSERT_TRUE(together.ok());
  ASSERT_EQ(together->logits.size(), logits.size());
  ASSERT_EQ(together->features.size(), features.size());
  EXPECT_EQ(std::memcmp(together->logits.data(), logits.data(), together->logits.size_bytes()), 0);
  EXPECT_EQ(
      std::memcmp(together->features.data(), features.data(), together->features.size_bytes()), 0);
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
}

TEST_F(Batch, OnlyWantedRowsGetLogits) {
  const std::vector<Part> parts = three_sequences();
  Pass pass(parts);
  const auto all = model_->forward(pass.batch(), *cache_);
  ASSERT_TRUE(all.ok());
  const std::vector<float> kept(all->logits.begin(), all->logits.end());
  pass.logit_rows = {29, 30, 37};
  const auto some = model_->forward(pass.batch(), *cache_);
  ASSERT_TRUE(some.ok());
  const std::size_t width = static_cast<std::size_t>(model_->vocabulary().local);
  ASSERT_EQ(some->logits.size(), 3 * width);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto row = static_cast<std::size_t>(pass.logit_rows[i]);
    EXPECT_EQ(std::memcmp(some->logits.data() + i * width, kept.data() + row * width,
                          width * sizeof(float)),
              0);
  }
}

TEST_F(Batch, NoPassAllocates) {
  const Pass pass(three_sequences());
  const ForwardBatch batch = pass.batch();
  ASSERT_TRUE(model_->forward(batch, *cache_).ok());
  const std::int64_t before = allocation_count();
  const bool good = model_->forward(batch, *cache_).ok();
  EXPECT_EQ(allocation_count() - before, 0);
  EXPECT_TRUE(good);
}

// Two sequences drafted together, from shuffled pages, with the context appended in other pieces.
TEST_F(Batch, DraftsOfTwoSequencesAreThoseOfEach) {
  const auto config = read_drafter_config(kDrafter);
  ASSERT_TRUE(config.ok());
  const auto drafter =
      DrafterModel::load(kDrafter, *config, {2, 128}, model_->tables(), *group_, threads_);
  ASSERT_TRUE(drafter.ok()) << describe(drafter.error());
  DraftCache cache((*drafter)->cache_shape(4));
  const std::vector<PageId> pages[2] = {{3, 0}, {1}};
  const int lengths[2] = {90, 33};
  const auto append = [&](std::size_t s, std::span<const float> features, int from, int count) {
    std::vector<ContextBatch::Destination> to;
    for (const int p : counting(from, count)) {
      to.push_back({pages[s][static_cast<std::size_t>(p / 64)], p % 64});
    }
    const auto rows = counting(from, count);
    return (*drafter)->append_context({features, rows, rows, to}, cache).ok();
  };
  std::vector<float> apart;
  std::vector<DraftSequence> sequences;
  for (std::size_t s = 0; s < 2; ++s) {
    const Part text = {0, {}, 0, {texts_[s].begin(), texts_[s].begin() + lengths[s]}, {}};
    const auto output = model_->forward(Pass({text}).batch(), *cache_);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(append(s, output->features, 0, 20));
    ASSERT_TRUE(append(s, output->features, 20, lengths[s] - 20));
    sequences.push_back({texts_[s][static_cast<std::size_t>(lengths[s])], lengths[s], pages[s]});
    const auto alone = (*drafter)->forward({std::span(&sequences.back(), 1)}, cache);
    ASSERT_TRUE(alone.ok());
    apart.insert(apart.end(), alone->logits.begin(), alone->logits.end());
  }
  const std::int64_t before = allocation_count();
  const auto together = (*drafter)->forward({sequences}, cache);
  EXPECT_EQ(allocation_count() - before, 0);
  ASSERT_TRUE(together.ok());
  ASSERT_EQ(together->logits.size(), apart.size());
  EXPECT_EQ(std::memcmp(together->logits.data(), apart.data(), together->logits.size_bytes()), 0);
}

TEST_F(Batch, TheMemoryPlanIsWhatIsHeld) {
  const auto config = read_drafter_config(kDrafter);
  const auto drafter =
      DrafterModel::load(kDrafter, *config, {3, 100}, model_->tables(), *group_, threads_);
  ASSERT_TRUE(drafter.ok());
  InspectOptions options;
  options.target = options_;
  options.drafter = {3, 100};
  options.slots = 4;
  const auto report = inspect_checkpoint(kTarget, kDrafter, options);
  ASSERT_TRUE(report.ok()) << describe(report.error());
  const RankMemory& memory = report->ranks.at(0).memory;
  EXPECT_EQ(memory.target_weights, model_->weight_bytes());
  EXPECT_EQ(memory.target_workspace, model_->workspace_bytes());
  EXPECT_EQ(memory.latent_scratch + 8 * memory.latent_page, cache_->bytes());
  EXPECT_EQ(memory.drafter_weights, (*drafter)->weight_bytes());
  EXPECT_EQ(memory.drafter_workspace, (*drafter)->workspace_bytes());
  EXPECT_EQ(8 * memory.draft_page, DraftCache((*drafter)->cache_shape(8)).bytes());
}

TEST(TokenTables, AShardedEmbeddingIsTheWholeOne) {
  const auto checkpoint = Checkpoint::open(kTarget);
  ASSERT_TRUE(checkpoint.ok());
  const LinearSpec embedding = {"model.embed_tokens", 4096, 256, false};
  const LinearSpec head = {"lm_head", 4096, 256, false};
  const std::vector<TokenId> tokens = {0, 511, 512, 4095, 2000};
  EXPECT_TRUE(run_ranks(8, [&](Collective& group) {
    const VocabularyShard own = vocabulary_shard(4096, {group.rank(), 8});
    const auto embed = [&](Range rows) {
      TokenTables tables(4096, rows, own);
      LoadPlan plan(*checkpoint, {});
      tables.plan(plan, embedding, head);
      std::vector<float> out(tokens.size() * 256);
      CHECK(plan.run({}).ok());
      CHECK(tables.embed(tokens, kernels::matrix(out.data(), 5, 256), group).ok());
      return out;
    };
    return embed({own.begin, own.begin + own.rows}) == embed({0, 4096});
  }));
}

}  // namespace
}  // namespace copse::oracle
