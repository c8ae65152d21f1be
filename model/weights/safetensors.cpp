#include "model/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "base/limits.h"

namespace copse {
namespace {

struct TypeName {
  std::string_view name;
  StoredType type;
  int bytes;
};
// Types that copse does not compute with keep their size, so that files with such extras load.
constexpr std::array<TypeName, 15> kTypes = {{{"F32", StoredType::f32, 4},
                                              {"BF16", StoredType::bf16, 2},
                                              {"F16", StoredType::f16, 2},
                                              {"F8_E4M3", StoredType::f8_e4m3, 1},
                                              {"I64", StoredType::i64, 8},
                                              {"I32", StoredType::i32, 4},
                                              {"F64", StoredType::other, 8},
                                              {"U64", StoredType::other, 8},
                                              {"U32", StoredType::other, 4},
                                              {"I16", StoredType::other, 2},
                                              {"U16", StoredType::other, 2},
                                              {"F8_E5M2", StoredType::other, 1},
                                              {"I8", StoredType::other, 1},
                                              {"U8", StoredType::other, 1},
                                              {"BOOL", StoredType::other, 1}}};

Error fault(SafetensorsFault kind, std::string_view field) {
  return {ErrorCode::malformed, std::string(field), std::string(sentence(kind))};
}

bool is_unsigned(const Json& value) {
  return value.is_number_unsigned();
}

Result<TensorInfo> parse_entry(const Json& entry, const std::string& name) {
  using F = SafetensorsFault;
  const auto wrong = [&](F kind) { return fault(kind, name); };
  if (!entry.is_object() || entry.size() != 3) return wrong(F::tensor_entry);
  const auto type = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (type == entry.end() || shape == entry.end() || offsets == entry.end() || !type->is_string() ||
      !shape->is_array() || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(shape->begin(), shape->end(), is_unsigned) ||
      !std::all_of(offsets->begin(), offsets->end(), is_unsigned)) {
    return wrong(F::tensor_entry);
  }
  const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& candidate) {
    return candidate.name == type->get_ref<const std::string&>();
  });
  if (known == kTypes.end()) return wrong(F::unknown_type);
  if (shape->size() > limits::safetensors_rank) return wrong(F::rank_too_large);

  TensorInfo info;
  info.type = known->type;
  std::uint64_t bytes = static_cast<std::uint64_t>(known->bytes);
  for (const Json& dimension : *shape) {
    const auto count = dimension.get<std::uint64_t>();
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (count > kMax || __builtin_mul_overflow(bytes, count, &bytes)) {
      return wrong(F::shape_overflow);
    }
    info.shape.push_back(static_cast<std::int64_t>(count));
  }
  info.begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (end < info.begin) return wrong(F::end_before_begin);
  if (end - info.begin != bytes) return wrong(F::size_mismatch);
  info.bytes = bytes;
  return info;
}

bool metadata_ok(const Json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
}

// Tensors in the order of their data must tile it without holes or overlaps.
Status check_tiling(const std::map<std::string, TensorInfo>& tensors, std::uint64_t data_bytes,
                    std::string_view file) {
  std::vector<const std::pair<const std::string, TensorInfo>*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.bytes) <
           std::pair(b->second.begin, b->second.bytes);
  });
  std::uint64_t at = 0;
  for (const auto* item : order) {
    if (item->second.begin != at) return fault(SafetensorsFault::not_contiguous, item->first);
    at += item->second.bytes;  // cannot overflow: begin + bytes was an end in the header
  }
  if (at != data_bytes) return fault(SafetensorsFault::data_size, file);
  return {};
}

}  // namespace

int bytes_of(StoredType type) {
  for (const TypeName& known : kTypes) {
    if (known.type == type && type != StoredType::other) return known.bytes;
  }
  return 0;
}

std::string_view to_string(StoredType type) {
  for (const TypeName& known : kTypes) {
    if (known.type == type && type != StoredType::other) return known.name;
  }
  return "other";
}

