// hopper: bf16, latent 512 + 64, compute capability 9.0. A persistent block per multiprocessor,
// four warpgroups with a role each; README.md draws the pipeline.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/hopper_load.cuh"
#include "kernels/verify_attention/hopper_merge.cuh"
#include "kernels/verify_attention/hopper_outputs.cuh"
#include "kernels/verify_attention/hopper_scores.cuh"

namespace copse::kernels::cuda {
namespace {

using namespace hopper;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// For tiles of any size: they differ in how much of the rings they use.
__device__ void init_barriers(const Barriers& barriers) {
  for (int chunk = 0; chunk < chunks; ++chunk) barrier_init(barriers.query_full(chunk), 1);
  barrier_init(barriers.query_empty(), group_warps);
  for (int i = 0; i < 2; ++i) {
    barrier_init(barriers.weights_full(i), group_threads);
    barrier_init(barriers.weights_empty(i), 2 * group_warps);
  }
  barrier_init(barriers.scores_done(), group_warps);
  barrier_init(barriers.merge_full(), 1);
  for (int i = 0; i < slots_max; ++i) {
    barrier_init(barriers.chunk_full(i), 1);
    barrier_init(barriers.chunk_empty(i), group_warps);
  }
  barrier_init_fence();
}

template <int n>
__device__ void load(const Arguments& args, const CUtensorMap& queries, int warp) {
  const Tile<n> tile{{args.shared_begin}};
  if (warp == 0 && elect_one()) load_keys(args, tile);
  if (warp == 1 && elect_one()) load_queries(args, queries, tile);
}
template <int n>
__device__ void score(const Arguments& args) {
  score_blocks(args, Tile<n>{{args.shared_begin}});
}
template <int n>
__device__ void output(const Arguments& args) {
  const Tile<n> tile{{args.shared_begin}};
  add_values(args, tile);
  merge_items(args, tile);
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int n>
__device__ void run_group(const Arguments& args, const CUtensorMap& queries, int warp) {
  const int group = warp / group_warps;
  if (group == load_group) {
    registers_shrink<32>();
    load<n>(args, queries, warp);
  } else if (group == score_group) {
    registers_shrink<112>();
    score<n>(args);
  } else {
    registers_grow<184>();
    output<n>(args);
  }
}
#endif

// The plan chooses between tiles of n, m and l queries.
template <int n, int m, int l>
__global__ void __launch_bounds__(threads, 1)
    hopper_kernel(const __grid_constant__ Arguments args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (shared_address(hopper_memory) != args.shared_begin) __trap();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp == 0 && elect_one()) {
    init_barriers(Barriers{args.shared_begin});
    prefetch_map(args.pages);
    for (const CUtensorMap& map : args.queries) prefetch_map(map);
    prefetch_map(args.scratch);
  }
  launch_next();
  __syncthreads();
  wait_for_previous();
  const int queries = n == l ? n : args.call.workspace.items[blockIdx.x].tile_queries;
  if (queries == n) {
    run_group<n>(args, args.queries[0], warp);
  } else if (m != n && queries == m) {
    if constexpr (m != n) run_group<m>(args, args.queries[1], warp);
  } else {
    if constexpr (l != n && l != m) run_group<l>(args, args.queries[2], warp);
  }
#endif
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

// The driver's encoder, without linking the driver. It touches no device.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<Encode>(function)
               : nullptr;
  }();
  return found;
}

// A matrix of `rows` rows of 576 values, in boxes of box_rows x 64.
Status encode_map(const Bf16* data, std::uint64_t rows, int box_rows, CUtensorMap* map) {
  const Encode encode = encoder();
  if (encode == nullptr) {
    return Error{ErrorCode::unsupported, "device", "the driver has no tensor maps"};
  }
  const cuuint64_t sizes[2] = {width, rows};
  const cuuint64_t strides[1] = {width * sizeof(Bf16)};
  const cuuint32_t box[2] = {chunk_columns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<Bf16*>(data), sizes, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Error{ErrorCode::invalid_argument, "verify_attention", "no tensor map for this memory"};
}

// Short prefixes are cut into smaller tiles: more blocks of threads share the work, and each has
// less to store and to merge. The second and third choice beside tiles of n queries.
constexpr int medium_tile(int n) {
  return n > 40 ? 40 : n > 24 ? 24 : n;
}
constexpr int small_tile(int n) {
  return n > 24 ? 24 : n;
}

template <int n>
Status launch(const Arguments& args, int workers, Stream stream) {
  const auto kernel = hopper_kernel<n, medium_tile(n), small_tile(n)>;
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
      "verify_attention hopper: shared memory"));
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(workers));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cuda_status(cudaLaunchKernelEx(&config, kernel, args), "verify_attention hopper");
}

}  // namespace

