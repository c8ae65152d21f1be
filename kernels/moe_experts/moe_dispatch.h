#pragma once
// What the portable and the fast version share on the host.
#include "base/check.h"
#include "base/limits.h"
#include "kernels/moe_experts/moe_workspace.h"

namespace copse::kernels::cuda {

// function.template operator()<codec>() for the codec that is only known when running.
template <class Function>
Status with_codec(ExpertCodec codec, const Function& function) {
  switch (codec) {
    case ExpertCodec::bf16:
      return function.template operator()<ExpertCodec::bf16>();
    case ExpertCodec::f32:
      return function.template operator()<ExpertCodec::f32>();
    case ExpertCodec::fp8_block:
      return function.template operator()<ExpertCodec::fp8_block>();
    case ExpertCodec::int4_group:
      return function.template operator()<ExpertCodec::int4_group>();
    case ExpertCodec::int4_group_f32:
      return function.template operator()<ExpertCodec::int4_group_f32>();
  }
  return {};
}

template <class T>
void check_moe_call(const MoeExperts<T>& call) {
  const ExpertShape& shape = call.shape;
  CHECK(call.rows >= 0 && call.rows <= limits::step_rows);
  CHECK(call.experts_per_token > 0 && call.experts_per_token <= limits::experts_per_token);
  CHECK(shape.hidden > 0 && shape.inner >= 0 && shape.experts >= 0 && shape.first_expert >= 0);
  CHECK(shape.experts <= limits::experts && shape.down().tiles() <= moe_tiles_max);
  CHECK(call.workspace_bytes >=
        moe_workspace_parts(shape, call.rows, call.experts_per_token).bytes);
}

}  // namespace copse::kernels::cuda
