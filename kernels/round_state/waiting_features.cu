// Features that wait for the drafter, and keys and values that enter its pages. One block a row, 16
// bytes a thread.
#include <cuda_runtime.h>

#include "base/bf16.h"
#include "kernels/common/cuda/status.h"
#include "kernels/round_state/round_state.h"

namespace copse::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ void copy_row(const T* from, T* to, int width) {
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  const int count = width * static_cast<int>(sizeof(T)) / 16;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) target[i] = source[i];
}

// Before finish_round: slot.pending is what waits already.
template <class T>
__global__ void keep_features_kernel(RoundShape shape, RoundArrays a, const T* features, int width,
                                     T* waiting) {
  const int s = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x);
  const int slot = a.entry_slot[s];
  if (slot < 0 || i >= a.kept[s]) return;
  const int row = s * shape.rows_per_sequence + a.accepted[s * (limits::draft_block + 1) + i];
  const int place = slot * shape.waiting_max + a.slots[slot].pending + i;
  copy_row(features + static_cast<std::ptrdiff_t>(row) * width,
           waiting + static_cast<std::ptrdiff_t>(place) * width, width);
}

template <class T>
__global__ void gather_waiting_kernel(RoundShape shape, RoundArrays a, const T* waiting, int width,
                                      T* out) {
  const int s = static_cast<int>(blockIdx.y);
  const int row = s * shape.waiting_max + static_cast<int>(blockIdx.x);
  if (a.waiting_positions[row] < 0) return;
  const int place = a.entry_slot[s] * shape.waiting_max + static_cast<int>(blockIdx.x);
  copy_row(waiting + static_cast<std::ptrdiff_t>(place) * width,
           out + static_cast<std::ptrdiff_t>(row) * width, width);
}

template <class T>
__global__ void write_page_rows_kernel(PageRows<T> call) {
  const int row = static_cast<int>(blockIdx.x);
  const int position = call.positions[row];
  const int slot = call.slots[row / call.rows_per_sequence];
  if (position < 0 || slot < 0) return;
  const PageId page = call.page_tables[static_cast<std::ptrdiff_t>(slot) * call.table_pages +
                                       position / limits::page_tokens];
  const std::ptrdiff_t place =
      static_cast<std::ptrdiff_t>(page) * limits::page_tokens + position % limits::page_tokens;
  copy_row(call.rows + row * call.stride, call.pages + place * call.width, call.width);
}

template <class T>
bool whole_words(int width) {
  return width * static_cast<int>(sizeof(T)) % 16 == 0;
}

}  // namespace

template <class T>
Status keep_features(const RoundShape& shape, const RoundArrays& arrays, const T* features,
                     int width, T* waiting, Stream stream) {
  CHECK(whole_words<T>(width));
  const int rows = min(shape.rows_per_sequence, limits::draft_block + 1);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(shape.sequences));
  keep_features_kernel<<<grid, kThreads, 0, stream>>>(shape, arrays, features, width, waiting);
  return launched("keep_features");
}

template <class T>
Status gather_waiting(const RoundShape& shape, const RoundArrays& arrays, const T* waiting,
                      int width, T* out, Stream stream) {
  CHECK(whole_words<T>(width) && shape.waiting_max > 0);
  const dim3 grid(static_cast<unsigned>(shape.waiting_max), static_cast<unsigned>(shape.sequences));
  gather_waiting_kernel<<<grid, kThreads, 0, stream>>>(shape, arrays, waiting, width, out);
  return launched("gather_waiting");
}

template <class T>
Status write_page_rows(const PageRows<T>& call, Stream stream) {
  CHECK(whole_words<T>(call.width) && whole_words<T>(static_cast<int>(call.stride)));
  write_page_rows_kernel<<<call.sequences * call.rows_per_sequence, kThreads, 0, stream>>>(call);
  return launched("write_page_rows");
}

#define COPSE_ROWS(T)                                                                              \
  template Status keep_features(const RoundShape&, const RoundArrays&, const T*, int, T*, Stream); \
  template Status gather_waiting(const RoundShape&, const RoundArrays&, const T*, int, T*,         \
                                 Stream);                                                          \
  template Status write_page_rows(const PageRows<T>&, Stream);
COPSE_ROWS(float)
COPSE_ROWS(Bf16)
#undef COPSE_ROWS

}  // namespace copse::kernels::cuda
