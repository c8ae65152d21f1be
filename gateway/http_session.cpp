#include "gateway/http_session.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "base/limits.h"
#include "gateway/http_rules.h"
#include "gateway/openai/api_error.h"
#include "gateway/sse_stream.h"

namespace copse {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t kBufferBytes = 64u << 10;  // of unparsed input
constexpr std::size_t kBatchBytes = 16u << 10;   // of one write: a slow client must take it in time
constexpr std::int64_t kLingerMs = 2000;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

HttpService::HttpService()
    : header_ms(limits::http_header_ms),
      body_ms(limits::http_body_ms),
      idle_ms(limits::http_idle_ms),
      half_close_ms(limits::half_close_ms),
      slow_client_ms(limits::slow_client_ms) {}

struct HttpSession::Incoming {
  boost::beast::flat_buffer buffer{kBufferBytes};
  std::optional<RequestParser> parser;
  const Route* route = nullptr;
  std::size_t fields = 0;
};

HttpSession::HttpSession(asio::ip::tcp::socket socket, std::shared_ptr<HttpService> service)
    : socket_(std::move(socket)),
      service_(std::move(service)),
      incoming_(std::make_unique<Incoming>()),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()) {
  ++service_->sessions;
}

HttpSession::~HttpSession() {
  --service_->sessions;
}

void HttpSession::start() {
  // One deadline from the connection to the end of the first header: a client that drips bytes
  // cannot renew it.
  arm_read_deadline(service_->header_ms);
  wait_for_bytes();
}

// --- reading ------------------------------------------------------------------------------------

void HttpSession::wait_for_bytes() {
  if (read_pending_ || state_ == State::closed) return;
  read_pending_ = true;
  socket_.async_read_some(asio::buffer(spare_), [self = shared_from_this()](
                                                    const ErrorCodeAsio& error, std::size_t count) {
    self->read_pending_ = false;
    self->on_bytes(error, count);
  });
}

void HttpSession::on_bytes(const ErrorCodeAsio& error, std::size_t count) {
  switch (state_) {
    case State::idle:
      if (error) return close_socket();
      keep_bytes(count);
      return read_header();
    case State::handling:
    case State::streaming:
      if (error == asio::error::eof) return on_half_closed();
      if (error) return close();
      close_after_ = true;  // a second request before the first is answered: pipelining is off
      return wait_for_bytes();
    case State::finishing:
      // The client may have the whole answer before we know that it is written.
      if (error) {
        close_after_ = true;
      } else {
        keep_bytes(count);
      }
      return;
    case State::lingering:
      return error ? close_socket() : wait_for_bytes();
    case State::reading:
    case State::closed:
      return;
  }
}

void HttpSession::keep_bytes(std::size_t count) {
  auto& buffer = incoming_->buffer;
  if (buffer.size() + count > kBufferBytes) {
    close_after_ = true;  // only a client that pipelines without end comes here
    return;
  }
  buffer.commit(asio::buffer_copy(buffer.prepare(count), asio::buffer(spare_, count)));
}

void HttpSession::read_header() {
  state_ = State::reading;
  http_1_0_ = false;
  head_only_ = false;
  incoming_->parser.emplace();
  limit_parser(*incoming_->parser);
  parse_header();
}

void HttpSession::parse_header() {
  auto& buffer = incoming_->buffer;
  const auto bytes = buffer.cdata();
  ErrorCodeAsio error;
  buffer.consume(put_header(*incoming_->parser,
                            {static_cast<const char*>(bytes.data()), bytes.size()}, error));
  if (error && error != http::error::need_more) return on_read_failed(error);
  if (incoming_->parser->is_header_done()) return on_header();
  socket_.async_read_some(
      buffer.prepare(limits::http_header_bytes),
      [self = shared_from_this()](const ErrorCodeAsio& failed, std::size_t count) {
        if (self->state_ == State::closed) return;
        if (failed) return self->on_read_failed(failed);
        self->incoming_->buffer.commit(count);
        self->parse_header();
      });
}

void HttpSession::on_header() {
  const auto& message = incoming_->parser->get();
  http_1_0_ = message.version() == 10;
  head_only_ = message.method() == http::verb::head;
  close_after_ = !message.keep_alive() || service_->draining;
  const HeaderVerdict verdict = judge_header(*incoming_->parser);
  if (verdict.route == nullptr) return refuse(verdict.status, verdict.allow);
  incoming_->route = verdict.route;
  incoming_->fields = count_fields(*incoming_->parser);
  arm_read_deadline(service_->body_ms);
  if (verdict.expects_continue && !incoming_->parser->is_done()) return continue_then_read_body();
  read_body();
}

