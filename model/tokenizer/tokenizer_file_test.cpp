// Files that nobody vouches for: each way to be wrong is an error that names the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/limits.h"
#include "model/tokenizer/test_tokenizers.h"
#include "model/tokenizer/tokenizer.h"

namespace copse {
namespace {

struct HostileCase {
  const char* name;
  std::function<void(Json&)> spoil;
  ErrorCode code;
  const char* field;
};

Json split(const char* regex, const char* behavior = "Isolated") {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", behavior},
          {"invert", false}};
}

void use_split(Json& file, const Json& stage) {
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {stage, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

constexpr auto kMalformed = ErrorCode::malformed;
constexpr auto kUnsupported = ErrorCode::unsupported;
constexpr const char* kRegexKey = "pre_tokenizer.pretokenizers[0].pattern.Regex";

const std::vector<HostileCase>& model_cases() {
  static const std::vector<HostileCase> table = {
      {"no model", [](Json& f) { f.erase("model"); }, kMalformed, "model"},
      {"model is a list", [](Json& f) { f["model"] = Json::array(); }, kMalformed, "model"},
      {"other model", [](Json& f) { f["model"]["type"] = "Unigram"; }, kUnsupported, "model.type"},
      {"type is a number", [](Json& f) { f["model"]["type"] = 3; }, kMalformed, "model.type"},
      {"vocab is a list", [](Json& f) { f["model"]["vocab"] = {1}; }, kMalformed, "model.vocab"},
      {"id is text", [](Json& f) { f["model"]["vocab"]["ab"] = "x"; }, kMalformed,
       "model.vocab['ab']"},
      {"id is negative", [](Json& f) { f["model"]["vocab"]["ab"] = -1; }, kMalformed,
       "model.vocab['ab']"},
      {"id is huge", [](Json& f) { f["model"]["vocab"]["ab"] = UINT64_MAX; }, kMalformed,
       "model.vocab['ab']"},
      {"id is a fraction", [](Json& f) { f["model"]["vocab"]["ab"] = 1.5; }, kMalformed,
       "model.vocab['ab']"},
      {"id twice", [](Json& f) { f["model"]["vocab"]["zz"] = 256; }, kMalformed,
       "model.vocab['zz']"},
      {"a byte is missing", [](Json& f) { f["model"]["vocab"].erase("!"); }, kMalformed,
       "model.vocab"},
      {"unknown merge", [](Json& f) { f["model"]["merges"].push_back("q q"); }, kMalformed,
       "model.merges[2]"},
      {"merge of one", [](Json& f) { f["model"]["merges"][0] = "ab"; }, kMalformed,
       "model.merges[0]"},
      {"merge of three", [](Json& f) { f["model"]["merges"][0] = "a b a"; }, kMalformed,
       "model.merges[0]"},
      {"merge of numbers",
       [](Json& f) {
         f["model"]["merges"][0] = {1, 2};
       },
       kMalformed, "model.merges[0]"},
      {"no merges", [](Json& f) { f["model"].erase("merges"); }, kMalformed, "model.merges"},
      {"dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }, kUnsupported, "model.dropout"},
      {"unknown token", [](Json& f) { f["model"]["unk_token"] = "<unk>"; }, kUnsupported,
       "model.unk_token"},
      {"byte fallback", [](Json& f) { f["model"]["byte_fallback"] = true; }, kUnsupported,
       "model.byte_fallback"},
  };
  return table;
}

const std::vector<HostileCase>& frame_cases() {
  static const std::vector<HostileCase> table = {
      {"added is an object", [](Json& f) { f["added_tokens"] = Json::object(); }, kMalformed,
       "added_tokens"},
      {"added id twice", [](Json& f) { f["added_tokens"][1]["id"] = 300; }, kMalformed,
       "added_tokens[1].id"},
      {"added text twice", [](Json& f) { f["added_tokens"][1]["content"] = "<s>"; }, kMalformed,
       "added_tokens[1].content"},
      {"added id of a word", [](Json& f) { f["added_tokens"][0]["id"] = 256; }, kMalformed,
       "added_tokens"},
      {"added id out of range", [](Json& f) { f["added_tokens"][0]["id"] = 1 << 30; }, kMalformed,
       "added_tokens[0].id"},
      {"added empty", [](Json& f) { f["added_tokens"][0]["content"] = ""; }, kMalformed,
       "added_tokens[0].content"},
      {"added long", [](Json& f) { f["added_tokens"][0]["content"] = std::string(999, 'a'); },
       kMalformed, "added_tokens[0].content"},
      {"lstrip", [](Json& f) { f["added_tokens"][0]["lstrip"] = true; }, kUnsupported,
       "added_tokens[0].lstrip"},
      {"normalizer",
       [](Json& f) {
         f["normalizer"] = {{"type", "NFC"}};
       },
       kUnsupported, "normalizer.type"},
      {"truncation",
       [](Json& f) {
         f["truncation"] = {{"max_length", 5}};
       },
       kUnsupported, "truncation"},
      {"decoder", [](Json& f) { f["decoder"]["type"] = "WordPiece"; }, kUnsupported,
       "decoder.type"},
      {"no pre-tokenizer", [](Json& f) { f["pre_tokenizer"] = nullptr; }, kMalformed,
       "pre_tokenizer"},
      {"other pre-tokenizer", [](Json& f) { f["pre_tokenizer"]["type"] = "Metaspace"; },
       kUnsupported, "pre_tokenizer.type"},
      {"prefix space", [](Json& f) { f["pre_tokenizer"]["add_prefix_space"] = true; }, kUnsupported,
       "pre_tokenizer.add_prefix_space"},
      {"split alone", [](Json& f) { f["pre_tokenizer"] = split("a"); }, kUnsupported,
       "pre_tokenizer"},
      {"split removes", [](Json& f) { use_split(f, split("a", "Removed")); }, kUnsupported,
       "pre_tokenizer.pretokenizers[0].behavior"},
      {"no pattern", [](Json& f) { use_split(f, split("(")); }, kMalformed, kRegexKey},
      {"intersection", [](Json& f) { use_split(f, split("[\\p{L}&&[^a]]")); }, kUnsupported,
       kRegexKey},
      {"class in class", [](Json& f) { use_split(f, split("[a[bc]]")); }, kUnsupported, kRegexKey},
      {"hexadecimal", [](Json& f) { use_split(f, split("\\h")); }, kUnsupported, kRegexKey},
      {"verb", [](Json& f) { use_split(f, split("(*COMMIT)a")); }, kUnsupported, kRegexKey},
      {"processor",
       [](Json& f) {
         f["post_processor"] = {{"type", "BertProcessing"}};
       },
       kUnsupported, "post_processor.type"},
      {"processor without text",
       [](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}};
       },
       kMalformed, "post_processor.single"},
      {"processor of a stranger",
       [](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "<x>"}}}}}}};
       },
       kMalformed, "post_processor.single[0].SpecialToken.id"},
  };
  return table;
}

