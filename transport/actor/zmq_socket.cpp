#include "transport/actor/zmq_socket.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/limits.h"
#include "transport/actor/asio.h"

namespace copse {
namespace asio = boost::asio;

namespace {

// The socket's and its monitor's descriptors belong to ZeroMQ: watched here, never closed here.
struct WatchedFd {
  WatchedFd(asio::io_context& io, int fd) : descriptor(io, fd) {}
  ~WatchedFd() { descriptor.release(); }
  asio::posix::stream_descriptor descriptor;
};

constexpr std::size_t kPartsMax = 2;  // routing id and frame

int descriptor_of(void* socket) {
  int fd = -1;
  std::size_t size = sizeof fd;
  CHECK(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0);
  return fd;
}

bool set(void* socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

bool harden(void* socket, ZmqSocket::Type type) {
  const std::int64_t largest =
      static_cast<std::int64_t>(limits::frame_header_bytes + limits::frame_body_bytes);
  const auto ms = [](std::int64_t value) { return static_cast<int>(value); };
  return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0 &&
         set(socket, ZMQ_HEARTBEAT_IVL, ms(limits::heartbeat_ms)) &&
         set(socket, ZMQ_HEARTBEAT_TIMEOUT, ms(limits::heartbeat_timeout_ms)) &&
         set(socket, ZMQ_HEARTBEAT_TTL, ms(limits::heartbeat_timeout_ms)) &&
         set(socket, ZMQ_HANDSHAKE_IVL, ms(limits::handshake_ms)) &&
         set(socket, ZMQ_SNDHWM, limits::link_high_water_mark) &&
         set(socket, ZMQ_RCVHWM, limits::link_high_water_mark) && set(socket, ZMQ_LINGER, 200) &&
         set(socket, ZMQ_IMMEDIATE, 1) && set(socket, ZMQ_RECONNECT_IVL, 50) &&
         set(socket, ZMQ_RECONNECT_IVL_MAX, 1000) &&
         (type != ZmqSocket::Type::router || set(socket, ZMQ_ROUTER_MANDATORY, 1));
}

Error socket_error(const char* what) {
  return {ErrorCode::io, what, zmq_strerror(zmq_errno())};
}

std::string monitor_address() {
  static std::atomic<int> count{0};
  return "inproc://monitor-" + std::to_string(count++);
}

}  // namespace

Status check_endpoint(const std::string& endpoint) {
  if (endpoint.rfind("ipc:///", 0) == 0) return {};
  if (endpoint.rfind("tcp://", 0) == 0) {
    return Error{ErrorCode::unsupported, "endpoint", "tcp is refused without CURVE keys"};
  }
  return Error{ErrorCode::invalid_argument, "endpoint", "must be ipc:// and an absolute path"};
}

struct ZmqSocket::Parts {
  ProcessRuntime& runtime;
  void* socket = nullptr;
  void* monitor = nullptr;
  OnReady on_ready;
  std::unique_ptr<WatchedFd> watched;
  std::unique_ptr<WatchedFd> watched_monitor;
  std::array<zmq_msg_t, kPartsMax> received{};
  std::array<Bytes, kPartsMax> views;
  // A handler that is already queued when the socket dies finds this expired.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  bool drain_queued = false;

