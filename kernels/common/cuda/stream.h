#pragma once
// The one CUDA type in the contracts of kernels, so that host code needs no CUDA header.

struct CUstream_st;

namespace copse::kernels::cuda {

using Stream = CUstream_st*;

}  // namespace copse::kernels::cuda
