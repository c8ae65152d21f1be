#include "kernels/linear/linear_cuda.h"

#include <cmath>

#include "kernels/common/cuda/strided_testing.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace copse::kernels::cuda {
namespace {

using kernels::testing::Fill;
using kernels::testing::Inputs;
using testing::Strided;

class LinearCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto memory = DeviceBuffer<std::byte>::allocate(DenseGemm::workspace_bytes_default);
    ASSERT_TRUE(memory.ok());
    workspace_ = std::move(memory).value();
    auto gemm = DenseGemm::create(workspace_.data(), workspace_.size());
    ASSERT_TRUE(gemm.ok()) << describe(gemm.error());
    gemm_.emplace(std::move(gemm).value());
  }

  // What one product must be: the plain reference over the values as T has them, and the sum of
  // the magnitudes of its terms.
  struct Expected {
    std::vector<float> values;
    std::vector<float> magnitudes;
  };
  static Expected expect(std::vector<float> x, std::vector<float> w, int rows, int outputs,
                         int inputs) {
    Expected expected;
    for (std::vector<float>* y : {&expected.values, &expected.magnitudes}) {
      y->resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(outputs));
      const PackedWeight packed = pack_weight(w.data(), outputs, inputs, inputs);
      ref::linear(matrix(static_cast<const float*>(x.data()), rows, inputs), packed,
                  matrix(y->data(), rows, outputs));
      for (float& value : x) value = std::abs(value);
      for (float& value : w) value = std::abs(value);
    }
    return expected;
  }

  template <class X, class Y>
  void one(int rows, int outputs, int inputs, int gap, bool accumulate) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << inputs << " -> " << outputs << ", gap "
                                      << gap << (accumulate ? ", accumulated" : ""));
    Inputs values(Fill::random, 7);
    const Strided<X> x(rows, 1, inputs, 0, gap, values);
    const Strided<X> w(outputs, 1, inputs, 0, gap, values);
    const Strided<Y> y = accumulate ? Strided<Y>(rows, 1, outputs, 0, gap, values)
                                    : Strided<Y>(rows, 1, outputs, 0, gap);
    GemmShape shape = dense_shape<X, Y>(rows, outputs, inputs);
    shape.x_stride = x.row_stride();
    shape.w_stride = w.row_stride();
    shape.y_stride = y.row_stride();
    shape.accumulate = accumulate;
    const Status prepared = gemm_->prepare(shape);
    ASSERT_TRUE(prepared.ok()) << describe(prepared.error());
    const Status launched = gemm_->launch(shape, x.data(), w.data(), y.data(), stream());
    ASSERT_TRUE(launched.ok()) << describe(launched.error());
    synchronize();
    Expected expected = expect(x.values(), w.values(), rows, outputs, inputs);
    const std::vector<float> before = y.values();
    for (std::size_t i = 0; accumulate && i < before.size(); ++i) {
      expected.values[i] += before[i];
      expected.magnitudes[i] += std::abs(before[i]);
    }
    EXPECT_TRUE(
        testing::all_close<Y>(y.results(), expected.values, expected.magnitudes, 2 * inputs + 2));
    EXPECT_TRUE(y.intact());
  }

  // Heads side by side in a row, as absorbed projections have them.
  template <class X, class Y>
  void heads(int rows, int count, int outputs, int inputs) {
    SCOPED_TRACE(::testing::Message() << count << " heads of " << rows << " rows");
    Inputs values(Fill::random, 11);
    const Strided<X> x(rows, count, inputs, 16, 8, values);
    const Strided<X> w(count, outputs, inputs, 0, 0, values);
    const Strided<Y> y(rows, count, outputs, 8, 8);
    GemmShape shape = dense_shape<X, Y>(rows, outputs, inputs);
    shape.batch = count;
    shape.x_stride = x.row_stride();
    shape.x_batch_stride = x.head_stride();
    shape.w_batch_stride = w.row_stride();
    shape.y_stride = y.row_stride();
    shape.y_batch_stride = y.head_stride();
    ASSERT_TRUE(gemm_->prepare(shape).ok());
    ASSERT_TRUE(gemm_->launch(shape, x.data(), w.data(), y.data(), stream()).ok());
    synchronize();
    const std::vector<float> all_x = x.values();
    const std::vector<float> all_w = w.values();
    const std::vector<float> all_y = y.results();
    for (int h = 0; h < count; ++h) {
      std::vector<float> head_x, head_y;
      for (int r = 0; r < rows; ++r) {
        const auto from = all_x.begin() + (r * count + h) * inputs;
        head_x.insert(head_x.end(), from, from + inputs);
        const auto result = all_y.begin() + (r * count + h) * outputs;
        head_y.insert(head_y.end(), result, result + outputs);
      }
      const auto weight = all_w.begin() + std::ptrdiff_t{h} * outputs * inputs;
      const Expected expected =
          expect(head_x, std::vector<float>(weight, weight + std::ptrdiff_t{outputs} * inputs),
                 rows, outputs, inputs);
      EXPECT_TRUE(
          testing::all_close<Y>(head_y, expected.values, expected.magnitudes, 2 * inputs + 2));
    }
    EXPECT_TRUE(y.intact());
  }

  // Gate and up, one below the other in the weight.
  template <class T>
  void swiglu(int rows, int outputs, int inputs) {
    SCOPED_TRACE(::testing::Message() << "SwiGLU " << rows << " x " << inputs << " -> " << outputs);
    Inputs values(Fill::random, 13);
    const Strided<T> x(rows, 1, inputs, 0, 8, values);
    const Strided<T> w(2 * outputs, 1, inputs, 0, 0, values);
    const Strided<T> y(rows, 1, outputs, 0, 8);
    GemmShape shape = dense_shape<T, T>(rows, outputs, inputs);
    shape.x_stride = x.row_stride();
    shape.y_stride = y.row_stride();
    shape.swiglu = true;
    ASSERT_TRUE(gemm_->prepare(shape).ok());
    ASSERT_TRUE(gemm_->launch(shape, x.data(), w.data(), y.data(), stream()).ok());
    synchronize();
    const Expected both = expect(x.values(), w.values(), rows, 2 * outputs, inputs);
    const std::vector<float> results = y.results();
    // Where the library computes gate and up, they are rounded to T in between.
    const double rounding = sizeof(T) == 2 ? 0x1p-6 : 0x1p-18;
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < outputs; ++i) {
        const auto at = static_cast<std::size_t>(r * 2 * outputs + i);
        const double gate = both.values[at];
        const double up = both.values[at + static_cast<std::size_t>(outputs)];
        const double expected = gate / (1.0 + std::exp(-gate)) * up;
        const double actual = results[static_cast<std::size_t>(r * outputs + i)];
        const double size = (1 + std::abs(gate)) * (1 + std::abs(up));
        ASSERT_LE(std::abs(actual - expected), rounding * size)
            << "row " << r << ", output " << i << ": " << actual << " for " << expected;
      }
    }
    EXPECT_TRUE(y.intact());
  }

  DeviceBuffer<std::byte> workspace_;
  std::optional<DenseGemm> gemm_;
};

