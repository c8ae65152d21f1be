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
#include "kernels/moe_route/route_spec.h"

namespace copse::kernels {

// bias [experts], or empty.
void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights, ThreadPool& pool);

std::uint64_t moe_route_bytes_moved(int rows, const RouteSpec& spec);

namespace ref {
void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights);
}

}  // namespace copse::kernels
