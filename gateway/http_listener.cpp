#include "gateway/http_listener.h"

#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <chrono>

#include "base/limits.h"

namespace copse {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptRetry{100};
constexpr int kUnansweredMs = 20000;
constexpr int kSendBufferBytes = 64 << 10;

void set_int(int fd, int level, int option, int value) {
  // Best effort: a socket without one of these still serves.
  static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
}

// A client that vanished is noticed within limits, and one that does not read cannot hide behind a
// large buffer of the kernel's.
void set_options(tcp::socket& socket) {
  const int fd = socket.native_handle();
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set_int(fd, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
}

}  // namespace

HttpListener::HttpListener(asio::io_context& io, std::shared_ptr<HttpService> service)
    : io_(io), service_(std::move(service)), acceptor_(io), retry_(io) {}

Result<std::shared_ptr<HttpListener>> HttpListener::open(asio::io_context& io,
                                                         const std::string& host,
                                                         std::uint16_t port,
                                                         std::shared_ptr<HttpService> service) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) return Error{ErrorCode::invalid_argument, "host", "not an IP address"};
  std::shared_ptr<HttpListener> listener(new HttpListener(io, std::move(service)));
  tcp::acceptor& acceptor = listener->acceptor_;
  const tcp::endpoint endpoint(address, port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) {
    return Error{ErrorCode::io, "port",
                 "cannot listen on " + host + ":" + std::to_string(port) + ": " + error.message()};
  }
  listener->port_ = acceptor.local_endpoint(error).port();
  return listener;
}

void HttpListener::start() {
  accept();
}

void HttpListener::accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(
      [self = shared_from_this()](const boost::system::error_code& error, tcp::socket socket) {
        self->on_accepted(error, std::move(socket));
      });
}

void HttpListener::on_accepted(const boost::system::error_code& error, tcp::socket socket) {
  if (!acceptor_.is_open()) return;
  if (error && error != asio::error::connection_aborted) {
    // No descriptor or memory is left: the connection stays in the backlog, so an accept at once
    // would spin.
    spdlog::warn("a connection cannot be accepted: {}", error.message());
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) self->accept();
    });
    return;
  }
  if (!error && service_->sessions < static_cast<std::size_t>(limits::http_connections)) {
    set_options(socket);
    auto session = std::make_shared<HttpSession>(std::move(socket), service_);
    std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
    sessions_.push_back(session);
    session->start();
  }  // else the socket closes here
  accept();
}

void HttpListener::drain() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  service_->draining = true;
  for (const auto& weak : sessions_) {
    if (const auto session = weak.lock()) session->close_if_idle();
  }
}

void HttpListener::close_all() {
  for (const auto& weak : sessions_) {
    if (const auto session = weak.lock()) session->close();
  }
}

}  // namespace copse
