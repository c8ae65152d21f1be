#pragma once
// Softmax attention over blocks of up to 64 tokens, shared by verify_attention and draft_attention.
// Every operation's order is fixed (docs/decisions/0002), so that a query's result depends on its
// own tokens alone, not on which queries share a tile.
#include <limits>

namespace copse::kernels {

inline constexpr int attend_block_tokens = 64;

// One query row of one head on its way through the blocks. `out` is written by the first block and
// holds the weighted sum of values until it is divided by `sum`.
struct AttendQuery {
  const float* q = nullptr;
  float* out = nullptr;
  float largest = -std::numeric_limits<float>::infinity();  // score so far
  float sum = 0;                                            // of exp(score - largest)
};

struct AttendShape {
  int key_dim = 0;
  int value_dim = 0;
  float scale = 0;
};

namespace ref {

// Adds one block of 1 to 64 tokens, in order of position; keys[t] and values[t] are rows.
void attend_block(AttendQuery& query, const float* const* keys, const float* const* values,
                  int tokens, const AttendShape& shape);
// Divides by the sum of exponentials. At least one block must have been added.
void attend_finish(AttendQuery& query, const AttendShape& shape);

}  // namespace ref
}  // namespace copse::kernels
