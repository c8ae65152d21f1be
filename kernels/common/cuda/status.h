#pragma once
// Errors of the CUDA runtime as a Status that names the call. An error of a kernel shows at a later
// call: after any error the device's state is worth nothing and the worker must end.
#include "base/result.h"

namespace copse::kernels::cuda {

// `error` is a cudaError_t. Out of memory becomes resource_exhausted, all else io.
Status cuda_status(int error, const char* what);
// Of the launch just made: configuration errors, and errors of earlier kernels that are known.
Status launched(const char* kernel);

}  // namespace copse::kernels::cuda
