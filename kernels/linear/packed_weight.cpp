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

template <class T>
void fill(T* panels, const T* source, int outputs, int inputs, std::ptrdiff_t stride) {
  for (int o = 0; o < outputs; ++o) {
    const T* row = source + o * stride;
    T* column = panels +
                static_cast<std::size_t>(o / panel_outputs) * panel_outputs *
                    static_cast<std::size_t>(inputs) +
                o % panel_outputs;
    for (int k = 0; k < inputs; ++k)
      column[static_cast<std::ptrdiff_t>(k) * panel_outputs] = row[k];
  }
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

std::size_t PackedWeight::bytes() const {
  return static_cast<std::size_t>(panels()) * panel_outputs * static_cast<std::size_t>(inputs_) *
         element_bytes(type_);
}

const Bf16* PackedWeight::bf16_panel(int panel) const {
  CHECK(type_ == WeightType::bf16 && panel >= 0 && panel < panels());
  return static_cast<const Bf16*>(data_.get()) +
         static_cast<std::size_t>(panel) * panel_outputs * static_cast<std::size_t>(inputs_);
}

const float* PackedWeight::float_panel(int panel) const {
  CHECK(type_ == WeightType::float32 && panel >= 0 && panel < panels());
  return static_cast<const float*>(data_.get()) +
         static_cast<std::size_t>(panel) * panel_outputs * static_cast<std::size_t>(inputs_);
}

float PackedWeight::at(int output, int input) const {
  CHECK(output >= 0 && output < outputs_ && input >= 0 && input < inputs_);
  const int offset = input * panel_outputs + output % panel_outputs;
  if (type_ == WeightType::bf16) return to_float(bf16_panel(output / panel_outputs)[offset]);
  return float_panel(output / panel_outputs)[offset];
}

PackedWeight pack_weight(const Bf16* source, int outputs, int inputs, std::ptrdiff_t stride) {
  PackedWeight weight(WeightType::bf16, outputs, inputs);
  fill(static_cast<Bf16*>(weight.data_.get()), source, outputs, inputs, stride);
  return weight;
}

PackedWeight pack_weight(const float* source, int outputs, int inputs, std::ptrdiff_t stride) {
  PackedWeight weight(WeightType::float32, outputs, inputs);
  fill(static_cast<float*>(weight.data_.get()), source, outputs, inputs, stride);
  return weight;
}

}  // namespace copse::kernels
