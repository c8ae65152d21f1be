// Requests through the routes to a fake coordinator and back, without sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "gateway/fakes_for_test.h"
#include "gateway/gateway.h"

namespace copse {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GenerationTest : public ::testing::Test {
 protected:
  ~GenerationTest() override {
    // As the listener does at the end of the process: an exchange and its generation hold each
    // other.
    for (const auto& exchange : exchanges) exchange->leave();
  }
  std::shared_ptr<FakeExchange> new_exchange() {
    exchanges.push_back(std::make_shared<FakeExchange>());
    return exchanges.back();
  }
  std::shared_ptr<FakeExchange> post(const std::string& path, const std::string& body) {
    const RouteMatch match = match_route("POST", path);
    auto exchange = new_exchange();
    gateway.handle(*match.route, {"POST", path, body, "req-1"}, exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> get(const std::string& path) {
    auto exchange = new_exchange();
    gateway.handle(*match_route("GET", path).route, {"GET", path, "", "req-1"}, exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> complete(const std::string& fields) {
    return post("/v1/completions", R"({"model":"m","prompt":"hi")" + fields + "}");
  }
  static Json body_of(const FakeExchange& exchange) { return Json::parse(exchange.response->body); }
  static Json error_of(const FakeExchange& exchange) { return body_of(exchange).at("error"); }
  // The JSON of each event but [DONE].
  static std::vector<Json> chunks(const FakeExchange& exchange) {
    std::vector<Json> parsed;
    for (const std::string& event : exchange.events) {
      if (event.starts_with("data: {")) parsed.push_back(Json::parse(event.substr(6)));
    }
    return parsed;
  }
  static std::string text_of(const FakeExchange& exchange, std::size_t choice = 0) {
    std::string text;
    for (const Json& chunk : chunks(exchange)) {
      for (const Json& entry : chunk.at("choices")) {
        if (entry.at("index") != choice) continue;
        text += entry.contains("text") ? entry.at("text").get<std::string>()
                                       : entry.at("delta").value("content", "");
      }
    }
    return text;
  }
  static Json finish_of(const FakeExchange& exchange) {
    for (const Json& chunk : chunks(exchange)) {
      for (const Json& entry : chunk.at("choices")) {
        if (!entry.at("finish_reason").is_null()) return entry;
      }
    }
    return Json{{"finish_reason", "none at all"}};
  }

  ManualClock clock;
  SeededRandom random{5};
  ByteModel model;
  FakeEngine engine{clock};
  Gateway gateway{{engine.client, model, clock, random}, "m"};
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
};

TEST_F(GenerationTest, AWholeCompletionHasTextUsageAndTimings) {
  const auto exchange = complete(R"(,"max_tokens":8,"temperature":0)");
  ASSERT_EQ(engine.sent.size(), 1u);
  EXPECT_EQ(engine.sent[1].max_tokens, 8u);
  EXPECT_EQ(engine.sent[1].prompt.size(), 3u);
  engine.give(1, "ab", false);
  engine.give(1, "cdef");
  EXPECT_FALSE(exchange->response.has_value());
  engine.finish(1, FinishReason::length);
  const Json body = body_of(*exchange);
  EXPECT_EQ(exchange->response->status, 200);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["choices"][0]["text"], "abcdef");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"], 9);
  EXPECT_EQ(body["timings"]["draft_n_accepted"], 4);
  EXPECT_EQ(body["timings"]["accepted_per_round"], 3.0);
  EXPECT_EQ(body["timings"]["prompt_ms"], 250.0);
  EXPECT_EQ(body["timings"]["predicted_per_second"], 10.0);
}

TEST_F(GenerationTest, AChatStreamHasRoleContentFinishUsageAndDoneInThisOrder) {
  const auto exchange = post("/v1/chat/completions", R"({"messages":[{"role":"user",
    "content":"hi"}],"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_FALSE(exchange->headers.has_value()) << "nothing is sent before the engine accepted";
  engine.give(1, "He", false);
  engine.give(1, "llo");
  engine.give_ids(1, {ByteModel::kEnd});
  engine.finish(1, FinishReason::stop);
  const auto parsed = chunks(*exchange);
  ASSERT_EQ(parsed.size(), 5u);
  EXPECT_EQ(parsed[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(parsed[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(parsed[1]["choices"][0]["delta"]["content"], "He");
  EXPECT_TRUE(parsed[1]["usage"].is_null());
  EXPECT_EQ(parsed[2]["choices"][0]["delta"]["content"], "llo");
  EXPECT_EQ(parsed[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(parsed[3]["choices"][0]["delta"].empty());
  EXPECT_TRUE(parsed[4]["choices"].empty());
  EXPECT_EQ(parsed[4]["usage"]["completion_tokens"], 6) << "the end token is counted";
  EXPECT_EQ(exchange->events.back(), "data: [DONE]\n\n");
  EXPECT_TRUE(exchange->ended);
  for (const std::string& event : exchange->events) EXPECT_TRUE(event.ends_with("\n\n")) << event;
}

TEST_F(GenerationTest, NoUsageWithoutIncludeUsage) {
  const auto exchange = complete(R"(,"stream":true,"stream_options":{})");
  engine.give(1, "a");
  engine.finish(1, FinishReason::length);
  for (const Json& chunk : chunks(*exchange)) EXPECT_FALSE(chunk.contains("usage"));
}

TEST_F(GenerationTest, AStopStringInsideTheBudgetWinsAndIsNeverShown) {
  for (const bool stream : {false, true}) {
    const std::string flag = stream ? "true" : "false";
    const auto exchange = complete(R"(,"max_tokens":8,"stop":["Obs"],"stream":)" + flag);
    const RequestId id = engine.sent.rbegin()->first;
    engine.give(id, "ab Ob", false);
    engine.give(id, "s x");  // the cap falls into the same run
    ASSERT_EQ(engine.cancelled.size(), stream ? 2u : 1u);
    EXPECT_EQ(engine.cancelled.back().delivered_tokens, 6u);
    EXPECT_EQ(engine.cancelled.back().reason, FinishReason::stop);
    engine.finish(id, FinishReason::length);
    const Json finish = stream ? finish_of(*exchange) : body_of(*exchange)["choices"][0];
    EXPECT_EQ(finish["finish_reason"], "stop");
    EXPECT_EQ(finish["stop_reason"], "Obs");
    EXPECT_EQ(stream ? text_of(*exchange) : finish["text"].get<std::string>(), "ab ");
  }
}

TEST_F(GenerationTest, AStopStringBeyondTheCapIsLength) {
  const auto exchange = complete(R"(,"max_tokens":4,"stop":["defg"])");
  engine.give(1, "abcd");
  engine.finish(1, FinishReason::length);
  EXPECT_EQ(body_of(*exchange)["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body_of(*exchange)["choices"][0]["text"], "abcd");
}

TEST_F(GenerationTest, StreamedTextIsTheWholeTextHoweverCharactersAreCut) {
  std::string texts[2];
  for (const bool stream : {false, true}) {
    const std::string flag = stream ? "true" : "false";
    const auto exchange = complete(R"(,"max_tokens":9,"stream":)" + flag);
    const RequestId id = engine.sent.rbegin()->first;
    for (const TokenId token : {0x61, 0xC3, 0xA9, 0xC3, 0xBC, 0xC3}) engine.give_ids(id, {token});
    engine.finish(id, FinishReason::length);
    texts[stream] =
        stream ? text_of(*exchange) : body_of(*exchange)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], "a\xC3\xA9\xC3\xBC\xEF\xBF\xBD");
}

TEST_F(GenerationTest, EachOfNChoicesIsASubmitOfItsOwn) {
  const auto exchange = complete(R"(,"n":3,"seed":9,"stream":true,"temperature":1)");
  ASSERT_EQ(engine.sent.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.sent[i + 1].sampling.choice, i);
    EXPECT_EQ(engine.sent[i + 1].sampling.seed, 9u);
  }
  engine.give(2, "two");
  engine.give(1, "one");
  engine.finish(2, FinishReason::length);
  engine.give(3, "three");
  engine.finish(1, FinishReason::length);
  EXPECT_FALSE(exchange->ended);
  engine.finish(3, FinishReason::length);
  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(text_of(*exchange, 0), "one");
  EXPECT_EQ(text_of(*exchange, 1), "two");
  EXPECT_EQ(text_of(*exchange, 2), "three");
}

TEST_F(GenerationTest, AClientThatLeavesCancelsEveryChoiceAtOnce) {
  const auto exchange = complete(R"(,"n":2,"stream":true)");
  engine.give(1, "abc");
  exchange->leave();
  ASSERT_EQ(engine.cancelled.size(), 2u);
  EXPECT_EQ(engine.cancelled[0].reason, FinishReason::abort);
  EXPECT_EQ(engine.cancelled[0].delivered_tokens, 3u);
  EXPECT_EQ(engine.cancelled[1].delivered_tokens, 0u);
  engine.give(1, "late");
  engine.finish(1, FinishReason::abort);
  engine.finish(2, FinishReason::abort);
  EXPECT_TRUE(gateway.idle());
}

TEST_F(GenerationTest, ASlowClientsTextWaitsAndItsBacklogIsTold) {
  const auto exchange = complete(R"(,"stream":true,"max_tokens":4000)");
  exchange->room = 100;
  std::string expected;
  for (int i = 0; i < 150; ++i) {
    engine.give(1, "x" + std::to_string(i % 10));
    expected += "x" + std::to_string(i % 10);
  }
  EXPECT_EQ(exchange->events.size(), 100u);
  clock.advance(milliseconds(600));
  engine.client.on_tick(clock.now());
  ASSERT_EQ(engine.heartbeat.backlogs.size(), 1u);
  EXPECT_EQ(engine.heartbeat.backlogs[0].request, 1u);
  EXPECT_EQ(engine.heartbeat.backlogs[0].events, 150u);
  engine.finish(1, FinishReason::length);
  EXPECT_FALSE(exchange->ended);
  exchange->take_all();
  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(text_of(*exchange), expected);
  EXPECT_EQ(exchange->events.back(), "data: [DONE]\n\n");
}

TEST_F(GenerationTest, RefusalsKeepTheirStatusAlsoForStreams) {
  struct Case {
    RefusalKind kind;
    int status;
    const char* code;
  };
  for (const Case& one : {Case{RefusalKind::invalid, 400, "invalid_value"},
                          Case{RefusalKind::too_long, 400, "context_length_exceeded"},
                          Case{RefusalKind::queue_full, 429, "rate_limit_exceeded"},
                          Case{RefusalKind::unavailable, 503, "engine_unavailable"}}) {
    const auto exchange = complete(R"(,"stream":true,"n":2)");
    const RequestId id = engine.sent.rbegin()->first;
    engine.refuse(id, one.kind, 7);
    ASSERT_TRUE(exchange->response.has_value());
    EXPECT_EQ(exchange->response->status, one.status);
    EXPECT_EQ(error_of(*exchange)["code"], one.code);
    EXPECT_THAT(exchange->response->body, Not(HasSubstr("secret")));
    EXPECT_EQ(engine.cancelled.back().request, id - 1) << "the other choice is cancelled";
    const auto& headers = exchange->response->headers;
    EXPECT_EQ(std::count(headers.begin(), headers.end(),
                         std::pair<std::string, std::string>("Retry-After", "7")),
              one.status >= 429 ? 1 : 0);
  }
}

TEST_F(GenerationTest, AFailureInTheMiddleOfAStreamIsItsLastEvent) {
  const auto streamed = complete(R"(,"stream":true)");
  engine.give(1, "abc");
  engine.finish(1, FinishReason::error, "logits of /secret not finite");
  EXPECT_TRUE(streamed->ended);
  EXPECT_THAT(streamed->events.back(), HasSubstr("data: {\"error\":{"));
  EXPECT_THAT(streamed->events.back(), Not(HasSubstr("secret")));
  const auto whole = complete("");
  engine.give(2, "abc");
  engine.finish(2, FinishReason::error, "x");
  EXPECT_EQ(whole->response->status, 500);
}

TEST_F(GenerationTest, ALostEngineEndsWhatRunsAndRefusesWhatComes) {
  const auto streamed = complete(R"(,"stream":true)");
  const auto whole = complete("");
  engine.give(1, "abc");
  engine.lose();
  EXPECT_TRUE(streamed->ended);
  EXPECT_THAT(streamed->events.back(), HasSubstr("engine_unavailable"));
  EXPECT_EQ(whole->response->status, 503);
  EXPECT_EQ(complete("")->response->status, 503);
  EXPECT_EQ(get("/health")->response->status, 503);
  EXPECT_EQ(body_of(*get("/health"))["status"], "unreachable");
  EXPECT_TRUE(gateway.idle());
  engine.set_state(GroupState::ready);
  EXPECT_EQ(body_of(*get("/health"))["status"], "ok");
}

TEST_F(GenerationTest, BadRequestsAreAnsweredBeforeAnythingIsSubmitted) {
  struct Case {
    const char* fields;
    int status;
    const char* param;
    const char* says;
  };
  for (const Case& one :
       {Case{R"(,"max_tokens":0)", 400, "max_tokens", "max_tokens"},
        Case{R"(,"max_tokens":0)", 400, "max_tokens", "max_tokens"},
        Case{R"(,"stop_token_ids":[300])", 400, "stop_token_ids", "300"},
        Case{R"(,"stop_token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16])", 400, "stop_token_ids",
             "too many"},
        Case{R"(,"model":"other")", 404, "model", "model"},
        Case{R"(,"prompt":[1,300])", 400, "prompt", "300"},
        Case{R"(,"logit_bias":{"191222":-100})", 400, "logit_bias", "logit_bias"}}) {
    const auto exchange = complete(one.fields);
    ASSERT_TRUE(exchange->response.has_value()) << one.fields;
    EXPECT_EQ(exchange->response->status, one.status) << one.fields;
    EXPECT_EQ(error_of(*exchange)["param"], one.param);
    EXPECT_THAT(error_of(*exchange)["message"].get<std::string>(), HasSubstr(one.says));
    EXPECT_TRUE(error_of(*exchange).contains("type") && error_of(*exchange).contains("code"));
  }
  EXPECT_TRUE(engine.sent.empty());
}

TEST_F(GenerationTest, APromptBeyondTheContextIs400AlsoForAStream) {
  const auto exchange = complete(R"(,"stream":true,"prompt":")" + std::string(5000, 'x') + "\"");
  EXPECT_EQ(exchange->response->status, 400);
  EXPECT_EQ(error_of(*exchange)["code"], "context_length_exceeded");
  EXPECT_EQ(error_of(*exchange)["param"], "prompt");
  EXPECT_EQ(error_of(*exchange)["n_prompt_tokens"], 5001);
  EXPECT_EQ(error_of(*exchange)["n_ctx"], 4096);
}

TEST_F(GenerationTest, AnAnswerEndsWithTheContext) {
  complete(R"(,"max_tokens":100000)");
  EXPECT_EQ(engine.sent[1].max_tokens, 4093u);
  post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(engine.sent[2].max_tokens, 4096u - engine.sent[2].prompt.size());
  complete("");
  EXPECT_EQ(engine.sent[3].max_tokens, 16u);
}

TEST_F(GenerationTest, ASilentStreamIsKeptAliveByComments) {
  const auto exchange = complete(R"(,"stream":true)");
  clock.advance(milliseconds(limits::sse_keep_alive_ms));
  gateway.on_tick(clock.now());
  EXPECT_TRUE(exchange->headers.has_value());
  ASSERT_EQ(exchange->events.size(), 1u);
  EXPECT_EQ(exchange->events[0], ": keep-alive\n\n");
  gateway.on_tick(clock.now());
  EXPECT_EQ(exchange->events.size(), 1u);
}

TEST_F(GenerationTest, DrainingRefusesNewOnesAndLetsTheOthersFinish) {
  const auto running = complete("");
  gateway.begin_drain();
  EXPECT_EQ(body_of(*get("/health"))["status"], "draining");
  EXPECT_EQ(complete("")->response->status, 503);
  EXPECT_FALSE(gateway.idle());
  engine.give(1, "a");
  engine.finish(1, FinishReason::length);
  EXPECT_EQ(running->response->status, 200);
  EXPECT_TRUE(gateway.idle());
}

TEST_F(GenerationTest, TheEndOfADrainIsAnErrorForWhatStillRuns) {
  const auto running = complete(R"(,"stream":true)");
  engine.give(1, "a");
  gateway.end_generations();
  EXPECT_THAT(running->events.back(), HasSubstr("shutting down"));
  EXPECT_TRUE(gateway.idle());
}

TEST_F(GenerationTest, HealthNamesTheStateAndModelsNamesTheModel) {
  EXPECT_EQ(body_of(*get("/health")), (Json{{"status", "ok"}}));
  EXPECT_EQ(get("/health")->response->status, 200);
  for (const auto& [state, name] :
       {std::pair{GroupState::loading, "loading"}, std::pair{GroupState::recovering, "recovering"},
        std::pair{GroupState::draining, "draining"}, std::pair{GroupState::failed, "failed"}}) {
    engine.set_state(state);
    EXPECT_EQ(get("/health")->response->status, 503);
    EXPECT_EQ(body_of(*get("/health"))["status"], name);
    EXPECT_EQ(complete("")->response.has_value(), state != GroupState::recovering);
  }
  const Json models = body_of(*get("/v1/models"));
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
}

TEST_F(GenerationTest, MetricsCountWhatClientsGot) {
  EngineStatus status;
  status.state = GroupState::ready;
  status.running = 3;
  status.generated_tokens = 77;
  status.pages_used = 1;
  status.pages_total = 4;
  status.accepted_by_position = {5, 2};
  status.ranks.resize(2);
  status.ranks[1].sharded_bytes = 1234;
  status.ranks[1].last_timing.verify_us = 1500;
  engine.client.on({Role::coordinator, 0, 1}, status);
  complete("");
  clock.advance(milliseconds(30));
  engine.give(1, "a", false);
  clock.advance(milliseconds(10));
  engine.give(1, "bc");
  engine.finish(1, FinishReason::length);
  complete(R"(,"max_tokens":0)");
  const std::string text = get("/metrics")->response->body;
  for (const char* line :
       {"copse_num_requests_running{model_name=\"m\"} 3",
        "copse_generation_tokens_total{model_name=\"m\"} 77",
        "copse_kv_cache_usage_perc{model_name=\"m\"} 0.25",
        "copse_spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\",position=\"1\"} 2",
        "copse_request_success_total{model_name=\"m\",finished_reason=\"length\"} 1",
        "copse_request_refused_total{model_name=\"m\",status=\"400\"} 1",
        "copse_rank_sharded_bytes{model_name=\"m\",rank=\"1\"} 1234",
        "copse_time_to_first_token_seconds_count{model_name=\"m\"} 1",
        "copse_inter_token_latency_seconds_count{model_name=\"m\"} 2",
        "copse_e2e_request_latency_seconds_count{model_name=\"m\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("copse_rank_step_seconds{model_name=\"m\",rank=\"1\","
                              "phase=\"verify\"} 0.0015"));
}

}  // namespace
}  // namespace copse
