#include "kernels/kv_commit/kv_commit.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/limits.h"

namespace copse::kernels {
namespace {

constexpr int layers = 3;
constexpr int slots = 2;
constexpr int scratch_rows = 5;
constexpr int page_count = 4;
constexpr int width = 7;
constexpr float poison = 1e30f;

struct Caches {
  std::vector<float> scratch;
  std::vector<float> pages =
      std::vector<float>(layers * page_count * limits::page_tokens * width, poison);

  Caches() {
    for (int i = 0; i < layers * slots * scratch_rows * width; ++i) {
      scratch.push_back(static_cast<float>(i));
    }
  }
  KvCommitCache view() { return {scratch, pages, layers, slots, scratch_rows, page_count, width}; }
  static float scratch_value(int layer, int slot, int row, int column) {
    return static_cast<float>(((layer * slots + slot) * scratch_rows + row) * width + column);
  }
  float page_value(int layer, int page, int row, int column) const {
    const int index = ((layer * page_count + page) * limits::page_tokens + row) * width + column;
    return pages[static_cast<std::size_t>(index)];
  }
};

TEST(KvCommit, CopiesAcceptedRowsOfEveryLayerAcrossAPageEdge) {
  Caches caches;
  // Rows 0, 2, 4 of slot 1 become positions 62, 63, 64 of a sequence with pages 3, 1.
  const std::array rows = {KvCommitRow{1, 0, 3, 62}, KvCommitRow{1, 2, 3, 63},
                           KvCommitRow{1, 4, 1, 0}};
  kv_commit(caches.view(), rows);
  std::size_t written = 0;
  for (int layer = 0; layer < layers; ++layer) {
    for (const KvCommitRow& row : rows) {
      for (int column = 0; column < width; ++column) {
        EXPECT_EQ(caches.page_value(layer, row.page, row.page_row, column),
                  Caches::scratch_value(layer, 1, row.scratch_row, column));
        ++written;
      }
    }
  }
  std::size_t touched = 0;
  for (const float value : caches.pages) touched += value != poison ? 1 : 0;
  EXPECT_EQ(touched, written) << "no other row was written";
}

TEST(KvCommit, NothingToCommitTouchesNothing) {
  Caches caches;
  kv_commit(caches.view(), {});
  for (const float value : caches.pages) ASSERT_EQ(value, poison);
}

}  // namespace
}  // namespace copse::kernels