namespace {

// A block of keys at long prefixes, and all else that an item costs, both fitted to times of
// README.md. Large tiles pay for their first blocks: a ring of less than two blocks waits for
// device memory.
VerifyTiling tiling_of(int tile_queries) {
  const int block = tile_queries <= 24 ? 1500 : tile_queries <= 40 ? 1680 : 950 + 20 * tile_queries;
  const int item = tile_queries <= 24 ? 4500 : tile_queries <= 40 ? 6000 : 15000;
  return {tile_queries, block, item, 3000};
}

}  // namespace

void hopper_tilings(int queries, VerifyPlanShape* plan) {
  int best_cost = INT_MAX;
  for (int n = 8; n <= queries_max; n += 8) {
    const VerifyTiling tiling = tiling_of(n);
    const int cost = (queries + n - 1) / n * tiling.block_cost;
    if (cost < best_cost) {
      plan->tilings[0] = tiling;
      best_cost = cost;
    }
  }
  const int n = plan->tilings[0].tile_queries;
  plan->tilings_count = 1;
  if (medium_tile(n) != n) plan->tilings[plan->tilings_count++] = tiling_of(medium_tile(n));
  if (small_tile(n) != medium_tile(n)) {
    plan->tilings[plan->tilings_count++] = tiling_of(small_tile(n));
  }
}

Status launch_verify_hopper(const VerifyAttentionCall<Bf16>& call,
                            const VerifyArguments<Bf16>& arguments, const VerifyPlanShape& plan,
                            Stream stream) {
  Arguments args;
  args.call = arguments;
  int reserved = 0;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0),
                  "verify_attention hopper: reserved shared memory"));
  args.shared_begin = static_cast<std::uint32_t>(reserved);
  const auto count = [](int a, int b) {
    return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
  };
  for (int i = 0; i < 3; ++i) {
    const int box = plan.tilings[i < plan.tilings_count ? i : 0].tile_queries;
    COPSE_RETURN_IF_ERROR(
        encode_map(call.q, count(call.rows, call.shape.heads), box, &args.queries[i]));
  }
  COPSE_RETURN_IF_ERROR(
      encode_map(call.pages, count(call.pages_count, verify_block_tokens), 64, &args.pages));
  COPSE_RETURN_IF_ERROR(
      encode_map(call.scratch, count(call.slots, call.shape.scratch_rows), 64, &args.scratch));
  switch (plan.tilings[0].tile_queries) {
    case 8:
      return launch<8>(args, plan.workers, stream);
    case 16:
      return launch<16>(args, plan.workers, stream);
    case 24:
      return launch<24>(args, plan.workers, stream);
    case 32:
      return launch<32>(args, plan.workers, stream);
    case 40:
      return launch<40>(args, plan.workers, stream);
    case 48:
      return launch<48>(args, plan.workers, stream);
    case 56:
      return launch<56>(args, plan.workers, stream);
    case 64:
      return launch<64>(args, plan.workers, stream);
    case 72:
      return launch<72>(args, plan.workers, stream);
    default:
      CHECK(false && "a tile that verify_hopper has");
      return {};
  }
}

}  // namespace copse::kernels::cuda
