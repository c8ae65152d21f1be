#pragma once
// y[m][n] (+)= sum over k of x[m][k] * W[n][k] on the GPU. The weights stand as a checkpoint stores
// them, [out][in] row-major; x, W are both float or both Bf16; y is float, or the type of x. Sums
// are float32: bf16 products on tensor cores, float32 without TF32. Few rows of bf16 on a Hopper
// GPU are computed by stream_gemm.h, made for reading weights; all else by cuBLASLt.
//
// A batch of `batch` equal products is strided: product h reads x + h * x_batch_stride and
// W + h * w_batch_stride and writes y + h * y_batch_stride, so that the heads of a row can stand
// beside each other (absorbed projections: W [heads][out][in], y row stride heads * out).
//
// A plan is chosen once per shape by prepare(): the same library, GPU and shape give the same plan,
// so ranks choose alike and repeated calls give the same bits. No promise about bits across shapes.
// A SwiGLU can be part of the product: y = silu(gate) * up, without a launch of its own.
// launch() allocates nothing and does not synchronise. A plan's first launch loads its kernel: run
// it once before capturing it into a graph. Weights may be read before the kernel in front has
// ended: it must not be the one that writes them.
//
// Alignment: fastest where addresses and strides are multiples of 16 bytes; prepare() takes what
// the strides allow, and launch() checks the addresses against it.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

enum class GemmType : std::uint8_t { float32, bf16 };

template <class T>
constexpr GemmType gemm_type();
template <>
constexpr GemmType gemm_type<float>() {
  return GemmType::float32;
}
template <>
constexpr GemmType gemm_type<Bf16>() {
  return GemmType::bf16;
}

// Strides in elements.
struct GemmShape {
  GemmType x_type = GemmType::bf16;  // of x and W
  GemmType y_type = GemmType::bf16;  // float32, or that of x
  int rows = 0;                      // m
  int outputs = 0;                   // n
  int inputs = 0;                    // k
  std::int64_t x_stride = 0;         // from one row to the next, >= inputs
  std::int64_t w_stride = 0;         // >= inputs
  std::int64_t y_stride = 0;         // >= outputs
  int batch = 1;
  std::int64_t x_batch_stride = 0;
  std::int64_t w_batch_stride = 0;
  std::int64_t y_batch_stride = 0;
  bool accumulate = false;  // y += instead of y =; y is float32
  // W is [2 * outputs][inputs], all gates and then all ups, and y = silu(gate) * up is of x's type.
  // Silu sees the float32 sums.
  bool swiglu = false;

  bool operator==(const GemmShape&) const = default;
};

// x [rows][inputs], W [outputs][inputs], y [rows][outputs], all contiguous.
template <class X, class Y>
GemmShape dense_shape(int rows, int outputs, int inputs) {
  return {.x_type = gemm_type<X>(),
          .y_type = gemm_type<Y>(),
          .rows = rows,
          .outputs = outputs,
          .inputs = inputs,
          .x_stride = inputs,
          .w_stride = inputs,
          .y_stride = outputs};
}

struct GemmCall {
  GemmShape shape;
  const void* weight = nullptr;
  void* y = nullptr;
};

class DenseGemm {
 public:
  // Half is for cuBLASLt's split sums, half for gate and up of a SwiGLU that it computes: 1024 rows
  // of 8192 in float32 fit.
  static constexpr std::size_t workspace_bytes_default = std::size_t{64} << 20;

  // The device is open. workspace: device memory, aligned to 256 bytes, used by one launch at a
  // time: all launches go to one stream, or to streams that wait for one another. It outlives this
  // object. Errors: io where the library does not start.
  static Result<DenseGemm> create(void* workspace, std::size_t workspace_bytes);
  DenseGemm(DenseGemm&&) noexcept;
  DenseGemm& operator=(DenseGemm&&) noexcept;
  ~DenseGemm();

  // Chooses how to compute this shape; nothing where it was chosen before. Errors: unsupported,
  // resource_exhausted (a small workspace).
  Status prepare(const GemmShape& shape);
  // The shape was prepared.
  Status launch(const GemmShape& shape, const void* x, const void* weight, void* y, Stream stream);
  // Two products of the same x (equal rows, inputs and x_stride, batch 1), both prepared. Few rows
  // are one launch, which fills the GPU better than two small ones.
  Status launch_pair(const GemmCall& first, const GemmCall& second, const void* x, Stream stream);
  std::size_t plans() const;

 private:
  struct State;
  explicit DenseGemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// x, W and y once; y twice when accumulating.
std::uint64_t gemm_bytes_moved(const GemmShape& shape);

}  // namespace copse::kernels::cuda
