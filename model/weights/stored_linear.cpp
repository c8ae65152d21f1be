#include "model/weights/stored_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/weights/codecs.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}
int blocks(int count, int block) {
  return (count + block - 1) / block;
}

Result<const StoredTensor*> find_shaped(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<std::int64_t>& shape,
                                        std::initializer_list<StoredType> types) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) return Error{ErrorCode::not_found, name, "is missing"};
  if (tensor->info->shape != shape) {
    return Error{ErrorCode::malformed, name, "has another shape than the config says"};
  }
  if (std::find(types.begin(), types.end(), tensor->info->type) == types.end()) {
    return Error{ErrorCode::unsupported, name, "has a dtype that does not fit here"};
  }
  return tensor;
}

Result<StoredLinear> find_int4(const Checkpoint& checkpoint, StoredLinear linear) {
  const auto& [name, rows, columns, quantizable] = linear.spec;
  linear.codec = Codec::int4_group;
  if (columns % 8 != 0) {
    return Error{ErrorCode::unsupported, name + ".weight_packed", "packs no whole words"};
  }
  COPSE_TRY(linear.weight, find_shaped(checkpoint, name + ".weight_packed", {rows, columns / 8},
                                       {StoredType::i32}));
  COPSE_TRY(linear.scale,
            find_shaped(checkpoint, name + ".weight_scale", {rows, blocks(columns, linear.block)},
                        {StoredType::bf16, StoredType::f32}));
  COPSE_TRY(linear.packed_shape, find_shaped(checkpoint, name + ".weight_shape", {2},
                                             {StoredType::i32, StoredType::i64}));
  return linear;
}

Result<StoredLinear> find_fp8(const Checkpoint& checkpoint, StoredLinear linear) {
  const auto& [name, rows, columns, quantizable] = linear.spec;
  linear.codec = Codec::fp8_block;
  COPSE_TRY(linear.weight,
            find_shaped(checkpoint, name + ".weight", {rows, columns}, {StoredType::f8_e4m3}));
  COPSE_TRY(linear.scale, find_shaped(checkpoint, name + ".weight_scale_inv",
                                      {blocks(rows, linear.block), blocks(columns, linear.block)},
                                      {StoredType::f32, StoredType::bf16}));
  return linear;
}

// Rows whose wanted part is shorter than a page cost as much as whole rows: those are read in
// blocks and cut. Longer parts are read one by one.
Status read_rows(const StoredTensor& tensor, std::uint64_t row_bytes, Range rows,
                 std::uint64_t begin, std::span<std::byte> out) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kBlock = 1u << 20;
  const auto first = static_cast<std::uint64_t>(rows.begin);
  if (rows.size() == 0) return {};
  const std::uint64_t part = out.size() / size(rows.size());
  if (part == row_bytes) return tensor.read(first * row_bytes, out);
  const std::uint64_t step = part >= kPage ? 1 : std::max<std::uint64_t>(1, kBlock / row_bytes);
  std::vector<std::byte> whole(step > 1 ? step * row_bytes : 0);
  for (std::uint64_t r = 0; r < size(rows.size()); r += step) {
    if (step == 1) {
      COPSE_RETURN_IF_ERROR(
          tensor.read((first + r) * row_bytes + begin, out.subspan(r * part, part)));
      continue;
    }
    const std::uint64_t count = std::min<std::uint64_t>(step, size(rows.size()) - r);
    COPSE_RETURN_IF_ERROR(
        tensor.read((first + r) * row_bytes, std::span(whole).first(count * row_bytes)));
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(out.data() + (r + i) * part, whole.data() + i * row_bytes + begin, part);
    }
  }
  return {};
}

template <class T>
Result<std::vector<T>> read_part(const StoredTensor& tensor, int columns_total, Range rows,
                                 Range columns) {
  std::vector<T> values(size(rows.size()) * size(columns.size()));
  COPSE_RETURN_IF_ERROR(read_rows(tensor, size(columns_total) * sizeof(T), rows,
                                  size(columns.begin) * sizeof(T),
                                  std::as_writable_bytes(std::span(values))));
  return values;
}

std::vector<float> widen(const std::vector<Bf16>& values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](Bf16 v) { return to_float(v); });
  return result;
}

// Largest magnitudes of stored values: e4m3's, and those of four-bit integers.
constexpr float kLargestFp8 = 448.0f;
constexpr float kLargestInt4 = 8.0f;

// Finite, and so is everything that they scale: `largest` is the largest stored value.
Result<std::vector<float>> read_scales(const StoredTensor& tensor, const std::string& name,
                                       int columns_total, Range rows, Range columns,
                                       float largest) {
  std::vector<float> scales;
  if (tensor.info->type == StoredType::f32) {
    COPSE_TRY(scales, read_part<float>(tensor, columns_total, rows, columns));
  } else {
    COPSE_TRY(const std::vector<Bf16> raw, read_part<Bf16>(tensor, columns_total, rows, columns));
    scales = widen(raw);
  }
  const bool fine = std::all_of(scales.begin(), scales.end(),
                                [&](float scale) { return std::isfinite(scale * largest); });
  if (!fine)
    return Error{ErrorCode::malformed, name, "has a scale that is not finite or too large"};
  return scales;
}

