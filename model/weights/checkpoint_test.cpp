#include "model/weights/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/weights/codecs.h"
#include "model/weights/stored_linear.h"
#include "model/weights/test_checkpoint.h"

namespace copse {
namespace {

using testing::CheckpointWriter;
using testing::TemporaryFolder;

std::string one_tensor(const std::string& name) {
  return CheckpointWriter().add<float>(name, "F32", {2}, {1, 2}).bytes();
}

Error open_error(const TemporaryFolder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_FALSE(checkpoint.ok());
  return checkpoint.ok() ? Error{} : checkpoint.error();
}

TEST(Checkpoint, ShardsByIndex) {
  TemporaryFolder folder;
  folder.write("1.safetensors", one_tensor("a"));
  folder.write("2.safetensors", one_tensor("b"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << describe(checkpoint.error());
  EXPECT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, ShardNamesStayInTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/x", "a/b", "..", "", "a\\u0000b"}) {
    TemporaryFolder folder;
    folder.write("model.safetensors.index.json",
                 std::string(R"({"weight_map":{"a":")") + name + "\"}}");
    EXPECT_EQ(open_error(folder).message, "a shard's name leaves the folder") << name;
  }
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  TemporaryFolder folder;
  folder.write("1.safetensors", one_tensor("a"));
  const auto index = [&](const char* text) { folder.write("model.safetensors.index.json", text); };
  index(R"({"weight_map":{"b":"1.safetensors"}})");
  EXPECT_EQ(open_error(folder).field, "a");
  index(R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})");
  EXPECT_EQ(open_error(folder).field, "b");
  index(R"({"weight_map":{"a":"none.safetensors"}})");
  EXPECT_EQ(open_error(folder).code, ErrorCode::not_found);
  index(R"({"weight_map":["a"]})");
  EXPECT_EQ(open_error(folder).code, ErrorCode::malformed);
  index(R"([])");
  EXPECT_EQ(open_error(folder).code, ErrorCode::malformed);
  index(R"({"weight_map":{"a":1}})");
  EXPECT_EQ(open_error(folder).code, ErrorCode::malformed);
}

TEST(Codecs, E4m3HasItsPublishedValues) {
  EXPECT_EQ(e4m3_to_float(0x00), 0.0f);
  EXPECT_EQ(e4m3_to_float(0x01), std::ldexp(1.0f, -9));  // smallest subnormal
  EXPECT_EQ(e4m3_to_float(0x08), std::ldexp(1.0f, -6));  // smallest normal
  EXPECT_EQ(e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);  // largest
  EXPECT_EQ(e4m3_to_float(0xc0), -2.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xff)));
}

TEST(Codecs, Int4IsLowNibbleFirstAndOffsetByEight) {
  const std::vector<std::uint32_t> packed = {0x76543210u, 0xfedcba98u};
  const std::vector<float> scales = {2.0f, 0.5f};
  const auto values = decode_int4_group(packed, {0, 1}, {0, 16}, scales, 8);
  EXPECT_EQ(values[0], -16.0f);
  EXPECT_EQ(values[7], -2.0f);
  EXPECT_EQ(values[8], 0.0f);
  EXPECT_EQ(values[15], 3.5f);
}

// Values by absolute row and column, so that a slice shows where it was cut.
struct Fp8Fixture {
  static constexpr int kRows = 5, kColumns = 6, kBlock = 4;
  TemporaryFolder folder;
  std::vector<std::uint8_t> values;
  std::vector<float> scales = {1, 10, 100, 1000};
  Fp8Fixture() {
    for (int i = 0; i < kRows * kColumns; ++i)
      values.push_back(static_cast<std::uint8_t>(0x30 + i));
    folder.write("model.safetensors", CheckpointWriter()
                                          .add("w.weight", "F8_E4M3", {kRows, kColumns}, values)
                                          .add("w.weight_scale_inv", "F32", {2, 2}, scales)
                                          .bytes());
  }
};

