#include "kernels/linear/stream_gemm.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/linear/stream_kernel.cuh"

namespace copse::kernels::cuda::stream_gemm {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

// The driver's function, found at run time so that the program starts where there is no driver.
// Null where it has none.
Encode find_encode() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult answer;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &answer);
    const bool there = error == cudaSuccess && answer == cudaDriverEntryPointSuccess;
    return there ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

// bf16 [batch][rows][inputs] in boxes of box_rows rows and 64 inputs.
Result<CUtensorMap> tensor_map(Encode encode, const void* data, int inputs, std::int64_t rows,
                               std::int64_t stride, int batch, std::int64_t batch_stride,
                               int box_rows) {
  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(inputs), static_cast<cuuint64_t>(rows),
                                 static_cast<cuuint64_t>(batch)};
  const cuuint64_t one_batch = static_cast<cuuint64_t>(batch == 1 ? stride : batch_stride) * 2;
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride) * 2, one_batch};
  const cuuint32_t box[3] = {box_inputs, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), extents, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Error{ErrorCode::io, "device", "a tensor map was refused"};
  }
  return map;
}

using Kernel = void (*)(Args);
struct Instance {
  Kernel kernel = nullptr;
  int shared_bytes = 0;
};

Instance instance(int octets) {
  if (octets == 1) return {stream_kernel<1>, Shape<1>::bytes};
  if (octets == 2) return {stream_kernel<2>, Shape<2>::bytes};
  if (octets == 3) return {stream_kernel<3>, Shape<3>::bytes};
  if (octets == 5) return {stream_kernel<5>, Shape<5>::bytes};
  return {stream_kernel<8>, Shape<8>::bytes};
}

int tiles_of(const GemmShape& shape) {
  const int outputs = shape.swiglu ? weight_rows / 2 : weight_rows;
  return (shape.outputs + outputs - 1) / outputs;
}

int stages_of(const GemmShape& shape) {
  return (shape.inputs + stage_inputs - 1) / stage_inputs;
}

int octets_of(int rows) {
  const int octets = (rows + 7) / 8;
  return octets <= 3 ? octets : octets <= 5 ? 5 : 8;
}

Output output_of(const Part& part) {
  const GemmShape& shape = *part.shape;
  return {.y = part.y,
          .y_stride = shape.y_stride,
          .y_batch_stride = shape.y_batch_stride,
          .outputs = shape.outputs,
          .float_out = shape.y_type == GemmType::float32,
          .accumulate = shape.accumulate,
          .swiglu = shape.swiglu,
          .wide = shape.y_stride % 4 == 0 && shape.y_batch_stride % 4 == 0 &&
                  reinterpret_cast<std::uintptr_t>(part.y) % 16 == 0};
}

}  // namespace

bool serves(const GemmShape& shape) {
  const auto whole = [](std::int64_t stride) { return stride % 8 == 0; };
  if (!device_info().hopper() || shape.x_type != GemmType::bf16 || shape.rows > rows_max ||
      !whole(shape.x_stride) || !whole(shape.w_stride) || !whole(shape.x_batch_stride) ||
      !whole(shape.w_batch_stride) || find_encode() == nullptr) {
    return false;
  }
  // The library is as fast where it fills the GPU several times over, and faster for many rows
  // unless there are few outputs (README.md has the figures).
  const int blocks = tiles_of(shape) * shape.batch;
  if (blocks > 2 * device_info().multiprocessors) return false;
  return shape.rows <= 32 || shape.swiglu || blocks * 8 <= device_info().multiprocessors;
}

Status prepare(const GemmShape& shape) {
  const Instance chosen = instance(octets_of(shape.rows));
  return cuda_status(
      cudaFuncSetAttribute(chosen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           chosen.shared_bytes),
      "stream_gemm");
}

int cluster_of(std::span<const Part> parts) {
  int blocks = 0;
  for (const Part& part : parts) blocks += tiles_of(*part.shape) * part.shape->batch;
  int cluster = 1;
  while (cluster < 8 && blocks * cluster * 2 <= device_info().multiprocessors * 5 / 4 &&
         stages_of(*parts[0].shape) >= cluster * 4) {
    cluster *= 2;
  }
  return cluster;
}

Status launch(std::span<const Part> parts, int cluster, const void* x, Stream stream) {
  CHECK(parts.size() == 1 || parts.size() == 2);
  const Encode encode = find_encode();
  const GemmShape& first = *parts[0].shape;
  Args args = {};
  int tiles = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const GemmShape& shape = *parts[i].shape;
    CHECK(shape.rows == first.rows && shape.inputs == first.inputs &&
          shape.x_stride == first.x_stride && (shape.batch == 1 || parts.size() == 1));
    COPSE_TRY(args.weight[i],
              tensor_map(encode, parts[i].weight, shape.inputs,
                         std::int64_t{shape.outputs} * (shape.swiglu ? 2 : 1), shape.w_stride,
                         shape.batch, shape.w_batch_stride, weight_rows / 2));
    args.out[i] = output_of(parts[i]);
    if (i == 0) args.first_tiles = tiles_of(shape);
    tiles += tiles_of(shape);
  }
  const int octets = octets_of(first.rows);
  COPSE_TRY(args.x, tensor_map(encode, x, first.inputs, first.rows, first.x_stride, first.batch,
                               first.x_batch_stride, octets * 8));
  args.rows = first.rows;
  args.stages = stages_of(first);
  const Instance chosen = instance(octets);
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(tiles),
                   static_cast<unsigned>(first.batch)),
      .block = dim3(threads),
      .shared_bytes = static_cast<std::size_t>(chosen.shared_bytes),
      .cluster = static_cast<unsigned>(cluster)};
  return launch_early("stream_gemm", chosen.kernel, shape, stream, args);
}

}  // namespace copse::kernels::cuda::stream_gemm
