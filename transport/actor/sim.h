#pragma once
// The seeded world in which tests run the very actors of the processes: virtual time, links through
// the real codec, frames and Endpoint rules, and faults. The same seed gives the same events; their
// hash says so.
//
//   SimWorld world(seed);
//   auto node = world.add_node({Role::worker, 3, 77});
//   Worker worker(options, world.link(node), world.clock(), executor);
//   world.attach(node, worker);
//   world.run_until([&] { return done; }, seconds(10));
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/actor/actor.h"
#include "transport/actor/actor_handle.h"
#include "transport/actor/endpoint.h"

namespace copse {

using SimNode = std::uint32_t;

// Chances per message. ZeroMQ links are ordered while they are connected, so a message is never
// lost alone: a disconnection loses everything under way, in both directions.
struct SimFaults {
  double disconnect = 0;
  double duplicate = 0;  // the frame arrives a second time, later
  double bit_flip = 0;   // one bit of the frame
  double stall = 0;      // this and what follows on the pipe waits up to stall_max
  Duration delay_max = std::chrono::milliseconds(2);
  Duration stall_max = std::chrono::milliseconds(500);

  // Chances drawn anew per seed, each absent in half of the seeds: worlds with one kind of fault
  // find what worlds with all of them hide. At most one message in fifty is hit by each.
  static SimFaults drawn(Random& random);
};

class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed);
  ~SimWorld();

  Clock& clock() { return clock_; }
  Random& random() { return random_; }
  void set_faults(const SimFaults& faults) { faults_ = faults; }

  // The one coordinator is the router; every other node is a dealer connected to it.
  SimNode add_node(PeerId self);
  Link& link(SimNode node);
  template <class Actor>
  void attach(SimNode node, Actor& actor) {
    attach_handle(node, handle_of(actor));
  }

  // The process dies between two messages: what it sent is still delivered, nothing reaches it any
  // more. The actor may be destroyed afterwards. A new process is a new node. The peers of a dead
  // coordinator notice at once, as DealerLink does.
  void crash(SimNode node);
  // Crashes right after so many more messages were handled, 1 or more: each boundary can be tried.
  void crash_after(SimNode node, std::uint64_t messages);
  // SIGSTOP and SIGCONT: messages and ticks wait, and the queues to it fill.
  void pause(SimNode node, bool paused);
  bool alive(SimNode node) const;
  // Cuts the node's connection now, as a fault would.
  void disconnect(SimNode node);
  // Delivers these bytes to the node as if `from` had sent them: replays, forgeries.
  void inject(PeerId from, SimNode to, std::vector<std::byte> frame);
  // Frames delivered so far between two roles, newest last, at most 256: something to replay.
  const std::deque<std::vector<std::byte>>& recorded() const { return recorded_; }

  void after(Duration delay, std::function<void()> task);
  // Not run once the node is dead; waits while it is paused.
  void after_on(SimNode node, Duration delay, std::function<void()> task);

  void run_for(Duration time);
  // Until the condition holds (true) or so much virtual time has passed (false).
  bool run_until(const std::function<bool()>& condition, Duration limit);

  // For tests of single exchanges: runs until the next Message from one node has been handled by
  // the other and returns it; nothing if none came within the limit.
  //   const auto plan = world.expect<StepPlan>(coordinator, worker);
  template <class Message>
  std::optional<Message> expect(SimNode from, SimNode to, Duration limit = milliseconds(1000)) {
    const std::uint64_t before = handled(from, to, Message::kKind).count;
    const auto came = [&] { return handled(from, to, Message::kKind).count > before; };
    if (!run_until(came, limit)) return std::nullopt;
    const Result<Message> message = decode<Message>(handled(from, to, Message::kKind).last);
    return message.ok() ? std::optional<Message>(message.value()) : std::nullopt;
  }
  // Messages of a kind that `to` has handled from `from` so far, over all connections.
  std::uint64_t count(SimNode from, SimNode to, Kind kind) const {
    return handled(from, to, kind).count;
  }

  std::uint64_t event_hash() const { return hash_; }
  std::size_t messages_under_way() const;
  // The last events, oldest first, for a failing test's output.
  std::string trace() const;

 private:
  class NodeLink;
  struct Node {
    PeerId self;
    std::unique_ptr<NodeLink> link;
    ActorHandle actor;
    bool dead = false;
    bool paused = false;
    std::uint64_t messages_left = 0;         // until it crashes; 0: it does not
    std::deque<std::function<void()>> held;  // while paused
  };
  struct Handled {
    std::uint64_t count = 0;
    std::vector<std::byte> last;  // body
  };
  struct Event {
    Instant at;
    std::uint64_t order;
    std::function<void()> task;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  // One direction of one connection.
  struct Pipe {
    Instant free_at{};  // order is kept: nothing overtakes
    std::uint64_t under_way = 0;
    std::uint64_t connection = 0;  // frames of an earlier connection are lost
    std::map<Kind, Handled> handled;
  };

  void attach_handle(SimNode node, ActorHandle actor);
  SendResult send_frame(SimNode from, SimNode to, std::vector<std::byte> frame);
  void receive(PeerId from, SimNode to, const std::vector<std::byte>& frame);
  void hand_over(const Endpoint::Incoming& message, SimNode to);
  const Handled& handled(SimNode from, SimNode to, Kind kind) const;
  void run_on(SimNode node, std::function<void()> task);
  void schedule(Instant at, std::function<void()> task);
  void schedule_tick(SimNode node);
  bool step(Instant limit);
  bool chance(double probability);
  void note(const char* what, const PeerId& who, std::uint64_t detail);
  SimNode coordinator() const;
  SimNode node_of(const PeerId& peer) const;

  ManualClock clock_;
  SeededRandom random_;
  SimFaults faults_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::pair<SimNode, SimNode>, Pipe> pipes_;
  std::priority_queue<Event> events_;
  std::uint64_t next_order_ = 0;
  std::uint64_t hash_ = 0;
  std::deque<std::string> trace_;
  std::deque<std::vector<std::byte>> recorded_;
};

}  // namespace copse
