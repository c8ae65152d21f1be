#pragma once
// For tests: writes safetensors files, good ones and broken ones, into a folder of their own.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/json.h"

namespace copse::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "copse-test-XXXXXX").string();
    CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Tensors one after the other, contiguous.
class CheckpointWriter {
 public:
  template <class T>
  CheckpointWriter& add(const std::string& name, const std::string& dtype,
                        std::vector<std::int64_t> shape, const std::vector<T>& values) {
    const std::size_t begin = data_.size();
    data_ += bytes_of_values(values);
    header_[name] =
        Json{{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  std::string bytes() const { return safetensors_bytes(header_.dump(), data_); }

 private:
  Json header_ = Json::object();
  std::string data_;
};

}  // namespace copse::testing