TEST(TokenizerFile, NamesTheKeyThatIsWrong) {
  for (const auto* table : {&model_cases(), &frame_cases()}) {
    for (const HostileCase& one : *table) {
      SCOPED_TRACE(one.name);
      Json file = small_tokenizer_json();
      one.spoil(file);
      const auto parsed = Tokenizer::parse(file.dump(), "");
      ASSERT_FALSE(parsed.ok());
      EXPECT_EQ(parsed.error().code, one.code) << describe(parsed.error());
      EXPECT_EQ(parsed.error().field, one.field) << describe(parsed.error());
    }
  }
}

TEST(TokenizerFile, RefusesWhatIsNoDocument) {
  for (const char* text : {"", "{", "[]", "null", "{\"model\": {}} x", "{\"a\":1,\"a\":2}"}) {
    const auto parsed = Tokenizer::parse(text, "");
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, kMalformed);
  }
  const auto missing = Tokenizer::load("models/no-such-model");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
}

TEST(TokenizerFile, RefusesAConfigurationThatDoesNotFit) {
  for (const char* config : {"[]", "{\"bos_token\": 3}", "{\"bos_token\": \"<nobody>\"}",
                             "{\"eos_token\": {\"content\": []}}", "{\"add_bos_token\": 1}"}) {
    EXPECT_FALSE(Tokenizer::parse(small_tokenizer_json().dump(), config).ok()) << config;
  }
}

TEST(TokenizerFile, APatternThatBacktracksWithoutEndIsAnError) {
  Json file = small_tokenizer_json();
  use_split(file, split("(?:(?:a|a)+)+b"));
  const auto tokenizer = Tokenizer::parse(file.dump(), "").value();
  const auto ids = tokenizer->encode(std::string(64, 'a') + "-b", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::resource_exhausted);
  EXPECT_TRUE(tokenizer->encode("aab", {}).ok());
}

TEST(TokenizerFile, AMatchOfNothingDoesNotStopTheSplitting) {
  Json file = small_tokenizer_json();
  use_split(file, split("x*|(?=b)"));
  const auto tokenizer = Tokenizer::parse(file.dump(), "").value();
  EXPECT_THAT(*tokenizer->encode("aba\xE2\x82\xAC", {}),
              ::testing::ElementsAre(257, 0xE2, 0x82, 0xAC));
}

}  // namespace
}  // namespace copse
