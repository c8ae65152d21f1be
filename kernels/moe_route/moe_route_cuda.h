#pragma once
// moe_route (kernels/moe_route/moe_route.h) on the GPU: the same experts, chosen by the same
// float32 operations, for every method and every tie.
#include <cstdint>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/moe_route/route_spec.h"

namespace copse::kernels::cuda {

// Device memory. logits [rows][experts]; bias [experts] or null; positions [rows] or null: a row
// whose position is negative is padding, its ids become -1 and its weights 0. ids and weights
// [rows][experts_per_token], ids ascending within a row. Moves rows * experts * 4 bytes and bias.
struct MoeRoute {
  const float* logits = nullptr;
  const float* bias = nullptr;
  const std::int32_t* positions = nullptr;
  int rows = 0;
  RouteSpec spec;
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
};

Status moe_route(const MoeRoute& call, Stream stream);

}  // namespace copse::kernels::cuda
