#include "model/weights/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "model/weights/test_checkpoint.h"

namespace copse {
namespace {

using testing::safetensors_bytes;
using testing::TemporaryFolder;
using F = SafetensorsFault;

Result<SafetensorsFile> open_bytes(const std::string& bytes) {
  TemporaryFolder folder;
  return SafetensorsFile::open(folder.write("x.safetensors", bytes));
}

Result<SafetensorsFile> open_header(const std::string& header, std::size_t data_bytes) {
  return open_bytes(safetensors_bytes(header, std::string(data_bytes, '\x01')));
}

void expect_fault(const Result<SafetensorsFile>& result, F fault) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::malformed);
  EXPECT_EQ(result.error().message, sentence(fault));
}

const std::string kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}} )";

TEST(Safetensors, ReadsAGoodFile) {
  TemporaryFolder folder;
  const auto file = SafetensorsFile::open(
      folder.write("x.safetensors", safetensors_bytes(kGood, "0123456789abcdef")));
  ASSERT_TRUE(file.ok()) << describe(file.error());
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorInfo& a = file->tensors().at("a");
  EXPECT_EQ(a.type, StoredType::bf16);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
  std::string part(4, ' ');
  ASSERT_TRUE(file->read(a, 6, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "6789");
  ASSERT_TRUE(file->read(file->tensors().at("b"), 0, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "cdef");
}

TEST(Safetensors, EmptyTensorsAndScalars) {
  const auto file = open_header(R"({"a":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                                R"("b":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
                                4);
  ASSERT_TRUE(file.ok()) << describe(file.error());
  EXPECT_EQ(file->tensors().at("b").bytes, 4u);
}

TEST(Safetensors, TooShort) {
  expect_fault(open_bytes(""), F::too_short);
  expect_fault(open_bytes("1234567"), F::too_short);
}

TEST(Safetensors, HeaderTooLarge) {
  expect_fault(open_bytes(std::string(8, '\xff') + "{}"), F::header_too_large);
  expect_fault(open_bytes(std::string("\x01\x00\x40\x06\x00\x00\x00\x00", 8) + "{}"),
               F::header_too_large);
}

TEST(Safetensors, HeaderPastEnd) {
  expect_fault(open_bytes(std::string("\x03\x00\x00\x00\x00\x00\x00\x00{}", 10)),
               F::header_past_end);
}

TEST(Safetensors, HeaderStart) {
  expect_fault(open_header("", 0), F::header_start);
  expect_fault(open_header(" {}", 0), F::header_start);
  expect_fault(open_header("[]", 0), F::header_start);
}

TEST(Safetensors, JsonFaults) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not JSON"},
      {"{}x", "not JSON"},
      {"{\"\xff\":" + entry + "}", "not JSON"},
      {"{\"a\":" + entry + ",\"a\":" + entry + "}", "appears twice"},
      {R"({"a":{"dtype":[[[["F32"]]]]}})", "nested too deeply"},
      {R"({"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}})", "not JSON"},
  };
  for (const auto& [header, message] : cases) {
    const auto file = open_header(header, 4);
    ASSERT_FALSE(file.ok()) << header;
    EXPECT_NE(file.error().message.find(message), std::string::npos) << describe(file.error());
  }
}

TEST(Safetensors, TensorEntry) {
  for (const char* entry : {
           R"("x")",
           R"([])",
           R"({})",
           R"({"dtype":"F32","shape":[1]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})",
           R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[0,"4"]})",
       }) {
    expect_fault(open_header(std::string("{\"a\":") + entry + "}", 4), F::tensor_entry);
  }
}

struct EntryCase {
  const char* name;
  const char* header;
  F fault;
};

TEST(Safetensors, OneFaultPerRule) {
  const EntryCase cases[] = {
      {"dtype", R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", F::unknown_type},
      {"rank", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4]}})",
       F::rank_too_large},
      {"overflow", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
       F::shape_overflow},
      {"overflow by item",
       R"({"a":{"dtype":"F64","shape":[4611686018427387904],)"
       R"("data_offsets":[0,4]}})",
       F::shape_overflow},
      {"sign", R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]}})",
       F::shape_overflow},
      {"order", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", F::end_before_begin},
      {"size", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", F::size_mismatch},
      {"hole at the start", R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
       F::not_contiguous},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       F::not_contiguous},
      {"same bytes twice",
       R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       F::not_contiguous},
      {"data too long", R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", F::data_size},
      {"data too short", R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})", F::data_size},
      {"no tensors but data", "{}", F::data_size},
      {"metadata", R"({"__metadata__":{"a":1}})", F::metadata},
      {"metadata type", R"({"__metadata__":"pt"})", F::metadata},
  };
  for (const EntryCase& c : cases) {
    SCOPED_TRACE(c.name);
    expect_fault(open_header(c.header, 4), c.fault);
  }
}

TEST(Safetensors, TooManyTensors) {
  std::string header = "{";
  for (int i = 0; i <= limits::safetensors_tensors + 1; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  const auto parsed = parse_safetensors_header(header + "}", 0, "x");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message, sentence(F::too_many_tensors));
}

TEST(Safetensors, TruncationAtEveryByteIsAnError) {
  const std::string whole = safetensors_bytes(kGood, std::string(16, '\x02'));
  TemporaryFolder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto file = SafetensorsFile::open(folder.write("x.safetensors", whole.substr(0, length)));
    EXPECT_FALSE(file.ok()) << length;
  }
  EXPECT_TRUE(SafetensorsFile::open(folder.write("x.safetensors", whole)).ok());
}

// A flipped bit can still be a good header (another name); what opens must be readable whole.
TEST(Safetensors, EveryBitFlipOfTheHeaderIsSafe) {
  const std::string whole = safetensors_bytes(kGood, std::string(16, '\x02'));
  TemporaryFolder folder;
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * (8 + kGood.size()); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto file = SafetensorsFile::open(folder.write("x.safetensors", flipped));
    refused += file.ok() ? 0 : 1;
    if (!file.ok()) continue;
    for (const auto& [name, info] : file->tensors()) {
      std::string data(info.bytes, '\0');
      EXPECT_TRUE(file->read(info, 0, std::as_writable_bytes(std::span(data))).ok());
    }
  }
  EXPECT_GT(refused, 800);
}

TEST(Safetensors, AFileThatShrinksIsAnError) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("x.safetensors", safetensors_bytes(kGood, std::string(16, '\x02')));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path.c_str(), 20), 0);
  std::string data(12, ' ');
  const Status status =
      file->read(file->tensors().at("a"), 0, std::as_writable_bytes(std::span(data)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
}

TEST(Safetensors, NotARegularFile) {
  TemporaryFolder folder;
  EXPECT_EQ(SafetensorsFile::open(folder.path()).error().code, ErrorCode::io);
  EXPECT_EQ(SafetensorsFile::open(folder.path() + "/none").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace copse
