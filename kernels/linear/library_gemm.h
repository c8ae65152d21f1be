#pragma once
// Products of any shape and type by cuBLASLt: what linear_cuda.cpp takes where stream_gemm does not
// serve. A plan is the library's own first choice for the shape, made once.
#include <cstddef>
#include <memory>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/linear/linear_cuda.h"

struct cublasLtContext;

namespace copse::kernels::cuda {

class Library {
 public:
  // Errors: io.
  static Result<Library> create(void* workspace, std::size_t workspace_bytes);
  Library(Library&& other) noexcept;
  Library& operator=(Library&&) = delete;
  ~Library();

  cublasLtContext* handle() const { return handle_; }
  void* workspace() const { return workspace_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  Library() = default;
  cublasLtContext* handle_ = nullptr;
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
};

// Not for shape.swiglu.
class LibraryPlan {
 public:
  // Errors: unsupported, io.
  static Result<LibraryPlan> make(const Library& library, const GemmShape& shape);
  LibraryPlan(LibraryPlan&&) noexcept;
  LibraryPlan& operator=(LibraryPlan&&) = delete;
  ~LibraryPlan();

  Status launch(const Library& library, const GemmShape& shape, const void* x, const void* weight,
                void* y, Stream stream) const;

  struct State;

 private:
  explicit LibraryPlan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace copse::kernels::cuda
