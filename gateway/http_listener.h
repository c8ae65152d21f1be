#pragma once
// The gateway's one open port: accepts connections up to a limit and starts a session for each.
#include <utility>  // before Asio: g++ 12

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/http_session.h"

namespace copse {

class HttpListener : public std::enable_shared_from_this<HttpListener> {
 public:
  // Binds at once. `host` is an address or "localhost"; port 0 takes a free one. invalid_argument:
  // no such address; io: the port is taken or not allowed, `message` says which.
  static Result<std::shared_ptr<HttpListener>> open(boost::asio::io_context& io,
                                                    const std::string& host, std::uint16_t port,
                                                    std::shared_ptr<HttpService> service);

  void start();
  std::uint16_t port() const { return port_; }
  std::size_t connections() const { return service_->sessions; }
  // No new connection, and none is kept after its answer.
  void drain();
  void close_all();

 private:
  HttpListener(boost::asio::io_context& io, std::shared_ptr<HttpService> service);
  void accept();
  void on_accepted(const boost::system::error_code& error, boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& io_;
  std::shared_ptr<HttpService> service_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::vector<std::weak_ptr<HttpSession>> sessions_;
  std::uint16_t port_ = 0;
};

}  // namespace copse
