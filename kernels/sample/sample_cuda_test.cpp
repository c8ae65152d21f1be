#include "kernels/sample/sample_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/cuda/testing.h"
#include "kernels/sample/sample_testing.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::draw;
using kernels::testing::model_logits;
using kernels::testing::Shards;
using testing::download;
using testing::upload;

// The slot of a sequence of one row that asks for what `row` does.
DeviceSlot slot_of(const SampleRow& row) {
  DeviceSlot slot{};
  slot.seed = row.seed;
  slot.choice = row.choice;
  slot.temperature = row.temperature;
  slot.top_p = row.top_p;
  slot.min_p = row.min_p;
  slot.top_k = row.top_k;
  slot.has_bonus = 1;
  slot.length = static_cast<std::int32_t>(row.position) - 1;
  slot.drawn = 5;
  slot.min_tokens = row.masked.empty() ? 5 : 6;
  slot.end_token_count = static_cast<std::int32_t>(row.masked.size());
  std::ranges::copy(row.masked, slot.end_tokens);
  return slot;
}

// As testing::draw, with every rank on the GPU: one sequence a row.
class Batch {
 public:
  Batch(const std::vector<SampleRow>& rows, int world) : rows_(rows.size()), world_(world) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      slots_.push_back(slot_of(rows[r]));
      positions_.push_back(static_cast<std::int32_t>(rows[r].position) - 1);
      entries_.push_back(static_cast<std::int32_t>(r));
    }
  }
  void pad(std::size_t row) { positions_[row] = -1; }
  void leave_out(std::size_t row) { entries_[row] = -1; }

  std::vector<TokenId> draw(const std::vector<float>& logits, int vocabulary, bool filter,
                            Stream stream) {
    slots = upload(slots_);
    positions = upload(positions_);
    entries = upload(entries_);
    const Shards shards(logits, static_cast<int>(rows_), vocabulary, world_);
    std::vector<DeviceBuffer<float>> values;
    std::vector<SampleCall> calls;
    for (const SampleLogits& view : shards.views) {
      values.push_back(upload(std::vector<float>(view.values.begin(), view.values.end())));
      SampleCall call;
      call.logits = values.back().data();
      call.rows = static_cast<int>(rows_);
      call.stride = view.stride;
      call.vocabulary = vocabulary;
      call.world_size = world_;
      call.vocabulary_begin = view.vocabulary_begin;
      call.vocabulary_rows = view.vocabulary_rows;
      call.rows_per_sequence = 1;
      call.row_positions = positions.data();
      call.slots = slots.data();
      call.entry_slot = entries.data();
      calls.push_back(call);
    }
    if (filter) find_thresholds(calls, stream);
    std::vector<SampleChoice> choices;
    const std::size_t offers = rows_ * static_cast<std::size_t>(sample_slices(calls[0]));
    for (const SampleCall& call : calls) {
      const auto mine = upload(std::vector<SampleChoice>(offers, {1e30f, 1}));
      EXPECT_TRUE(
          sample_local(call, filter ? thresholds.data() : nullptr, mine.data(), stream).ok());
      append(choices, mine, stream);
    }
    const auto all = upload(choices);
    const auto tokens = upload(std::vector<TokenId>(rows_, -99));
    EXPECT_TRUE(sample_merge(calls[0], all.data(), tokens.data(), stream).ok());
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return download(tokens);
  }

  DeviceBuffer<SampleThreshold> thresholds;  // of the last draw with filters

 private:
  template <class T>
  static void append(std::vector<T>& all, const DeviceBuffer<T>& mine, Stream stream) {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const auto values = download(mine);
    all.insert(all.end(), values.begin(), values.end());
  }

  void find_thresholds(const std::vector<SampleCall>& calls, Stream stream) {
    const SampleFilterUse use = {asks([](const DeviceSlot& slot) { return slot.top_k > 0; }),
                                 asks([](const DeviceSlot& slot) { return slot.top_p < 1; })};
    const std::size_t bins_of_step = rows_ * sample_bins;
    std::vector<float> maxima;
    std::vector<DeviceBuffer<FilterRow>> states;
    std::vector<DeviceBuffer<std::uint64_t>> bins;
    std::vector<SampleFilterArrays> arrays;
    for (const SampleCall& call : calls) {
      const auto mine =
          upload(std::vector<float>(rows_ * static_cast<std::size_t>(sample_slices(call)), 1e30f));
      states.push_back(upload(std::vector<FilterRow>(2 * rows_)));
      bins.push_back(upload(std::vector<std::uint64_t>(3 * bins_of_step, 77)));
      arrays.push_back({states.back().data(), bins.back().data()});
      EXPECT_TRUE(sample_filter_maxima(call, arrays.back(), mine.data(), stream).ok());
      append(maxima, mine, stream);
    }
    const auto gathered = upload(maxima);
    for (int step = 0; step < sample_filter_steps(calls[0], use); ++step) {
      std::vector<std::uint64_t> sum(bins_of_step);
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        EXPECT_TRUE(
            sample_filter_step(calls[rank], use, step, gathered.data(), arrays[rank], stream).ok());
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        std::vector<std::uint64_t> mine(bins_of_step);
        EXPECT_TRUE(copy_to_host(mine.data(), sample_filter_bins(calls[rank], arrays[rank], step),
                                 bins_of_step * sizeof(mine[0]))
                        .ok());
        for (std::size_t i = 0; i < bins_of_step; ++i) sum[i] += mine[i];
      }
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        EXPECT_TRUE(copy_to_device(sample_filter_bins(calls[rank], arrays[rank], step), sum.data(),
                                   bins_of_step * sizeof(sum[0]))
                        .ok());
      }
    }
    thresholds = upload(std::vector<SampleThreshold>(rows_));
    EXPECT_TRUE(
        sample_filter_finish(calls[0], use, gathered.data(), arrays[0], thresholds.data(), stream)
            .ok());
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

  bool asks(bool (*question)(const DeviceSlot&)) const {
    return std::ranges::any_of(slots_, question);
  }

  std::size_t rows_;
  int world_;
  std::vector<DeviceSlot> slots_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> entries_;
  DeviceBuffer<DeviceSlot> slots;
  DeviceBuffer<std::int32_t> positions;
  DeviceBuffer<std::int32_t> entries;
};