  explicit Parts(ProcessRuntime& r) : runtime(r) {
    for (zmq_msg_t& part : received) zmq_msg_init(&part);
  }
  ~Parts() {
    for (zmq_msg_t& part : received) zmq_msg_close(&part);
    watched.reset();
    watched_monitor.reset();
    if (monitor != nullptr) {
      zmq_socket_monitor(socket, nullptr, 0);
      zmq_close(monitor);
    }
    if (socket != nullptr) zmq_close(socket);
  }
};

ZmqSocket::ZmqSocket(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ZmqSocket::~ZmqSocket() = default;

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::make(ProcessRuntime& runtime, Type type,
                                                   OnReady on_ready) {
  auto parts = std::make_unique<Parts>(runtime);
  parts->on_ready = std::move(on_ready);
  parts->socket = zmq_socket(runtime.zmq_context(), type == Type::router ? ZMQ_ROUTER : ZMQ_DEALER);
  if (parts->socket == nullptr || !harden(parts->socket, type)) return socket_error("socket");
  return std::unique_ptr<ZmqSocket>(new ZmqSocket(std::move(parts)));
}

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::bind(ProcessRuntime& runtime, Type type,
                                                   const std::string& endpoint, OnReady on_ready) {
  COPSE_RETURN_IF_ERROR(check_endpoint(endpoint));
  COPSE_TRY(auto socket, make(runtime, type, std::move(on_ready)));
  if (zmq_bind(socket->parts_->socket, endpoint.c_str()) != 0) return socket_error("endpoint");
  socket->watch();
  return socket;
}

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::connect(ProcessRuntime& runtime, Type type,
                                                      const std::string& endpoint,
                                                      const std::string& routing_id,
                                                      OnReady on_ready) {
  COPSE_RETURN_IF_ERROR(check_endpoint(endpoint));
  COPSE_TRY(auto socket, make(runtime, type, std::move(on_ready)));
  if (zmq_setsockopt(socket->parts_->socket, ZMQ_ROUTING_ID, routing_id.data(),
                     routing_id.size()) != 0 ||
      zmq_connect(socket->parts_->socket, endpoint.c_str()) != 0) {
    return socket_error("endpoint");
  }
  socket->watch();
  return socket;
}

void ZmqSocket::watch() {
  Parts& parts = *parts_;
  if (parts.watched == nullptr) {
    parts.watched = std::make_unique<WatchedFd>(parts.runtime.io(), descriptor_of(parts.socket));
    come_back();
  }
  parts.watched->descriptor.async_wait(
      asio::posix::stream_descriptor::wait_read,
      [this, held = std::weak_ptr<bool>(parts.alive)](const auto& error) {
        if (error || held.expired()) return;
        parts_->on_ready();
        if (!held.expired()) watch();  // on_ready may close the socket
      });
}

// ZMQ_FD is edge-triggered and any call on the socket may swallow the edge. After calls that are
// not followed by a receive() that finds nothing, look again; once for many of them.
void ZmqSocket::come_back() {
  if (std::exchange(parts_->drain_queued, true)) return;
  parts_->runtime.post([this, held = std::weak_ptr<bool>(parts_->alive)] {
    if (held.expired()) return;
    parts_->drain_queued = false;
    parts_->on_ready();
  });
}

ZmqSocket::Sent ZmqSocket::send(std::span<const Bytes> message) {
  come_back();
  for (std::size_t i = 0; i < message.size(); ++i) {
    const int more = i + 1 < message.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(parts_->socket, message[i].data(), message[i].size(), ZMQ_DONTWAIT | more) < 0) {
      // Only the first part can fail: the others follow it into the same pipe.
      return zmq_errno() == EAGAIN ? Sent::full : Sent::closed;
    }
  }
  return Sent::ok;
}

std::optional<std::span<const ZmqSocket::Bytes>> ZmqSocket::receive() {
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    // What is more than ours have is read over the last part and forgotten.
    zmq_msg_t& part = parts_->received[std::min(count, kPartsMax - 1)];
    if (zmq_msg_recv(&part, parts_->socket, ZMQ_DONTWAIT) < 0) return std::nullopt;
    if (count < kPartsMax) {
      parts_->views[count] = {static_cast<const std::byte*>(zmq_msg_data(&part)),
                              zmq_msg_size(&part)};
    }
    more = zmq_msg_more(&part) != 0;
  }
  return std::span<const Bytes>(parts_->views.data(), count > kPartsMax ? 0 : count);
}

Status ZmqSocket::watch_disconnect(std::function<void()> on_disconnect) {
  Parts& parts = *parts_;
  const std::string address = monitor_address();
  if (zmq_socket_monitor(parts.socket, address.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) {
    return socket_error("monitor");
  }
  parts.monitor = zmq_socket(parts.runtime.zmq_context(), ZMQ_PAIR);
  if (parts.monitor == nullptr || zmq_connect(parts.monitor, address.c_str()) != 0) {
    return socket_error("monitor");
  }
  parts.watched_monitor =
      std::make_unique<WatchedFd>(parts.runtime.io(), descriptor_of(parts.monitor));
  const auto check = std::make_shared<std::function<void()>>();
  *check = [this, on_disconnect, check = std::weak_ptr(check),
            held = std::weak_ptr<bool>(parts.alive)] {
    const auto again = check.lock();
    zmq_msg_t event;
    zmq_msg_init(&event);
    bool seen = false;
    while (zmq_msg_recv(&event, parts_->monitor, ZMQ_DONTWAIT) >= 0) seen = true;
    zmq_msg_close(&event);
    if (seen) return on_disconnect();  // once; the caller replaces the socket
    parts_->watched_monitor->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                                   [again, held](const auto& error) {
                                                     if (!error && !held.expired()) (*again)();
                                                   });
  };
  (*check)();
  return {};
}

}  // namespace copse
