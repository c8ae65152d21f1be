#pragma once
// What one row of logits asks for, from the slot of its sequence (as Round::sample_row in
// worker/round.cpp).
#include "kernels/sample/sample_cuda.h"

namespace copse::kernels::cuda {

struct DrawRow {
  float temperature;
  float top_p;
  float min_p;
  std::int32_t top_k;
  std::uint32_t choice;
  std::uint64_t seed;
  std::uint64_t position;  // of the token being drawn
  const TokenId* masked;
  int masked_count;

  __device__ bool greedy() const { return temperature < sample_temperature_min; }
  __device__ bool filtered() const { return !greedy() && (top_k > 0 || top_p < 1 || min_p > 0); }
  __device__ bool is_masked(TokenId token) const {
    for (int i = 0; i < masked_count; ++i) {
      if (masked[i] == token) return true;
    }
    return false;
  }
};

// Where a row of logits stands; read first, so that its logits can be on their way while its slot
// is read.
struct RowPlace {
  int entry;  // slot, or -1: padding
  int at;     // position

  __device__ bool padding() const { return entry < 0 || at < 0; }
};

__device__ inline RowPlace read_row_place(const SampleCall& call, int row) {
  const int packed = call.logit_rows == nullptr ? row : call.logit_rows[row];
  return {call.entry_slot[packed / call.rows_per_sequence], call.row_positions[packed]};
}

// Not for padding.
__device__ inline DrawRow read_draw_row(const SampleCall& call, const RowPlace& place) {
  DrawRow draw;
  const DeviceSlot& slot = call.slots[place.entry];
  draw.temperature = slot.temperature;
  draw.top_p = slot.top_p;
  draw.min_p = slot.min_p;
  draw.top_k = slot.top_k;
  draw.choice = slot.choice;
  draw.seed = slot.seed;
  draw.position = static_cast<std::uint64_t>(place.at) + 1;
  // A round's root stands at slot.length and is the last token drawn; each position on, one more.
  const int drawn_before = slot.drawn + (slot.has_bonus != 0 ? place.at - slot.length : 0);
  draw.masked = slot.end_tokens;
  draw.masked_count = drawn_before < slot.min_tokens ? slot.end_token_count : 0;
  return draw;
}

__device__ inline bool is_finite(float value) {
  return fabsf(value) < __int_as_float(0x7f800000);
}

}  // namespace copse::kernels::cuda
