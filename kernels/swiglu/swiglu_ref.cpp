#include "base/check.h"
#include "kernels/common/exp.h"
#include "kernels/swiglu/swiglu.h"

namespace copse::kernels::ref {

void swiglu(ConstMatrix gate, ConstMatrix up, Matrix out) {
  CHECK(gate.rows == up.rows && gate.rows == out.rows);
  CHECK(gate.columns == up.columns && gate.columns == out.columns);
  for (int r = 0; r < gate.rows; ++r) {
    for (int i = 0; i < gate.columns; ++i) {
      const float a = gate.row(r)[i];
      out.row(r)[i] = a / (1.0f + exp_fixed(0.0f - a)) * up.row(r)[i];
    }
  }
}

}  // namespace copse::kernels::ref
