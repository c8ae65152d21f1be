#pragma once
// y[m][n] = sum over k of x[m][k] * W[n][k], the weights as a checkpoint stores them: [out][in].
//
// Weights are repacked once at load into panels of 16 outputs, zero padded: float32 as
// [ceil(n / 16)][k][16] (FP8 and INT4 are dequantized to it at load); bf16, which is expanded
// exactly when read, as [ceil(n / 16)][ceil(k / 2)][16][2], so that one 32-bit word has an output's
// weights of two k and expands with a shift and a mask. A column of 16 outputs is one or two
// vectors, so lanes run over outputs and each output is one chain of fused multiply-adds in the
// order of k: the same bits for every number of rows, vector width and thread count. Activations
// are float32.
//
// Split sums (docs/decisions/0002): `leaves` says how many equal leaves of k this rank holds. Each
// is summed in order from zero, then they are added as a binary tree ((0+1)+(2+3))+....
//
// Alignment: panels 64 bytes; x and y any. Workspace: none. GPU: same shapes with W row-major in
// bf16, FP8 or INT4, library products, no promise about bits.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bf16.h"
#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels {

enum class WeightType : std::uint8_t { bf16, float32 };

inline constexpr int panel_outputs = 16;

class PackedWeight {
 public:
  PackedWeight() = default;
  PackedWeight(WeightType type, int outputs, int inputs);  // all zero

  WeightType type() const { return type_; }
  int outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  int panels() const { return (outputs_ + panel_outputs - 1) / panel_outputs; }
  std::size_t panel_elements() const;
  std::size_t bytes() const;  // held in memory, padding included

  // One panel, panel_elements() elements; only the one of type() may be called.
  const Bf16* bf16_panel(int panel) const;
  const float* float_panel(int panel) const;
  float at(int output, int input) const;

 private:
  std::size_t offset(int output, int input) const;

  friend PackedWeight pack_weight(const Bf16*, int, int, std::ptrdiff_t);
  friend PackedWeight pack_weight(const float*, int, int, std::ptrdiff_t);
  struct Free {
    void operator()(void* memory) const;
  };

  WeightType type_ = WeightType::float32;
  int outputs_ = 0;
  int inputs_ = 0;
  std::unique_ptr<void, Free> data_;
};

// From [outputs][inputs], rows `stride` elements apart (a slice of columns is a larger stride).
PackedWeight pack_weight(const Bf16* source, int outputs, int inputs, std::ptrdiff_t stride);
PackedWeight pack_weight(const float* source, int outputs, int inputs, std::ptrdiff_t stride);

// x [m][weight.inputs()], y [m][weight.outputs()], not overlapping. leaves: 1, 2, 4 or 8, dividing
// weight.inputs(); 1 where the sum is not split over ranks.
void linear(ConstMatrix x, const PackedWeight& weight, Matrix y, ThreadPool& pool, int leaves = 1);

// Only the outputs of panels [first, last), which become columns 0, 1, ... of y; y.columns is their
// number. The same bits as the whole: ranks can share out the panels of a weight that each has.
void linear_panels(ConstMatrix x, const PackedWeight& weight, int first, int last, Matrix y,
                   ThreadPool& pool);

// Weights once, x and y once.
std::uint64_t linear_bytes_moved(int rows, const PackedWeight& weight);

namespace ref {
void linear(ConstMatrix x, const PackedWeight& weight, Matrix y, int leaves = 1);
}

}  // namespace copse::kernels
