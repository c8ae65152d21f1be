// portable: flash-decode. A block of 256 threads takes one item at a time, a tile of queries
// against a run of key blocks, in steps of a few tokens: scores, online softmax, weighted values.
// bf16 runs on tensor cores (mma m16n8k16), float32 on plain multiply-adds. Split tiles leave
// partial results and their largest score and sum to a merge.
#include <cuda_runtime.h>

#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_portable.cuh"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int latent_max = 512;

// What shared memory holds besides queries and keys.
template <int queries, int tokens, class T, int pad>
struct Softmax {
  float scores[queries][tokens + 1];
  alignas(16) T weights[queries][tokens + pad];
  float rescale[queries];
  float largest[queries];
  float sum[queries];
};

// Scores [32 queries][32 tokens] a step: each warp one tile of 16 x 8. Outputs: warp w has columns
// 8 (w + 8 i) ..., all 32 queries.
struct Bf16Math {
  using Number = Bf16;
  static constexpr int queries = 32;
  static constexpr int tokens = 32;
  static constexpr int pad = 8;
  using Shared = Softmax<queries, tokens, Bf16, pad>;

  float out[2][latent_max / 8 / warps][4];

  __device__ void clear() {
    for (auto& half : out) {
      for (auto& tile : half) {
        for (float& value : tile) value = 0;
      }
    }
  }

  __device__ static void scores(const Bf16* q, const Bf16* keys, int stride, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first_query = warp / 4 * 16;
    const int first_token = warp % 4 * 8;
    const Bf16* q_row = q + (first_query + lane % 16) * stride + lane / 16 * 8;
    const Bf16* key_row = keys + (first_token + lane % 8) * stride + lane / 8 * 8;
    float even[4] = {};
    float odd[4] = {};
    // The width in shared memory is a multiple of 32, filled with zeros.
    for (int k = 0; k < stride - pad; k += 32) {
      std::uint32_t a[4];
      std::uint32_t b[4];
      load_matrices(b, key_row + k);
      load_matrices(a, q_row + k);
      multiply_add(even, a, b[0], b[1]);
      load_matrices(a, q_row + k + 16);
      multiply_add(odd, a, b[2], b[3]);
    }
    for (int i = 0; i < 4; ++i) {
      shared.scores[first_query + lane / 4 + i / 2 * 8][first_token + lane % 4 * 2 + i % 2] =
          even[i] + odd[i];
    }
  }

  __device__ void accumulate(const Bf16* values, int stride, int latent, const Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    std::uint32_t weights[2][2][4];
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < 2; ++k) {
        load_matrices(weights[half][k],
                      &shared.weights[half * 16 + lane % 16][k * 16 + lane / 16 * 8]);
      }
    }
#pragma unroll
    for (int i = 0; i < latent_max / 8 / warps; ++i) {
      const int column = (warp + warps * i) * 8;
      if (column >= latent) break;
      std::uint32_t v[4];
      load_matrices_transposed(v, values + lane * stride + column);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < 4; ++j) {
          out[half][i][j] *= shared.rescale[half * 16 + lane / 4 + j / 2 * 8];
        }
        multiply_add(out[half][i], weights[half][0], v[0], v[1]);
        multiply_add(out[half][i], weights[half][1], v[2], v[3]);
      }
    }
  }

  template <class Store>
  __device__ void store(int latent, const Store& to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < latent_max / 8 / warps; ++i) {
      const int column = (warp + warps * i) * 8 + lane % 4 * 2;
      if (column >= latent) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < 4; ++j) {
          to(half * 16 + lane / 4 + j / 2 * 8, column + j % 2, out[half][i][j]);
        }
      }
    }
  }
};

// Scores [16 queries][16 tokens] a step: one a thread. Outputs: thread t has columns t and t + 256.
struct FloatMath {
  using Number = float;
  static constexpr int queries = 16;
  static constexpr int tokens = 16;
  static constexpr int pad = 4;
  using Shared = Softmax<queries, tokens, float, pad>;

  float out[latent_max / threads][queries];

  __device__ void clear() {
    for (auto& column : out) {
      for (float& value : column) value = 0;
    }
  }

  __device__ static void scores(const float* q, const float* keys, int stride, Shared& shared) {
    const int query = static_cast<int>(threadIdx.x) / tokens;
    const int token = static_cast<int>(threadIdx.x) % tokens;
    const auto* a = reinterpret_cast<const float4*>(q + query * stride);
    const auto* b = reinterpret_cast<const float4*>(keys + token * stride);
    float4 sum = {};
    for (int i = 0; i < (stride - pad) / 4; ++i) {
      const float4 x = a[i];
      const float4 y = b[i];
      sum.x += x.x * y.x;
      sum.y += x.y * y.y;
      sum.z += x.z * y.z;
      sum.w += x.w * y.w;
    }
    shared.scores[query][token] = (sum.x + sum.y) + (sum.z + sum.w);
  }

