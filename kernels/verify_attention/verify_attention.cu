// Which version runs, what it needs, and in which order its kernels follow one another.
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

void check_shape(const VerifyShape& shape) {
  CHECK(shape.heads > 0 && shape.latent > 0 && shape.rope >= 0 && shape.scratch_rows > 0);
  CHECK(shape.sequences_max > 0 && shape.sequences_max <= verify_sequences_max);
  CHECK(shape.rows_per_sequence_max > 0);
  CHECK(shape.rows_per_sequence_max <= shape.scratch_rows);
}

bool fits_portable(const VerifyShape& shape) {
  return shape.latent % 8 == 0 && shape.rope % 8 == 0 && shape.latent <= 512 && shape.rope <= 64;
}

template <class T>
bool fits_hopper(const VerifyShape& shape) {
  return sizeof(T) == 2 && shape.latent == 512 && shape.rope == 64 && device_info().hopper();
}

int tiles_max(const VerifyShape& shape, int tile_queries) {
  const int queries = shape.rows_per_sequence_max * shape.heads;
  return (queries + tile_queries - 1) / tile_queries * shape.sequences_max;
}

VerifyPlanShape hopper_plan_shape(const VerifyShape& shape) {
  VerifyPlanShape plan;
  plan.heads = shape.heads;
  plan.sequences = shape.sequences_max;
  hopper_tilings(shape.heads * shape.rows_per_sequence_max, &plan);
  plan.workers = device_info().multiprocessors;
  plan.partials_max = 3 * plan.workers;
  plan.bf16_partials = true;
  for (const VerifyTiling& tiling : plan.tilings) {
    if (tiling.tile_queries == 0) continue;
    const int tiles = tiles_max(shape, tiling.tile_queries);
    plan.items_max = max(plan.items_max, tiles + plan.partials_max);
  }
  return plan;
}

template <class T>
VerifyPlanShape plan_shape(const VerifyShape& shape) {
  if (verify_version<T>(shape) == VerifyVersion::hopper) return hopper_plan_shape(shape);
  VerifyPlanShape plan;
  plan.heads = shape.heads;
  plan.sequences = shape.sequences_max;
  const int tile_queries = portable_tile_queries(sizeof(T) == 2);
  plan.tilings[0] = {tile_queries, 4000, 4000, 4000};
  plan.workers = 2 * device_info().multiprocessors;
  const int tiles = tiles_max(shape, tile_queries);
  plan.partials_max = 2 * plan.workers;
  if (verify_version<T>(shape) == VerifyVersion::prefix_tail) {
    plan.prefix_only = true;
    plan.partials_max = max(2 * plan.workers, tiles) + tiles;
  }
  plan.items_max = tiles + plan.partials_max;
  return plan;
}

}  // namespace

template <class T>
VerifyVersion verify_version(const VerifyShape& shape) {
  if (shape.version != VerifyVersion::automatic) return shape.version;
  if (fits_hopper<T>(shape)) return VerifyVersion::hopper;
  return fits_portable(shape) ? VerifyVersion::portable : VerifyVersion::naive;
}

template <class T>
std::size_t verify_workspace_bytes(const VerifyShape& shape) {
  check_shape(shape);
  return verify_workspace_layout(plan_shape<T>(shape), shape.latent, nullptr, nullptr);
}

template <class T>
Status verify_plan(const VerifyShape& shape, const VerifySequence* sequences, void* workspace,
                   Stream stream) {
  check_shape(shape);
  if (verify_version<T>(shape) == VerifyVersion::naive) return {};
  const VerifyPlanShape plan = plan_shape<T>(shape);
  VerifyWorkspace parts;
  verify_workspace_layout(plan, shape.latent, workspace, &parts);
  return launch_verify_plan(plan, sequences, parts, stream);
}

template <class T>
Status verify_attention(const VerifyAttentionCall<T>& call, Stream stream) {
  const VerifyShape& shape = call.shape;
  check_shape(shape);
  const VerifyVersion version = verify_version<T>(shape);
  CHECK(version == VerifyVersion::naive || fits_portable(shape));
  CHECK(version != VerifyVersion::hopper || fits_hopper<T>(shape));
  const VerifyPlanShape plan = plan_shape<T>(shape);
  VerifyArguments<T> args = {};
  args.heads = shape.heads;
  args.latent = shape.latent;
  args.width = shape.latent + shape.rope;
  args.scratch_rows = shape.scratch_rows;
  args.sequences_max = shape.sequences_max;
  args.tile_queries = plan.tilings[0].tile_queries;
  args.scale = call.scale;
  args.q = call.q;
  args.pages = call.pages;
  args.scratch = call.scratch;
  args.out = call.out;
  args.sequences = call.sequences;
  const int rows_max = shape.rows_per_sequence_max;
  if (version == VerifyVersion::naive) return launch_verify_naive(args, rows_max, stream);
  verify_workspace_layout(plan, shape.latent, call.workspace, &args.workspace);
  if constexpr (sizeof(T) == 2) {
    if (version == VerifyVersion::hopper) return launch_verify_hopper(call, args, plan, stream);
  }
  COPSE_RETURN_IF_ERROR(launch_verify_portable(args, plan, stream));
  const bool tail = version == VerifyVersion::prefix_tail;
  if (tail) COPSE_RETURN_IF_ERROR(launch_verify_tail(args, rows_max, stream));
  return launch_verify_merge(args, rows_max, tail ? 1 : 0, stream);
}

template VerifyVersion verify_version<float>(const VerifyShape&);
template VerifyVersion verify_version<Bf16>(const VerifyShape&);
template std::size_t verify_workspace_bytes<float>(const VerifyShape&);
template std::size_t verify_workspace_bytes<Bf16>(const VerifyShape&);
template Status verify_plan<float>(const VerifyShape&, const VerifySequence*, void*, Stream);
template Status verify_plan<Bf16>(const VerifyShape&, const VerifySequence*, void*, Stream);
template Status verify_attention(const VerifyAttentionCall<float>&, Stream);
template Status verify_attention(const VerifyAttentionCall<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
