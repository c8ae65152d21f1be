// attend.h for vectors. Included once per target.
#if defined(COPSE_KERNELS_ATTEND_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPSE_KERNELS_ATTEND_INL_H
#undef COPSE_KERNELS_ATTEND_INL_H
#else
#define COPSE_KERNELS_ATTEND_INL_H
#endif

#include <algorithm>
#include <limits>

#include "kernels/common/attend.h"
#include "kernels/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {

// Tokens whose scores grow at once for kQueries queries, so that sums, keys and pointers fit the
// registers; then vectors of 16 values.
template <int kQueries>
constexpr int score_tokens() {
  if (kQueries == 3) return parts == 1 ? 5 : 1;
  if (parts == 1) return kQueries == 4 ? 4 : 8;
  return 4 / kQueries;
}
template <int kQueries>
constexpr int value_vectors() {
  if (kQueries == 3) return parts == 1 ? 4 : 1;
  if (parts == 1) return kQueries == 4 ? 4 : 8;
  return 4 / kQueries;
}

// sums[q * stride + t] = 16 partial sums of queries[q] . keys[t].
template <int kQueries, int kTokens>
HWY_INLINE void partial_scores(const AttendQuery* queries, const float* const* keys, int dim,
                               int stride, Lanes* sums) {
  const float* q[kQueries];
  const float* k[kTokens];
  Lanes acc[kQueries * kTokens];
  _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) q[i] = queries[i].q;
  _Pragma("GCC unroll 8") for (int t = 0; t < kTokens; ++t) k[t] = keys[t];
  _Pragma("GCC unroll 16") for (int i = 0; i < kQueries * kTokens; ++i) acc[i] = zero();
  const int whole = dim / 16 * 16;
  for (int d = 0; d < whole; d += 16) {
    Lanes query[kQueries];
    _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) query[i] = load(q[i] + d);
    _Pragma("GCC unroll 8") for (int t = 0; t < kTokens; ++t) {
      const Lanes key = load(k[t] + d);
      _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) {
        acc[i * kTokens + t] = fma(query[i], key, acc[i * kTokens + t]);
      }
    }
  }
  if (whole < dim) {
    for (int i = 0; i < kQueries; ++i) {
      const Lanes query = load_first(q[i] + whole, dim - whole);
      for (int t = 0; t < kTokens; ++t) {
        const Lanes key = load_first(k[t] + whole, dim - whole);
        acc[i * kTokens + t] = fma(query, key, acc[i * kTokens + t]);
      }
    }
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) {
    _Pragma("GCC unroll 8") for (int t = 0; t < kTokens; ++t) {
      sums[i * stride + t] = acc[i * kTokens + t];
    }
  }
}

// scores[q][t] for t < tokens; the rest up to 64 is -infinity.
template <int kQueries>
HWY_INLINE void block_scores(const AttendQuery* queries, const float* const* keys, int tokens,
                             const AttendShape& shape, float (*scores)[attend_block_tokens]) {
  constexpr int tile = 16 / kQueries;
  constexpr int step = score_tokens<kQueries>();
  const Lanes scale = broadcast(shape.scale);
  for (int first = 0; first < tokens; first += tile) {
    // A short tile scores its last token again; those scores are overwritten below.
    const float* rows[tile];
    for (int t = 0; t < tile; ++t) rows[t] = keys[std::min(first + t, tokens - 1)];
    Lanes sums[16];
    for (int i = kQueries * tile; i < 16; ++i) sums[i] = zero();  // three queries leave one
    for (int t = 0; t < tile; t += step) {
      partial_scores<kQueries, step>(queries, rows + t, shape.key_dim, tile, sums + t);
    }
    float results[16];
    store(mul(tree_sums(sums), scale), results);
    for (int i = 0; i < kQueries; ++i) {
      const int room = std::min(tile, attend_block_tokens - first);  // 64 is no multiple of 5
      std::memcpy(scores[i] + first, results + i * tile,
                  static_cast<std::size_t>(room) * sizeof(float));
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    std::fill(scores[i] + tokens, scores[i] + attend_block_tokens,
              -std::numeric_limits<float>::infinity());
  }
}

// Turns scores into weights, updates largest and sum, returns what earlier blocks are scaled by.
HWY_INLINE float block_softmax(AttendQuery& query, float* scores) {
  Lanes rows[4];
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) rows[i] = load(scores + 16 * i);
  float candidates[16];
  store(max(max(rows[0], rows[1]), max(rows[2], rows[3])), candidates);
  float largest = query.largest;
  for (const float score : candidates) largest = score > largest ? score : largest;
  const Lanes base = broadcast(largest);
  Lanes sums = zero();
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
    const Lanes weight = exp(sub(rows[i], base));
    sums = add(sums, weight);
    store(weight, scores + 16 * i);
  }
  float rescale[16];
  store(exp(broadcast(query.largest - largest)), rescale);
  query.sum = query.sum * rescale[0] + tree_sum(sums);
  query.largest = largest;
  return rescale[0];
}