  __device__ void accumulate(const float* values, int stride, int latent, const Shared& shared) {
#pragma unroll
    for (int i = 0; i < latent_max / threads; ++i) {
      const int column = static_cast<int>(threadIdx.x) + i * threads;
      if (column >= latent) break;
      for (int query = 0; query < queries; ++query) out[i][query] *= shared.rescale[query];
      for (int t = 0; t < tokens; ++t) {
        const float value = values[t * stride + column];
        for (int query = 0; query < queries; ++query) {
          out[i][query] += shared.weights[query][t] * value;
        }
      }
    }
  }

  template <class Store>
  __device__ void store(int latent, const Store& to) const {
#pragma unroll
    for (int i = 0; i < latent_max / threads; ++i) {
      const int column = static_cast<int>(threadIdx.x) + i * threads;
      if (column >= latent) break;
      for (int query = 0; query < queries; ++query) to(query, column, out[i][query]);
    }
  }
};

template <class T>
struct MathOf;
template <>
struct MathOf<Bf16> {
  using Type = Bf16Math;
};
template <>
struct MathOf<float> {
  using Type = FloatMath;
};

__host__ __device__ constexpr int stride_of(int width, int pad) {
  return (width + 31) / 32 * 32 + pad;
}

// Tokens first .. first + tokens - 1 of one block of keys; zeros where there are none.
template <class Math, class T>
__device__ void load_keys(const VerifyArguments<T>& args, const VerifySequence& sequence,
                          int prefix_blocks, int block, int first, T* to, int stride) {
  constexpr int values = 16 / sizeof(T);
  const int columns = args.width / values;
  const bool tail = block >= prefix_blocks;
  const int begin = (tail ? block - prefix_blocks : block) * verify_block_tokens + first;
  const int end = tail ? sequence.rows : sequence.prefix_length;
  for (int i = static_cast<int>(threadIdx.x); i < Math::tokens * columns; i += threads) {
    const int token = i / columns;
    const int column = i % columns * values;
    const bool valid = begin + token < end;
    const T* row = args.scratch;  // any address, where nothing is read
    if (valid) {
      row = tail ? scratch_row(args, sequence, begin + token)
                 : prefix_row(args, sequence, begin + token);
    }
    copy_async(to + token * stride + column, row + column, valid);
  }
  copy_commit();
}

template <class Math, class T>
__device__ void load_queries(const VerifyArguments<T>& args, const VerifySequence& sequence,
                             int first_query, T* to, int stride) {
  constexpr int values = 16 / sizeof(T);
  const int columns = args.width / values;
  for (int i = static_cast<int>(threadIdx.x); i < Math::queries * columns; i += threads) {
    const int query = first_query + i / columns;
    const int column = i % columns * values;
    const bool valid = query < sequence.rows * args.heads;
    const std::ptrdiff_t place = valid ? query_place(sequence, args.heads, query) : 0;
    copy_async(to + i / columns * stride + column, args.q + place * args.width + column, valid);
  }
}

