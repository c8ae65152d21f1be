#include <cstring>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/kv_commit/kv_commit.h"

namespace copse::kernels {

void kv_commit(const KvCommitCache& cache, std::span<const KvCommitRow> rows) {
  const auto size = [](int value) { return static_cast<std::size_t>(value); };
  const std::size_t width = size(cache.width);
  const std::size_t scratch_stride = size(cache.slots) * size(cache.scratch_rows) * width;
  const std::size_t page_stride = size(cache.pages_count) * limits::page_tokens * width;
  CHECK(cache.scratch.size() == size(cache.layers) * scratch_stride);
  CHECK(cache.pages.size() == size(cache.layers) * page_stride);
  for (const KvCommitRow& row : rows) {
    CHECK(row.scratch_slot >= 0 && row.scratch_slot < cache.slots);
    CHECK(row.scratch_row >= 0 && row.scratch_row < cache.scratch_rows);
    CHECK(row.page >= 0 && row.page < cache.pages_count);
    CHECK(row.page_row >= 0 && row.page_row < limits::page_tokens);
    const std::size_t from =
        (size(row.scratch_slot) * size(cache.scratch_rows) + size(row.scratch_row)) * width;
    const std::size_t to = (size(row.page) * limits::page_tokens + size(row.page_row)) * width;
    for (std::size_t layer = 0; layer < size(cache.layers); ++layer) {
      std::memcpy(cache.pages.data() + layer * page_stride + to,
                  cache.scratch.data() + layer * scratch_stride + from, width * sizeof(float));
    }
  }
}

}  // namespace copse::kernels
