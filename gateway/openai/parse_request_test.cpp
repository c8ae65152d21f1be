#include "gateway/openai/parse_request.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace copse {
namespace {

// A good request with one field replaced.
std::string chat_with(const std::string& field, const std::string& value) {
  Json body{{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  body.erase(field);
  std::string text = body.dump();
  text.pop_back();
  return text + ",\"" + field + "\":" + value + "}";
}

std::string completion_with(const std::string& field, const std::string& value) {
  return field == "prompt" ? "{\"prompt\":" + value + "}"
                           : "{\"prompt\":\"x\",\"" + field + "\":" + value + "}";
}

struct Bad {
  const char* field;
  const char* value;
  const char* named;  // nullptr: the field
};

constexpr Bad kBadOptions[] = {
    {"model", "7", nullptr},
    {"model", "[]", nullptr},
    {"max_tokens", "0", nullptr},
    {"max_tokens", "-1", nullptr},
    {"max_tokens", "1.5", nullptr},
    {"max_tokens", "\"9\"", nullptr},
    {"max_tokens", "99999999999999999999", nullptr},
    {"max_tokens", "18446744073709551615", nullptr},
    {"max_completion_tokens", "0", nullptr},
    {"min_tokens", "-1", nullptr},
    {"temperature", "-0.1", nullptr},
    {"temperature", "1e-320", nullptr},
    {"temperature", "101", nullptr},
    {"temperature", "\"hot\"", nullptr},
    {"temperature", "true", nullptr},
    {"top_p", "0", nullptr},
    {"top_p", "1.01", nullptr},
    {"top_p", "-1", nullptr},
    {"top_p", "1e-60", nullptr},
    {"min_p", "1", nullptr},
    {"min_p", "-0.5", nullptr},
    {"top_k", "-5", nullptr},
    {"top_k", "2147483648", nullptr},
    {"top_k", "0.5", nullptr},
    {"seed", "1.5", nullptr},
    {"seed", "\"x\"", nullptr},
    {"n", "0", nullptr},
    {"n", "2147483648", nullptr},
    {"n", "17", nullptr},
    {"stop", "\"\"", nullptr},
    {"stop", "[\"\"]", nullptr},
    {"stop", "[1]", nullptr},
    {"stop", "5", nullptr},
    {"stop", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", nullptr},
    {"stop_token_ids", "5", nullptr},
    {"stop_token_ids", "[-1]", nullptr},
    {"stop_token_ids", "[1048576]", nullptr},
    {"stop_token_ids", "[18446744073709551615]", nullptr},
    {"stop_token_ids", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", nullptr},
    {"stream", "1", nullptr},
    {"stream_options", "[]", nullptr},
    {"stream_options", "{\"include_usage\":1}", "stream_options.include_usage"},
    {"ignore_eos", "\"yes\"", nullptr},
    {"draft", "\"forest\"", nullptr},
    {"draft", "1", nullptr},
    {"draft_budget", "513", nullptr},
    {"draft_budget", "-1", nullptr},
    {"logprobs", "true", nullptr},
    {"logprobs", "0", nullptr},
    {"top_logprobs", "5", nullptr},
    {"tools", "[{}]", nullptr},
    {"tool_choice", "\"required\"", nullptr},
    {"tool_choice", "{\"type\":\"function\"}", nullptr},
    {"functions", "[{}]", nullptr},
    {"response_format", "{\"type\":\"json_object\"}", nullptr},
    {"response_format", "{}", nullptr},
    {"response_format", "\"text\"", nullptr},
    {"presence_penalty", "0.1", nullptr},
    {"frequency_penalty", "-0.1", nullptr},
    {"repetition_penalty", "1.1", nullptr},
    {"logit_bias", "{\"191222\":-100}", nullptr},
    {"logit_bias", "{\"AI\":-100}", nullptr},
    {"best_of", "2", nullptr},
    {"echo", "true", nullptr},
    {"suffix", "\"x\"", nullptr},
    {"guided_json", "{\"a\":1}", nullptr},
    {"grammar", "\"root ::= x\"", nullptr},
    {"skip_special_tokens", "false", nullptr},
    {"modalities", "[\"text\",\"audio\"]", nullptr},
};

template <class Request>
void expect_refused(const Result<Request>& parsed, const std::string& named,
                    const std::string& body) {
  ASSERT_FALSE(parsed.ok()) << body;
  EXPECT_EQ(parsed.error().field, named) << body;
  EXPECT_NE(parsed.error().message.find(named), std::string::npos) << parsed.error().message;
}

TEST(ParseRequest, EveryBadOptionIsRefusedByNameInBothRequests) {
  for (const Bad& bad : kBadOptions) {
    const std::string named = bad.named != nullptr ? bad.named : bad.field;
    const std::string chat = chat_with(bad.field, bad.value);
    expect_refused(parse_chat_request(chat), named, chat);
    const std::string completion = completion_with(bad.field, bad.value);
    expect_refused(parse_completion_request(completion), named, completion);
  }
}

TEST(ParseRequest, MinTokensBeyondMaxTokensIsRefused) {
  const std::string body = R"({"prompt":"x","max_tokens":3,"min_tokens":4})";
  expect_refused(parse_completion_request(body), "min_tokens", body);
}

TEST(ParseRequest, BadMessagesAreRefusedByNameAndIndex) {
  const std::pair<const char*, const char*> cases[] = {
      {"null", "messages"},
      {"[]", "messages"},
      {"{}", "messages"},
      {"\"hi\"", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"role":"user","content":"a"},{"role":"user"}])", "messages[1].content"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":[]}])", "messages[0].content"},
      {R"([{"content":"a"}])", "messages[0].role"},
      {R"([{"role":"robot","content":"a"}])", "messages[0].role"},
      {R"([{"role":"tool","content":"a"}])", "messages[0].role"},
      {R"([{"role":"assistant","content":"","tool_calls":[{}]}])", "messages[0].tool_calls"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":["a"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},
           {"type":"image_url","image_url":{"url":"http://x/"}}]}])",
       "messages[0].content[1]"},
  };
  for (const auto& [messages, named] : cases) {
    const std::string body = chat_with("messages", messages);
    expect_refused(parse_chat_request(body), named, body);
  }
}

