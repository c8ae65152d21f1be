#pragma once
// What a rank reads from a checkpoint: built by naming each slice and where it goes, then run once.
// The plan knows its bytes before anything is read: for progress, and for `copse inspect`, which
// builds plans and never runs them.
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/linear/linear.h"
#include "model/shard.h"
#include "model/weights/load_progress.h"
#include "model/weights/stored_linear.h"

namespace copse {

struct PlannedSlice {
  std::string tensor;  // without ".weight" for matrices
  Codec codec = Codec::bf16;
  int rows = 0;  // of the whole matrix; a vector is one row
  int columns = 0;
  Range row_range;  // of this rank
  Range column_range;
  std::uint64_t file_bytes = 0;
  std::uint64_t memory_bytes = 0;  // once packed
};

class LoadPlan {
 public:
  using Use = std::function<void(HostMatrix)>;

  // `checkpoint` must outlive the plan.
  LoadPlan(const Checkpoint& checkpoint, const QuantizationConfig& quantization)
      : checkpoint_(&checkpoint), quantization_(quantization) {}

  // The targets must stay where they are until run() returns. A tensor that is missing or of
  // another shape is kept as the plan's error.
  void packed(const LinearSpec& spec, Range rows, Range columns, kernels::PackedWeight& into);
  void matrix(const LinearSpec& spec, Range rows, Range columns, Use use);
  // A quantized matrix in its codec, which the plan's checkpoint has for it: ask codec() first.
  using UseStored = std::function<Status(StoredSlice)>;
  void stored(const LinearSpec& spec, Range rows, Range columns, UseStored use);
  Codec codec(const LinearSpec& spec) const;  // bf16 where it is missing: status() says so then
  bool bf16_scales(const LinearSpec& spec) const;
  void vector(const VectorSpec& spec, std::vector<float>& into);

  Status status() const { return error_ ? Status(*error_) : Status(); }
  const std::vector<PlannedSlice>& slices() const { return slices_; }
  std::uint64_t file_bytes() const;
  std::uint64_t memory_bytes() const;
  std::uint64_t sharded_bytes() const;  // of those, what this rank holds a part of

  // Reads everything, in the order of the calls above.
  Status run(const OnWeightsRead& progress);

 private:
  void add(PlannedSlice slice, std::function<Status()> load);

  const Checkpoint* checkpoint_;
  QuantizationConfig quantization_;
  std::vector<PlannedSlice> slices_;
  std::vector<std::function<Status()>> loads_;
  std::optional<Error> error_;
};

// Packs a decoded matrix in the type it has.
kernels::PackedWeight pack(const HostMatrix& matrix);

}  // namespace copse
