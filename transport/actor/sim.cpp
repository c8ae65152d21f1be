#include "transport/actor/sim.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/limits.h"

namespace copse {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr std::size_t kTraceEvents = 200;
constexpr std::size_t kRecordedFrames = 256;
constexpr std::uint64_t kPipeFrames = 2 * limits::link_high_water_mark;
constexpr PeerId kAnyCoordinator{Role::coordinator, 0, 0};

}  // namespace

SimFaults SimFaults::drawn(Random& random) {
  const auto share = [&] { return static_cast<double>(random.below(1001)) / 1000; };
  const auto rare = [&] { return random.below(2) == 0 ? 0 : share() / 50; };
  const auto up_to = [&](std::int64_t ms) {
    return milliseconds(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(ms))));
  };
  SimFaults faults;
  faults.disconnect = rare() / 10;  // each costs a restart or a stream
  faults.duplicate = rare();
  faults.bit_flip = rare() / 10;
  faults.stall = rare();
  faults.delay_max = up_to(20);
  faults.stall_max = up_to(1000);
  return faults;
}

class SimWorld::NodeLink final : public Link {
 public:
  NodeLink(SimWorld& world, SimNode node, PeerId self)
      : world_(world), node_(node), endpoint_(self) {}

  void set_epoch(std::uint32_t epoch) override { endpoint_.set_epoch(epoch); }
  void close(const PeerId& peer) override {
    if (is_router()) return endpoint_.close(peer);
    // As DealerLink: there is one peer, so this ends the connection.
    world_.after_on(node_, Duration(0), [this] { world_.disconnect(node_); });
  }
  std::uint64_t stale_messages() const override { return endpoint_.dropped(); }

  Endpoint& endpoint() { return endpoint_; }
  bool is_router() const { return endpoint_.self().role == Role::coordinator; }

 private:
  SendResult send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) override {
    if (!is_router()) {
      if (to.role != Role::coordinator) return SendResult::closed;
      return send_stamped(kAnyCoordinator, world_.coordinator(), kind, body);
    }
    const SimNode target = world_.node_of(to);
    if (target == world_.nodes_.size()) return SendResult::closed;
    return send_stamped(to, target, kind, body);
  }
  SendResult send_stamped(const PeerId& name, SimNode target, Kind kind,
                          const std::vector<std::byte>& body) {
    if (target == world_.nodes_.size() || world_.nodes_[target]->dead) return SendResult::closed;
    if (world_.pipes_[{node_, target}].under_way >= kPipeFrames) return SendResult::full;
    return world_.send_frame(node_, target, endpoint_.stamp(name, kind, body));
  }

  SimWorld& world_;
  SimNode node_;
  Endpoint endpoint_;
};

SimWorld::SimWorld(std::uint64_t seed) : random_(seed) {}
SimWorld::~SimWorld() = default;

SimNode SimWorld::add_node(PeerId self) {
  const auto node = static_cast<SimNode>(nodes_.size());
  nodes_.push_back(std::make_unique<Node>());
  nodes_.back()->self = self;
  nodes_.back()->link = std::make_unique<NodeLink>(*this, node, self);
  return node;
}

Link& SimWorld::link(SimNode node) {
  return *nodes_[node]->link;
}
bool SimWorld::alive(SimNode node) const {
  return !nodes_[node]->dead;
}

void SimWorld::attach_handle(SimNode node, ActorHandle actor) {
  nodes_[node]->actor = std::move(actor);
  schedule_tick(node);
}

SimNode SimWorld::coordinator() const {
  SimNode found = static_cast<SimNode>(nodes_.size());
  for (SimNode node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node]->self.role == Role::coordinator && !nodes_[node]->dead) found = node;
  }
  return found;
}

SimNode SimWorld::node_of(const PeerId& peer) const {
  for (SimNode node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node]->self == peer && !nodes_[node]->dead) return node;
  }
  return static_cast<SimNode>(nodes_.size());
}

bool SimWorld::chance(double probability) {
  return static_cast<double>(random_.next() >> 11) * 0x1p-53 < probability;
}

