#include "transport/actor/endpoint.h"

#include "base/limits.h"

namespace copse {
namespace {

// Workers of a few epochs, gateways of a few reconnections: beyond that the oldest closed ones go.
constexpr std::size_t kPeersKept = 1024;

}  // namespace

std::vector<std::byte> Endpoint::stamp(const PeerId& to, Kind kind,
                                       std::span<const std::byte> body) {
  return make_frame({.kind = kind,
                     .role = self_.role,
                     .rank = self_.rank,
                     .epoch = epoch_,
                     .sequence = ++peers_[to].sent,
                     .incarnation = self_.incarnation},
                    body);
}

bool Endpoint::other_epoch(const FrameHeader& header) const {
  // Gateways outlive epochs; the worker group does not.
  const bool between_group_and_coordinator =
      header.role == Role::worker || self_.role == Role::worker;
  return between_group_and_coordinator && header.epoch != epoch_;
}

void Endpoint::bound_peers() {
  for (auto at = peers_.begin(); peers_.size() >= kPeersKept && at != peers_.end();) {
    at = at->second.closed ? peers_.erase(at) : std::next(at);
  }
}

Endpoint::Judged Endpoint::judge(const PeerId& from, std::span<const std::byte> bytes) {
  const Result<Frame> frame = parse_frame(bytes);
  if (frame.ok()) return judge(from, *frame);
  ++dropped_;
  return {.verdict = Verdict::drop, .message = std::nullopt, .peer = from};
}

Endpoint::Judged Endpoint::judge(const PeerId& from, const Frame& frame) {
  Judged judged;
  judged.peer = from;
  ++dropped_;  // until it proves good
  const FrameHeader& header = frame.header;
  if (header.role != from.role || header.rank != from.rank ||
      header.incarnation != from.incarnation || other_epoch(header)) {
    return judged;
  }
  auto known = peers_.find(from);
  if (known == peers_.end()) {
    bound_peers();
    if (peers_.size() >= kPeersKept) return judged;
    known = peers_.emplace(from, Peer{}).first;
  }
  if (known->second.closed) return judged;
  switch (known->second.received.check(header.sequence)) {
    case SequenceGate::Verdict::stale:
      return judged;
    case SequenceGate::Verdict::gap:
      known->second.closed = true;
      judged.verdict = Verdict::lost;
      return judged;
    case SequenceGate::Verdict::accept:
      break;
  }
  --dropped_;
  judged.verdict = Verdict::accept;
  judged.message = Incoming{from, frame};
  return judged;
}

void Endpoint::forget(const PeerId& peer) {
  peers_.erase(peer);
}

void Endpoint::close(const PeerId& peer) {
  peers_[peer].closed = true;
}

bool Endpoint::closed(const PeerId& peer) const {
  const auto known = peers_.find(peer);
  return known != peers_.end() && known->second.closed;
}

}  // namespace copse
