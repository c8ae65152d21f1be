#pragma once
// Launches that overlap: a kernel whose launch is early() may start when the kernel in front of it
// in the stream lets it, before that has ended, so that starting costs no time of its own and what
// does not depend on the one in front (weights) can be fetched. In a captured graph as well.
//
// Such a kernel calls wait_for_previous() in every thread before it reads what another kernel
// wrote, or writes anything at all; let_next_start() when all it needs is room (at its beginning,
// since only blocks that have started count). A kernel that is not launched so waits as ever.
#include <cuda_runtime.h>

#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until the kernels in front have ended and their writes are seen.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks along x
};

template <class... Parameters, class... Arguments>
Status launch_early(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape,
                    Stream stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (device_info().major >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cuda_status(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), name);
}

}  // namespace copse::kernels::cuda