TEST(StoredLinear, Fp8SlicesUseScalesOfAbsoluteBlocks) {
  const Fp8Fixture fixture;
  const auto checkpoint = Checkpoint::open(fixture.folder.path());
  const auto linear = find_linear(*checkpoint, {"w", 5, 6, true}, {Quantization::fp8_block, 4, 32});
  ASSERT_TRUE(linear.ok()) << describe(linear.error());
  const auto slice = read_slice(*linear, {2, 5}, {3, 6});
  ASSERT_TRUE(slice.ok());
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 3; ++c) {
      const int row = r + 2, column = c + 3;
      const float scale = fixture.scales[static_cast<std::size_t>(row / 4 * 2 + column / 4)];
      const auto bits = fixture.values[static_cast<std::size_t>(row * 6 + column)];
      EXPECT_EQ(slice->at(r, c), e4m3_to_float(bits) * scale) << row << "," << column;
    }
  }
}

TEST(StoredLinear, ScalesMustBeFinite) {
  // The last is finite, but 448 times it, which FP8 can hold, is not.
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 1e36f}) {
    TemporaryFolder folder;
    folder.write("model.safetensors", CheckpointWriter()
                                          .add<std::uint8_t>("w.weight", "F8_E4M3", {1, 1}, {0x38})
                                          .add<float>("w.weight_scale_inv", "F32", {1, 1}, {bad})
                                          .bytes());
    const auto checkpoint = Checkpoint::open(folder.path());
    const auto linear =
        find_linear(*checkpoint, {"w", 1, 1, true}, {Quantization::fp8_block, 128, 32});
    EXPECT_EQ(read_slice(*linear, {0, 1}, {0, 1}).error().field, "w.weight_scale_inv");
    EXPECT_EQ(read_stored(*linear, {0, 1}, {0, 1}).error().field, "w.weight_scale_inv");
  }
}

TEST(StoredLinear, Fp8ValuesMustBeNumbers) {
  TemporaryFolder folder;
  folder.write("model.safetensors",
               CheckpointWriter()
                   .add<std::uint8_t>("w.weight", "F8_E4M3", {1, 2}, {0x38, 0x7f})
                   .add<float>("w.weight_scale_inv", "F32", {1, 1}, {1.0f})
                   .bytes());
  const auto checkpoint = Checkpoint::open(folder.path());
  const auto linear =
      find_linear(*checkpoint, {"w", 1, 2, true}, {Quantization::fp8_block, 128, 32});
  EXPECT_TRUE(read_slice(*linear, {0, 1}, {0, 1}).ok());
  EXPECT_EQ(read_slice(*linear, {0, 1}, {0, 2}).error().field, "w.weight");
  EXPECT_TRUE(read_stored(*linear, {0, 1}, {0, 1}).ok());
  EXPECT_EQ(read_stored(*linear, {0, 1}, {0, 2}).error().field, "w.weight");
}

TEST(StoredLinear, Int4ScalesMustBeFinite) {
  for (const float bad : {std::nanf(""), INFINITY, 3e38f}) {
    TemporaryFolder folder;
    folder.write("model.safetensors",
                 CheckpointWriter()
                     .add<std::uint32_t>("w.weight_packed", "I32", {1, 1}, {0x12345678u})
                     .add<Bf16>("w.weight_scale", "BF16", {1, 1}, {to_bf16(bad)})
                     .add<std::int32_t>("w.weight_shape", "I32", {2}, {1, 8})
                     .bytes());
    const auto checkpoint = Checkpoint::open(folder.path());
    const auto linear =
        find_linear(*checkpoint, {"w", 1, 8, true}, {Quantization::int4_group, 128, 8});
    ASSERT_TRUE(linear.ok()) << describe(linear.error());
    EXPECT_EQ(read_slice(*linear, {0, 1}, {0, 8}).error().field, "w.weight_scale");
    EXPECT_EQ(read_stored(*linear, {0, 1}, {0, 8}).error().field, "w.weight_scale");
  }
}