Result<std::vector<float>> read_fp8(const StoredLinear& linear, Range rows, Range columns) {
  const LinearSpec& spec = linear.spec;
  const int scale_rows = blocks(spec.rows, linear.block);
  const int scale_columns = blocks(spec.columns, linear.block);
  COPSE_TRY(const std::vector<float> scales,
            read_scales(*linear.scale, spec.name + ".weight_scale_inv", scale_columns,
                        {0, scale_rows}, {0, scale_columns}, kLargestFp8));
  COPSE_TRY(const std::vector<std::byte> values,
            read_part<std::byte>(*linear.weight, spec.columns, rows, columns));
  std::vector<float> decoded =
      decode_fp8_block(values, rows, columns, scales, scale_columns, linear.block);
  if (!all_finite(decoded)) {
    return Error{ErrorCode::malformed, spec.name + ".weight", "has a value that is not finite"};
  }
  return decoded;
}

// e4m3 has no infinities, and two NaNs: all bits but the sign. Without a branch: there are
// billions.
bool has_fp8_nan(std::span<const std::byte> values) {
  unsigned found = 0;
  for (const std::byte value : values) {
    found |= static_cast<unsigned>((std::to_integer<unsigned>(value) & 0x7Fu) == 0x7Fu);
  }
  return found != 0;
}

// The file says its unpacked shape a second time.
Status check_packed_shape(const StoredLinear& linear) {
  std::int64_t values[2] = {};
  if (linear.packed_shape->info->type == StoredType::i32) {
    std::int32_t narrow[2] = {};
    COPSE_RETURN_IF_ERROR(linear.packed_shape->read(0, std::as_writable_bytes(std::span(narrow))));
    std::copy(narrow, narrow + 2, values);
  } else {
    COPSE_RETURN_IF_ERROR(linear.packed_shape->read(0, std::as_writable_bytes(std::span(values))));
  }
  if (values[0] != linear.spec.rows || values[1] != linear.spec.columns) {
    return Error{ErrorCode::malformed, linear.spec.name + ".weight_shape",
                 "is another shape than the config says"};
  }
  return {};
}

Result<std::vector<float>> read_int4(const StoredLinear& linear, Range rows, Range columns) {
  const LinearSpec& spec = linear.spec;
  COPSE_RETURN_IF_ERROR(check_packed_shape(linear));
  if (columns.begin % 8 != 0 || columns.size() % 8 != 0) {
    return Error{ErrorCode::unsupported, spec.name + ".weight_packed",
                 "cannot be split inside a packed word"};
  }
  const Range groups = {columns.begin / linear.block, blocks(columns.end, linear.block)};
  COPSE_TRY(const std::vector<float> scales,
            read_scales(*linear.scale, spec.name + ".weight_scale",
                        blocks(spec.columns, linear.block), rows, groups, kLargestInt4));
  COPSE_TRY(const std::vector<std::uint32_t> packed,
            read_part<std::uint32_t>(*linear.weight, spec.columns / 8, rows,
                                     {columns.begin / 8, columns.end / 8}));
  return decode_int4_group(packed, rows, columns, scales, linear.block);
}

}  // namespace

std::string_view to_string(Codec codec) {
  switch (codec) {
    case Codec::bf16:
      return "bf16";
    case Codec::f32:
      return "f32";
    case Codec::fp8_block:
      return "fp8";
    case Codec::int4_group:
      return "int4";
  }
  return "unknown";
}

Result<StoredLinear> find_linear(const Checkpoint& checkpoint, const LinearSpec& spec,
                                 const QuantizationConfig& quantization) {
  StoredLinear linear;
  linear.spec = spec;
  const StoredTensor* plain = checkpoint.find(spec.name + ".weight");
  if (spec.quantizable && quantization.kind == Quantization::int4_group && plain == nullptr) {
    linear.block = quantization.group;
    return find_int4(checkpoint, std::move(linear));
  }
  if (spec.quantizable && quantization.kind == Quantization::fp8_block && plain != nullptr &&
      plain->info->type == StoredType::f8_e4m3) {
    linear.block = quantization.block;
    return find_fp8(checkpoint, std::move(linear));
  }
  COPSE_TRY(linear.weight, find_shaped(checkpoint, spec.name + ".weight", {spec.rows, spec.columns},
                                       {StoredType::bf16, StoredType::f32}));
  linear.codec = linear.weight->info->type == StoredType::bf16 ? Codec::bf16 : Codec::f32;
  return linear;
}

