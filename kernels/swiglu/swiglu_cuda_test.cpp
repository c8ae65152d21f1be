#include "kernels/swiglu/swiglu_cuda.h"

#include "kernels/common/cuda/strided_testing.h"
#include "kernels/swiglu/swiglu.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

class SwigluCuda : public testing::CudaTest {
 protected:
  // gate and up side by side, as a fused product leaves them.
  template <class T>
  void run(Fill fill, int rows, int columns, int gap, bool in_place) {
    SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns << ", gap " << gap);
    Inputs values(fill, 3);
    const Strided<T> both(rows, 2, columns, gap, gap, values);
    const Strided<T> apart(rows, 1, columns, 0, gap);
    const Swiglu<T> call = {.gate = both.data(),
                            .up = both.data() + both.head_stride(),
                            .in_stride = both.row_stride(),
                            .out = in_place ? both.data() : apart.data(),
                            .out_stride = in_place ? both.row_stride() : apart.row_stride(),
                            .rows = rows,
                            .columns = columns};
    ASSERT_TRUE(swiglu(call, stream()).ok());
    synchronize();
    std::vector<float> in = both.values();
    std::vector<float> expected(static_cast<std::size_t>(rows * columns));
    const ConstMatrix gate = {in.data(), rows, columns, 2 * columns};
    const ConstMatrix up = {in.data() + columns, rows, columns, 2 * columns};
    kernels::ref::swiglu(gate, up, matrix(expected.data(), rows, columns));
    std::vector<float> results = (in_place ? both : apart).results();
    if (in_place) {
      for (int r = 0; r < rows; ++r) {
        std::copy_n(results.begin() + std::ptrdiff_t{2} * r * columns, columns,
                    results.begin() + std::ptrdiff_t{r} * columns);
      }
      results.resize(expected.size());
    }
    EXPECT_TRUE(testing::all_close<T>(results, expected, {}, 8));
    EXPECT_TRUE(both.intact() && apart.intact());
  }
};

TEST_F(SwigluCuda, EveryShapeAndType) {
  for (const Fill fill : {Fill::ramp, Fill::random}) {
    for (const int rows : {1, 9, 65, 513}) {
      for (const int columns : {1, 30, 256, 2304}) {
        run<float>(fill, rows, columns, 4, false);
        run<Bf16>(fill, rows, columns, 8, false);
        run<Bf16>(fill, rows, columns, 3, true);
      }
    }
  }
}

// Large gates: exp overflows to infinity and silu goes to 0 or to the gate itself.
TEST_F(SwigluCuda, GatesOfEverySize) {
  std::vector<float> gate = {-1e30f, -200.0f, -88.0f, -20.0f, -0.0f, 0.0f, 20.0f, 88.0f, 1e30f};
  std::vector<float> up(gate.size(), 2.0f);
  const DeviceBuffer<float> device_gate = testing::upload(gate);
  const DeviceBuffer<float> device_up = testing::upload(up);
  const int count = static_cast<int>(gate.size());
  ASSERT_TRUE(swiglu(Swiglu<float>{.gate = device_gate.data(),
                                   .up = device_up.data(),
                                   .in_stride = count,
                                   .out = device_gate.data(),
                                   .out_stride = count,
                                   .rows = 1,
                                   .columns = count},
                     stream())
                  .ok());
  synchronize();
  const std::vector<float> results = testing::download(device_gate);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const auto a = static_cast<double>(gate[i]);
    const double expected = 2.0 * a / (1.0 + std::exp(-a));
    EXPECT_TRUE(testing::close<float>(results[i], expected, std::abs(expected), 8) ||
                std::abs(static_cast<double>(results[i]) - expected) < 1e-34)
        << results[i] << " for silu of " << a;
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
