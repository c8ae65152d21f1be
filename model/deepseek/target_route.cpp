#include "model/deepseek/target_route.h"

#include <limits>

namespace copse {

kernels::RouteSpec route_spec(const ModelConfig& config) {
  kernels::RouteSpec spec;
  spec.experts = config.experts;
  spec.experts_per_token = config.experts_per_token;
  spec.groups = config.groups;
  spec.groups_per_token = config.groups_per_token;
  spec.scoring = config.scoring == Scoring::sigmoid ? kernels::RouteScoring::sigmoid
                                                    : kernels::RouteScoring::softmax;
  switch (config.topk_method) {
    case TopkMethod::greedy:
      spec.method = kernels::RouteMethod::greedy;
      break;
    case TopkMethod::group_limited_greedy:
      spec.method = kernels::RouteMethod::group_limited_greedy;
      break;
    case TopkMethod::noaux_tc:
      spec.method = kernels::RouteMethod::noaux_tc;
      break;
  }
  spec.normalize = config.normalize_weights;
  spec.scale = static_cast<float>(config.routed_scale);
  // A masked expert never wins, not even against one whose biased score is negative.
  spec.masked_choice = -std::numeric_limits<float>::infinity();
  return spec;
}

kernels::RopeSpec rope_spec(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  return {config.rope_dim, rope.theta,     rope.factor,          rope.original_positions,
          rope.beta_fast,  rope.beta_slow, rope.attention_factor};
}

}  // namespace copse