Result<const StoredTensor*> find_vector(const Checkpoint& checkpoint, const VectorSpec& spec) {
  return find_shaped(checkpoint, spec.name, {spec.size}, {StoredType::bf16, StoredType::f32});
}

float HostMatrix::at(int row, int column) const {
  const std::size_t index = size(row) * size(columns) + size(column);
  return is_bf16() ? to_float(bf16[index]) : f32[index];
}

std::uint64_t slice_bytes(const StoredLinear& linear, Range rows, Range columns) {
  const std::uint64_t values = size(rows.size()) * size(columns.size());
  switch (linear.codec) {
    case Codec::bf16:
      return 2 * values;
    case Codec::f32:
      return 4 * values;
    case Codec::fp8_block:
      return values;
    case Codec::int4_group:
      return values / 2;
  }
  return 0;
}

Result<HostMatrix> read_slice(const StoredLinear& linear, Range rows, Range columns) {
  CHECK(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= linear.spec.rows);
  CHECK(columns.begin >= 0 && columns.begin <= columns.end && columns.end <= linear.spec.columns);
  HostMatrix matrix{rows.size(), columns.size(), {}, {}};
  const int total = linear.spec.columns;
  switch (linear.codec) {
    case Codec::bf16: {
      COPSE_TRY(matrix.bf16, read_part<Bf16>(*linear.weight, total, rows, columns));
      break;
    }
    case Codec::f32: {
      COPSE_TRY(matrix.f32, read_part<float>(*linear.weight, total, rows, columns));
      break;
    }
    case Codec::fp8_block: {
      COPSE_TRY(matrix.f32, read_fp8(linear, rows, columns));
      break;
    }
    case Codec::int4_group: {
      COPSE_TRY(matrix.f32, read_int4(linear, rows, columns));
      break;
    }
  }
  return matrix;
}

Result<StoredSlice> read_stored(const StoredLinear& linear, Range rows, Range columns) {
  const bool fp8 = linear.codec == Codec::fp8_block;
  CHECK(fp8 || linear.codec == Codec::int4_group);
  CHECK(columns.begin % linear.block == 0 && (!fp8 || rows.begin % linear.block == 0));
  const LinearSpec& spec = linear.spec;
  const Range groups = {columns.begin / linear.block, blocks(columns.end, linear.block)};
  const int all_groups = blocks(spec.columns, linear.block);
  const std::string scale_name = spec.name + (fp8 ? ".weight_scale_inv" : ".weight_scale");
  const Range scale_rows =
      fp8 ? Range{rows.begin / linear.block, blocks(rows.end, linear.block)} : rows;
  StoredSlice slice;
  COPSE_TRY(const std::vector<float> scales,
            read_scales(*linear.scale, scale_name, all_groups, scale_rows, groups,
                        fp8 ? kLargestFp8 : kLargestInt4));
  slice.bf16_scales = !fp8 && linear.scale->info->type == StoredType::bf16;
  if (slice.bf16_scales) {
    slice.scales.resize(scales.size() * sizeof(Bf16));
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const Bf16 scale = to_bf16(scales[i]);  // exact: it was one
      std::memcpy(slice.scales.data() + i * sizeof(scale), &scale, sizeof(scale));
    }
  } else {
    slice.scales.resize(scales.size() * sizeof(float));
    std::memcpy(slice.scales.data(), scales.data(), slice.scales.size());
  }
  if (fp8) {
    COPSE_TRY(slice.values, read_part<std::byte>(*linear.weight, spec.columns, rows, columns));
    if (has_fp8_nan(slice.values)) {
      return Error{ErrorCode::malformed, spec.name + ".weight", "has a value that is not finite"};
    }
    return slice;
  }
  COPSE_RETURN_IF_ERROR(check_packed_shape(linear));
  COPSE_TRY(const std::vector<std::uint32_t> words,
            read_part<std::uint32_t>(*linear.weight, spec.columns / 8, rows,
                                     {columns.begin / 8, blocks(columns.end, 8)}));
  const auto bytes = std::as_bytes(std::span(words));
  slice.values.assign(bytes.begin(), bytes.end());
  return slice;
}

Result<std::vector<float>> read_vector(const StoredTensor& tensor, const std::string& name) {
  const int count = static_cast<int>(tensor.info->shape.at(0));
  std::vector<float> values;
  if (tensor.info->type == StoredType::f32) {
    COPSE_TRY(values, read_part<float>(tensor, count, {0, 1}, {0, count}));
  } else {
    COPSE_TRY(const std::vector<Bf16> raw, read_part<Bf16>(tensor, count, {0, 1}, {0, count}));
    values = widen(raw);
  }
  if (!all_finite(values))
    return Error{ErrorCode::malformed, name, "has a value that is not finite"};
  return values;
}

}  // namespace copse
