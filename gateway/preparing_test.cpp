// Bodies that take long to parse and encode, on a real socket: nobody else waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "gateway/http_client_for_test.h"

namespace copse {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class PreparingTest : public HttpTest {
 protected:
  PreparingTest() {
    service->body_ms = 20000;
    model.on_encode = [count = encoding_, opened = open_.get_future().share()] {
      ++*count;
      opened.wait();
    };
  }
  ~PreparingTest() override { release(); }

  // Until this, no prompt is encoded to its end.
  void release() {
    if (!std::exchange(released_, true)) open_.set_value();
  }
  std::unique_ptr<TestClient> client_with(const std::string& body) {
    auto client = std::make_unique<TestClient>(port());
    client->send(post("/v1/completions", body));
    return client;
  }
  std::unique_ptr<TestClient> encoding_client() {
    const int before = *encoding_;
    auto client = client_with(R"({"prompt":"x"})");
    EXPECT_TRUE(eventually([&] { return *encoding_ > before; }));
    return client;
  }
  static std::string large_body() {
    return R"({"prompt":")" + std::string(limits::chat_body_bytes - 100, 'x') + "\"}";
  }

 private:
  std::promise<void> open_;
  // Shared with work that may run on after the test.
  std::shared_ptr<std::atomic<int>> encoding_ = std::make_shared<std::atomic<int>>(0);
  bool released_ = false;
};

TEST_F(PreparingTest, HealthAnswersWhileEveryThreadIsBusy) {
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < limits::prepare_threads; ++i) clients.push_back(encoding_client());
  for (int i = 0; i < 14; ++i) clients.push_back(client_with(large_body()));
  EXPECT_THAT(health(), StartsWith("HTTP/1.1 200 "));
  on_server([this] { EXPECT_TRUE(engine.sent.empty()); });
  answer_every_submit("a", 1);
  release();
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const bool fits = i < limits::prepare_threads;
    EXPECT_THAT(clients[i]->response(), StartsWith(fits ? "HTTP/1.1 200 " : "HTTP/1.1 400 "));
  }
}

TEST_F(PreparingTest, AClientThatLeavesMeanwhileIsNotSubmitted) {
  auto client = encoding_client();
  client->close();
  EXPECT_TRUE(eventually([this] { return gateway.idle(); }));
  EXPECT_TRUE(eventually([this] { return listener->connections() == 0; }));
  release();
  answer_every_submit("a", 1);
  EXPECT_THAT(client_with(R"({"prompt":"y"})")->response(), StartsWith("HTTP/1.1 200 "));
  on_server([this] {
    ASSERT_EQ(engine.sent.size(), 1u);
    EXPECT_EQ(engine.sent.begin()->second.prompt[1], 'y');
  });
}

TEST_F(PreparingTest, MoreThanCanWaitIs429) {
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < limits::prepare_threads; ++i) clients.push_back(encoding_client());
  const std::string body = large_body();
  for (std::size_t held = 0; held <= limits::queued_prepare_bytes; held += body.size()) {
    clients.push_back(client_with(body));
  }
  // Whichever arrived last.
  bool refused = false;
  EXPECT_TRUE(eventually([&] {
    for (const auto& client : clients) refused = refused || client->ready();
    return refused;
  }));
  for (const auto& client : clients) {
    if (!client->ready()) continue;
    const std::string response = client->response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 429 "));
    EXPECT_THAT(response, HasSubstr("Retry-After: 1\r\n"));
  }
}

TEST_F(PreparingTest, ADrainLetsItFinish) {
  auto client = encoding_client();
  answer_every_submit("a", 1);
  on_server([this] {
    gateway.begin_drain();
    listener->drain();
    EXPECT_FALSE(gateway.idle());
  });
  release();
  EXPECT_THAT(client->until_closed(), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(eventually([this] { return gateway.idle(); }));
}

TEST_F(PreparingTest, TheEndOfADrainAnswersIt) {
  auto client = encoding_client();
  on_server([this] {
    gateway.begin_drain();
    gateway.end_generations();
    EXPECT_TRUE(gateway.idle());
  });
  EXPECT_THAT(client->response(), StartsWith("HTTP/1.1 503 "));
}

TEST_F(PreparingTest, AnEngineLostMeanwhileIs503) {
  auto client = encoding_client();
  on_server([this] { engine.lose(); });
  release();
  EXPECT_THAT(client->response(), StartsWith("HTTP/1.1 503 "));
}

}  // namespace
}  // namespace copse
