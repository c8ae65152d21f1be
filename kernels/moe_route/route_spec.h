#pragma once
// What a router does with its logits; moe_route.h says it in formulas.
#include <cstdint>

namespace copse::kernels {

enum class RouteScoring : std::uint8_t { sigmoid, softmax };
enum class RouteMethod : std::uint8_t { greedy, group_limited_greedy, noaux_tc };

struct RouteSpec {
  int experts = 0;            // <= limits::experts
  int experts_per_token = 0;  // <= limits::experts_per_token
  int groups = 1;  // divides experts; each has at least experts_per_token / groups_per_token
  int groups_per_token = 1;
  RouteScoring scoring = RouteScoring::sigmoid;
  RouteMethod method = RouteMethod::noaux_tc;
  bool normalize = true;
  float scale = 1.0f;
  // Of experts outside the kept groups. With noaux_tc, Transformers and DeepSeek's own code take
  // -infinity today; before, both took 0, which an expert with a negative biased score loses to.
  // With group_limited_greedy they take 0, and either does: scores are positive.
  float masked_choice = 0.0f;
};

}  // namespace copse::kernels
