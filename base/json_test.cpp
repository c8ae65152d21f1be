#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Json, DumpsInvalidUtf8WithReplacement) {
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace copse