TEST_F(LinearCuda, EveryNumberOfRows) {
  for (const int rows : {1, 2, 3, 8, 9, 16, 17, 33, 64, 65, 129, 513}) {
    one<float, float>(rows, 72, 136, 0, false);
    one<Bf16, Bf16>(rows, 72, 136, 8, false);
    one<Bf16, float>(rows, 72, 136, 8, false);
    one<Bf16, float>(rows, 72, 136, 0, true);
    one<float, float>(rows, 72, 136, 4, true);
  }
}

TEST_F(LinearCuda, RaggedShapesAndStrides) {
  for (const int rows : {1, 5, 40}) {
    one<float, float>(rows, 5, 3, 1, false);
    one<float, float>(rows, 131, 77, 3, false);
    one<Bf16, Bf16>(rows, 131, 77, 3, false);
    one<Bf16, float>(rows, 6, 10, 2, true);
    one<Bf16, float>(rows, 1024, 512, 0, false);
  }
}

// Tiles of 64 and 32 outputs, slices of the inputs over 1, 2, 4 and 8 blocks, and tails of all.
TEST_F(LinearCuda, FewRowsOfBf16) {
  for (const int rows : {1, 9, 23, 40, 64}) {
    one<Bf16, Bf16>(rows, 2112, 520, 0, false);
    one<Bf16, float>(rows, 520, 1160, 8, true);
    one<Bf16, float>(rows, 40, 3000, 0, false);
    one<Bf16, float>(rows, 9000, 136, 0, false);
  }
  one<Bf16, Bf16>(17, 512, 7168, 0, false);
}

