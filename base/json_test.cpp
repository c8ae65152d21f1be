#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace copse {
namespace {

Error error_of(std::string_view text, const JsonBounds& bounds = {}) {
  auto parsed = parse_json(text, "body", bounds);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? Error{} : parsed.error();
}

TEST(Json, ParsesWhatIsWellFormed) {
  auto parsed = parse_json(R"({"a":[1,2.5,"x",null,true]})", "body", {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->at("a").size(), 5u);
}

TEST(Json, RefusesEachKindOfWrongWithTheFieldsName) {
  EXPECT_EQ(error_of("").field, "body");
  EXPECT_EQ(error_of("{: \"model\"").code, ErrorCode::malformed);
  EXPECT_EQ(error_of("{} x").code, ErrorCode::malformed);
  EXPECT_EQ(error_of("{\"a\":\"\xff\"}").code, ErrorCode::malformed);
  EXPECT_EQ(error_of("[NaN]").code, ErrorCode::malformed);
  EXPECT_EQ(error_of("[1e999]").code, ErrorCode::malformed);
  EXPECT_THAT(error_of(R"({"a":1,"a":2})").message, ::testing::StartsWith("the key 'a'"));
}

TEST(Json, BoundsDepthBeforeRecursionCanHurt) {
  const std::string deep(100000, '[');
  EXPECT_EQ(error_of(deep).message, "nested too deeply");
}

TEST(Json, BoundsBytesAndNodes) {
  EXPECT_EQ(error_of("[1,2,3]", {.bytes = 3}).code, ErrorCode::resource_exhausted);
  EXPECT_EQ(error_of("[1,2,3]", {.nodes = 3}).message, "too many values");
}

TEST(Json, BuildsWhatTheTextSaysWhereverValuesStand) {
  const char* text = R"({"a":[[],{},[1,[2,{"b":[3,4]}]],5],"c":{"d":{"e":[{"f":null}]},"g":-1.5}})";
  const auto parsed = parse_json(text, "body", {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, Json::parse(text));
  EXPECT_EQ(*parse_json("7", "body", {}), Json(7));
  EXPECT_EQ(error_of("[[1]]", {.depth = 1}).message, "nested too deeply");
}

TEST(Json, OfTwoEqualKeysTheLastWinsWhereThatIsAllowed) {
  const auto parsed =
      parse_json(R"({"a":{"b":1},"a":[2],"a":3})", "body", {.duplicate_keys = true});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, (Json{{"a", 3}}));
}

// A pipe that nobody writes to would hold a reader for ever, and with it every command and worker.
TEST(ReadFile, RefusesWhatIsNoRegularFileUnlessToldOtherwise) {
  const std::string path = ::testing::TempDir() + "/json_test.pipe";
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto refused = read_json_file(path, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "json_test.pipe");
  EXPECT_EQ(refused.error().message, "is no regular file");
  EXPECT_EQ(read_file("/dev/zero", 100).error().message, "is no regular file");
  EXPECT_EQ(read_file(::testing::TempDir(), 100).error().message, "is no regular file");
  std::thread writer([&] { std::ofstream(path) << "[1]"; });
  const auto read = read_json_file(path, {}, FileKind::any);
  writer.join();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, Json::array({1}));
  ::unlink(path.c_str());
}

TEST(Json, DumpsInvalidUtf8WithReplacement) {
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace copse
