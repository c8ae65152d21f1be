#include "model/cuda/cuda_experts.h"

#include <type_traits>
#include <utility>

namespace copse {
namespace {

using kernels::cuda::ExpertCodec;
using kernels::cuda::ExpertShape;

constexpr int kGate = 0;
constexpr int kUp = 1;
constexpr int kDown = 2;

template <class T>
ExpertCodec codec_of(const ModelConfig& config, const LinearSpec& spec, const LoadPlan* files) {
  if constexpr (std::is_same_v<T, float>) return ExpertCodec::f32;
  if (files == nullptr) {  // made up: what the config says
    switch (config.quantization.kind) {
      case Quantization::none:
        return ExpertCodec::bf16;
      case Quantization::fp8_block:
        return ExpertCodec::fp8_block;
      case Quantization::int4_group:
        return ExpertCodec::int4_group;
    }
  }
  switch (files->codec(spec)) {
    case Codec::fp8_block:
      return ExpertCodec::fp8_block;
    case Codec::int4_group:
      return files->bf16_scales(spec) ? ExpertCodec::int4_group : ExpertCodec::int4_group_f32;
    case Codec::bf16:
    case Codec::f32:
      break;
  }
  return ExpertCodec::bf16;
}

bool quantized(ExpertCodec codec) {
  return codec != ExpertCodec::bf16 && codec != ExpertCodec::f32;
}

}  // namespace

template <class T>
void CudaExperts<T>::place(const ModelConfig& config, const TargetShard& shard,
                           const std::vector<MlpSpecs>& specs, DeviceWeightPlan<T>& weights) {
  shape_.hidden = config.hidden;
  shape_.inner = shard.expert_inner.part.size();
  shape_.experts = shard.experts.part.size();
  shape_.first_expert = shard.experts.part.begin;
  shape_.codec = codec_of<T>(config, specs.front().gate, weights.files());
  experts_per_token_ = config.experts_per_token;
  const std::uint64_t seed =
      1 + static_cast<std::uint64_t>(std::hash<std::string>()(specs.front().gate.name));
  weights.block(specs.front().gate.name + " and all experts", shape_.layer_bytes(), packed_,
                [this, seed](std::byte* memory) {
                  return kernels::cuda::random_experts(shape_, seed, memory, nullptr);
                });
  if (weights.files() == nullptr) return;
  for (int e = 0; e < shape_.experts; ++e) {
    const MlpSpecs& from = specs[static_cast<std::size_t>(shape_.first_expert + e)];
    place_expert(from, shard.expert_inner.part, e, weights);
  }
}

template <class T>
void CudaExperts<T>::place_expert(const MlpSpecs& specs, Range inner, int expert,
                                  DeviceWeightPlan<T>& weights) {
  const Range hidden = {0, shape_.hidden};
  place_matrix(specs.gate, inner, hidden, kGate, expert, weights);
  place_matrix(specs.up, inner, hidden, kUp, expert, weights);
  place_matrix(specs.down, hidden, inner, kDown, expert, weights);
}

template <class T>
void CudaExperts<T>::place_matrix(const LinearSpec& spec, Range rows, Range columns, int which,
                                  int expert, DeviceWeightPlan<T>& weights) {
  if (!quantized(shape_.codec)) {
    weights.files()->matrix(
        spec, rows, columns, [this, which, expert, &weights](const HostMatrix& matrix) {
          const std::vector<T> values = converted<T>(matrix);
          const Status taken = take(which, expert, std::as_bytes(std::span(values)), {}, weights);
          if (!taken.ok()) weights.fail(taken.error());
        });
    return;
  }
  const Codec codec = weights.files()->codec(spec);
  const bool same =
      shape_.codec == ExpertCodec::fp8_block
          ? codec == Codec::fp8_block
          : codec == Codec::int4_group &&
                weights.files()->bf16_scales(spec) == (shape_.codec == ExpertCodec::int4_group);
  if (!same) {
    weights.fail({ErrorCode::unsupported, spec.name, "has another codec than its layer's experts"});
    return;
  }
  weights.files()->stored(spec, rows, columns,
                          [this, which, expert, &weights](const StoredSlice& slice) {
                            return take(which, expert, slice.values, slice.scales, weights);
                          });
}

// gate, up and down of an expert are read in this order; with the last it is packed.
template <class T>
Status CudaExperts<T>::take(int which, int expert, std::span<const std::byte> values,
                            std::span<const std::byte> scales, DeviceWeightPlan<T>& weights) {
  kernels::cuda::StoredMatrix* const matrices[] = {&reading_.gate, &reading_.up, &reading_.down};
  COPSE_TRY(matrices[which]->values, weights.stage(2 * which, values));
  if (!scales.empty()) {
    COPSE_TRY(matrices[which]->scales, weights.stage(2 * which + 1, scales));
  }
  if (which != kDown) return {};
  std::byte* const packed = packed_ + static_cast<std::size_t>(expert) * shape_.expert_bytes();
  // On the default stream, as the copies into the stages that follow.
  return kernels::cuda::pack_expert(shape_, reading_, packed, nullptr);
}

template <class T>
std::size_t CudaExperts<T>::workspace_bytes(const ModelConfig& config, const TargetShard& shard,
                                            int rows_max) {
  ExpertShape shape;
  shape.hidden = config.hidden;
  shape.inner = shard.expert_inner.part.size();
  shape.experts = shard.experts.part.size();
  return kernels::cuda::moe_experts_workspace_bytes(shape, rows_max, config.experts_per_token);
}

template <class T>
Status CudaExperts<T>::run(const T* x, int rows, const std::int32_t* ids,
                           const float* chosen_weights, float* y, std::byte* workspace,
                           std::size_t workspace_bytes, kernels::cuda::Stream stream) const {
  kernels::cuda::MoeExperts<T> call;
  call.x = x;
  call.ids = ids;
  call.weights = chosen_weights;
  call.rows = rows;
  call.experts_per_token = experts_per_token_;
  call.shape = shape_;
  call.packed = packed_;
  call.y = y;
  call.workspace = workspace;
  call.workspace_bytes = workspace_bytes;
  return kernels::cuda::moe_experts(call, stream);
}

template class CudaExperts<float>;
template class CudaExperts<Bf16>;

}  // namespace copse