SampleRow row_at(float temperature, std::uint64_t position, std::uint64_t seed) {
  SampleRow row;
  row.temperature = temperature;
  row.position = position;
  row.seed = seed;
  row.choice = static_cast<std::uint32_t>(seed % 3);
  return row;
}

class SampleCuda : public testing::CudaTest {
 protected:
  void expect_as_on_cpu(const std::vector<float>& logits, int vocabulary,
                        const std::vector<SampleRow>& rows, std::initializer_list<int> worlds) {
    const std::vector<TokenId> expected = draw(logits, vocabulary, rows, 1);
    for (const int world : worlds) {
      const std::vector<TokenId> actual =
          Batch(rows, world).draw(logits, vocabulary, SampleFilter::needed(rows), stream());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        ASSERT_EQ(actual[r], expected[r]) << "row " << r << " world " << world << " temperature "
                                          << rows[r].temperature << " vocabulary " << vocabulary;
      }
    }
  }
};

TEST_F(SampleCuda, DrawsAsOnTheCpuAtEveryTemperatureAndWorldSize) {
  for (const int vocabulary : {3, 100, 1003, 4096, 30000}) {
    for (const bool coarse : {false, true}) {
      std::vector<SampleRow> rows;
      for (std::uint64_t p = 1; p < 30; ++p) {
        for (const float temperature : {0.0f, 2e-5f, 1e-3f, 0.6f, 1.0f, 5.0f}) {
          rows.push_back(row_at(temperature, p * p, p));
        }
      }
      const int count = static_cast<int>(rows.size());
      expect_as_on_cpu(model_logits(count, vocabulary, 11, coarse), vocabulary, rows, {1, 2, 4, 8});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(SampleCuda, HundredsOfThousandsOfDrawsAsOnTheCpu) {
  const int vocabulary = 64;
  const std::vector<float> one = model_logits(1, vocabulary, 4);
  std::vector<float> logits;
  for (int r = 0; r < 1000; ++r) logits.insert(logits.end(), one.begin(), one.end());
  for (std::uint64_t batch = 0; batch < 300; ++batch) {
    std::vector<SampleRow> rows;
    for (std::uint64_t r = 0; r < 1000; ++r) {
      rows.push_back(row_at(1.0f, 1 + batch * 1000 + r, batch));
    }
    expect_as_on_cpu(logits, vocabulary, rows, {1});
    if (HasFatalFailure()) return;
  }
}

TEST_F(SampleCuda, FiltersDrawAsOnTheCpu) {
  for (const int vocabulary : {517, 4099}) {
    for (const bool coarse : {false, true}) {
      std::vector<SampleRow> rows;
      for (const int top_k : {0, 1, 40, 516, 9999}) {
        for (const float top_p : {1.0f, 0.9999f, 0.9f, 0.3f, 1e-4f}) {
          for (const float min_p : {0.0f, 0.001f, 0.2f}) {
            SampleRow row = row_at(0.9f, rows.size() + 1, 7);
            row.top_k = top_k;
            row.top_p = top_p;
            row.min_p = min_p;
            rows.push_back(row);
          }
        }
      }
      rows.push_back(row_at(0, 500, 1));
      const int count = static_cast<int>(rows.size());
      expect_as_on_cpu(model_logits(count, vocabulary, 5, coarse), vocabulary, rows, {1, 2, 8});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(SampleCuda, ThresholdsHaveTheBitsOfTheCpus) {
  const int vocabulary = 5000;
  std::vector<SampleRow> rows;
  for (std::uint64_t r = 0; r < 64; ++r) {
    SampleRow row = row_at(0.5f + 0.01f * static_cast<float>(r), r + 1, r);
    row.top_k = static_cast<std::int32_t>(r * 20);
    row.top_p = 0.99f - 0.01f * static_cast<float>(r);
    row.min_p = r % 3 == 0 ? 0.05f : 0.0f;
    rows.push_back(row);
  }
  const std::vector<float> logits = model_logits(64, vocabulary, 9);
  Batch batch(rows, 1);
  batch.draw(logits, vocabulary, true, stream());
  const auto actual = download(batch.thresholds);

  ThreadPool pool(1);
  const Shards shards(logits, 64, vocabulary, 1);
  kernels::testing::Filters filters;
  filters.ranks.emplace_back(64, shards.views[0].stride, vocabulary);
  SampleFilter& filter = filters.ranks[0];
  filter.begin(shards.views[0], rows, filter.local_maxima(shards.views[0], rows), pool);
  filters.settle(FilterStage::top_k, pool);
  filters.settle(FilterStage::top_p, pool);
  const auto expected = filter.thresholds();
  for (std::size_t r = 0; r < 64; ++r) {
    EXPECT_EQ(actual[r].place, expected[r].place) << r;
    EXPECT_EQ(actual[r].mass, expected[r].mass) << r;
    EXPECT_EQ(actual[r].largest, expected[r].largest) << r;
    EXPECT_EQ(actual[r].id_bits, expected[r].id_bits) << r;
  }
}

TEST_F(SampleCuda, ARowThatIsNotFiniteIsNamedAndOthersAreNot) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    for (const int at : {0, 17, 99}) {
      std::vector<float> logits = model_logits(3, 100, 2);
      logits[static_cast<std::size_t>(100 + at)] = bad;
      SampleRow filtered = row_at(1, 3, 1);
      filtered.top_p = 0.5f;
      for (const SampleRow& row : {row_at(0, 3, 1), row_at(1, 3, 1), filtered}) {
        const std::vector<SampleRow> rows(3, row);
        for (const int world : {1, 4}) {
          const auto tokens =
              Batch(rows, world).draw(logits, 100, SampleFilter::needed(rows), stream());
          EXPECT_EQ(tokens[1], sample_not_finite) << bad << " at " << at;
          EXPECT_GE(tokens[0], 0);
          EXPECT_GE(tokens[2], 0);
        }
      }
    }
  }
}

TEST_F(SampleCuda, MaskedTokensAreNeverDrawnBeforeMinTokens) {
  std::vector<float> logits(64, 0.0f);
  logits[9] = 50;
  logits[40] = 40;
  const std::vector<TokenId> masked = {9, 63};
  for (SampleRow row : {row_at(0, 1, 1), row_at(0.8f, 1, 1)}) {
    for (const int world : {1, 2, 8}) {
      row.masked = {};
      EXPECT_EQ(Batch({row}, world).draw(logits, 64, false, stream())[0], 9);
      row.masked = masked;
      EXPECT_EQ(Batch({row}, world).draw(logits, 64, false, stream())[0], 40);
      row.top_k = 1;
      EXPECT_EQ(Batch({row}, world).draw(logits, 64, true, stream())[0], 40);
      row.top_k = 0;
    }
  }
}

TEST_F(SampleCuda, PaddingIsTokenZeroWhateverItsLogitsAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<SampleRow> rows;
  for (std::uint64_t r = 0; r < 6; ++r) rows.push_back(row_at(r % 2 == 0 ? 0.0f : 1.0f, r + 1, r));
  rows[4].top_p = 0.5f;
  rows[4].temperature = 1;
  std::vector<float> logits = model_logits(6, 300, 3);
  const std::vector<TokenId> expected = draw(logits, 300, rows, 1);
  std::fill(logits.begin() + 600, logits.begin() + 900, nan);
  std::fill(logits.begin() + 900, logits.begin() + 1200, nan);
  Batch batch(rows, 2);
  batch.pad(2);
  batch.leave_out(3);
  const auto tokens = batch.draw(logits, 300, true, stream());
  EXPECT_EQ(tokens[2], 0);
  EXPECT_EQ(tokens[3], 0);
  for (const std::size_t r : {0u, 1u, 4u, 5u}) EXPECT_EQ(tokens[r], expected[r]);
}

TEST_F(SampleCuda, RowsOfATreeDrawByTheirOwnPositionsAndLogitRowsMayBeChosen) {
  // Two sequences of four rows; three rows of logits.
  const std::vector<float> logits = model_logits(3, 500, 6);
  std::vector<DeviceSlot> slots = {slot_of(row_at(1, 11, 3)), slot_of(row_at(1, 100, 4))};
  slots[1].drawn = 0;
  slots[1].min_tokens = 2;  // masks the root's draw (number 1) and its child's, not further ones
  slots[1].end_token_count = 1;
  const std::vector<std::int32_t> positions = {10, 11, 12, 12, 99, 100, 101, -1};
  std::vector<SampleRow> rows = {row_at(1, 13, 3), row_at(1, 101, 4), row_at(1, 102, 4)};
  const std::vector<TokenId> masked = {draw(logits, 500, rows, 1)[1]};
  slots[1].end_tokens[0] = masked[0];
  rows[1].masked = masked;
  const std::vector<TokenId> expected = draw(logits, 500, rows, 1);
  ASSERT_NE(expected[1], masked[0]);

  const auto device_logits = upload(logits);
  const auto device_slots = upload(slots);
  const auto device_positions = upload(positions);
  const auto logit_rows = upload(std::vector<std::int32_t>{3, 5, 6});
  const auto entries = upload(std::vector<std::int32_t>{0, 1});
  SampleCall call;
  call.logits = device_logits.data();
  call.rows = 3;
  call.stride = call.vocabulary = call.vocabulary_rows = 500;
  call.rows_per_sequence = 4;
  call.logit_rows = logit_rows.data();
  call.row_positions = device_positions.data();
  call.slots = device_slots.data();
  call.entry_slot = entries.data();
  const auto choices =
      upload(std::vector<SampleChoice>(3 * static_cast<std::size_t>(sample_slices(call))));
  const auto tokens = upload(std::vector<TokenId>(3, -99));
  ASSERT_TRUE(sample_local(call, nullptr, choices.data(), stream()).ok());
  ASSERT_TRUE(sample_merge(call, choices.data(), tokens.data(), stream()).ok());
  synchronize();
  EXPECT_EQ(download(tokens), expected);
}

}  // namespace
}  // namespace copse::kernels::cuda
