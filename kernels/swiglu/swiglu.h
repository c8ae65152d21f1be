#pragma once
// out[r][i] = silu(gate[r][i]) * up[r][i], silu(a) = a / (1 + exp(-a)): the middle of an MLP. `out`
// may be the memory of gate or up. The exponential is kernels/common/exp.h: the same bits on every
// vector width. No alignment, no workspace.
#include <cstdint>

#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels {

void swiglu(ConstMatrix gate, ConstMatrix up, Matrix out, ThreadPool& pool);

std::uint64_t swiglu_bytes_moved(int rows, int columns);

namespace ref {
void swiglu(ConstMatrix gate, ConstMatrix up, Matrix out);
}

}  // namespace copse::kernels
