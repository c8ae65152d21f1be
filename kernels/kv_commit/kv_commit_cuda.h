#pragma once
// kv_commit.h on a GPU: rows of scratch into pages, all layers and sequences in one launch. Row i
// of a sequence becomes position first_position + i of its slot. For a prefill chunk `accepted` is
// null: row i is scratch row i.
//
// Moves 2 * layers * rows * width * sizeof(T) bytes; 16 bytes at a time where a row's size allows.
#include <cstdint>

#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

template <class T>
struct KvCommitCall {
  int layers = 0;
  int slots = 0;
  int scratch_rows = 0;
  int pages_count = 0;
  int width = 0;
  const T* scratch = nullptr;  // [layers][slots][scratch_rows][width]
  T* pages = nullptr;          // [layers][pages_count][page_tokens][width]

  int sequences = 0;
  int rows_max = 0;                          // no count is larger
  int accepted_stride = 0;                   // from one sequence's list to the next
  int table_pages = 0;                       // of one slot's page table
  const std::int32_t* accepted = nullptr;    // [sequences][accepted_stride] scratch rows, or null
  const std::int32_t* counts = nullptr;      // [sequences]
  const std::int32_t* entry_slot = nullptr;  // [sequences]; -1: nothing to copy
  const std::int32_t* first_position = nullptr;  // [sequences]
  const PageId* page_tables = nullptr;           // [slots][table_pages]
};

template <class T>
Status kv_commit(const KvCommitCall<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
