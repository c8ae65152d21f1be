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
  float masked_choice = 0.0f;  // what Hugging Face uses; -infinity in other engines
};

}  // namespace copse::kernels
