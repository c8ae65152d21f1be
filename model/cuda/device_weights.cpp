#include "model/cuda/device_weights.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "model/cuda/random_fill.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

template <class T>
std::size_t elements(const DeviceMatrix<T>& matrix) {
  return size(matrix.outputs) * size(matrix.inputs);
}

}  // namespace

template <class T>
std::vector<T> converted(const HostMatrix& matrix) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (matrix.is_bf16()) return matrix.bf16;
    std::vector<T> values(matrix.f32.size());
    std::ranges::transform(matrix.f32, values.begin(), [](float v) { return to_bf16(v); });
    return values;
  } else {
    if (!matrix.is_bf16()) return matrix.f32;
    std::vector<T> values(matrix.bf16.size());
    std::ranges::transform(matrix.bf16, values.begin(), [](Bf16 v) { return to_float(v); });
    return values;
  }
}

template <class T>
void DeviceWeightPlan<T>::stack(const std::string& name, std::initializer_list<LinearSlice> slices,
                                DeviceMatrix<T>& into) {
  into.inputs = slices.begin()->columns.size();
  into.outputs = 0;
  for (const LinearSlice& slice : slices) {
    CHECK(slice.columns.size() == into.inputs);
    const int first = into.outputs;
    into.outputs += slice.rows.size();
    if (plan_ == nullptr) continue;
    plan_->matrix(*slice.spec, slice.rows, slice.columns,
                  [this, &into, first](const HostMatrix& matrix) {
                    const std::vector<T> values = converted<T>(matrix);
                    const Status copied = kernels::cuda::copy_to_device(
                        into.row(first), values.data(), values.size() * sizeof(T));
                    if (!copied.ok()) fail(copied.error());
                  });
  }
  arena_.place(name, elements(into), into.data);
  bytes_ += elements(into) * sizeof(T);
  randoms_.push_back([&into](std::uint64_t seed) {
    const float spread = std::sqrt(3.0f / static_cast<float>(std::max(into.inputs, 1)));
    return random_fill<T>(into.data, elements(into), 0.0f, spread, seed);
  });
}

template <class T>
void DeviceWeightPlan<T>::embedding(const LinearSpec& spec, Range rows, Range columns,
                                    DeviceMatrix<T>& into) {
  matrix(spec, rows, columns, into);
  randoms_.back() = [&into](std::uint64_t seed) {
    constexpr float kSpread = 16.0f;
    return random_fill<T>(into.data, elements(into), 0.0f, kSpread, seed);
  };
}

template <class T>
void DeviceWeightPlan<T>::reshaped(const std::string& name, const LinearSlice& slice, int outputs,
                                   int inputs, Reshape reshape, DeviceMatrix<T>& into) {
  into.outputs = outputs;
  into.inputs = inputs;
  if (plan_ != nullptr) {
    plan_->matrix(*slice.spec, slice.rows, slice.columns,
                  [this, &into, reshape = std::move(reshape)](const HostMatrix& matrix) {
                    std::vector<T> values(elements(into));
                    reshape(matrix, values);
                    const Status copied = kernels::cuda::copy_to_device(into.data, values.data(),
                                                                        values.size() * sizeof(T));
                    if (!copied.ok()) fail(copied.error());
                  });
  }
  arena_.place(name, elements(into), into.data);
  bytes_ += elements(into) * sizeof(T);
  randoms_.push_back([&into](std::uint64_t seed) {
    const float spread = std::sqrt(3.0f / static_cast<float>(std::max(into.inputs, 1)));
    return random_fill<T>(into.data, elements(into), 0.0f, spread, seed);
  });
}

template <class T>
void DeviceWeightPlan<T>::vector(const VectorSpec& spec, DeviceVector& into) {
  into.size = spec.size;
  arena_.place(spec.name, size(spec.size), into.data);
  bytes_ += size(spec.size) * sizeof(float);
  if (plan_ == nullptr) {
    // Norms of one; a router's bias of one for all changes no choice.
    randoms_.push_back([&into](std::uint64_t seed) {
      return random_fill<float>(into.data, size(into.size), 1.0f, 0.0f, seed);
    });
    return;
  }
  std::vector<float>& values = host_vectors_.emplace_back();
  plan_->vector(spec, values);
  uploads_.push_back([&values, &into] {
    return kernels::cuda::copy_to_device(into.data, values.data(), values.size() * sizeof(float));
  });
}

template <class T>
void DeviceWeightPlan<T>::block(const std::string& name, std::size_t bytes, std::byte*& into,
                                Fill fill_random) {
  arena_.place(name, bytes, into);
  bytes_ += bytes;
  randoms_.push_back([&into, fill = std::move(fill_random)](std::uint64_t) { return fill(into); });
}

template <class T>
Result<std::byte*> DeviceWeightPlan<T>::stage(int index, std::span<const std::byte> bytes) {
  kernels::cuda::DeviceMemory& memory = stages_[size(index)];
  if (memory.bytes() < bytes.size()) {
    COPSE_TRY(memory, kernels::cuda::DeviceMemory::allocate(bytes.size()));
  }
  COPSE_RETURN_IF_ERROR(kernels::cuda::copy_to_device(memory.data(), bytes.data(), bytes.size()));
  return memory.data();
}

template <class T>
Status DeviceWeightPlan<T>::load(const OnWeightsRead& progress) {
  CHECK(arena_.allocated());
  if (plan_ == nullptr) {
    std::uint64_t seed = 1;
    for (const auto& random : randoms_) {
      COPSE_RETURN_IF_ERROR(random(seed++));
      if (progress) progress(seed - 1, randoms_.size());
    }
    return {};
  }
  COPSE_RETURN_IF_ERROR(plan_->run(progress));
  if (error_) return *error_;
  for (const auto& upload : uploads_) COPSE_RETURN_IF_ERROR(upload());
  return {};
}

template std::vector<float> converted(const HostMatrix&);
template std::vector<Bf16> converted(const HostMatrix&);
template class DeviceWeightPlan<float>;
template class DeviceWeightPlan<Bf16>;

}  // namespace copse
