#include "kernels/moe_route/moe_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using ::testing::ElementsAre;
using testing::Fill;
using testing::Guarded;
using testing::Inputs;

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

class MoeRoute : public ::testing::TestWithParam<Backend> {
 protected:
  Routed run(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec) {
    const auto count = static_cast<std::size_t>(logits.rows * spec.experts_per_token);
    Routed out = {std::vector<std::int32_t>(count, -1), std::vector<float>(count, -1.0f)};
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::moe_route(logits, bias, spec, out.ids, out.weights);
    } else {
      moe_route(logits, bias, spec, out.ids, out.weights, use.pool);
    }
    return out;
  }
  Routed run_row(const std::vector<float>& logits, std::span<const float> bias,
                 const RouteSpec& spec) {
    return run(matrix(logits.data(), 1, static_cast<int>(logits.size())), bias, spec);
  }
};

TEST_P(MoeRoute, SigmoidChoosesByBiasAndWeighsWithoutIt) {
  const std::vector<float> logits = {0.0f, 0.0f, 100.0f, -100.0f};
  const float bias[] = {0.0f, 0.6f, -10.0f, 0.0f};
  const RouteSpec spec = {.experts = 4, .experts_per_token = 2, .scale = 3.0f};
  const Routed out = run_row(logits, bias, spec);
  EXPECT_THAT(out.ids, ElementsAre(0, 1));  // 2 is last by its bias
  EXPECT_THAT(out.weights, ElementsAre(1.5f, 1.5f));
}

TEST_P(MoeRoute, TiesGoToTheLowerExpert) {
  const std::vector<float> logits(40, 0.25f);
  RouteSpec spec = {.experts = 40, .experts_per_token = 3};
  for (const RouteMethod method :
       {RouteMethod::greedy, RouteMethod::noaux_tc, RouteMethod::group_limited_greedy}) {
    spec.method = method;
    EXPECT_THAT(run_row(logits, {}, spec).ids, ElementsAre(0, 1, 2));
    spec.groups = 8;
    spec.groups_per_token = 2;
    spec.masked_choice = -std::numeric_limits<float>::infinity();
    EXPECT_THAT(run_row(logits, {}, spec).ids, ElementsAre(0, 1, 2));
    spec.groups = spec.groups_per_token = 1;
  }
}

// Groups {0,1} {2,3}: the best expert is 0, the best pair is {2,3}.
TEST_P(MoeRoute, GroupsAreRankedByTheirBestTwoOrBest) {
  const std::vector<float> logits = {2.0f, -9.0f, 1.0f, 1.5f};
  RouteSpec spec = {.experts = 4, .experts_per_token = 1, .groups = 2, .groups_per_token = 1};
  EXPECT_THAT(run_row(logits, {}, spec).ids, ElementsAre(3));
  spec.method = RouteMethod::group_limited_greedy;
  EXPECT_THAT(run_row(logits, {}, spec).ids, ElementsAre(0));
}

// A masked expert competes with 0 or not at all: it differs when the biased scores are negative.
TEST_P(MoeRoute, MaskedGroupsCompeteWithTheMaskedChoice) {
  const std::vector<float> logits = {0.0f, 0.0f, 0.0f, 0.0f};
  const float bias[] = {-9.0f, -9.0f, -8.0f, -8.0f};
  RouteSpec spec = {.experts = 4, .experts_per_token = 1, .groups = 2, .groups_per_token = 1};
  EXPECT_THAT(run_row(logits, bias, spec).ids, ElementsAre(0));
  spec.masked_choice = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(run_row(logits, bias, spec).ids, ElementsAre(2));
}

TEST_P(MoeRoute, SoftmaxWithoutNormalizing) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f)};
  const RouteSpec spec = {.experts = 3,
                          .experts_per_token = 2,
                          .scoring = RouteScoring::softmax,
                          .method = RouteMethod::greedy,
                          .normalize = false};
  const Routed out = run_row(logits, {}, spec);
  EXPECT_THAT(out.ids, ElementsAre(1, 2));
  EXPECT_TRUE(within_tolerance(out.weights[0], 0.25, 0.25, 6));
  EXPECT_TRUE(within_tolerance(out.weights[1], 0.625, 0.625, 6));
}

TEST_P(MoeRoute, NanRanksLastAndIdsStayDistinct) {
  const RouteSpec spec = {.experts = 5, .experts_per_token = 4};
  const std::vector<float> one = {1.0f, testing::nan_poison, 3.0f, 0.5f, 2.0f};
  EXPECT_THAT(run_row(one, {}, spec).ids, ElementsAre(0, 2, 3, 4));
  const std::vector<float> all(5, testing::nan_poison);
  EXPECT_THAT(run_row(all, {}, spec).ids, ElementsAre(0, 1, 2, 3));
}

struct Shape {
  int rows, experts, per_token, groups, groups_per_token;
};
constexpr Shape shapes[] = {{1, 16, 4, 1, 1},     {33, 16, 4, 1, 1},  {5, 24, 6, 4, 2},
                            {7, 64, 6, 1, 1},     {40, 256, 8, 8, 4}, {3, 384, 8, 1, 1},
                            {2, 1024, 32, 16, 4}, {9, 17, 17, 1, 1}};

TEST_P(MoeRoute, AgreesWithTheReference) {
  for (const Shape& s : shapes) {
    for (const Fill fill : testing::fills) {
      for (const RouteScoring scoring : {RouteScoring::sigmoid, RouteScoring::softmax}) {
        for (const RouteMethod method :
             {RouteMethod::greedy, RouteMethod::group_limited_greedy, RouteMethod::noaux_tc}) {
          Inputs values(fill);
          Guarded logits(s.rows, s.experts, testing::nan_poison);
          logits.fill(values);
          std::vector<float> bias;
          if (method == RouteMethod::noaux_tc) {
            for (int e = 0; e < s.experts; ++e) bias.push_back(values.next());
          }
          const RouteSpec spec = {.experts = s.experts,
                                  .experts_per_token = s.per_token,
                                  .groups = s.groups,
                                  .groups_per_token = s.groups_per_token,
                                  .scoring = scoring,
                                  .method = method,
                                  .normalize = scoring == RouteScoring::sigmoid,
                                  .scale = 2.5f};
          const Routed out = run(logits.view(), bias, spec);
          std::vector<std::int32_t> ids(out.ids.size());
          std::vector<float> weights(out.ids.size());
          ref::moe_route(logits.view(), bias, spec, ids, weights);
          EXPECT_EQ(out.ids, ids);
          for (std::size_t i = 0; i < weights.size(); ++i) {
            ASSERT_TRUE(testing::same(out.weights[i], weights[i]));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MoeRoute, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
