#pragma once
// A target's config in the terms of the kernels for routing and rotary embedding, on any device.
#include "kernels/moe_route/moe_route.h"
#include "kernels/rope/rope.h"
#include "model/config/model_config.h"

namespace copse {

kernels::RouteSpec route_spec(const ModelConfig& config);
kernels::RopeSpec rope_spec(const ModelConfig& config);

}  // namespace copse