TEST(ParseRequest, BadPromptsAreRefused) {
  for (const char* prompt : {"null", "5", "{}", "[]", "[\"a\",\"b\"]", "[[1],[2]]", "[1,\"a\"]",
                             "[1,-1]", "[1.5]", "[1048576]", "[18446744073709551615]", "[[]]"}) {
    const std::string body = completion_with("prompt", prompt);
    expect_refused(parse_completion_request(body), "prompt", body);
  }
  expect_refused(parse_completion_request("{}"), "prompt", "{}");
}

TEST(ParseRequest, WhatIsNotJsonIsMalformed) {
  for (const std::string& body :
       {std::string(), std::string("{: \"model\""), std::string("[]"), std::string("null"),
        std::string(R"({"prompt":"x","temperature":NaN})"),
        std::string(R"({"prompt":"x","temperature":Infinity})"),
        std::string(R"({"prompt":"x","temperature":1e999})"), std::string("{\"prompt\":\"\xff\"}"),
        std::string(100000, '['),
        "{\"prompt\":" + std::string(50, '[') + std::string(50, ']') + "}"}) {
    const auto parsed = parse_completion_request(body);
    ASSERT_FALSE(parsed.ok()) << body.substr(0, 80);
    EXPECT_EQ(parsed.error().code, ErrorCode::malformed) << body.substr(0, 80);
  }
}

TEST(ParseRequest, ReadsEveryOption) {
  const auto parsed = parse_completion_request(R"({"model":"m","prompt":"x","max_tokens":8,
    "min_tokens":2,"temperature":0.5,"top_p":0.9,"min_p":0.1,"top_k":40,"seed":-1,"n":3,
    "stop":["a","b"],"stop_token_ids":[7],"ignore_eos":true,"stream":true,
    "stream_options":{"include_usage":true},"draft":"tree","draft_budget":32,"user":"someone",
    "nobody_knows_this":{"a":[1]}})");
  ASSERT_TRUE(parsed.ok()) << describe(parsed.error());
  const GenerateOptions& options = parsed->options;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.max_tokens, 8u);
  EXPECT_EQ(options.min_tokens, 2u);
  EXPECT_EQ(options.temperature, 0.5f);
  EXPECT_EQ(options.top_p, 0.9f);
  EXPECT_EQ(options.min_p, 0.1f);
  EXPECT_EQ(options.top_k, 40);
  EXPECT_EQ(options.seed, ~std::uint64_t{0});
  EXPECT_EQ(options.choices, 3u);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.stop_token_ids, std::vector<TokenId>{7});
  EXPECT_TRUE(options.ignore_eos && options.stream && options.include_usage);
  EXPECT_EQ(options.draft, DraftMode::tree);
  EXPECT_EQ(options.draft_budget, 32);
}

TEST(ParseRequest, NullAndHarmlessValuesAreTheDefaults) {
  const auto parsed = parse_chat_request(R"({"messages":[{"role":"developer","content":
    [{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"max_tokens":null,"stop":null,
    "temperature":1e-6,"top_k":-1,"tools":[],"tool_choice":"auto","logprobs":false,
    "logit_bias":{},"presence_penalty":0,"response_format":{"type":"text"},"best_of":1,
    "stream_options":{},"modalities":["text"]})");
  ASSERT_TRUE(parsed.ok()) << describe(parsed.error());
  EXPECT_EQ(parsed->messages[0].role, "system");
  EXPECT_EQ(parsed->messages[0].content, "ab");
  EXPECT_FALSE(parsed->options.max_tokens.has_value());
  EXPECT_EQ(parsed->options.temperature, 0.0f) << "so small a temperature is argmax";
  EXPECT_EQ(parsed->options.top_k, 0);
  EXPECT_FALSE(parsed->options.include_usage);
}

TEST(ParseRequest, APromptIsAStringOrTokenIdsOrOneOfThemInAList) {
  for (const char* prompt : {"\"ab\"", "[\"ab\"]"}) {
    const auto parsed = parse_completion_request(completion_with("prompt", prompt));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(std::get<std::string>(parsed->prompt), "ab");
  }
  for (const char* prompt : {"[1,2]", "[[1,2]]"}) {
    const auto parsed = parse_completion_request(completion_with("prompt", prompt));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(std::get<1>(parsed->prompt), (std::vector<TokenId>{1, 2}));
  }
}

}  // namespace
}  // namespace copse
