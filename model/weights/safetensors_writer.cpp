#include "model/weights/safetensors_writer.h"

#include <fstream>

#include "base/json.h"

namespace copse {

Status write_safetensors(const std::string& path, std::span<const FloatTensor> tensors) {
  Json header = Json::object();
  std::uint64_t at = 0;
  for (const FloatTensor& tensor : tensors) {
    const std::uint64_t end = at + tensor.values.size_bytes();
    header[tensor.name] =
        Json{{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // readers like aligned data
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (std::size_t i = 0; i < 8; ++i) file.put(static_cast<char>(text.size() >> (8 * i) & 0xff));
  file << text;
  for (const FloatTensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.values.data()),
               static_cast<std::streamsize>(tensor.values.size_bytes()));
  }
  file.close();
  if (!file) return Error{ErrorCode::io, path.substr(path.rfind('/') + 1), "cannot be written"};
  return {};
}

}  // namespace copse
