#include "kernels/kv_commit/kv_commit_cuda.h"

#include <algorithm>
#include <vector>

#include "base/limits.h"
#include "base/random.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/kv_commit/kv_commit.h"

namespace copse::kernels::cuda {
namespace {

using testing::download;
using testing::upload;

struct Extent {
  int layers;
  int slots;
  int scratch_rows;
  int pages;
  int width;
  int sequences;
  int rows_max;
};

struct Plan {
  std::vector<std::int32_t> accepted;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> entry_slot;
  std::vector<std::int32_t> first_position;
  std::vector<PageId> page_tables;  // [slots][pages]: each page belongs to one slot
};

Plan make_plan(const Extent& extent, SeededRandom& random) {
  Plan plan;
  std::vector<PageId> pages;
  for (int i = 0; i < extent.pages; ++i) pages.push_back(i);
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.below(i)]);
  const int own = extent.pages / extent.slots;
  for (int slot = 0; slot < extent.slots; ++slot) {
    for (int i = 0; i < extent.pages; ++i) {
      plan.page_tables.push_back(i < own ? pages[static_cast<std::size_t>(slot * own + i)] : -1);
    }
  }
  for (int s = 0; s < extent.sequences; ++s) {
    const bool absent = s % 4 == 3;
    plan.entry_slot.push_back(absent ? -1 : extent.slots - 1 - s);
    const auto count =
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(extent.rows_max + 1)));
    plan.counts.push_back(absent ? 1 << 30 : count);
    const int room = own * limits::page_tokens - extent.rows_max;
    plan.first_position.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(room))));
    // Ascending, with gaps; poison behind the count.
    int row = 0;
    for (int i = 0; i < extent.rows_max; ++i) {
      const int left = extent.rows_max - i;
      row += static_cast<int>(
          random.below(static_cast<std::uint64_t>(extent.scratch_rows - row - left + 1)));
      plan.accepted.push_back(i < count ? row : 1 << 30);
      ++row;
    }
  }
  return plan;
}

// The rows that the reference copies.
std::vector<KvCommitRow> rows_of(const Extent& extent, const Plan& plan, bool identity) {
  std::vector<KvCommitRow> rows;
  for (std::size_t s = 0; s < plan.counts.size(); ++s) {
    const std::int32_t slot = plan.entry_slot[s];
    if (slot < 0) continue;
    for (int i = 0; i < plan.counts[s]; ++i) {
      const int position = plan.first_position[s] + i;
      const auto entry =
          static_cast<std::size_t>(slot * extent.pages + position / limits::page_tokens);
      const std::int32_t row = identity
                                   ? i
                                   : plan.accepted[s * static_cast<std::size_t>(extent.rows_max) +
                                                   static_cast<std::size_t>(i)];
      rows.push_back({slot, row, plan.page_tables[entry], position % limits::page_tokens});
    }
  }
  return rows;
}

template <class T>
class KvCommitCuda : public testing::CudaTest {
 protected:
  void expect_exact(const Extent& extent, bool identity, SeededRandom& random) {
    const Plan plan = make_plan(extent, random);
    const auto size = [](int value) { return static_cast<std::size_t>(value); };
    std::vector<float> scratch;
    const std::size_t count =
        size(extent.layers) * size(extent.slots) * size(extent.scratch_rows) * size(extent.width);
    for (std::size_t i = 0; i < count; ++i)
      scratch.push_back(static_cast<float>(random.below(256)));
    std::vector<float> pages(
        size(extent.layers) * size(extent.pages) * limits::page_tokens * size(extent.width), -7);
    const auto device_scratch = upload(testing::stored<T>(scratch));
    const auto device_pages = upload(testing::stored<T>(pages));
    const auto accepted = upload(plan.accepted);
    const auto counts = upload(plan.counts);
    const auto entry_slot = upload(plan.entry_slot);
    const auto first_position = upload(plan.first_position);
    const auto page_tables = upload(plan.page_tables);
    KvCommitCall<T> call;
    call.layers = extent.layers;
    call.slots = extent.slots;
    call.scratch_rows = extent.scratch_rows;
    call.pages_count = extent.pages;
    call.width = extent.width;
    call.scratch = device_scratch.data();
    call.pages = device_pages.data();
    call.sequences = extent.sequences;
    call.rows_max = extent.rows_max;
    call.accepted_stride = extent.rows_max;
    call.table_pages = extent.pages;
    call.accepted = identity ? nullptr : accepted.data();
    call.counts = counts.data();
    call.entry_slot = entry_slot.data();
    call.first_position = first_position.data();
    call.page_tables = page_tables.data();
    ASSERT_TRUE(kv_commit(call, this->stream()).ok());
    this->synchronize();
    kernels::kv_commit({scratch, pages, extent.layers, extent.slots, extent.scratch_rows,
                        extent.pages, extent.width},
                       rows_of(extent, plan, identity));
    const std::vector<float> actual = testing::widened(download(device_pages));
    for (std::size_t i = 0; i < pages.size(); ++i) ASSERT_EQ(actual[i], pages[i]) << "value " << i;
  }
};

using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(KvCommitCuda, Types);

TYPED_TEST(KvCommitCuda, AcceptedRowsAndNoOthersAreCopied) {
  SeededRandom random(3);
  for (const Extent& extent : {Extent{3, 4, 40, 12, 576, 4, 33}, Extent{1, 1, 5, 2, 7, 1, 5},
                               Extent{5, 8, 33, 16, 64, 8, 16}, Extent{2, 2, 20, 6, 10, 2, 17}}) {
    this->expect_exact(extent, false, random);
    this->expect_exact(extent, true, random);
  }
}

TYPED_TEST(KvCommitCuda, APrefillChunkOfManyRows) {
  SeededRandom random(4);
  this->expect_exact({2, 1, 513, 12, 64, 1, 512}, true, random);
}

}  // namespace
}  // namespace copse::kernels::cuda
