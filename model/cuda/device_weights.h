#pragma once
// One rank's weights in device memory, as a GPU's products take them: row-major [outputs][inputs].
// First every matrix reserves its place in the arena, which is then the printed plan; after
// arena.allocate() the load fills it. Without a checkpoint (--load-format dummy) it is filled with
// random values on the device, for measurements of shapes whose files are not at hand.
//
// T is float or Bf16. What the checkpoint quantizes is widened to T, but for routed experts.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/common/cuda/device_memory.h"
#include "model/weights/load_plan.h"

namespace copse {

template <class T>
struct DeviceMatrix {
  T* data = nullptr;
  int outputs = 0;
  int inputs = 0;
  T* row(int output) const { return data + static_cast<std::ptrdiff_t>(output) * inputs; }
};

struct DeviceVector {
  float* data = nullptr;
  int size = 0;
};

struct LinearSlice {
  const LinearSpec* spec = nullptr;
  Range rows;
  Range columns;
};

template <class T>
class DeviceWeightPlan {
 public:
  // plan null: dummy weights. Both must outlive this.
  DeviceWeightPlan(LoadPlan* plan, kernels::cuda::DeviceArena& arena)
      : plan_(plan), arena_(arena) {}

  // The rows of all slices, one below the other, as one matrix; their columns are equally many.
  // `into` gets its pointer in load() and must stay where it is.
  void stack(const std::string& name, std::initializer_list<LinearSlice> slices,
             DeviceMatrix<T>& into);
  void matrix(const LinearSpec& spec, Range rows, Range columns, DeviceMatrix<T>& into) {
    stack(spec.name, {{&spec, rows, columns}}, into);
  }
  // `values` [outputs][inputs] made on the host from a slice.
  using Reshape = std::function<void(const HostMatrix&, std::span<T> values)>;
  void reshaped(const std::string& name, const LinearSlice& slice, int outputs, int inputs,
                Reshape reshape, DeviceMatrix<T>& into);
  void vector(const VectorSpec& spec, DeviceVector& into);
  // As matrix(), made up with rows so large that they stand out of what layers add to them: tokens
  // then route apart from each other, as they do in trained models.
  void embedding(const LinearSpec& spec, Range rows, Range columns, DeviceMatrix<T>& into);

  // Own memory of the caller's kind, filled in load(): from slices, or at random.
  using Fill = std::function<Status(std::byte* memory)>;
  void block(const std::string& name, std::size_t bytes, std::byte*& into, Fill fill_random);
  void fail(const Error& error) {
    if (!error_) error_ = error;
  }
  LoadPlan* files() const { return plan_; }
  // Device memory for bytes on their way into a layout of their own; valid until the next call with
  // the same index (0 .. 5), which may be while the device still reads it: wait first.
  Result<std::byte*> stage(int index, std::span<const std::byte> bytes);

  std::uint64_t bytes() const { return bytes_; }  // of all that was placed

  // After arena.allocate(). Reads, or makes up, everything.
  Status load(const OnWeightsRead& progress);

 private:
  LoadPlan* plan_;
  kernels::cuda::DeviceArena& arena_;
  std::vector<std::function<Status(std::uint64_t seed)>> randoms_;
  std::deque<std::vector<float>> host_vectors_;
  std::vector<std::function<Status()>> uploads_;
  std::uint64_t bytes_ = 0;
  std::array<kernels::cuda::DeviceMemory, 6> stages_;
  std::optional<Error> error_;
};

// Values as T on the host: rounded, widened, or as they are.
template <class T>
std::vector<T> converted(const HostMatrix& matrix);

}  // namespace copse
