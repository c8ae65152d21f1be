// Streams over a real socket: clients that leave, do not read, come in numbers, or come at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <vector>

#include "gateway/http_client_for_test.h"

namespace copse {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The text of a chunked stream of text completions.
std::string stream_text(const std::string& response) {
  std::string text;
  for (std::size_t at = 0; (at = response.find("\"text\":\"", at)) != std::string::npos;) {
    at += 8;
    const std::size_t end = response.find('"', at);
    text += response.substr(at, end - at);
  }
  return text;
}

TEST_F(HttpTest, AStreamIsEventsInChunksAndTheConnectionGoesOn) {
  answer_every_submit("ab", 3);
  TestClient client(port());
  for (int i = 0; i < 2; ++i) {
    client.send(post("/v1/completions", stream_body()));
    const std::string response = client.until("\r\n0\r\n\r\n");
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(response, HasSubstr("Content-Type: text/event-stream"));
    EXPECT_THAT(response, HasSubstr("Cache-Control: no-cache\r\n"));
    EXPECT_THAT(response, HasSubstr("X-Accel-Buffering: no\r\n"));
    EXPECT_THAT(response, HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_THAT(response, HasSubstr("data: [DONE]\n\n"));
    EXPECT_EQ(stream_text(response), "ababab");
  }
}

TEST_F(HttpTest, AClientThatLeavesIsNoticedThoughNothingIsWritten) {
  auto client = std::make_unique<TestClient>(port());
  client->send(post("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  client->close();
  EXPECT_TRUE(eventually([this] { return engine.cancelled.size() == 1; }, 1000));
}

TEST_F(HttpTest, AClientThatLeavesInTheMiddleOfAStreamCancelsIt) {
  auto client = std::make_unique<TestClient>(port());
  client->send(post("/v1/completions", stream_body()));
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  on_server([this] { engine.give(1, "abc"); });
  EXPECT_THAT(client->until("\n\n"), HasSubstr("abc"));
  client->close();
  ASSERT_TRUE(eventually([this] { return engine.cancelled.size() == 1; }, 1000));
  on_server([this] {
    EXPECT_EQ(engine.cancelled[0].delivered_tokens, 3u);
    EXPECT_EQ(engine.cancelled[0].reason, FinishReason::abort);
    engine.finish(1, FinishReason::abort);
  });
  EXPECT_TRUE(eventually([this] { return listener->connections() == 0; }));
}

// A client may end its sending once its request is out, as scripts with pipes do.
TEST_F(HttpTest, AHalfClosedClientGetsItsAnswer) {
  answer_every_submit("ab", 2);
  for (const bool stream : {false, true}) {
    TestClient client(port());
    client.send(post("/v1/completions", stream ? stream_body() : R"({"prompt":"x"})"));
    client.end_sending();
    const std::string response = client.until_closed();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(response, HasSubstr(stream ? "[DONE]" : "\"abab\""));
  }
  on_server([this] { EXPECT_TRUE(engine.cancelled.empty()); });
}

TEST_F(HttpTest, AHalfClosedClientIsAskedWhetherItIsThereAndWaitsOn) {
  for (const char* version : {"1.1", "1.0"}) {
    const RequestId id = on_server([this] { return engine.sent.size() + 1; });
    TestClient client(port());
    client.send(std::string("POST /v1/completions HTTP/") + version +
                "\r\nHost: x\r\nContent-Length: 14\r\n\r\n" + R"({"prompt":"x"})");
    client.end_sending();
    ASSERT_TRUE(eventually([&] { return engine.sent.size() == id; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    on_server([&] {
      engine.give(id, "abc");
      engine.finish(id, FinishReason::length);
    });
    const std::string interim =
        version == std::string("1.1") ? "HTTP/1.1 100 Continue\r\n\r\n" : "";
    const std::string response = client.until_closed();
    EXPECT_THAT(response, StartsWith(interim + "HTTP/" + version + " 200 "));
    EXPECT_THAT(response, HasSubstr("\"abc\""));
  }
}

TEST_F(HttpTest, AHalfClosedStreamIsAskedByACommentAndGoesOn) {
  TestClient client(port());
  client.send(post("/v1/completions", stream_body()));
  client.end_sending();
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  on_server([this] { engine.give(1, "ab"); });
  client.until("\"ab\"");
  EXPECT_THAT(client.until(": keep-alive\n\n"), HasSubstr("\n\n"));
  on_server([this] {
    engine.give(1, "cd");
    engine.finish(1, FinishReason::length);
  });
  EXPECT_THAT(client.until_closed(), EndsWith("data: [DONE]\n\n\r\n0\r\n\r\n"));
}

TEST_F(HttpTest, AFinishedStreamIsNotCancelledWhenItsClientLeaves) {
  answer_every_submit("a", 1);
  auto client = std::make_unique<TestClient>(port());
  client->send(post("/v1/completions", stream_body()));
  client->until("[DONE]");
  client->close();
  EXPECT_TRUE(eventually([this] { return listener->connections() == 0; }));
  on_server([this] { EXPECT_TRUE(engine.cancelled.empty()); });
}

TEST_F(HttpTest, SixteenStreamsAtOnceEachGetTheirOwnText) {
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(std::make_unique<TestClient>(port()));
    clients.back()->send(
        post("/v1/completions", stream_body(std::string(1, static_cast<char>('a' + i)))));
  }
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 16; }));
  for (int round = 0; round < 20; ++round) {
    on_server([this] {
      for (const auto& [id, submit] : engine.sent) {
        engine.give(id, std::string(2, static_cast<char>(submit.prompt[1])));
      }
    });
  }
  on_server([this] {
    for (const auto& [id, submit] : engine.sent) engine.finish(id, FinishReason::length);
  });
  for (int i = 0; i < 16; ++i) {
    const std::string response = clients[static_cast<std::size_t>(i)]->until("\r\n0\r\n\r\n");
    EXPECT_EQ(stream_text(response), std::string(40, static_cast<char>('a' + i)));
  }
}

TEST_F(HttpTest, AClientThatDoesNotReadIsBoundedAndThenCancelled) {
  TestClient slow(port(), 4096);
  slow.send(post("/v1/completions", stream_body()));
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  // Far more than the kernel's buffers hold. The coordinator would pause at the credit's end.
  std::uint32_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    on_server([&] {
      if (engine.cancelled.empty()) engine.give(1, std::string(32, 'x'));
      engine.client.on_tick(clock.now());
      for (const auto& backlog : engine.heartbeat.backlogs) most = std::max(most, backlog.events);
    });
  }
  EXPECT_THAT(health(), StartsWith("HTTP/1.1 200 ")) << "others are served meanwhile";
  EXPECT_TRUE(eventually([this] { return engine.cancelled.size() == 1; }, 5000));
  EXPECT_GT(most, static_cast<std::uint32_t>(limits::stream_outbox_events)) << "the credit is told";
  on_server([this] { engine.finish(1, FinishReason::abort); });
  EXPECT_TRUE(eventually([this] { return listener->connections() == 0; }));
}

TEST_F(HttpTest, ASlowClientThatReadsInTheEndGetsEverything) {
  TestClient slow(port(), 4096);
  slow.send(post("/v1/completions", stream_body()));
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  on_server([this] {
    for (int i = 0; i < 3000; ++i) engine.give(1, std::string(32, static_cast<char>('a' + i % 26)));
    engine.finish(1, FinishReason::length);
  });
  const std::string response = slow.until("\r\n0\r\n\r\n");
  const std::string text = stream_text(response);
  ASSERT_EQ(text.size(), 3000u * 32u);
  for (std::size_t i = 0; i < text.size(); ++i) {
    ASSERT_EQ(text[i], static_cast<char>('a' + (i / 32) % 26)) << i;
  }
}

TEST_F(HttpTest, DrainClosesIdleConnectionsAndLetsStreamsFinish) {
  TestClient idle(port());
  idle.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.response();
  TestClient running(port());
  running.send(post("/v1/completions", stream_body()));
  ASSERT_TRUE(eventually([this] { return engine.sent.size() == 1; }));
  on_server([this] {
    engine.give(1, "ab");
    gateway.begin_drain();
    listener->drain();
  });
  EXPECT_EQ(idle.until_closed(), "");
  on_server([this] {
    EXPECT_FALSE(gateway.idle());
    engine.finish(1, FinishReason::length);
    EXPECT_TRUE(gateway.idle());
  });
  EXPECT_THAT(running.until_closed(), EndsWith("data: [DONE]\n\n\r\n0\r\n\r\n"));
}

TEST_F(HttpTest, ATakenPortIsAnErrorThatNamesIt) {
  boost::asio::io_context other;
  const auto second =
      HttpListener::open(other, "127.0.0.1", port(), std::make_shared<HttpService>());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(port())));
  EXPECT_THAT(second.error().message, HasSubstr("in use"));
  EXPECT_EQ(
      HttpListener::open(other, "not-a-host", 0, std::make_shared<HttpService>()).error().field,
      "host");
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(HttpTest, JunkFromManyConnectionsLeavesNoDescriptorBehind) {
  health();
  ASSERT_TRUE(eventually([this] { return listener->connections() == 0; }));
  const std::size_t before = open_descriptors();
  SeededRandom junk(3);
  for (int i = 0; i < 300; ++i) {
    TestClient client(port());
    std::string bytes;
    for (std::uint64_t k = junk.below(200); k > 0; --k) bytes += static_cast<char>(junk.below(256));
    client.send(bytes);
  }
  EXPECT_TRUE(eventually([this] { return listener->connections() == 0; }));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_THAT(health(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, WithoutDescriptorsItBacksOffAndThenGoesOn) {
  health();
  ASSERT_TRUE(eventually([this] { return listener->connections() == 0; }));
  TestClient waiting(port());
  ASSERT_TRUE(eventually([this] { return listener->connections() == 1; }));
  const int socket_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit none = old;
  none.rlim_cur = static_cast<rlim_t>(socket_fd) + 1;  // descriptors below are all taken
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::clock_t cpu = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.3) << "it spins";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_GT(::send(socket_fd, request.data(), request.size(), MSG_NOSIGNAL), 0);
  char answer[16] = {};
  EXPECT_EQ(::recv(socket_fd, answer, 12, MSG_WAITALL), 12);
  EXPECT_EQ(std::string(answer), "HTTP/1.1 200");
  ::close(socket_fd);
}

}  // namespace
}  // namespace copse
