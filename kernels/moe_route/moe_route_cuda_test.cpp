#include "kernels/moe_route/moe_route_cuda.h"

#include <limits>
#include <random>

#include "kernels/common/cuda/testing.h"
#include "kernels/moe_route/moe_route.h"

namespace copse::kernels::cuda {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  int rows, experts, per_token, groups, groups_per_token;
};
constexpr Shape shapes[] = {{1, 16, 4, 1, 1},  {33, 16, 4, 1, 1},     {5, 24, 6, 4, 2},
                            {7, 64, 6, 1, 1},  {40, 256, 8, 8, 4},    {65, 384, 8, 1, 1},
                            {9, 17, 17, 1, 1}, {20, 1024, 32, 16, 4}, {512, 384, 8, 1, 1}};

enum class Values { random, ties, wide, with_nan };

class MoeRouteCuda : public testing::CudaTest {
 protected:
  static std::vector<float> make(Values kind, std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) {
      value = normal(random);
      if (kind == Values::ties) value = std::round(value);
      if (kind == Values::wide) value *= 60.0f;
      if (kind == Values::with_nan && random() % 3 == 0) value = nan_value;
    }
    return values;
  }
  void check(const Shape& s, RouteSpec spec, bool with_bias, Values kind, unsigned seed) {
    std::mt19937 random(seed);
    const auto count = static_cast<std::size_t>(s.rows * s.per_token);
    const auto logits = make(kind, static_cast<std::size_t>(s.rows * s.experts), random);
    std::vector<float> bias;
    if (with_bias) bias = make(Values::ties, static_cast<std::size_t>(s.experts), random);
    std::vector<std::int32_t> ids(count);
    std::vector<float> weights(count);
    ref::moe_route(matrix(logits.data(), s.rows, s.experts), bias, spec, ids, weights);
    const auto device_logits = testing::upload(logits);
    const auto device_bias = testing::upload(bias);
    const auto got_ids = testing::upload(std::vector<std::int32_t>(count, -7));
    const auto got_weights = testing::upload(std::vector<float>(count, nan_value));
    const MoeRoute call = {.logits = device_logits.data(),
                           .bias = with_bias ? device_bias.data() : nullptr,
                           .rows = s.rows,
                           .spec = spec,
                           .ids = got_ids.data(),
                           .weights = got_weights.data()};
    ASSERT_TRUE(moe_route(call, stream()).ok());
    synchronize();
    const auto actual_ids = testing::download(got_ids);
    const auto actual = testing::download(got_weights);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(actual_ids[i], ids[i]) << "experts " << s.experts << ", place " << i;
      if (std::isnan(weights[i])) {
        ASSERT_TRUE(std::isnan(actual[i]));
      } else {
        ASSERT_NEAR(actual[i], weights[i], 1e-6) << "experts " << s.experts << ", place " << i;
      }
    }
  }
};

TEST_F(MoeRouteCuda, AgreesWithTheReference) {
  unsigned seed = 0;
  for (const Shape& s : shapes) {
    for (const RouteScoring scoring : {RouteScoring::sigmoid, RouteScoring::softmax}) {
      for (const RouteMethod method :
           {RouteMethod::greedy, RouteMethod::group_limited_greedy, RouteMethod::noaux_tc}) {
        for (const Values kind : {Values::random, Values::ties, Values::wide, Values::with_nan}) {
          RouteSpec spec = {
              .experts = s.experts,
              .experts_per_token = s.per_token,
              .groups = s.groups,
              .groups_per_token = s.groups_per_token,
              .scoring = scoring,
              .method = method,
              .normalize = seed % 2 == 0,
              .scale = 2.5f,
              .masked_choice = seed % 3 == 0 ? -std::numeric_limits<float>::infinity() : 0.0f};
          check(s, spec, seed % 2 == 1, kind, seed);
          ++seed;
        }
      }
    }
  }
}

TEST_F(MoeRouteCuda, PaddingRowsChooseNobody) {
  const int experts = 40;
  const std::vector<float> logits(3 * experts, 0.25f);
  const auto device_logits = testing::upload(logits);
  const auto positions = testing::upload(std::vector<std::int32_t>{7, -1, 0});
  const auto ids = testing::upload(std::vector<std::int32_t>(9, -7));
  const auto weights = testing::upload(std::vector<float>(9, nan_value));
  const MoeRoute call = {.logits = device_logits.data(),
                         .positions = positions.data(),
                         .rows = 3,
                         .spec = {.experts = experts, .experts_per_token = 3},
                         .ids = ids.data(),
                         .weights = weights.data()};
  ASSERT_TRUE(moe_route(call, stream()).ok());
  synchronize();
  EXPECT_EQ(testing::download(ids), (std::vector<std::int32_t>{0, 1, 2, -1, -1, -1, 0, 1, 2}));
  EXPECT_EQ(testing::download(weights)[4], 0.0f);
}

}  // namespace
}  // namespace copse::kernels::cuda
