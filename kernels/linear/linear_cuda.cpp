// Chooses who computes a shape, and keeps the choice.
#include "kernels/linear/linear_cuda.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "kernels/linear/library_gemm.h"
#include "kernels/linear/stream_gemm.h"
#include "kernels/swiglu/swiglu_cuda.h"

namespace copse::kernels::cuda {
namespace {

std::int64_t element_bytes(GemmType type) {
  return type == GemmType::bf16 ? 2 : 4;
}

void check_shape(const GemmShape& s) {
  CHECK(s.rows > 0 && s.outputs > 0 && s.inputs > 0 && s.batch > 0);
  CHECK(s.x_stride >= s.inputs && s.w_stride >= s.inputs && s.y_stride >= s.outputs);
  CHECK(s.y_type == GemmType::float32 || (s.y_type == s.x_type && !s.accumulate));
  CHECK(!s.swiglu || (s.y_type == s.x_type && !s.accumulate && s.batch == 1));
}

// Gate and up side by side, in the workspace, where the library computes them.
GemmShape both_halves(const GemmShape& shape) {
  GemmShape both = shape;
  both.swiglu = false;
  both.outputs = 2 * shape.outputs;
  both.y_stride = both.outputs;
  return both;
}

template <class T>
Status activate(const GemmShape& shape, const void* both, void* y, Stream stream) {
  const auto* gate = static_cast<const T*>(both);
  return swiglu(Swiglu<T>{.gate = gate,
                          .up = gate + shape.outputs,
                          .in_stride = std::int64_t{2} * shape.outputs,
                          .out = static_cast<T*>(y),
                          .out_stride = shape.y_stride,
                          .rows = shape.rows,
                          .columns = shape.outputs},
                stream);
}

bool aligned(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

struct Hash {
  std::size_t operator()(const GemmShape& s) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    const auto mix = [&](auto value) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    };
    for (const int value : {s.rows, s.outputs, s.inputs, s.batch}) mix(value);
    for (const std::int64_t value : {s.x_stride, s.w_stride, s.y_stride}) mix(value);
    for (const std::int64_t value : {s.x_batch_stride, s.w_batch_stride, s.y_batch_stride}) {
      mix(value);
    }
    mix(s.x_type);
    mix(s.y_type);
    mix(s.accumulate);
    mix(s.swiglu);
    return hash;
  }
};

struct Choice {
  bool streamed = false;
  std::optional<LibraryPlan> library;
};

}  // namespace

struct DenseGemm::State {
  Library library;
  std::byte* halves = nullptr;  // of a SwiGLU by the library
  std::size_t halves_bytes = 0;
  std::unordered_map<GemmShape, Choice, Hash> choices;
};

DenseGemm::DenseGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
DenseGemm::DenseGemm(DenseGemm&&) noexcept = default;
DenseGemm& DenseGemm::operator=(DenseGemm&&) noexcept = default;
DenseGemm::~DenseGemm() = default;

Result<DenseGemm> DenseGemm::create(void* workspace, std::size_t workspace_bytes) {
  CHECK(aligned(workspace, 256));
  const std::size_t of_library = workspace_bytes / 2 / 256 * 256;
  COPSE_TRY(Library library, Library::create(workspace, of_library));
  auto* halves = static_cast<std::byte*>(workspace) + of_library;
  return DenseGemm(std::unique_ptr<State>(
      new State{std::move(library), halves, workspace_bytes - of_library, {}}));
}

Status DenseGemm::prepare(const GemmShape& shape) {
  check_shape(shape);
  if (state_->choices.contains(shape)) return {};
  Choice choice;
  if (stream_gemm::serves(shape)) {
    COPSE_RETURN_IF_ERROR(stream_gemm::prepare(shape));
    choice.streamed = true;
  } else {
    const GemmShape computed = shape.swiglu ? both_halves(shape) : shape;
    const std::int64_t bytes =
        std::int64_t{computed.rows} * computed.outputs * element_bytes(computed.y_type);
    if (shape.swiglu && static_cast<std::size_t>(bytes) > state_->halves_bytes) {
      return Error{ErrorCode::resource_exhausted, "device", "the workspace of products is small"};
    }
    COPSE_TRY(LibraryPlan plan, LibraryPlan::make(state_->library, computed));
    choice.library.emplace(std::move(plan));
  }
  state_->choices.emplace(shape, std::move(choice));
  return {};
}

Status DenseGemm::launch(const GemmShape& shape, const void* x, const void* weight, void* y,
                         Stream stream) {
  const auto found = state_->choices.find(shape);
  CHECK(found != state_->choices.end());
  const Choice& choice = found->second;
  if (choice.streamed) {
    CHECK(aligned(x, 16) && aligned(weight, 16));
    const stream_gemm::Part part[] = {{&shape, weight, y}};
    return stream_gemm::launch(part, stream_gemm::cluster_of(part), x, stream);
  }
  if (!shape.swiglu) {
    return choice.library->launch(state_->library, shape, x, weight, y, stream);
  }
  COPSE_RETURN_IF_ERROR(choice.library->launch(state_->library, both_halves(shape), x, weight,
                                               state_->halves, stream));
  return shape.x_type == GemmType::bf16 ? activate<Bf16>(shape, state_->halves, y, stream)
                                        : activate<float>(shape, state_->halves, y, stream);
}

Status DenseGemm::launch_pair(const GemmCall& first, const GemmCall& second, const void* x,
                              Stream stream) {
  const auto streamed = [&](const GemmCall& call) {
    const auto found = state_->choices.find(call.shape);
    CHECK(found != state_->choices.end());
    return found->second.streamed && call.shape.batch == 1 && aligned(call.weight, 16);
  };
  CHECK(first.shape.rows == second.shape.rows && first.shape.inputs == second.shape.inputs &&
        first.shape.x_stride == second.shape.x_stride && first.shape.x_type == second.shape.x_type);
  if (streamed(first) && streamed(second)) {
    CHECK(aligned(x, 16));
    const stream_gemm::Part parts[] = {{&first.shape, first.weight, first.y},
                                       {&second.shape, second.weight, second.y}};
    return stream_gemm::launch(parts, stream_gemm::cluster_of(parts), x, stream);
  }
  COPSE_RETURN_IF_ERROR(launch(first.shape, x, first.weight, first.y, stream));
  return launch(second.shape, x, second.weight, second.y, stream);
}

std::size_t DenseGemm::plans() const {
  return state_->choices.size();
}

std::uint64_t gemm_bytes_moved(const GemmShape& shape) {
  const auto product = [](std::int64_t a, std::int64_t b, std::int64_t bytes) {
    return static_cast<std::uint64_t>(a * b * bytes);
  };
  const std::int64_t in = element_bytes(shape.x_type);
  const std::int64_t out = element_bytes(shape.y_type) * (shape.accumulate ? 2 : 1);
  return static_cast<std::uint64_t>(shape.batch) *
         (product(shape.rows, shape.inputs, in) +
          product(shape.outputs, shape.inputs, shape.swiglu ? 2 * in : in) +
          product(shape.rows, shape.outputs, out));
}

}  // namespace copse::kernels::cuda
