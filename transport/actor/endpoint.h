#pragma once
// The state of one link end that does not depend on how bytes travel: stamping frames, judging
// frames. ZeroMQ links and the simulator's links share it, so the simulator tests the real rules.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "transport/actor/peer_id.h"
#include "transport/actor/sequence_gate.h"
#include "transport/messages/frame.h"

namespace copse {

class Endpoint {
 public:
  explicit Endpoint(PeerId self) : self_(self) {}

  const PeerId& self() const { return self_; }
  void set_self(PeerId self) { self_ = self; }
  void set_epoch(std::uint32_t epoch) { epoch_ = epoch; }

  // The frame for the next message to `to`.
  std::vector<std::byte> stamp(const PeerId& to, Kind kind, std::span<const std::byte> body);

  struct Incoming {
    PeerId from;
    Frame frame;
  };
  enum class Verdict : std::uint8_t { accept, drop, lost };
  struct Judged {
    Verdict verdict = Verdict::drop;
    std::optional<Incoming> message;  // with accept
    PeerId peer;                      // with lost: whose stream has a gap
  };
  // `from` is who the transport says sent it; a frame that claims to be somebody else is dropped,
  // as is one of another epoch between workers and coordinator, a repeat, and anything malformed.
  Judged judge(const PeerId& from, std::span<const std::byte> bytes);
  Judged judge(const PeerId& from, const Frame& frame);

  // Forget a peer: its next frame must begin a new stream.
  void forget(const PeerId& peer);
  // Nothing is taken from the peer or sent to it any more.
  void close(const PeerId& peer);
  bool closed(const PeerId& peer) const;

  // A frame that was good, with a body that is not, or from nobody who may speak.
  void count_dropped() { ++dropped_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Peer {
    std::uint64_t sent = 0;
    SequenceGate received;
    bool closed = false;
  };
  bool other_epoch(const FrameHeader& header) const;
  void bound_peers();

  PeerId self_;
  std::uint32_t epoch_ = 0;
  std::map<PeerId, Peer> peers_;
  std::uint64_t dropped_ = 0;
};

}  // namespace copse