TEST(StoredLinear, Int4SliceAndItsSecondShape) {
  const auto write = [](std::int32_t columns) {
    std::vector<std::uint32_t> packed;
    for (std::uint32_t word = 0; word < 2 * 8; ++word) packed.push_back(0x11111111u * (word % 16));
    std::vector<Bf16> scales;
    for (float s : {1.0f, 2.0f, 4.0f, 8.0f}) scales.push_back(to_bf16(s));
    return CheckpointWriter()
        .add("w.weight_packed", "I32", {2, 8}, packed)
        .add("w.weight_scale", "BF16", {2, 2}, scales)
        .add<std::int32_t>("w.weight_shape", "I32", {2}, {2, columns})
        .bytes();
  };
  TemporaryFolder folder;
  folder.write("model.safetensors", write(64));
  const QuantizationConfig int4 = {Quantization::int4_group, 128, 32};
  auto checkpoint = Checkpoint::open(folder.path());
  auto linear = find_linear(*checkpoint, {"w", 2, 64, true}, int4);
  ASSERT_TRUE(linear.ok()) << describe(linear.error());
  const auto slice = read_slice(*linear, {1, 2}, {24, 40});
  ASSERT_TRUE(slice.ok()) << describe(slice.error());
  EXPECT_EQ(slice->at(0, 0), (11 - 8) * 4.0f);  // word 11, first group of row 1
  EXPECT_EQ(slice->at(0, 8), (12 - 8) * 8.0f);  // word 12, second group
  EXPECT_EQ(read_slice(*linear, {0, 1}, {4, 12}).error().code, ErrorCode::unsupported);
  folder.write("model.safetensors", write(32));
  checkpoint = Checkpoint::open(folder.path());
  linear = find_linear(*checkpoint, {"w", 2, 64, true}, int4);
  EXPECT_EQ(read_slice(*linear, {0, 1}, {0, 8}).error().field, "w.weight_shape");
}

TEST(StoredLinear, WrongTensorsAreNamed) {
  TemporaryFolder folder;
  folder.write("model.safetensors",
               CheckpointWriter()
                   .add<float>("shape.weight", "F32", {2, 1}, {1, 2})
                   .add<std::int32_t>("type.weight", "I32", {1, 2}, {1, 2})
                   .add<std::uint8_t>("scale.weight", "F8_E4M3", {1, 2}, {1, 2})
                   .bytes());
  const auto checkpoint = Checkpoint::open(folder.path());
  const QuantizationConfig fp8 = {Quantization::fp8_block, 128, 32};
  const auto find = [&](const char* name, const QuantizationConfig& quantization) {
    return find_linear(*checkpoint, {name, 1, 2, true}, quantization).error();
  };
  EXPECT_EQ(find("none", fp8).code, ErrorCode::not_found);
  EXPECT_EQ(find("none", fp8).field, "none.weight");
  EXPECT_EQ(find("shape", fp8).code, ErrorCode::malformed);
  EXPECT_EQ(find("type", fp8).code, ErrorCode::unsupported);
  EXPECT_EQ(find("scale", fp8).field, "scale.weight_scale_inv");
  EXPECT_EQ(find("scale", {}).code, ErrorCode::unsupported);  // FP8 that the config does not know
}

TEST(StoredLinear, ColumnsOfLongAndShortRows) {
  for (const int columns : {8, 6000}) {
    std::vector<float> values(static_cast<std::size_t>(3 * columns));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    TemporaryFolder folder;
    folder.write("model.safetensors",
                 CheckpointWriter().add("w.weight", "F32", {3, columns}, values).bytes());
    const auto checkpoint = Checkpoint::open(folder.path());
    const auto linear = find_linear(*checkpoint, {"w", 3, columns, false}, {});
    const auto slice = read_slice(*linear, {1, 3}, {columns / 4, columns});
    ASSERT_TRUE(slice.ok());
    EXPECT_EQ(slice->at(0, 0), static_cast<float>(columns + columns / 4));
    EXPECT_EQ(slice->at(1, columns - columns / 4 - 1), static_cast<float>(3 * columns - 1));
  }
}

}  // namespace
}  // namespace copse
