// The library is column-major: y^T [n][m] = W^T' x^T, where row-major W [n][k] is its transposed
// [k][n] and x [m][k] is [k][m]. So its A is W (transposed), its B is x, its D is y.
#include "kernels/linear/library_gemm.h"

#include <cublasLt.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace copse::kernels::cuda {
namespace {

Status lt_status(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const ErrorCode code =
      status == CUBLAS_STATUS_NOT_SUPPORTED ? ErrorCode::unsupported : ErrorCode::io;
  return Error{code, "device", std::string(what) + ": " + cublasLtGetStatusString(status)};
}

cudaDataType_t data_type(GemmType type) {
  return type == GemmType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::int64_t element_bytes(GemmType type) {
  return type == GemmType::bf16 ? 2 : 4;
}

// The largest power of two up to 16 bytes that divides the distances between rows and products.
std::uint32_t alignment(GemmType type, std::int64_t stride, std::int64_t batch_stride) {
  std::uint32_t result = 16;
  for (const std::int64_t bytes :
       {stride * element_bytes(type), batch_stride * element_bytes(type)}) {
    while (bytes % result != 0) result /= 2;
  }
  return result;
}

class Layout {
 public:
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() {
    if (layout_ != nullptr) cublasLtMatrixLayoutDestroy(layout_);
  }

  // Column-major [rows][columns] in the library's words.
  Status set(GemmType type, int rows, int columns, std::int64_t stride, int batch,
             std::int64_t batch_stride) {
    COPSE_RETURN_IF_ERROR(lt_status(
        cublasLtMatrixLayoutCreate(&layout_, data_type(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), stride),
        "matrix layout"));
    if (batch == 1) return {};
    COPSE_RETURN_IF_ERROR(
        lt_status(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &batch, sizeof(batch)),
                  "matrix layout"));
    return lt_status(
        cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &batch_stride, sizeof(batch_stride)),
        "matrix layout");
  }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

}  // namespace

struct LibraryPlan::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  Layout weight;
  Layout x;
  Layout y;
  cublasLtMatmulAlgo_t algorithm;
  std::uint32_t x_alignment = 0;
  std::uint32_t w_alignment = 0;
  std::uint32_t y_alignment = 0;
};

namespace {

Status describe_operation(const GemmShape& shape, LibraryPlan::State& plan) {
  COPSE_RETURN_IF_ERROR(lt_status(
      cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  COPSE_RETURN_IF_ERROR(
      lt_status(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                               &transposed, sizeof(transposed)),
                "product"));
  COPSE_RETURN_IF_ERROR(plan.weight.set(shape.x_type, shape.inputs, shape.outputs, shape.w_stride,
                                        shape.batch, shape.w_batch_stride));
  COPSE_RETURN_IF_ERROR(plan.x.set(shape.x_type, shape.inputs, shape.rows, shape.x_stride,
                                   shape.batch, shape.x_batch_stride));
  return plan.y.set(shape.y_type, shape.outputs, shape.rows, shape.y_stride, shape.batch,
                    shape.y_batch_stride);
}

// Wishes about the algorithm: what alignment it may count on, how much workspace, and that split
// sums are added in float32.
class Preference {
 public:
  Preference() = default;
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() {
    if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
  }

  Status set(const LibraryPlan::State& plan, std::size_t workspace_bytes) {
    COPSE_RETURN_IF_ERROR(lt_status(cublasLtMatmulPreferenceCreate(&preference_), "preference"));
    const std::uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const auto put = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      return lt_status(
          cublasLtMatmulPreferenceSetAttribute(preference_, name, &value, sizeof(value)),
          "preference");
    };
    COPSE_RETURN_IF_ERROR(put(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    COPSE_RETURN_IF_ERROR(
        put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes}));
    COPSE_RETURN_IF_ERROR(put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan.w_alignment));
    COPSE_RETURN_IF_ERROR(put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan.x_alignment));
    COPSE_RETURN_IF_ERROR(put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan.y_alignment));
    return put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan.y_alignment);
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

Status choose(cublasLtHandle_t library, std::size_t workspace_bytes, LibraryPlan::State& plan) {
  Preference preference;
  COPSE_RETURN_IF_ERROR(preference.set(plan, workspace_bytes));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  COPSE_RETURN_IF_ERROR(
      lt_status(cublasLtMatmulAlgoGetHeuristic(library, plan.operation, plan.weight.get(),
                                               plan.x.get(), plan.y.get(), plan.y.get(),
                                               preference.get(), 1, &best, &found),
                "choosing a product"));
  if (found == 0) {
    return Error{ErrorCode::unsupported, "device", "the library has no product of this shape"};
  }
  plan.algorithm = best.algo;
  return {};
}

bool aligned(const void* address, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace

Result<Library> Library::create(void* workspace, std::size_t workspace_bytes) {
  Library library;
  COPSE_RETURN_IF_ERROR(lt_status(cublasLtCreate(&library.handle_), "starting cuBLASLt"));
  library.workspace_ = workspace;
  library.workspace_bytes_ = workspace_bytes;
  return library;
}

Library::Library(Library&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      workspace_(other.workspace_),
      workspace_bytes_(other.workspace_bytes_) {}

Library::~Library() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

LibraryPlan::LibraryPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
LibraryPlan::LibraryPlan(LibraryPlan&&) noexcept = default;
LibraryPlan::~LibraryPlan() = default;

Result<LibraryPlan> LibraryPlan::make(const Library& library, const GemmShape& shape) {
  auto plan = std::make_unique<State>();
  plan->x_alignment = alignment(shape.x_type, shape.x_stride, shape.x_batch_stride);
  plan->w_alignment = alignment(shape.x_type, shape.w_stride, shape.w_batch_stride);
  plan->y_alignment = alignment(shape.y_type, shape.y_stride, shape.y_batch_stride);
  COPSE_RETURN_IF_ERROR(describe_operation(shape, *plan));
  COPSE_RETURN_IF_ERROR(choose(library.handle(), library.workspace_bytes(), *plan));
  return LibraryPlan(std::move(plan));
}

Status LibraryPlan::launch(const Library& library, const GemmShape& shape, const void* x,
                           const void* weight, void* y, Stream stream) const {
  const State& plan = *state_;
  CHECK(aligned(x, plan.x_alignment) && aligned(weight, plan.w_alignment) &&
        aligned(y, plan.y_alignment));
  const float one = 1.0f;
  const float beta = shape.accumulate ? 1.0f : 0.0f;
  return lt_status(
      cublasLtMatmul(library.handle(), plan.operation, &one, weight, plan.weight.get(), x,
                     plan.x.get(), &beta, y, plan.y.get(), y, plan.y.get(), &plan.algorithm,
                     library.workspace(), library.workspace_bytes(), stream),
      "product");
}

}  // namespace copse::kernels::cuda
