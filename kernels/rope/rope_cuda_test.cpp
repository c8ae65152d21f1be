#include "kernels/rope/rope_cuda.h"

#include <cmath>

#include "kernels/common/cuda/strided_testing.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

class RopeCuda : public testing::CudaTest {
 protected:
  template <class T>
  void rotate(int rows, int heads, int dim, RopePairs pairs, int gap) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << heads << " heads of " << dim);
    Inputs values(Fill::random, static_cast<std::uint64_t>(dim));
    const Strided<T> x(rows, heads, dim, gap, 2 * gap, values);
    std::vector<float> angles;
    for (int i = 0; i < rows * dim; ++i) angles.push_back(values.next());
    const DeviceBuffer<float> device_angles = testing::upload(angles);
    const Rope<T> call = {.x = x.data(),
                          .row_stride = x.row_stride(),
                          .head_stride = x.head_stride(),
                          .rows = rows,
                          .heads = heads,
                          .dim = dim,
                          .pairs = pairs,
                          .angles = device_angles.data()};
    ASSERT_TRUE(cuda::rope(call, stream()).ok());
    synchronize();
    std::vector<float> expected = x.values();
    kernels::ref::rope({expected.data(), rows, heads, std::ptrdiff_t{heads} * dim, dim}, angles,
                       dim, pairs);
    // The same steps, so the same bits.
    EXPECT_EQ(x.results(), testing::widened(testing::stored<T>(expected)));
    EXPECT_TRUE(x.intact());
  }
};

// cosine and sine of long contexts: arguments of 10^5 and more, within two units of the last place.
TEST_F(RopeCuda, AnglesOfAllPositions) {
  RopeTable table = make_rope_table({.dim = 64,
                                     .theta = 50000.0,
                                     .factor = 64.0,
                                     .original_positions = 4096,
                                     .attention_factor = 1.25});
  std::vector<std::int32_t> positions = {0, 1, -1, 2, 63, 4095, 65535, 131071, 262143};
  for (int p = 3; p < 262144; p = p * 3 + 1) positions.push_back(p);
  const int rows = static_cast<int>(positions.size());
  const DeviceBuffer<float> inv_freq = testing::upload(table.inv_freq);
  const DeviceBuffer<std::int32_t> device_positions = testing::upload(positions);
  const Strided<float> angles(rows, 1, 64, 0, 0);
  const RopeAngles call = {.inv_freq = inv_freq.data(),
                           .positions = device_positions.data(),
                           .attention_factor = table.attention_factor,
                           .rows = rows,
                           .dim = 64,
                           .angles = angles.data()};
  ASSERT_TRUE(rope_angles(call, stream()).ok());
  synchronize();
  for (std::int32_t& position : positions) position = std::max(position, 0);
  std::vector<float> expected(static_cast<std::size_t>(rows) * 64);
  kernels::rope_angles(table, positions, expected);
  EXPECT_TRUE(testing::all_close<float>(angles.results(), expected,
                                        std::vector<float>(expected.size(), 1.25f), 4));
  EXPECT_TRUE(angles.intact());
}

TEST_F(RopeCuda, BothPairingsOfEveryType) {
  for (const RopePairs pairs : {RopePairs::interleaved, RopePairs::halves}) {
    for (const int rows : {1, 9, 65, 513}) {
      rotate<float>(rows, 3, 64, pairs, 7);
      rotate<Bf16>(rows, 8, 64, pairs, 128);
      rotate<Bf16>(rows, 1, 32, pairs, 1);
    }
    rotate<float>(4, 5, 2, pairs, 3);
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