void SimWorld::note(const char* what, const PeerId& who, std::uint64_t detail) {
  DigestChain chain(hash_);
  for (const char* at = what; *at != 0; ++at) chain.add(static_cast<int>(*at));
  hash_ = chain.add(static_cast<int>(who.role))
              .add(who.rank)
              .add(who.incarnation)
              .add(detail)
              .add(clock_.now().time_since_epoch().count())
              .value();
  trace_.push_back(fmt::format("{:10.3f} ms  {} {} {}",
                               seconds(clock_.now().time_since_epoch()) * 1e3, what, to_string(who),
                               detail));
  if (trace_.size() > kTraceEvents) trace_.pop_front();
}

std::string SimWorld::trace() const {
  std::string text;
  for (const std::string& line : trace_) text += line + "\n";
  return text;
}

std::size_t SimWorld::messages_under_way() const {
  std::size_t count = 0;
  for (const auto& [ends, pipe] : pipes_) count += pipe.under_way;
  return count;
}

SendResult SimWorld::send_frame(SimNode from, SimNode to, std::vector<std::byte> frame) {
  const SimNode dealer = nodes_[from]->link->is_router() ? to : from;
  if (chance(faults_.disconnect)) {
    disconnect(dealer);
    return SendResult::ok;  // the sender cannot know yet
  }
  Pipe& pipe = pipes_[{from, to}];
  const auto spread = [this](Duration most) {
    return Duration(
        static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
  };
  Instant at = clock_.now() + spread(faults_.delay_max);
  if (chance(faults_.stall)) at += spread(faults_.stall_max);
  at = std::max(at, pipe.free_at);
  pipe.free_at = at;
  if (chance(faults_.bit_flip)) {
    const std::uint64_t bit = random_.below(frame.size() * 8);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  const bool twice = chance(faults_.duplicate);
  const auto shared = std::make_shared<std::vector<std::byte>>(std::move(frame));
  const PeerId sender = nodes_[from]->self;
  const std::uint64_t connection = pipe.connection;
  ++pipe.under_way;
  // A frame takes its place in the queue until it is handled, so a paused node's queues fill.
  schedule(at, [this, from, to, sender, connection, shared] {
    run_on(to, [this, from, to, sender, connection, shared] {
      Pipe& arrived = pipes_[{from, to}];
      if (arrived.connection != connection) return;  // lost with its connection
      --arrived.under_way;
      receive(sender, to, *shared);
    });
  });
  if (twice) {
    schedule(at + spread(faults_.stall_max), [this, from, to, sender, connection, shared] {
      // A dealer's new connection is a new socket: nothing of the old one comes out of it.
      const bool old = pipes_[{from, to}].connection != connection;
      if (old && !nodes_[to]->link->is_router()) return;
      note("repeat to", nodes_[to]->self, shared->size());
      inject(sender, to, *shared);
    });
  }
  return SendResult::ok;
}

void SimWorld::inject(PeerId from, SimNode to, std::vector<std::byte> frame) {
  run_on(to, [this, from, to, frame = std::move(frame)] { receive(from, to, frame); });
}

void SimWorld::receive(PeerId from, SimNode to, const std::vector<std::byte>& frame) {
  Node& node = *nodes_[to];
  const Endpoint::Judged judged = node.link->endpoint().judge(from, frame);
  if (judged.verdict == Endpoint::Verdict::drop) {
    return note("dropped by", node.self, frame.size());
  }
  if (judged.verdict == Endpoint::Verdict::lost) {
    note("gap seen by", node.self, from.rank);
    if (!node.link->is_router()) return disconnect(to);
    if (node.actor.on_peer_lost) node.actor.on_peer_lost(from);
    return;
  }
  recorded_.push_back(frame);
  if (recorded_.size() > kRecordedFrames) recorded_.pop_front();
  hand_over(*judged.message, to);
}

void SimWorld::hand_over(const Endpoint::Incoming& message, SimNode to) {
  Node& node = *nodes_[to];
  const Frame& frame = message.frame;
  note("message to", node.self,
       static_cast<std::uint64_t>(frame.header.kind) << 32 | frame.body.size());
  if (!node.actor.on_message) return;
  const Status status = node.actor.on_message(message.from, frame.header.kind, frame.body);
  if (!status.ok()) {
    node.link->endpoint().count_dropped();
    note("refused by", node.self, static_cast<std::uint64_t>(frame.header.kind));
  }
  const SimNode from = node_of(message.from);
  if (from < nodes_.size()) {
    Handled& handled = pipes_[{from, to}].handled[frame.header.kind];
    ++handled.count;
    handled.last.assign(frame.body.begin(), frame.body.end());
  }
  if (node.messages_left > 0 && --node.messages_left == 0) crash(to);
}

const SimWorld::Handled& SimWorld::handled(SimNode from, SimNode to, Kind kind) const {
  static const Handled kNothing;
  const auto pipe = pipes_.find({from, to});
  if (pipe == pipes_.end()) return kNothing;
  const auto found = pipe->second.handled.find(kind);
  return found == pipe->second.handled.end() ? kNothing : found->second;
}

void SimWorld::disconnect(SimNode dealer) {
  Node& node = *nodes_[dealer];
  const SimNode router = coordinator();
  if (node.dead || node.link->is_router()) return;
  for (auto& [ends, pipe] : pipes_) {
    if (ends.first != dealer && ends.second != dealer) continue;
    ++pipe.connection;
    pipe.under_way = 0;
  }
  // As DealerLink: a new connection is a new peer, and its stream begins again.
  node.self.incarnation = random_.next();
  node.link->endpoint().set_self(node.self);
  node.link->endpoint().forget(kAnyCoordinator);
  if (router < nodes_.size()) node.link->endpoint().forget(nodes_[router]->self);
  note("disconnect", node.self, dealer);
  run_on(dealer, [this, dealer] {
    if (nodes_[dealer]->actor.on_peer_lost) nodes_[dealer]->actor.on_peer_lost(kAnyCoordinator);
  });
}

void SimWorld::crash(SimNode node) {
  Node& dying = *nodes_[node];
  if (dying.dead) return;
  note("crash", dying.self, node);
  dying.dead = true;
  dying.held.clear();
  for (auto& [ends, pipe] : pipes_) {
    if (ends.second != node) continue;
    ++pipe.connection;
    pipe.under_way = 0;
  }
  // Later, since the caller may stand in one of the actor's functions.
  after(Duration(0), [&dying] { dying.actor = {}; });
  if (!dying.link->is_router()) return;
  for (SimNode peer = 0; peer < nodes_.size(); ++peer) {
    after(faults_.delay_max, [this, peer] { disconnect(peer); });
  }
}

void SimWorld::crash_after(SimNode node, std::uint64_t messages) {
  nodes_[node]->messages_left = messages;
}

void SimWorld::pause(SimNode node, bool paused) {
  Node& it = *nodes_[node];
  note(paused ? "pause" : "resume", it.self, node);
  it.paused = paused;
  while (!it.paused && !it.held.empty()) {
    const auto task = std::move(it.held.front());
    it.held.pop_front();
    task();
  }
}

void SimWorld::run_on(SimNode node, std::function<void()> task) {
  Node& it = *nodes_[node];
  if (it.dead) return;
  // A paused process misses nothing: its queue holds what its pipes have room for.
  schedule(clock_.now(), [this, node, task = std::move(task)] {
    Node& now = *nodes_[node];
    if (now.dead) return;
    if (now.paused) return now.held.push_back(task);
    task();
  });
}

void SimWorld::schedule(Instant at, std::function<void()> task) {
  events_.push({at, next_order_++, std::move(task)});
}

void SimWorld::after(Duration delay, std::function<void()> task) {
  schedule(clock_.now() + delay, std::move(task));
}

void SimWorld::after_on(SimNode node, Duration delay, std::function<void()> task) {
  after(delay, [this, node, task = std::move(task)] { run_on(node, task); });
}

void SimWorld::schedule_tick(SimNode node) {
  after(kTick, [this, node] {
    Node& it = *nodes_[node];
    if (it.dead) return;
    schedule_tick(node);
    if (!it.paused && it.actor.on_tick) it.actor.on_tick(clock_.now());
  });
}

bool SimWorld::step(Instant limit) {
  if (events_.empty() || events_.top().at > limit) {
    clock_.set(limit);
    return false;
  }
  const Event event = events_.top();
  events_.pop();
  clock_.set(event.at);
  event.task();
  return true;
}

void SimWorld::run_for(Duration time) {
  const Instant limit = clock_.now() + time;
  while (step(limit)) {
  }
}

bool SimWorld::run_until(const std::function<bool()>& condition, Duration limit) {
  const Instant end = clock_.now() + limit;
  while (!condition()) {
    if (!step(end)) return condition();
  }
  return true;
}

}  // namespace copse
