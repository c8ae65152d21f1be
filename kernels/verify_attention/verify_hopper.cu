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
template <int n>
__device__ void init_barriers(const Tile<n>& tile) {
  for (int chunk = 0; chunk < chunks; ++chunk) barrier_init(tile.query_full(chunk), 1);
  barrier_init(tile.query_empty(), group_warps);
  for (int i = 0; i < Tile<n>::weight_buffers; ++i) {
    barrier_init(tile.weights_full(i), group_threads);
    barrier_init(tile.weights_empty(i), 2 * group_warps);
  }
  for (int i = 0; i < Tile<n>::slots; ++i) {
    barrier_init(tile.chunk_full(i), 1);
    barrier_init(tile.chunk_empty(i), group_warps);
  }
  barrier_init_fence();
}
#endif

template <int n>
__global__ void __launch_bounds__(threads, 1)
    hopper_kernel(const __grid_constant__ Arguments args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (shared_address(hopper_memory) != args.shared_begin) __trap();
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const Tile<n> tile{args.shared_begin};
  if (warp == 0 && elect_one()) {
    init_barriers(tile);
    prefetch_map(args.pages);
    prefetch_map(args.queries);
    prefetch_map(args.scratch);
  }
  __syncthreads();
  const int group = warp / group_warps;
  if (group == load_group) {
    registers_shrink<24>();
    if (warp == 0 && elect_one()) load_keys(args, tile);
    if (warp == 1 && elect_one()) load_queries(args, tile);
  } else if (group == score_group) {
    registers_shrink<120>();
    score_blocks(args, tile);
  } else {
    registers_grow<184>();
    add_values(args, tile);
    merge_items<n>(args);
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

template <int n>
Status launch(const Arguments& args, int workers, Stream stream) {
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaFuncSetAttribute(hopper_kernel<n>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                  "verify_attention hopper: shared memory"));
  hopper_kernel<n><<<static_cast<unsigned>(workers), threads, Tile<n>::bytes, stream>>>(args);
  return launched("verify_attention hopper");
}

}  // namespace

int hopper_block_cost(int tile_queries) {
  // Cycles of the tensor cores, or of shared memory, and a gap between the two products.
  const int cycles = std::max(34 * tile_queries, 1664 + 17 * tile_queries) + 500;
  return cycles * 10 / 17;
}

int hopper_tile_queries(int queries) {
  constexpr int largest = 72;
  int best = 8;
  int best_cost = INT_MAX;
  for (int n = 8; n <= largest; n += 8) {
    const int cost = (queries + n - 1) / n * hopper_block_cost(n);
    if (cost < best_cost) {
      best = n;
      best_cost = cost;
    }
  }
  return best;
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
  COPSE_RETURN_IF_ERROR(
      encode_map(call.q, count(call.rows, call.shape.heads), plan.tile_queries, &args.queries));
  COPSE_RETURN_IF_ERROR(
      encode_map(call.pages, count(call.pages_count, verify_block_tokens), 64, &args.pages));
  COPSE_RETURN_IF_ERROR(
      encode_map(call.scratch, count(call.slots, call.shape.scratch_rows), 64, &args.scratch));
  switch (plan.tile_queries) {
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
