#include "model/weights/load_plan.h"

namespace copse {
namespace {

std::uint64_t packed_bytes(const StoredLinear& linear, Range rows, Range columns) {
  const int panels = (rows.size() + kernels::panel_outputs - 1) / kernels::panel_outputs;
  const std::uint64_t values = static_cast<std::uint64_t>(panels) * kernels::panel_outputs *
                               static_cast<std::uint64_t>(columns.size());
  return values * (linear.codec == Codec::bf16 ? 2 : 4);
}

}  // namespace

kernels::PackedWeight pack(const HostMatrix& matrix) {
  if (matrix.is_bf16()) {
    return kernels::pack_weight(matrix.bf16.data(), matrix.rows, matrix.columns, matrix.columns);
  }
  return kernels::pack_weight(matrix.f32.data(), matrix.rows, matrix.columns, matrix.columns);
}

void LoadPlan::add(PlannedSlice slice, std::function<Status()> load) {
  slices_.push_back(std::move(slice));
  loads_.push_back(std::move(load));
}

void LoadPlan::packed(const LinearSpec& spec, Range rows, Range columns,
                      kernels::PackedWeight& into) {
  matrix(spec, rows, columns, [&into](const HostMatrix& matrix) { into = pack(matrix); });
}

void LoadPlan::matrix(const LinearSpec& spec, Range rows, Range columns, Use use) {
  auto found = find_linear(*checkpoint_, spec, quantization_);
  if (!found.ok()) {
    if (!error_) error_ = found.error();
    return;
  }
  if (rows.size() == 0 || columns.size() == 0) return;  // more ranks than parts
  PlannedSlice slice = {spec.name,
                        found->codec,
                        spec.rows,
                        spec.columns,
                        rows,
                        columns,
                        slice_bytes(*found, rows, columns),
                        packed_bytes(*found, rows, columns)};
  add(std::move(slice),
      [linear = *std::move(found), rows, columns, use = std::move(use)]() -> Status {
        COPSE_TRY(HostMatrix values, read_slice(linear, rows, columns));
        use(std::move(values));
        return {};
      });
}

void LoadPlan::stored(const LinearSpec& spec, Range rows, Range columns, UseStored use) {
  auto found = find_linear(*checkpoint_, spec, quantization_);
  if (!found.ok()) {
    if (!error_) error_ = found.error();
    return;
  }
  if (rows.size() == 0 || columns.size() == 0) return;  // more ranks than parts
  const std::uint64_t bytes = slice_bytes(*found, rows, columns);
  PlannedSlice slice = {spec.name, found->codec, spec.rows, spec.columns,
                        rows,      columns,      bytes,     bytes};
  add(std::move(slice),
      [linear = *std::move(found), rows, columns, use = std::move(use)]() -> Status {
        COPSE_TRY(StoredSlice values, read_stored(linear, rows, columns));
        return use(std::move(values));
      });
}

Codec LoadPlan::codec(const LinearSpec& spec) const {
  const auto found = find_linear(*checkpoint_, spec, quantization_);
  return found.ok() ? found->codec : Codec::bf16;
}

bool LoadPlan::bf16_scales(const LinearSpec& spec) const {
  const auto found = find_linear(*checkpoint_, spec, quantization_);
  return found.ok() && found->scale != nullptr && found->scale->info->type == StoredType::bf16;
}

void LoadPlan::vector(const VectorSpec& spec, std::vector<float>& into) {
  const auto found = find_vector(*checkpoint_, spec);
  if (!found.ok()) {
    if (!error_) error_ = found.error();
    return;
  }
  const StoredTensor* tensor = *found;
  const Codec codec = tensor->info->type == StoredType::f32 ? Codec::f32 : Codec::bf16;
  PlannedSlice slice = {spec.name,
                        codec,
                        1,
                        spec.size,
                        {0, 1},
                        {0, spec.size},
                        tensor->info->bytes,
                        static_cast<std::uint64_t>(spec.size) * sizeof(float)};
  add(std::move(slice), [tensor, name = spec.name, &into]() -> Status {
    COPSE_TRY(into, read_vector(*tensor, name));
    return {};
  });
}

std::uint64_t LoadPlan::file_bytes() const {
  std::uint64_t total = 0;
  for (const PlannedSlice& slice : slices_) total += slice.file_bytes;
  return total;
}

std::uint64_t LoadPlan::sharded_bytes() const {
  std::uint64_t bytes = 0;
  for (const PlannedSlice& slice : slices_) {
    const bool whole =
        slice.row_range.size() == slice.rows && slice.column_range.size() == slice.columns;
    if (!whole) bytes += slice.memory_bytes;
  }
  return bytes;
}

std::uint64_t LoadPlan::memory_bytes() const {
  std::uint64_t total = 0;
  for (const PlannedSlice& slice : slices_) total += slice.memory_bytes;
  return total;
}

Status LoadPlan::run(const OnWeightsRead& progress) {
  COPSE_RETURN_IF_ERROR(status());
  const std::uint64_t total = file_bytes();
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    COPSE_RETURN_IF_ERROR(loads_[i]());
    done += slices_[i].file_bytes;
    if (progress) progress(done, total);
  }
  return {};
}

}  // namespace copse