TEST_F(LinearCuda, SwigluInTheProduct) {
  for (const int rows : {1, 9, 33, 64, 65, 129}) {
    swiglu<Bf16>(rows, 256, 264);
    swiglu<Bf16>(rows, 37, 72);
    swiglu<float>(rows, 100, 72);
  }
  swiglu<Bf16>(9, 2304, 512);
}

// A kernel may start before the one in front has ended: what it reads and overwrites must wait. The
// same chain, launched at once and one by one, must give the same bits.
TEST_F(LinearCuda, AChainIsTheSameWithoutPauses) {
  constexpr int rows = 17, wide = 2048, narrow = 512;
  Inputs values(Fill::random, 17);
  const Strided<Bf16> up(wide, 1, narrow, 0, 0, values);
  const Strided<Bf16> down(narrow, 1, wide, 0, 0, values);
  const GemmShape to_wide = dense_shape<Bf16, Bf16>(rows, wide, narrow);
  const GemmShape to_narrow = dense_shape<Bf16, Bf16>(rows, narrow, wide);
  std::vector<float> results[2];
  for (const bool pauses : {false, true}) {
    Inputs start(Fill::random, 19);
    const Strided<Bf16> a(rows, 1, narrow, 0, 0, start);
    const Strided<Bf16> b(rows, 1, wide, 0, 0);
    const DeviceBuffer<float> ones = testing::upload(std::vector<float>(narrow, 1.0f));
    for (const GemmShape& shape : {to_wide, to_narrow}) ASSERT_TRUE(gemm_->prepare(shape).ok());
    const auto pause = [&] {
      if (pauses) synchronize();
    };
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(gemm_->launch(to_wide, a.data(), up.data(), b.data(), stream()).ok());
      pause();
      ASSERT_TRUE(gemm_->launch(to_narrow, b.data(), down.data(), a.data(), stream()).ok());
      pause();
      const RmsNorm<Bf16, Bf16> norm = {.x = a.data(),
                                        .x_row_stride = narrow,
                                        .y = a.data(),
                                        .y_row_stride = narrow,
                                        .rows = rows,
                                        .dim = narrow,
                                        .weight = ones.data(),
                                        .eps = 1e-6f};
      ASSERT_TRUE(rms_norm(norm, stream()).ok());
      pause();
    }
    synchronize();
    results[pauses ? 1 : 0] = a.results();
  }
  EXPECT_EQ(results[0], results[1]);
}