void HttpSession::continue_then_read_body() {
  asio::async_write(socket_, asio::buffer(kContinue, sizeof(kContinue) - 1),
                    [self = shared_from_this()](const ErrorCodeAsio& error, std::size_t) {
                      if (self->state_ == State::closed) return;
                      if (error) return self->on_read_failed(error);
                      self->read_body();
                    });
}

void HttpSession::read_body() {
  http::async_read(socket_, incoming_->buffer, *incoming_->parser,
                   [self = shared_from_this()](const ErrorCodeAsio& error, std::size_t) {
                     if (self->state_ == State::closed) return;
                     if (error) return self->on_read_failed(error);
                     self->dispatch();
                   });
}

void HttpSession::dispatch() {
  ++read_deadline_;  // disarmed
  read_timer_.cancel();
  if (has_trailers(*incoming_->parser, incoming_->fields)) return refuse(400);
  HttpRequest request = to_request(*incoming_->parser, service_->request_number());
  incoming_->parser.reset();
  state_ = State::handling;
  service_->handle(*incoming_->route, std::move(request), shared_from_this());
  if (state_ == State::handling || state_ == State::streaming) wait_for_bytes();
}

void HttpSession::on_read_failed(const ErrorCodeAsio& error) {
  if (timed_out_) return refuse(408);
  const int status = status_of(error);
  if (status == 0) return close_socket();
  refuse(status);
}

// The client ended its side: with shutdown() it still waits for its answer, with close() it is
// gone.
void HttpSession::on_half_closed() {
  half_closed_ = true;
  close_after_ = true;
  // Its reset, should one come: reads say nothing but the end any more.
  socket_.async_wait(asio::ip::tcp::socket::wait_error,
                     [self = shared_from_this()](const ErrorCodeAsio& error) {
                       if (!error) self->close();
                     });
  arm_read_deadline(service_->half_close_ms);
}

void HttpSession::ask_whether_there() {
  if (state_ == State::streaming) {
    if (events_.empty()) static_cast<void>(write(sse_keep_alive()));
    return;  // from now on the stream's own events ask
  }
  if (http_1_0_) return;  // knows no interim responses: the answer itself will ask
  raw_ = kContinue;
  flush();
  arm_read_deadline(limits::sse_keep_alive_ms);
}

void HttpSession::refuse(int status, const std::string& allow) {
  ++read_deadline_;
  read_timer_.cancel();
  state_ = State::handling;
  HttpResponse response;
  if (status == 204) {
    response.status = 204;
    response.content_type.clear();
  } else {
    response = error_response(http_error(status));
  }
  if (!allow.empty()) response.headers.emplace_back("Allow", allow);
  // What is left of a refused request cannot be told from the next one, unless it had no body.
  const bool framed = status == 204 || status == 404 || status == 405;
  if (!framed || !incoming_->parser || !incoming_->parser->is_done()) close_after_ = true;
  respond(std::move(response));
}

// --- writing ------------------------------------------------------------------------------------

void HttpSession::respond(HttpResponse response) {
  if (state_ == State::closed) return;
  CHECK(state_ == State::handling);
  state_ = State::finishing;
  raw_ = serialize_head({response.status, http_1_0_, !close_after_, false, &response.content_type,
                         response.body.size(), &response.headers});
  if (!head_only_) raw_ += response.body;
  raw_sent_ = 0;
  drop_callbacks();
  flush();
}

void HttpSession::begin_stream(const HttpHeaders& headers) {
  if (state_ == State::closed) return;
  CHECK(state_ == State::handling);
  state_ = State::streaming;
  chunked_ = !http_1_0_;
  if (!chunked_) close_after_ = true;  // the end of the connection is the end of the body
  static const std::string kEventStream = "text/event-stream; charset=utf-8";
  raw_ = serialize_head({200, http_1_0_, !close_after_, chunked_, &kEventStream, 0, &headers});
  raw_sent_ = 0;
  flush();
}

WriteResult HttpSession::write(std::string event) {
  if (state_ != State::streaming) return WriteResult::closed;
  if (queued_events() >= static_cast<std::size_t>(limits::stream_outbox_events)) {
    was_full_ = true;
    return WriteResult::full;
  }
  events_.push_back(std::move(event));
  flush();
  return WriteResult::ok;
}

