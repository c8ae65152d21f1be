#pragma once
// For tests: a link that keeps what is sent, and a spawner whose processes are numbers.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/spawner.h"
#include "transport/actor/actor.h"

namespace copse {

class FakeLink final : public Link {
 public:
  struct Sent {
    PeerId to;
    Kind kind;
    std::vector<std::byte> body;
  };
  std::deque<Sent> sent;
  std::set<PeerId> closed;
  std::set<PeerId> full;  // these peers have no room
  std::uint32_t epoch = 0;

  void set_epoch(std::uint32_t to) override { epoch = to; }
  void close(const PeerId& peer) override { closed.insert(peer); }
  std::uint64_t stale_messages() const override { return 0; }

  // All messages of a kind to a peer, taken out.
  template <class Message>
  std::vector<Message> take(const PeerId& to) {
    std::vector<Message> taken;
    std::deque<Sent> rest;
    for (Sent& each : sent) {
      if (each.to == to && each.kind == Message::kKind) {
        taken.push_back(decode<Message>(each.body).value());
      } else {
        rest.push_back(std::move(each));
      }
    }
    sent = std::move(rest);
    return taken;
  }

 protected:
  SendResult send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) override {
    if (closed.contains(to)) return SendResult::closed;
    if (full.contains(to)) return SendResult::full;
    sent.push_back({to, kind, std::move(body)});
    return SendResult::ok;
  }
};

class FakeSpawner final : public Spawner {
 public:
  explicit FakeSpawner(int world_size) : world_size_(world_size) {}

  int spawns = 0;
  int kills = 0;
  bool fails = false;
  std::uint32_t epoch = 0;

  void set_listener(ExitListener* listener) override { listener_ = listener; }
  Status spawn(std::uint32_t to) override {
    ++spawns;
    epoch = to;
    if (fails) return Error{ErrorCode::resource_exhausted, "worker", "no more processes"};
    for (int rank = 0; rank < world_size_; ++rank) living_.insert(rank);
    return {};
  }
  void kill_all() override {
    ++kills;
    dying_ = living_;
  }
  int alive() const override { return static_cast<int>(living_.size()); }
  std::int32_t pid(int rank) const override {
    return 1000 + static_cast<std::int32_t>(epoch) * 10 + rank;
  }

  // A rank ends by itself or by a signal from outside.
  void exit(int rank, bool signalled, int status) {
    living_.erase(rank);
    dying_.erase(rank);
    listener_->on_worker_exit({epoch, rank, signalled, status});
  }
  // What was killed is reaped.
  void reap() {
    for (int rank : std::set<int>(dying_)) exit(rank, true, 9);
  }

 private:
  int world_size_;
  ExitListener* listener_ = nullptr;
  std::set<int> living_;
  std::set<int> dying_;
};

}  // namespace copse
