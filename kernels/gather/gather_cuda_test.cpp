#include "kernels/gather/gather_cuda.h"

#include "kernels/common/cuda/strided_testing.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

class GatherCuda : public testing::CudaTest {
 protected:
  template <class T>
  void embed(int rows, int hidden) {
    SCOPED_TRACE(::testing::Message() << rows << " rows of " << hidden);
    constexpr TokenId first = 40;
    constexpr int count = 24;
    Inputs values(Fill::random, 3);
    const Strided<T> table(count, 1, hidden, 0, 0, values);
    std::vector<TokenId> tokens;
    for (int r = 0; r < rows; ++r) tokens.push_back(r * 7 % 100 - 1);
    const DeviceBuffer<TokenId> device_tokens = testing::upload(tokens);
    const Strided<float> out(rows, 1, hidden, 0, 0);
    const EmbedRows<T> call = {.tokens = device_tokens.data(),
                               .rows = rows,
                               .table = table.data(),
                               .first = first,
                               .count = count,
                               .hidden = hidden,
                               .out = out.data()};
    ASSERT_TRUE(embed_rows(call, stream()).ok());
    synchronize();
    const std::vector<float> rows_of_table = table.values();
    std::vector<float> expected;
    for (const TokenId token : tokens) {
      for (int i = 0; i < hidden; ++i) {
        const bool held = token >= first && token < first + count;
        expected.push_back(
            held ? rows_of_table[static_cast<std::size_t>((token - first) * hidden + i)] : 0.0f);
      }
    }
    EXPECT_EQ(out.results(), expected);
    EXPECT_TRUE(out.intact());
  }

  template <class T>
  void copy(int count, int width, int gap) {
    SCOPED_TRACE(::testing::Message() << count << " rows of " << width << ", gap " << gap);
    constexpr int sources = 11;
    Inputs values(Fill::random, 5);
    const Strided<T> from(sources, 1, width, 0, gap, values);
    const Strided<T> to(count, 1, width, 0, 2 * gap);
    std::vector<std::int32_t> index;
    for (int r = 0; r < count; ++r) index.push_back(r * 5 % (sources + 1) - 1);
    const DeviceBuffer<std::int32_t> device_index = testing::upload(index);
    constexpr std::int64_t bytes = sizeof(T);
    const CopyRows call = {.from = from.data(),
                           .from_stride = from.row_stride() * bytes,
                           .index = device_index.data(),
                           .count = count,
                           .row_bytes = width * bytes,
                           .out = to.data(),
                           .out_stride = to.row_stride() * bytes};
    ASSERT_TRUE(copy_rows(call, stream()).ok());
    synchronize();
    const std::vector<float> rows = from.values();
    std::vector<float> expected;
    for (const std::int32_t row : index) {
      for (int i = 0; i < width; ++i) {
        expected.push_back(row < 0 ? 0.0f : rows[static_cast<std::size_t>(row * width + i)]);
      }
    }
    EXPECT_EQ(to.results(), expected);
    EXPECT_TRUE(to.intact());
  }
};

TEST_F(GatherCuda, EmbedsTheTokensOfTheShard) {
  for (const int rows : {1, 33, 513}) {
    for (const int hidden : {1, 100, 256, 7168}) {
      embed<float>(rows, hidden);
      embed<Bf16>(rows, hidden);
    }
  }
}

TEST_F(GatherCuda, CopiesRowsOfEveryWidth) {
  for (const int count : {1, 20, 513}) {
    for (const int width : {1, 31, 576, 7168}) {
      copy<float>(count, width, 4);
      copy<Bf16>(count, width, 8);
      copy<Bf16>(count, width, 1);
    }
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