// As a router and a shared expert: float32 and a SwiGLU, of the same rows.
TEST_F(LinearCuda, TwoProductsOfTheSameRows) {
  for (const int rows : {1, 9, 33, 129}) {
    Inputs values(Fill::random, 23);
    constexpr int inputs = 1032;
    const Strided<Bf16> x(rows, 1, inputs, 0, 8, values);
    const Strided<Bf16> router(100, 1, inputs, 0, 0, values);
    const Strided<Bf16> gate_up(2 * 72, 1, inputs, 0, 0, values);
    GemmCall calls[2] = {{dense_shape<Bf16, float>(rows, 100, inputs), router.data()},
                         {dense_shape<Bf16, Bf16>(rows, 72, inputs), gate_up.data()}};
    calls[1].shape.swiglu = true;
    std::vector<float> scores[2];
    std::vector<float> inner[2];
    for (const int together : {0, 1}) {
      const Strided<float> y(rows, 1, 100, 0, 0);
      const Strided<Bf16> z(rows, 1, 72, 0, 0);
      calls[0].y = y.data();
      calls[1].y = z.data();
      for (GemmCall& call : calls) {
        call.shape.x_stride = x.row_stride();
        ASSERT_TRUE(gemm_->prepare(call.shape).ok());
        if (together == 1) continue;
        ASSERT_TRUE(gemm_->launch(call.shape, x.data(), call.weight, call.y, stream()).ok());
      }
      if (together == 1) {
        ASSERT_TRUE(gemm_->launch_pair(calls[0], calls[1], x.data(), stream()).ok());
      }
      synchronize();
      scores[together] = y.results();
      inner[together] = z.results();
      EXPECT_TRUE(y.intact() && z.intact());
    }
    // Another cut of the inputs adds in another order.
    EXPECT_LT(testing::relative_error(scores[1], scores[0]), 1e-5);
    EXPECT_LT(testing::relative_error(inner[1], inner[0]), 1e-2);
  }
}

TEST_F(LinearCuda, HeadsSideBySide) {
  for (const int rows : {1, 9, 17, 64}) {
    heads<Bf16, Bf16>(rows, 8, 64, 128);
    heads<Bf16, Bf16>(rows, 3, 130, 520);
    heads<float, float>(rows, 3, 32, 24);
  }
}

// Ranks choose alike: two libraries of one process, as two processes would, give the same bits.
TEST_F(LinearCuda, TheSameShapeGivesTheSameBits) {
  const int rows = 17, outputs = 2112, inputs = 1536;
  Inputs values(Fill::random, 3);
  const Strided<Bf16> x(rows, 1, inputs, 0, 0, values);
  const Strided<Bf16> w(outputs, 1, inputs, 0, 0, values);
  const Strided<float> y(rows, 1, outputs, 0, 0);
  const GemmShape shape = dense_shape<Bf16, float>(rows, outputs, inputs);
  std::vector<float> first;
  for (int i = 0; i < 2; ++i) {
    auto gemm = DenseGemm::create(workspace_.data(), workspace_.size());
    ASSERT_TRUE(gemm.ok());
    ASSERT_TRUE(gemm->prepare(shape).ok());
    ASSERT_TRUE(gemm->launch(shape, x.data(), w.data(), y.data(), stream()).ok());
    synchronize();
    if (i == 0) {
      first = y.results();
    } else {
      EXPECT_EQ(first, y.results());
    }
  }
}

TEST_F(LinearCuda, IsReplayedFromAGraph) {
  Inputs values(Fill::random, 5);
  const Strided<Bf16> x(4, 1, 64, 0, 0, values);
  const Strided<Bf16> w(40, 1, 64, 0, 0, values);
  const Strided<float> y(4, 1, 40, 0, 0, values);
  GemmShape shape = dense_shape<Bf16, float>(4, 40, 64);
  shape.accumulate = true;
  ASSERT_TRUE(gemm_->prepare(shape).ok());
  ASSERT_EQ(gemm_->plans(), 1u);
  ASSERT_TRUE(gemm_->launch(shape, x.data(), w.data(), y.data(), stream()).ok());
  synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_TRUE(gemm_->launch(shape, x.data(), w.data(), y.data(), stream()).ok());
  ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream()), cudaSuccess);
  synchronize();
  const Expected expected = expect(x.values(), w.values(), 4, 40, 64);
  const std::vector<float> before = y.values();
  const std::vector<float> after = y.results();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(testing::close<float>(after[i], before[i] + 3.0 * expected.values[i],
                                      3.0 * expected.magnitudes[i] + 1, 3 * 130));
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace copse::kernels::cuda
