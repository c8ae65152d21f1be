#pragma once
// One client's connection: reads a request within its deadlines and bounds, hands it to the routes,
// writes the answer, and does so again while the client keeps the connection. No pipelining. A read
// is pending whenever a request runs, so that a client who leaves is noticed. One that only ends
// its own sending looks the same: it is asked by a few bytes that no client minds, which a socket
// that is gone answers with a reset.
#include <utility>  // before Asio: g++ 12

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "gateway/exchange.h"
#include "gateway/http_message.h"
#include "gateway/routes.h"

namespace copse {

// What sessions share. It outlives them, also while an io_context is torn down.
struct HttpService {
  std::function<void(const Route&, HttpRequest, std::shared_ptr<Exchange>)> handle;
  std::function<std::uint64_t()> request_number;
  std::size_t sessions = 0;
  bool draining = false;  // no connection is kept after its answer
  // Deadlines in milliseconds; tests shorten them.
  std::int64_t header_ms;
  std::int64_t body_ms;
  std::int64_t idle_ms;
  std::int64_t half_close_ms;
  std::int64_t slow_client_ms;
  HttpService();
};

class HttpSession final : public Exchange, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpService> service);
  ~HttpSession() override;

  void start();
  // Ends the connection unless a request is being read, runs or is answered.
  void close_if_idle();
  // Ends it now; a request that runs is told that its client is gone.
  void close();

  void respond(HttpResponse response) override;
  void begin_stream(const HttpHeaders& headers) override;
  WriteResult write(std::string event) override;
  void end_stream() override;
  std::size_t queued_events() const override { return events_.size() + events_in_flight_; }
  void when_closed(std::function<void()> callback) override { closed_ = std::move(callback); }
  void when_room(std::function<void()> callback) override { room_ = std::move(callback); }

 private:
  enum class State : std::uint8_t {
    idle,      // waiting for the first byte of a request
    reading,   // header or body
    handling,  // the routes have it, nothing is sent
    streaming,
    finishing,  // the last bytes of the answer are on their way
    lingering,  // answered and half closed: what still comes is read and dropped
    closed,
  };
  struct Incoming;  // buffer and parser: the HTTP library stays in the .cpp
  using ErrorCodeAsio = boost::system::error_code;

  void wait_for_bytes();
  void on_bytes(const ErrorCodeAsio& error, std::size_t count);
  void keep_bytes(std::size_t count);
  void read_header();
  void parse_header();
  void on_header();
  void continue_then_read_body();
  void read_body();
  void dispatch();
  void on_read_failed(const ErrorCodeAsio& error);
  void on_half_closed();
  void ask_whether_there();
  void refuse(int status, const std::string& allow = "");

  void flush();
  std::string next_batch();
  void on_written(const ErrorCodeAsio& error);
  void next_request();
  void linger();

  void arm_read_deadline(std::int64_t ms);
  void on_read_deadline();
  void arm_write_deadline();
  void drop_callbacks();
  void close_socket();

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<HttpService> service_;
  std::unique_ptr<Incoming> incoming_;
  std::array<char, 1024> spare_;  // where a read beside a running request lands
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  std::uint64_t read_deadline_ = 0;  // which one is armed: an expired one that is not is stale
  std::uint64_t write_deadline_ = 0;
  State state_ = State::idle;
  bool read_pending_ = false;
  bool timed_out_ = false;
  bool close_after_ = false;
  bool half_closed_ = false;  // the client sends no more, or is gone
  bool http_1_0_ = false;
  bool head_only_ = false;
  bool chunked_ = false;

  std::string raw_;  // head and body of an answer, or a stream's head
  std::size_t raw_sent_ = 0;
  std::deque<std::string> events_;  // bounded: write() says full
  std::size_t events_in_flight_ = 0;
  bool end_marker_due_ = false;  // the empty chunk
  bool was_full_ = false;
  std::string batch_;  // what async_write holds
  bool writing_ = false;
  std::function<void()> closed_;
  std::function<void()> room_;
};

}  // namespace copse
