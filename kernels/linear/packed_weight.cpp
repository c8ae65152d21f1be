#include <cstring>
#include <new>

#include "base/check.h"
#include "kernels/linear/linear.h"

namespace copse::kernels {
namespace {

constexpr std::size_t alignment = 64;

std::size_t element_bytes(WeightType type) {
  return type == WeightType::bf16 ? 2 : 4;
}

}  // namespace

void PackedWeight::Free::operator()(void* memory) const {
  ::operator delete(memory, std::align_val_t(alignment));
}

PackedWeight::PackedWeight(WeightType type, int outputs, int inputs)
    : type_(type), outputs_(outputs), inputs_(inputs) {
  CHECK(outputs >= 0 && inputs >= 0);
  if (bytes() == 0) return;
  data_.reset(::operator new(bytes(), std::align_val_t(alignment)));
  std::memset(data_.get(), 0, bytes());
}

std::size_t PackedWeight::panel_elements() const {
  const int padding = type_ == WeightType::bf16 ? inputs_ % 2 : 0;
  return static_cast<std::size_t>(inputs_ + padding) * panel_outputs;
}

std::size_t PackedWeight::bytes() const {
  return static_cast<std::size_t>(panels()) * panel_elements() * element_bytes(type_);
}

std::size_t PackedWeight::offset(int output, int input) const {
  const auto k = static_cast<std::size_t>(input);
  const auto lane = static_cast<std::size_t>(output % panel_outputs);
  const std::size_t in_panel = type_ == WeightType::bf16
                                   ? (k / 2 * panel_outputs + lane) * 2 + k % 2
                                   : k * panel_outputs + lane;
  return static_cast<std::size_t>(output / panel_outputs) * panel_elements() + in_panel;
}

const Bf16* PackedWeight::bf16_panel(int panel) const {
  CHECK(type_ == WeightType::bf16 && panel >= 0 && panel < panels());
  return static_cast<const Bf16*>(data_.get()) + static_cast<std::size_t>(panel) * panel_elements();
}

const float* PackedWeight::float_panel(int panel) const {
  CHECK(type_ == WeightType::float32 && panel >= 0 && panel < panels());
  return static_cast<const float*>(data_.get()) +
         static_cast<std::size_t>(panel) * panel_elements();
}

float PackedWeight::at(int output, int input) const {
  CHECK(output >= 0 && output < outputs_ && input >= 0 && input < inputs_);
  const std::size_t at = offset(output, input);
  return type_ == WeightType::bf16 ? to_float(static_cast<const Bf16*>(data_.get())[at])
                                   : static_cast<const float*>(data_.get())[at];
}

PackedWeight pack_weight(const Bf16* source, int outputs, int inputs, std::ptrdiff_t stride) {
  PackedWeight weight(WeightType::bf16, outputs, inputs);
  auto* panels = static_cast<Bf16*>(weight.data_.get());
  for (int o = 0; o < outputs; ++o) {
    for (int k = 0; k < inputs; ++k) panels[weight.offset(o, k)] = source[o * stride + k];
  }
  return weight;
}

PackedWeight pack_weight(const float* source, int outputs, int inputs, std::ptrdiff_t stride) {
  PackedWeight weight(WeightType::float32, outputs, inputs);
  auto* panels = static_cast<float*>(weight.data_.get());
  for (int o = 0; o < outputs; ++o) {
    for (int k = 0; k < inputs; ++k) panels[weight.offset(o, k)] = source[o * stride + k];
  }
  return weight;
}

}  // namespace copse::kernels
