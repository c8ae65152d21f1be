#pragma once
// A blocking HTTP client on a bare socket that can also misbehave, and a whole gateway on a thread
// of its own to misbehave at.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "gateway/fakes_for_test.h"
#include "gateway/gateway.h"
#include "gateway/http_listener.h"

namespace copse {

class TestClient {
 public:
  explicit TestClient(std::uint16_t port, int receive_buffer = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // False if the server has closed the connection meanwhile.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // More bytes into the buffer; false at the end of the connection or after 10 s.
  bool receive() {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (::poll(&poll_fd, 1, 10000) != 1) return false;
    char block[4096];
    const ssize_t got = ::recv(fd_, block, sizeof(block), 0);
    if (got <= 0) return false;
    buffer_.append(block, static_cast<std::size_t>(got));
    return true;
  }
  // Ends the sending; answers still come.
  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  // Bytes wait to be received.
  bool ready() const {
    pollfd poll_fd{fd_, POLLIN, 0};
    return ::poll(&poll_fd, 1, 0) == 1;
  }
  std::string until(std::string_view mark) {
    std::size_t at = 0;
    while ((at = buffer_.find(mark)) == std::string::npos) {
      if (!receive()) return std::exchange(buffer_, {});
    }
    std::string text = buffer_.substr(0, at + mark.size());
    buffer_.erase(0, text.size());
    return text;
  }
  std::string until_closed() {
    while (receive()) {
    }
    return std::exchange(buffer_, {});
  }
  // Head and body of one response that has a Content-Length.
  std::string response() {
    std::string text = until("\r\n\r\n");
    const std::size_t at = text.find("Content-Length: ");
    if (at == std::string::npos) return text;
    const std::size_t length = std::stoul(text.substr(at + 16));
    while (buffer_.size() < length && receive()) {
    }
    text += buffer_.substr(0, length);
    buffer_.erase(0, length);
    return text;
  }

 private:
  int fd_;
  std::string buffer_;
};

class HttpTest : public ::testing::Test {
 protected:
  // Runs it on the server's thread and waits for the result.
  template <class Task>
  auto on_server(Task task) {
    std::packaged_task<decltype(task())()> packaged(std::move(task));
    auto done = packaged.get_future();
    boost::asio::post(io, [&packaged] { packaged(); });
    return done.get();
  }
  HttpTest() {
    service->handle = [this](const Route& route, HttpRequest request,
                             std::shared_ptr<Exchange> exchange) {
      gateway.handle(route, std::move(request), std::move(exchange));
    };
    service->request_number = [this] { return gateway.next_request_number(); };
    service->header_ms = 400;
    service->body_ms = 600;
    service->idle_ms = 1500;
    service->half_close_ms = 100;
    service->slow_client_ms = 700;
    auto opened = HttpListener::open(io, "127.0.0.1", 0, service);
    EXPECT_TRUE(opened.ok());
    listener = *opened;
    listener->start();
    thread = std::thread([this] { io.run(); });
  }
  ~HttpTest() override {
    on_server([this] {
      listener->drain();
      listener->close_all();
    });
    work.reset();
    thread.join();
  }

  template <class Condition>
  bool eventually(Condition condition, int milliseconds_max = 5000) {
    for (int waited = 0; waited < milliseconds_max; waited += 5) {
      if (on_server(condition)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // Every submit is answered by `count` messages of `text`, then its end.
  void answer_every_submit(std::string text, int count) {
    on_server([=, this] {
      engine.on_submit = [=, this](RequestId id) {
        boost::asio::post(io, [=, this] {
          for (int i = 0; i < count; ++i) engine.give(id, text);
          engine.finish(id, FinishReason::length);
        });
      };
    });
  }
  static std::string post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string stream_body(const std::string& prompt = "hi") {
    return R"({"prompt":")" + prompt + R"(","stream":true,"max_tokens":4000})";
  }
  std::uint16_t port() const { return listener->port(); }
  std::string health() {
    TestClient client(port());
    client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.response();
  }

  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  SteadyClock clock;
  SeededRandom random{5};
  ByteModel model;
  FakeEngine engine{clock};
  WorkQueue work_queue{[this](auto task) { boost::asio::post(io, std::move(task)); }};
  Gateway gateway{{engine.client, model, clock, random, &work_queue}, "m"};
  std::shared_ptr<HttpService> service = std::make_shared<HttpService>();
  std::shared_ptr<HttpListener> listener;
  std::thread thread;
};

}  // namespace copse