// out[q][16 values] for kVectors vectors from value `first`.
template <int kQueries, int kVectors>
HWY_INLINE void add_values(AttendQuery* queries, const float (*weights)[attend_block_tokens],
                           const float* rescale, bool fresh, const float* const* values, int tokens,
                           int first) {
  Lanes acc[kQueries * kVectors];
  _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) {
    const Lanes factor = broadcast(rescale[i]);
    _Pragma("GCC unroll 8") for (int v = 0; v < kVectors; ++v) {
      acc[i * kVectors + v] = fresh ? zero() : mul(load(queries[i].out + first + 16 * v), factor);
    }
  }
  for (int t = 0; t < tokens; ++t) {
    const float* row = values[t] + first;
    Lanes value[kVectors];
    _Pragma("GCC unroll 8") for (int v = 0; v < kVectors; ++v) value[v] = load(row + 16 * v);
    _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) {
      const Lanes weight = broadcast(weights[i][t]);
      _Pragma("GCC unroll 8") for (int v = 0; v < kVectors; ++v) {
        acc[i * kVectors + v] = fma(weight, value[v], acc[i * kVectors + v]);
      }
    }
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < kQueries; ++i) {
    _Pragma("GCC unroll 8") for (int v = 0; v < kVectors; ++v) {
      store(acc[i * kVectors + v], queries[i].out + first + 16 * v);
    }
  }
}

// The last value_dim mod 16 values of one query.
inline void add_values_rest(AttendQuery& query, const float* weights, float rescale, bool fresh,
                            const float* const* values, int tokens, int first, int count) {
  Lanes acc = fresh ? zero() : mul(load_first(query.out + first, count), broadcast(rescale));
  for (int t = 0; t < tokens; ++t) {
    acc = fma(broadcast(weights[t]), load_first(values[t] + first, count), acc);
  }
  store_first(acc, query.out + first, count);
}

template <int kQueries>
void attend_tile(AttendQuery* queries, const float* const* keys, const float* const* values,
                 int tokens, const AttendShape& shape) {
  float scores[kQueries][attend_block_tokens];
  float rescale[kQueries];
  // Queries of one tile have seen the same blocks, so all are fresh or none is.
  const bool fresh = queries[0].sum == 0;
  block_scores<kQueries>(queries, keys, tokens, shape, scores);
  for (int i = 0; i < kQueries; ++i) rescale[i] = block_softmax(queries[i], scores[i]);
  constexpr int vectors = value_vectors<kQueries>();
  int first = 0;
  for (; first + 16 * vectors <= shape.value_dim; first += 16 * vectors) {
    add_values<kQueries, vectors>(queries, scores, rescale, fresh, values, tokens, first);
  }
  for (; first + 16 <= shape.value_dim; first += 16) {
    add_values<kQueries, 1>(queries, scores, rescale, fresh, values, tokens, first);
  }
  if (first < shape.value_dim) {
    for (int i = 0; i < kQueries; ++i) {
      add_values_rest(queries[i], scores[i], rescale[i], fresh, values, tokens, first,
                      shape.value_dim - first);
    }
  }
}

// Adds one block of 1 to 64 tokens to each of `count` queries, all of which saw the same number of
// blocks before.
inline void attend_block(AttendQuery* queries, int count, const float* const* keys,
                         const float* const* values, int tokens, const AttendShape& shape) {
  // Fours, and threes for what is left over: a lone query would wait for its keys. A tree of 4n
  // nodes has 4n + 1 rows, so the remainder is the usual case.
  int i = 0;
  while (count - i >= 4 && count - i != 5 && count - i != 6 && count - i != 9) {
    attend_tile<4>(queries + i, keys, values, tokens, shape);
    i += 4;
  }
  while (count - i >= 3) {
    attend_tile<3>(queries + i, keys, values, tokens, shape);
    i += 3;
  }
  if (count - i == 2) attend_tile<2>(queries + i, keys, values, tokens, shape);
  if (count - i == 1) attend_tile<1>(queries + i, keys, values, tokens, shape);
}

inline void attend_finish(AttendQuery& query, const AttendShape& shape) {
  const float inverse = 1.0f / query.sum;
  const Lanes factor = broadcast(inverse);
  int i = 0;
  for (; i + 16 <= shape.value_dim; i += 16) store(mul(load(query.out + i), factor), query.out + i);
  for (; i < shape.value_dim; ++i) query.out[i] *= inverse;
}

}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#endif  // COPSE_KERNELS_ATTEND_INL_H
