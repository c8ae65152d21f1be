#pragma once
// Views of row-major float32 matrices. They own nothing; a GPU version takes the same views of
// device memory. Rows are `stride` floats apart, so a view can be a slice of columns or one head.
#include <cstddef>

namespace copse::kernels {

struct ConstMatrix {
  const float* data = nullptr;
  int rows = 0;
  int columns = 0;
  std::ptrdiff_t stride = 0;  // floats from one row to the next, >= columns

  const float* row(int r) const { return data + r * stride; }
};

struct Matrix {
  float* data = nullptr;
  int rows = 0;
  int columns = 0;
  std::ptrdiff_t stride = 0;

  float* row(int r) const { return data + r * stride; }
  operator ConstMatrix() const {
    return {data, rows, columns, stride};
  }  // NOLINT: a view of a view
};

// A contiguous matrix.
inline Matrix matrix(float* data, int rows, int columns) {
  return {data, rows, columns, columns};
}
inline ConstMatrix matrix(const float* data, int rows, int columns) {
  return {data, rows, columns, columns};
}

}  // namespace copse::kernels
