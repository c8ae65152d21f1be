// The gateway on a real loopback socket: framing, limits and deadlines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/http_client_for_test.h"

namespace copse {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

TEST_F(HttpTest, KeepsTheConnectionForTheNextRequest) {
  TestClient client(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send("GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: my.id-1\r\n\r\n"));
    const std::string response = client.response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(response, HasSubstr("X-Request-Id: my.id-1\r\n"));
    EXPECT_THAT(response, EndsWith("\r\n\r\n{\"status\":\"ok\"}"));
  }
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.until_closed(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpTest, AWildRequestIdIsReplaced) {
  TestClient client(port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\"<script>\r\n\r\n");
  EXPECT_THAT(client.response(), HasSubstr("X-Request-Id: req-"));
}

TEST_F(HttpTest, AnIdleConnectionIsClosed) {
  TestClient client(port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  client.response();
  const auto start = Clock::now();
  EXPECT_EQ(client.until_closed(), "");
  EXPECT_GE(since(start).count(), 1000);
}

TEST_F(HttpTest, HeadHasTheLengthAndNoBody) {
  TestClient client(port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string response = client.until_closed();
  EXPECT_THAT(response, HasSubstr("Content-Length: 15\r\n"));
  EXPECT_THAT(response, EndsWith("\r\n\r\n"));
}

TEST_F(HttpTest, OptionsNamesTheMethods) {
  TestClient client(port());
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string response = client.until_closed();
  EXPECT_THAT(response, StartsWith("HTTP/1.1 204 "));
  EXPECT_THAT(response, HasSubstr("Allow: POST, OPTIONS\r\n"));
}

TEST_F(HttpTest, UnknownPathsAndMethodsAreJsonErrorsAndTheConnectionGoesOn) {
  TestClient client(port());
  client.send("GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n");
  std::string response = client.response();
  EXPECT_THAT(response, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(response, HasSubstr("\"type\":\"invalid_request_error\""));
  client.send("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n");
  response = client.response();
  EXPECT_THAT(response, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(response, HasSubstr("Allow: GET, HEAD, OPTIONS\r\n"));
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, BadFramingIsRefusedAndTheConnectionClosed) {
  const std::string post_head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {post_head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {post_head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "400"},
      {post_head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "400"},
      {post_head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400"},
      {post_head + "Content-Length: -1\r\n\r\n", "400"},
      {post_head + "Content-Length: 99999999999999999999\r\n\r\n", "400"},
      {post_head + "Transfer-Encoding: gzip\r\n\r\n", "501"},
      {post_head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {post_head + "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n0\r\n\r\n", "400"},
      {post_head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A: 1\r\n\r\n", "400"},
      {post_head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {post_head + "X-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\n{}", "400"},
      {post_head + "X-A: \r\n\t2\r\nContent-Length: 2\r\n\r\n{}", "400"},
      {post_head + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "415"},
      {post_head + "Content-Encoding: identity, br\r\nContent-Length: 2\r\n\r\n{}", "415"},
      {post_head +
           "Content-Encoding: identity\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
       "415"},
      {post_head + "Expect: a-miracle\r\nContent-Length: 2\r\n\r\n{}", "417"},
      {"GET /health HTTP/1.1\r\n\r\n", "400"},
      {"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
      {"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", "400"},
      {"GET /health HTTP/1.1\r\nHost: x\r\nbad field\r\n\r\n", "400"},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n", "400"},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient client(port());
    client.send(bytes);
    EXPECT_THAT(client.until_closed(), StartsWith(std::string("HTTP/1.1 ") + status + " "))
        << bytes;
  }
  EXPECT_THAT(health(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, AContinuedLineIsRefusedHoweverItArrives) {
  const std::string bytes = "GET /health HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n 2\r\n\r\n";
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    TestClient client(port());
    client.send(bytes.substr(0, cut));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client.send(bytes.substr(cut));
    EXPECT_THAT(client.until_closed(), StartsWith("HTTP/1.1 400 ")) << cut;
  }
}

TEST_F(HttpTest, AHeaderInSingleBytesIsAHeader) {
  TestClient client(port());
  for (const char c : std::string("GET /health HTTP/1.1\r\nHost: x\r\nX-A: 1  2\r\n\r\n")) {
    client.send({&c, 1});
  }
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, AnUnencodedBodyMaySaySo) {
  answer_every_submit("a", 1);
  TestClient client(port());
  client.send(post("/v1/completions", R"({"prompt":"x"})", "Content-Encoding: Identity\r\n"));
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, AnOversizedHeaderIs431) {
  TestClient client(port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nX-Big: " + std::string(1 << 20, 'a') +
              "\r\n\r\n");
  EXPECT_THAT(client.until_closed(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpTest, AnOversizedBodyIs413BeforeItIsRead) {
  TestClient announced(port());
  announced.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n");
  EXPECT_THAT(announced.until_closed(), StartsWith("HTTP/1.1 413 "));
  TestClient other_route(port());
  other_route.send("GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
  EXPECT_THAT(other_route.until_closed(), StartsWith("HTTP/1.1 413 "));
  TestClient chunked(port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(65536, ' ') + "\r\n";
  for (int i = 0; i < 65; ++i) chunked.send(chunk);
  EXPECT_THAT(chunked.until_closed(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpTest, AMillionTinyChunksAreABody) {
  TestClient client(port());
  std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 500000; ++i) bytes += "1\r\n \r\n";
  bytes += "0\r\n\r\n";
  client.send(bytes);
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 400 ")) << "blanks are no JSON";
}

TEST_F(HttpTest, ADrippingHeaderIs408WithinItsDeadline) {
  TestClient client(port());
  const auto start = Clock::now();
  const std::string head =
      "GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (const char c : head) {
    if (!client.send({&c, 1})) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  EXPECT_THAT(client.until_closed(), StartsWith("HTTP/1.1 408 "));
  EXPECT_LT(since(start).count(), 4000);
}

TEST_F(HttpTest, ASilentConnectionIsClosedWithoutAWord) {
  TestClient client(port());
  const auto start = Clock::now();
  EXPECT_EQ(client.until_closed(), "");
  EXPECT_LT(since(start).count(), 3000);
}

TEST_F(HttpTest, ADrippingBodyIs408) {
  TestClient client(port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
  EXPECT_THAT(client.until_closed(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(HttpTest, ExpectContinueIsAnsweredBeforeTheBody) {
  answer_every_submit("a", 1);
  TestClient client(port());
  const std::string body = R"({"prompt":"x"})";
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(body);
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, BadBodiesAreRefusedAndTheConnectionGoesOn) {
  TestClient client(port());
  for (const char* body : {"", "{: \"model\"", "[]", "{\"prompt\":\"\xff\"}", "{\"prompt\":null}",
                           "{\"prompt\":\"x\",\"temperature\":NaN}"}) {
    client.send(post("/v1/completions", body));
    const std::string response = client.response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 400 ")) << body;
    EXPECT_THAT(response, HasSubstr("\"error\"")) << body;
  }
  client.send(post("/v1/chat/completions", "{\"messages\":" + std::string(100000, '[')));
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 400 "));
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.response(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, Http10StreamsAreUnchunkedAndEndWithTheConnection) {
  answer_every_submit("ab", 2);
  TestClient client(port());
  const std::string body = stream_body();
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  const std::string response = client.until_closed();
  EXPECT_THAT(response, StartsWith("HTTP/1.0 200 OK\r\n"));
  EXPECT_THAT(response, Not(HasSubstr("chunked")));
  EXPECT_THAT(response, EndsWith("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace copse
