#pragma once
// One ZeroMQ socket on the loop, hardened (transport/README.md lists the options and why).
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "transport/actor/runtime.h"

namespace copse {

// ipc:// only, until the operator turns on CURVE keys: a tcp endpoint without them is refused.
Status check_endpoint(const std::string& endpoint);

class ZmqSocket {
 public:
  enum class Type : std::uint8_t { router, dealer };
  enum class Sent : std::uint8_t { ok, full, closed };
  // Runs on the loop whenever messages may be there or may be sent: drain both.
  using OnReady = std::function<void()>;
  using Bytes = std::span<const std::byte>;

  static Result<std::unique_ptr<ZmqSocket>> bind(ProcessRuntime& runtime, Type type,
                                                 const std::string& endpoint, OnReady on_ready);
  static Result<std::unique_ptr<ZmqSocket>> connect(ProcessRuntime& runtime, Type type,
                                                    const std::string& endpoint,
                                                    const std::string& routing_id,
                                                    OnReady on_ready);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  // All parts of one message or none. Never blocks.
  Sent send(std::span<const Bytes> parts);
  // The one or two parts of the next message, valid until the next call; nothing if there is no
  // message, and no parts if it has more of them than any of ours.
  std::optional<std::span<const Bytes>> receive();
  // on_ready runs again soon: for a caller that stops before it received nothing.
  void come_back();
  // Calls on_disconnect on the loop when the connection (of a dealer) is lost.
  Status watch_disconnect(std::function<void()> on_disconnect);

 private:
  struct Parts;
  explicit ZmqSocket(std::unique_ptr<Parts> parts);
  static Result<std::unique_ptr<ZmqSocket>> make(ProcessRuntime& runtime, Type type,
                                                 OnReady on_ready);
  void watch();
  std::unique_ptr<Parts> parts_;
};

}  // namespace copse
