#pragma once
// Which experts a token uses, and with what weights, from the router's float32 logits.
//
//   score = sigmoid(logit) or softmax(logits); choice = score + bias (bias: noaux_tc only)
//   groups are ranked by their best choice (group_limited_greedy) or the sum of their best two
//   (noaux_tc); experts of other groups get choice = masked_choice; the best experts_per_token by
//   choice are used; weight = score, divided by (sum of chosen + 1e-20) if `normalize`, times
//   scale.
// Every tie goes to the lower index. A NaN logit ranks last (the output is then as undefined as the
// input, but ids stay distinct and in range).
//
// logits [rows][experts]; ids and weights [rows][experts_per_token], ids ascending within a row,
// the order in which moe_experts adds them. Workspace: none. GPU: same layouts.
#include <cstdint>
#include <span>

#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"

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

// bias [experts], or empty.
void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights, ThreadPool& pool);

std::uint64_t moe_route_bytes_moved(int rows, const RouteSpec& spec);

namespace ref {
void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights);
}

}  // namespace copse::kernels
