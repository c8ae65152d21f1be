// One warp a row: scores and choices in shared memory, then the best one at a time. Each lane keeps
// the best of its experts, so that only the lane that lost its best looks again.
#include <cuda_runtime.h>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
#include "kernels/common/exp.h"
#include "kernels/moe_route/moe_route_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr unsigned all_lanes = 0xffffffffu;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// kernels/common/exp.h's list of operations; the compiler may fuse none of them.
__device__ float exp_fixed_device(float x) {
  using namespace exp_constants;
  constexpr float c0 = coefficients[0], c1 = coefficients[1], c2 = coefficients[2],
                  c3 = coefficients[3], c4 = coefficients[4], c5 = coefficients[5];
  if (x < exp_underflow) return 0.0f;
  if (x > exp_overflow) return std::numeric_limits<float>::infinity();
  if (x != x) return x;
  const float n = __fsub_rn(fmaf(x, log2_e, round_magic), round_magic);
  const float r = fmaf(n, minus_ln2_low, fmaf(n, minus_ln2_high, x));
  const float p = fmaf(fmaf(fmaf(fmaf(fmaf(c0, r, c1), r, c2), r, c3), r, c4), r, c5);
  const float y = __fadd_rn(fmaf(p, __fmul_rn(r, r), r), 1.0f);
  const float scale = __int_as_float((static_cast<int>(n) + 126) << 23);
  return __fmul_rn(__fmul_rn(y, scale), 2.0f);
}

// Order of choice as an unsigned number: greater is better, NaN as -infinity, -0 as 0. 0 is taken.
constexpr unsigned taken = 0;
__device__ unsigned rank_of(float value) {
  if (isnan(value)) value = minus_infinity;
  const unsigned bits = __float_as_uint(__fadd_rn(value, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Best {
  unsigned rank;
  int index;
};

__device__ Best best_of_lane(const unsigned* ranks, int count, int lane) {
  Best best = {taken, count};
  for (int i = lane; i < count; i += 32) {
    if (ranks[i] > best.rank) best = {ranks[i], i};
  }
  return best;
}

// Calls found(i, index) for the `wanted` best of ranks [count], best first; they become `taken`.
template <class Found>
__device__ void take_best(unsigned* ranks, int count, int wanted, int lane, const Found& found) {
  Best mine = best_of_lane(ranks, count, lane);
  for (int i = 0; i < wanted; ++i) {
    const unsigned rank = __reduce_max_sync(all_lanes, mine.rank);
    const auto index = static_cast<int>(__reduce_min_sync(
        all_lanes, static_cast<unsigned>(mine.rank == rank ? mine.index : count)));
    found(i, index);
    if (mine.index == index && index < count) {
      ranks[index] = taken;
      mine = best_of_lane(ranks, count, lane);
    }
  }
  __syncwarp();
}

__device__ void sigmoid_scores(const float* logits, int experts, int lane, float* scores) {
  for (int e = lane; e < experts; e += 32) {
    scores[e] = __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_fixed_device(__fsub_rn(0.0f, logits[e]))));
  }
  __syncwarp();
}

// Sums in the order of tree_sum16.
__device__ void softmax_scores(const float* logits, int experts, int lane, float* scores) {
  float largest = minus_infinity;
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, logits[e]);
  largest = warp_max(largest);
  for (int e = lane; e < experts; e += 32) {
    scores[e] = exp_fixed_device(__fsub_rn(logits[e], largest));
  }
  __syncwarp();
  float sum = 0;
  if (lane < 16) {
    for (int e = lane; e < experts; e += 16) sum = __fadd_rn(sum, scores[e]);
  }
  for (int distance = 8; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_down_sync(all_lanes, sum, distance));
  }
  sum = __shfl_sync(all_lanes, sum, 0);
  for (int e = lane; e < experts; e += 32) scores[e] = __fdiv_rn(scores[e], sum);
  __syncwarp();
}

// A group's best choice, or the sum of its best two.
__device__ float group_value(const float* choice, int size, bool two, int lane) {
  float first = minus_infinity;
  float second = minus_infinity;
  const auto meet = [&](float value) {
    second = fmaxf(second, fminf(first, value));
    first = fmaxf(first, value);
  };
  for (int i = lane; i < size; i += 32) meet(isnan(choice[i]) ? minus_infinity : choice[i]);
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other_first = __shfl_xor_sync(all_lanes, first, distance);
    const float other_second = __shfl_xor_sync(all_lanes, second, distance);
    meet(other_first);
    second = fmaxf(second, other_second);
  }
  return two ? __fadd_rn(first, second) : first;
}

