#pragma once
// A matrix or vector of a checkpoint, found by name, checked against the shape that the config
// implies, and read as a slice: only the rows and columns this rank needs.
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/result.h"
#include "model/config/model_config.h"
#include "model/shard.h"
#include "model/weights/checkpoint.h"

namespace copse {

// y = W x with W [rows][columns]. `name` is the tensor's without ".weight".
struct LinearSpec {
  std::string name;
  int rows = 0;
  int columns = 0;
  bool quantizable = false;  // the checkpoint may store it in the config's codec
};
struct VectorSpec {
  std::string name;  // whole tensor name
  int size = 0;
};

enum class Codec : std::uint8_t { bf16, f32, fp8_block, int4_group };
std::string_view to_string(Codec codec);

struct StoredLinear {
  LinearSpec spec;
  Codec codec = Codec::bf16;
  int block = 0;  // fp8_block: of rows and columns; int4_group: of columns
  const StoredTensor* weight = nullptr;
  const StoredTensor* scale = nullptr;         // quantized codecs
  const StoredTensor* packed_shape = nullptr;  // int4_group
};

// Errors name the tensor: not_found, malformed (shape), unsupported (type).
Result<StoredLinear> find_linear(const Checkpoint& checkpoint, const LinearSpec& spec,
                                 const QuantizationConfig& quantization);
Result<const StoredTensor*> find_vector(const Checkpoint& checkpoint, const VectorSpec& spec);

// Decoded slice, row-major: bf16 where the checkpoint has bf16, else float32.
struct HostMatrix {
  int rows = 0;
  int columns = 0;
  std::vector<Bf16> bf16;
  std::vector<float> f32;
  bool is_bf16() const { return f32.empty(); }
  float at(int row, int column) const;
};

// Bytes of the file that a slice needs (of its values; scales come on top and are few).
std::uint64_t slice_bytes(const StoredLinear& linear, Range rows, Range columns);
Result<HostMatrix> read_slice(const StoredLinear& linear, Range rows, Range columns);
// The same slice of a quantized matrix as it is stored, for devices that widen it in registers.
// Row-major without gaps, scales as those of the slice's blocks: fp8_block bytes, and float32
// scales [row blocks][column blocks]; int4_group words of 8 nibbles, and scales [rows][groups] in
// bf16 or float32. The slice begins at whole blocks.
struct StoredSlice {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  bool bf16_scales = false;
};
Result<StoredSlice> read_stored(const StoredLinear& linear, Range rows, Range columns);
Result<std::vector<float>> read_vector(const StoredTensor& tensor, const std::string& name);

}  // namespace copse