// One step of the online softmax: masks and scales scores, turns them into weights. The 256 threads
// are shared out over the queries; the lanes of one query are neighbours in a warp.
template <class Math, class T>
__device__ void softmax_step(const VerifyArguments<T>& args, const VerifySequence& sequence,
                             int first_query, int prefix_blocks, int block, int first,
                             typename Math::Shared& shared) {
  constexpr int lanes = threads / Math::queries;
  constexpr int each = Math::tokens / lanes;
  const int query = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool tail = block >= prefix_blocks;
  const int begin = (tail ? block - prefix_blocks : block) * verify_block_tokens + first;
  const int row = (first_query + query) / args.heads;
  float scores[each];
  float largest = shared.largest[query];
  const float before = largest;
  for (int i = 0; i < each; ++i) {
    const int token = begin + lane + i * lanes;
    const bool visible =
        tail ? row < sequence.rows && sees(sequence, row, token) : token < sequence.prefix_length;
    scores[i] = visible ? shared.scores[query][lane + i * lanes] * args.scale : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const float reference = largest == -INFINITY ? 0.0f : largest;
  float sum = 0;
  for (int i = 0; i < each; ++i) {
    const float weight = exp2f(scores[i] - reference);
    sum += weight;
    shared.weights[query][lane + i * lanes] = from_float<T>(weight);
  }
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (lane == 0) {
    const float rescale = exp2f(before - reference);
    shared.rescale[query] = rescale;
    shared.sum[query] = shared.sum[query] * rescale + sum;
    shared.largest[query] = largest;
  }
}

template <class Math, class T>
__device__ void store_item(const VerifyArguments<T>& args, const VerifySequence& sequence,
                           const VerifyItem& item, bool partial, const Math& math,
                           const typename Math::Shared& shared) {
  const int first_query = item.tile * Math::queries;
  const int count = min(Math::queries, sequence.rows * args.heads - first_query);
  const std::ptrdiff_t place = query_place(sequence, args.heads, first_query);
  const std::ptrdiff_t slot = static_cast<std::ptrdiff_t>(item.partial) * Math::queries;
  if (partial && static_cast<int>(threadIdx.x) < count) {
    const int query = static_cast<int>(threadIdx.x);
    args.workspace.stats[slot + query] = {shared.largest[query], shared.sum[query]};
  }
  math.store(args.latent, [&](int query, int column, float value) {
    if (query >= count) return;
    if (partial) {
      static_cast<float*>(args.workspace.partials)[(slot + query) * args.latent + column] = value;
    } else {
      args.out[(place + query) * args.latent + column] =
          from_float<T>(value * (1.0f / shared.sum[query]));
    }
  });
}

template <class T>
__global__ void __launch_bounds__(threads, 2)
    portable_kernel(VerifyArguments<T> args, bool always_partial, int stages) {
  using Math = typename MathOf<T>::Type;
  extern __shared__ __align__(16) unsigned char memory[];
  // Raw bytes: a Bf16 initialises itself, which shared memory cannot.
  __shared__ __align__(16) unsigned char shared_bytes[sizeof(typename Math::Shared)];
  auto& shared = *reinterpret_cast<typename Math::Shared*>(shared_bytes);
  const int stride = stride_of(args.width, Math::pad);
  T* q = reinterpret_cast<T*>(memory);
  T* keys = q + Math::queries * stride;
  // The columns that no load writes are factors of zero.
  for (int i = static_cast<int>(threadIdx.x); i < (Math::queries + stages * Math::tokens) * stride;
       i += threads) {
    q[i] = from_float<T>(0.0f);
  }
  const VerifyPlan& plan = *args.workspace.plan;
  constexpr int steps_of_block = verify_block_tokens / Math::tokens;
  for (int index = static_cast<int>(blockIdx.x); index < plan.items;
       index += static_cast<int>(gridDim.x)) {
    const VerifyItem item = args.workspace.items[index];
    const VerifySequence sequence = args.sequences[item.sequence];
    const int prefix_blocks = item.prefix_blocks;
    const int first_query = item.tile * Math::queries;
    const auto load_step = [&](int step) {
      load_keys<Math>(args, sequence, prefix_blocks, item.first_block + step / steps_of_block,
                      step % steps_of_block * Math::tokens,
                      keys + step % stages * Math::tokens * stride, stride);
    };
    __syncthreads();
    load_queries<Math>(args, sequence, first_query, q, stride);
    if (threadIdx.x < Math::queries) {
      shared.largest[threadIdx.x] = -INFINITY;
      shared.sum[threadIdx.x] = 0;
    }
    Math math;
    math.clear();
    const int steps = (item.last_block - item.first_block) * steps_of_block;
    load_step(0);
    for (int step = 0; step < steps; ++step) {
      const T* step_keys = keys + step % stages * Math::tokens * stride;
      if (stages == 2 && step + 1 < steps) {
        load_step(step + 1);
        copy_wait<1>();
      } else {
        copy_wait<0>();
      }
      __syncthreads();
      Math::scores(q, step_keys, stride, shared);
      __syncthreads();
      softmax_step<Math>(args, sequence, first_query, prefix_blocks,
                         item.first_block + step / steps_of_block,
                         step % steps_of_block * Math::tokens, shared);
      __syncthreads();
      math.accumulate(step_keys, stride, args.latent, shared);
      __syncthreads();
      if (stages == 1 && step + 1 < steps) load_step(step + 1);
    }
    store_item(args, sequence, item, always_partial || item.splits > 1, math, shared);
  }
}

}  // namespace

int portable_tile_queries(bool bf16) {
  return bf16 ? Bf16Math::queries : FloatMath::queries;
}

template <class T>
Status launch_verify_portable(const VerifyArguments<T>& args, const VerifyPlanShape& plan,
                              Stream stream) {
  using Math = typename MathOf<T>::Type;
  const int stride = stride_of(args.width, Math::pad);
  const auto bytes_of = [&](int stages) {
    return static_cast<int>(sizeof(T)) * (Math::queries + stages * Math::tokens) * stride;
  };
  const int room =
      device_info().shared_memory_bytes - static_cast<int>(sizeof(typename Math::Shared));
  const int stages = bytes_of(2) <= room ? 2 : 1;
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaFuncSetAttribute(portable_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           bytes_of(stages)),
      "verify_attention portable: shared memory"));
  VerifyArguments<T> scaled = args;
  scaled.scale *= 1.44269504088896341f;  // weights are powers of two
  portable_kernel<T>
      <<<static_cast<unsigned>(plan.workers), threads, static_cast<std::size_t>(bytes_of(stages)),
         stream>>>(scaled, plan.prefix_only, stages);
  return launched("verify_attention portable");
}
template Status launch_verify_portable(const VerifyArguments<float>&, const VerifyPlanShape&,
                                       Stream);
template Status launch_verify_portable(const VerifyArguments<Bf16>&, const VerifyPlanShape&,
                                       Stream);

}  // namespace copse::kernels::cuda
