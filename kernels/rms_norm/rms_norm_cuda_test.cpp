#include "kernels/rms_norm/rms_norm_cuda.h"

#include "kernels/common/cuda/strided_testing.h"
#include "kernels/rms_norm/rms_norm.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

constexpr float eps = 1e-5f;
constexpr int dims[] = {1, 24, 32, 128, 192, 256, 260, 513, 1536, 7168};

class RmsNormCuda : public testing::CudaTest {
 protected:
  static std::vector<float> expect(const std::vector<float>& x, const std::vector<float>& weight) {
    const int dim = static_cast<int>(weight.size());
    const int rows = static_cast<int>(x.size()) / dim;
    std::vector<float> y(x.size());
    ref::rms_norm(matrix(x.data(), rows, dim), weight, eps, matrix(y.data(), rows, dim));
    return y;
  }
  static std::vector<float> weights(int dim, Inputs& values) {
    std::vector<float> weight(static_cast<std::size_t>(dim));
    for (float& value : weight) value = values.next();
    return weight;
  }

  template <class X, class Y>
  void strided(Fill fill, int rows, int heads, int dim, int gap) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << heads << " heads of " << dim);
    Inputs values(fill, static_cast<std::uint64_t>(dim));
    const std::vector<float> weight = weights(dim, values);
    const DeviceBuffer<float> device_weight = testing::upload(weight);
    const Strided<X> x(rows, heads, dim, gap, 3 * gap, values);
    const Strided<Y> y(rows, heads, dim, 2 * gap, gap);
    const RmsNorm<X, Y> call = {.x = x.data(),
                                .x_row_stride = x.row_stride(),
                                .x_head_stride = x.head_stride(),
                                .y = y.data(),
                                .y_row_stride = y.row_stride(),
                                .y_head_stride = y.head_stride(),
                                .rows = rows,
                                .heads = heads,
                                .dim = dim,
                                .weight = device_weight.data(),
                                .eps = eps};
    ASSERT_TRUE(rms_norm(call, stream()).ok());
    synchronize();
    EXPECT_TRUE(testing::all_close<Y>(y.results(), expect(x.values(), weight), {}, dim / 8 + 16));
    EXPECT_TRUE(y.intact());
  }

  template <class T>
  void added(int rows, int dim, bool with_part, bool with_features, bool with_y) {
    SCOPED_TRACE(::testing::Message() << rows << " rows of " << dim << with_part << with_features);
    Inputs values(Fill::random, static_cast<std::uint64_t>(dim));
    const std::vector<float> weight = weights(dim, values);
    const DeviceBuffer<float> device_weight = testing::upload(weight);
    const Strided<float> residual(rows, 1, dim, 0, 0, values);
    const Strided<float> part(rows, 1, dim, 0, 0, values);
    const Strided<T> features(rows, 1, dim, 8, 2 * dim);
    const Strided<T> y(rows, 1, dim, 0, 0);
    const AddRmsNorm<T> call = {.residual = residual.data(),
                                .part = with_part ? part.data() : nullptr,
                                .features = with_features ? features.data() : nullptr,
                                .feature_stride = features.row_stride(),
                                .y = with_y ? y.data() : nullptr,
                                .rows = rows,
                                .dim = dim,
                                .weight = device_weight.data(),
                                .eps = eps};
    ASSERT_TRUE(add_rms_norm(call, stream()).ok());
    synchronize();
    std::vector<float> sum = residual.values();
    const std::vector<float> addend = part.values();
    for (std::size_t i = 0; with_part && i < sum.size(); ++i) sum[i] += addend[i];
    EXPECT_EQ(residual.results(), sum);
    if (with_features) {
      EXPECT_EQ(features.results(), testing::widened(testing::stored<T>(sum)));
    }
    if (with_y) {
      EXPECT_TRUE(testing::all_close<T>(y.results(), expect(sum, weight), {}, dim / 8 + 16));
    }
    EXPECT_TRUE(residual.intact() && features.intact() && y.intact());
  }
};

TEST_F(RmsNormCuda, EveryDimAndType) {
  for (const int dim : dims) {
    for (const Fill fill : {Fill::ones, Fill::random}) {
      strided<float, float>(fill, 5, 3, dim, 5);
      strided<float, Bf16>(fill, 5, 3, dim, 8);
      strided<Bf16, Bf16>(fill, 4, 2, dim, 3);
    }
  }
  strided<Bf16, Bf16>(Fill::random, 513, 8, 128, 64);
  strided<float, Bf16>(Fill::random, 513, 1, 512, 64);
}

TEST_F(RmsNormCuda, InPlace) {
  Inputs values(Fill::random, 2);
  const std::vector<float> weight = weights(512, values);
  const DeviceBuffer<float> device_weight = testing::upload(weight);
  const Strided<Bf16> x(9, 1, 512, 0, 64, values);
  const RmsNorm<Bf16, Bf16> call = {.x = x.data(),
                                    .x_row_stride = x.row_stride(),
                                    .y = x.data(),
                                    .y_row_stride = x.row_stride(),
                                    .rows = 9,
                                    .dim = 512,
                                    .weight = device_weight.data(),
                                    .eps = eps};
  ASSERT_TRUE(rms_norm(call, stream()).ok());
  synchronize();
  EXPECT_TRUE(testing::all_close<Bf16>(x.results(), expect(x.values(), weight), {}, 80));
  EXPECT_TRUE(x.intact());
}

TEST_F(RmsNormCuda, AddsCapturesAndNorms) {
  for (const int dim : {31, 256, 2046, 7168, 9000}) {
    for (const int rows : {1, 9, 65}) {
      for (int options = 0; options < 8; ++options) {
        added<float>(rows, dim, options & 1, options & 2, options & 4);
        added<Bf16>(rows, dim, options & 1, options & 2, options & 4);
      }
    }
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