std::string_view sentence(SafetensorsFault fault) {
  switch (fault) {
    case SafetensorsFault::too_short:
      return "the file is too short for a header";
    case SafetensorsFault::header_too_large:
      return "the header is larger than allowed";
    case SafetensorsFault::header_past_end:
      return "the header is longer than the file";
    case SafetensorsFault::header_start:
      return "the header does not start with {";
    case SafetensorsFault::too_many_tensors:
      return "the file has too many tensors";
    case SafetensorsFault::tensor_entry:
      return "not exactly dtype, shape and data_offsets";
    case SafetensorsFault::unknown_type:
      return "the dtype is unknown";
    case SafetensorsFault::rank_too_large:
      return "the shape has too many dimensions";
    case SafetensorsFault::shape_overflow:
      return "the shape's product is too large";
    case SafetensorsFault::end_before_begin:
      return "data_offsets end before they begin";
    case SafetensorsFault::not_contiguous:
      return "data_offsets leave a hole or overlap";
    case SafetensorsFault::size_mismatch:
      return "data_offsets are not the shape's size";
    case SafetensorsFault::data_size:
      return "the data does not end where the file ends";
    case SafetensorsFault::metadata:
      return "__metadata__ is not an object of strings";
  }
  return "unknown";
}

Result<std::map<std::string, TensorInfo>> parse_safetensors_header(std::string_view header,
                                                                   std::uint64_t data_bytes,
                                                                   std::string_view file) {
  using F = SafetensorsFault;
  if (header.empty() || header.front() != '{') return fault(F::header_start, file);
  JsonBounds bounds;
  bounds.bytes = limits::safetensors_header_bytes;
  bounds.depth = 4;
  bounds.nodes = 16 * static_cast<std::size_t>(limits::safetensors_tensors);
  COPSE_TRY(const Json json, parse_json(header, file, bounds));
  if (json.size() > static_cast<std::size_t>(limits::safetensors_tensors) + 1) {
    return fault(F::too_many_tensors, file);
  }
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (!metadata_ok(entry)) return fault(F::metadata, file);
      continue;
    }
    COPSE_TRY(TensorInfo info, parse_entry(entry, name));
    tensors.emplace(name, std::move(info));
  }
  COPSE_RETURN_IF_ERROR(check_tiling(tensors, data_bytes, file));
  return tensors;
}

struct SafetensorsFile::Descriptor {
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

namespace {

Status read_at(int fd, std::uint64_t offset, std::span<std::byte> out, const std::string& name) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{ErrorCode::io, name, got == 0 ? "ended early" : "cannot be read"};
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  using F = SafetensorsFault;
  SafetensorsFile file;
  file.name_ = path.substr(path.rfind('/') + 1);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{ErrorCode::not_found, file.name_, "cannot be opened"};
  file.file_ = std::make_shared<const Descriptor>(fd);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{ErrorCode::io, file.name_, "is not a regular file"};
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < 8) return fault(F::too_short, file.name_);
  std::array<unsigned char, 8> length = {};
  COPSE_RETURN_IF_ERROR(read_at(fd, 0, std::as_writable_bytes(std::span(length)), file.name_));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 8; i-- > 0;) header_bytes = header_bytes << 8 | length[i];
  if (header_bytes > limits::safetensors_header_bytes)
    return fault(F::header_too_large, file.name_);
  if (header_bytes > size - 8) return fault(F::header_past_end, file.name_);
  std::string header(header_bytes, '\0');
  COPSE_RETURN_IF_ERROR(read_at(fd, 8, std::as_writable_bytes(std::span(header)), file.name_));
  file.data_begin_ = 8 + header_bytes;
  COPSE_TRY(file.tensors_, parse_safetensors_header(header, size - file.data_begin_, file.name_));
  return file;
}

Status SafetensorsFile::read(const TensorInfo& tensor, std::uint64_t offset,
                             std::span<std::byte> out) const {
  CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  return read_at(file_->fd, data_begin_ + tensor.begin + offset, out, name_);
}

}  // namespace copse
