#pragma once
// One safetensors file: 8 bytes of little-endian header length n, n bytes of JSON, then the data.
// The file is not trusted: every rule below is checked at open, before a byte of data is read, and
// nothing is mapped (a file truncated while mapped would be a signal, a short pread is an error).
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace copse {

enum class StoredType : std::uint8_t { f32, bf16, f16, f8_e4m3, i64, i32, other };
int bytes_of(StoredType type);  // 0 for other
std::string_view to_string(StoredType type);

struct TensorInfo {
  StoredType type = StoredType::other;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t bytes = 0;
};

// One name per way in which a header can be wrong. JSON's own faults (not JSON, invalid UTF-8,
// nested too deeply, a name given twice) are those of parse_json.
enum class SafetensorsFault : std::uint8_t {
  too_short,         // no room for the length
  header_too_large,  // n > limits::safetensors_header_bytes
  header_past_end,   // n + 8 > file size
  header_start,      // does not start with {
  too_many_tensors,  // more than limits::safetensors_tensors
  tensor_entry,      // not exactly dtype, shape and data_offsets of their types
  unknown_type,      // a dtype nobody defined
  rank_too_large,    // more than limits::safetensors_rank dimensions
  shape_overflow,    // the product of shape and item size does not fit 64 bits
  end_before_begin,
  not_contiguous,  // begin is not the previous tensor's end: a hole or an overlap
  size_mismatch,   // end - begin is not the product of shape and item size
  data_size,       // the last end is not the end of the file
  metadata,        // __metadata__ is not an object of strings
};
// The fixed sentence of a fault: Error::message of the Error{malformed} that open returns.
std::string_view sentence(SafetensorsFault fault);

class SafetensorsFile {
 public:
  // Errors: malformed with the file's name and the fault's sentence; not_found, io.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& name() const { return name_; }  // without its folder
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }

  // Fills `out` from `offset` bytes into the tensor; the range lies inside it (CHECKed). A file
  // that shrank meanwhile is an io error.
  Status read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  struct Descriptor;
  SafetensorsFile() = default;

  std::string name_;
  std::shared_ptr<const Descriptor> file_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
};

// The header alone, for tests and fuzzing: `data_bytes` follow it in the file.
Result<std::map<std::string, TensorInfo>> parse_safetensors_header(std::string_view header,
                                                                   std::uint64_t data_bytes,
                                                                   std::string_view file);

}  // namespace copse