void HttpSession::end_stream() {
  if (state_ == State::closed) return;
  CHECK(state_ == State::streaming);
  state_ = State::finishing;
  end_marker_due_ = chunked_;
  drop_callbacks();
  flush();
}

std::string HttpSession::next_batch() {
  if (raw_sent_ < raw_.size()) {
    std::string batch = raw_.substr(raw_sent_, 4 * kBatchBytes);
    raw_sent_ += batch.size();
    if (raw_sent_ == raw_.size()) {
      raw_.clear();
      raw_sent_ = 0;
    }
    return batch;
  }
  std::string content;
  while (!events_.empty() && content.size() < kBatchBytes) {
    content += events_.front();
    events_.pop_front();
    ++events_in_flight_;
  }
  std::string batch;
  if (!content.empty()) batch = chunked_ ? serialize_chunk(content) : std::move(content);
  if (events_.empty() && std::exchange(end_marker_due_, false)) batch += serialize_chunk("");
  return batch;
}

void HttpSession::flush() {
  if (writing_ || state_ == State::closed) return;
  batch_ = next_batch();
  if (batch_.empty()) {
    if (state_ == State::finishing) next_request();
    return;
  }
  writing_ = true;
  arm_write_deadline();
  asio::async_write(socket_, asio::buffer(batch_),
                    [self = shared_from_this()](const ErrorCodeAsio& error, std::size_t) {
                      self->writing_ = false;
                      self->on_written(error);
                    });
}

void HttpSession::on_written(const ErrorCodeAsio& error) {
  if (state_ == State::closed) return;
  if (error) return close();
  ++write_deadline_;  // disarmed
  events_in_flight_ = 0;
  flush();
  if (was_full_ && queued_events() <= static_cast<std::size_t>(limits::stream_outbox_events) / 2) {
    was_full_ = false;
    if (const auto room = room_) room();  // a copy: the callee may end the stream
  }
}

// The answer is written: wait for the next request, or end the connection.
void HttpSession::next_request() {
  if (close_after_ || service_->draining) return linger();
  chunked_ = false;
  state_ = State::idle;
  if (incoming_->buffer.size() > 0) {
    arm_read_deadline(service_->header_ms);
    return read_header();
  }
  arm_read_deadline(service_->idle_ms);
  wait_for_bytes();
}

// A close with unread input would reset the connection, and the client might lose the answer.
void HttpSession::linger() {
  state_ = State::lingering;
  ErrorCodeAsio ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  arm_read_deadline(kLingerMs);
  wait_for_bytes();
}

// --- deadlines and the end ----------------------------------------------------------------------

void HttpSession::arm_read_deadline(std::int64_t ms) {
  read_timer_.expires_after(std::chrono::milliseconds(ms));
  read_timer_.async_wait(
      [self = shared_from_this(), armed = ++read_deadline_](const ErrorCodeAsio& error) {
        if (!error && armed == self->read_deadline_) self->on_read_deadline();
      });
}

void HttpSession::on_read_deadline() {
  if (half_closed_ && (state_ == State::handling || state_ == State::streaming)) {
    return ask_whether_there();
  }
  if (half_closed_ && state_ == State::finishing) return;  // the write has its own deadline
  if (state_ != State::reading) return close_socket();
  timed_out_ = true;
  ErrorCodeAsio ignored;
  socket_.cancel(ignored);  // the pending read ends, and answers 408
}

void HttpSession::arm_write_deadline() {
  write_timer_.expires_after(std::chrono::milliseconds(service_->slow_client_ms));
  write_timer_.async_wait(
      [self = shared_from_this(), armed = ++write_deadline_](const ErrorCodeAsio& error) {
        if (!error && armed == self->write_deadline_) self->close();
      });
}

void HttpSession::drop_callbacks() {
  // Moved out first: what they hold may call back while it is destroyed.
  const auto closed = std::exchange(closed_, nullptr);
  const auto room = std::exchange(room_, nullptr);
}

void HttpSession::close_if_idle() {
  if (state_ == State::idle) close_socket();
}

void HttpSession::close_socket() {
  if (std::exchange(state_, State::closed) == State::closed) return;
  read_timer_.cancel();
  write_timer_.cancel();
  ErrorCodeAsio ignored;
  socket_.close(ignored);
  events_.clear();
}

void HttpSession::close() {
  if (state_ == State::closed) return;
  close_socket();
  const auto closed = std::exchange(closed_, nullptr);
  const auto room = std::exchange(room_, nullptr);
  if (closed) closed();
}

}  // namespace copse
