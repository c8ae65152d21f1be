#pragma once
// Rows that move by lists which only the device knows. A padding row has a negative token or index.
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

// out[r] = table[tokens[r] - first] in float32; zero for a token outside [first, first + count),
// which another rank's shard holds, and for padding.
template <class T>
struct EmbedRows {
  const TokenId* tokens = nullptr;  // [rows]
  int rows = 0;
  const T* table = nullptr;  // [count][hidden]
  TokenId first = 0;
  int count = 0;
  int hidden = 0;
  float* out = nullptr;  // [rows][hidden]
};

template <class T>
Status embed_rows(const EmbedRows<T>& call, Stream stream);

// out[r] = from[index[r]] as bytes, zero where index[r] is negative. The memories do not overlap.
// Strides and row_bytes in bytes; fastest where these and the addresses are multiples of 16.
struct CopyRows {
  const void* from = nullptr;
  std::int64_t from_stride = 0;
  const std::int32_t* index = nullptr;  // [count]
  int count = 0;
  std::int64_t row_bytes = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;
};
Status copy_rows(const CopyRows& call, Stream stream);

}  // namespace copse::kernels::cuda