// ranks: room for one a group.
__device__ void mask_groups(const RouteSpec& spec, float* choice, unsigned* ranks, int lane) {
  const int size = spec.experts / spec.groups;
  const bool two = spec.method == RouteMethod::noaux_tc && size > 1;
  for (int g = 0; g < spec.groups; ++g) {
    const float value = group_value(choice + g * size, size, two, lane);
    if (lane == 0) ranks[g] = rank_of(value);
  }
  __syncwarp();
  take_best(ranks, spec.groups, spec.groups_per_token, lane, [](int, int) {});
  for (int e = lane; e < spec.experts; e += 32) {
    if (ranks[e / size] != taken) choice[e] = spec.masked_choice;
  }
  __syncwarp();
}

// Lane i < experts_per_token has the i-th chosen expert: sorts and weighs them.
__device__ void store_row(const MoeRoute& call, const float* scores, int chosen, int lane) {
  const RouteSpec& spec = call.spec;
  const int count = spec.experts_per_token;
  int place = 0;
  for (int i = 0; i < count; ++i) place += __shfl_sync(all_lanes, chosen, i) < chosen ? 1 : 0;
  const float score = lane < count ? scores[chosen] : 0.0f;
  float sum = 0;
  for (int i = 0; i < count; ++i) {  // in ascending order of id
    const unsigned here = __ballot_sync(all_lanes, lane < count && place == i);
    sum = __fadd_rn(sum, __shfl_sync(all_lanes, score, __ffs(static_cast<int>(here)) - 1));
  }
  if (lane >= count) return;
  const float weight = spec.normalize ? __fdiv_rn(score, __fadd_rn(sum, 1e-20f)) : score;
  const std::int64_t at = std::int64_t{blockIdx.x} * count + place;
  call.ids[at] = chosen;
  call.weights[at] = __fmul_rn(weight, spec.scale);
}

__global__ void __launch_bounds__(32) route_kernel(MoeRoute call) {
  extern __shared__ float shared[];
  const RouteSpec& spec = call.spec;
  const int lane = static_cast<int>(threadIdx.x);
  if (call.positions != nullptr && call.positions[blockIdx.x] < 0) {
    if (lane >= spec.experts_per_token) return;
    const std::int64_t at = std::int64_t{blockIdx.x} * spec.experts_per_token + lane;
    call.ids[at] = -1;
    call.weights[at] = 0;
    return;
  }
  float* scores = shared;
  float* choice = shared + spec.experts;
  auto* ranks = reinterpret_cast<unsigned*>(choice + spec.experts);
  const float* logits = call.logits + std::int64_t{blockIdx.x} * spec.experts;
  if (spec.scoring == RouteScoring::sigmoid) {
    sigmoid_scores(logits, spec.experts, lane, scores);
  } else {
    softmax_scores(logits, spec.experts, lane, scores);
  }
  for (int e = lane; e < spec.experts; e += 32) {
    choice[e] = call.bias == nullptr ? scores[e] : __fadd_rn(scores[e], call.bias[e]);
  }
  __syncwarp();
  if (spec.method != RouteMethod::greedy && spec.groups_per_token < spec.groups) {
    mask_groups(spec, choice, ranks, lane);
  }
  for (int e = lane; e < spec.experts; e += 32) ranks[e] = rank_of(choice[e]);
  __syncwarp();
  int chosen = 0;
  take_best(ranks, spec.experts, spec.experts_per_token, lane, [&](int i, int index) {
    if (lane == i) chosen = index;
  });
  store_row(call, scores, chosen, lane);
}

}  // namespace

Status moe_route(const MoeRoute& call, Stream stream) {
  const RouteSpec& spec = call.spec;
  CHECK(spec.experts > 0 && spec.experts <= limits::experts && spec.groups > 0 &&
        spec.experts % spec.groups == 0);
  CHECK(spec.experts_per_token > 0 && spec.experts_per_token <= limits::experts_per_token &&
        spec.experts_per_token <= spec.experts);
  CHECK(call.rows >= 0 && call.rows <= limits::step_rows);
  if (call.rows == 0) return {};
  const std::size_t shared = 3 * sizeof(float) * static_cast<std::size_t>(spec.experts);
  route_kernel<<<static_cast<unsigned>(call.rows), 32, shared, stream>>>(call);
  return launched("moe_route");
}

}  // namespace copse::kernels::cuda
