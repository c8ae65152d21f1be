#include "transport/actor/zmq_links.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <cstring>
#include <optional>

#include "transport/actor/run_directory.h"

namespace copse {
namespace {

// Answers registrations, and remembers what it got.
struct Hub {
  using Receives = MessageList<RegisterGateway, Cancel, RegisterWorker>;
  void on(const PeerId& from, const RegisterGateway&) {
    peer = from;
    ++registered;
    link->send(from, GatewayWelcome{.context_tokens = 64, .end_tokens = {}});
  }
  void on(const PeerId&, const Cancel& cancel) { cancels.push_back(cancel.request); }
  void on(const PeerId& from, const RegisterWorker&) { peer = from; }
  void on_peer_lost(const PeerId&) { ++lost; }
  void on_tick(Instant) {}

  Link* link = nullptr;
  PeerId peer;
  int registered = 0;
  int lost = 0;
  std::vector<RequestId> cancels;
};

struct Leaf {
  using Receives = MessageList<GatewayWelcome, Tokens>;
  void on(const PeerId& from, const GatewayWelcome&) {
    hub = from;
    ++welcomes;
  }
  void on(const PeerId&, const Tokens& tokens) { indexes.push_back(tokens.index); }
  void on_peer_lost(const PeerId&) {
    ++lost;
    if (on_lost) on_lost();
  }
  void on_tick(Instant) {}

  PeerId hub;
  int welcomes = 0;
  int lost = 0;
  std::vector<std::uint32_t> indexes;
  std::function<void()> on_lost;
};

constexpr PeerId kAnyHub{Role::coordinator, 0, 0};

// A connection to an ipc:// endpoint without ZeroMQ; -1 if nobody listens there.
int plain_connection(const std::string& endpoint) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const std::string path = endpoint.substr(std::strlen("ipc://"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

// One coordinator and its peers over real sockets, all on one loop.
class ZmqLinks : public testing::Test {
 protected:
  ZmqLinks() : directory_(RunDirectory::create().value()) { open_hub(); }

  std::string endpoint(Role role) const {
    return role == Role::worker ? RunDirectory::workers_endpoint(directory_.path())
                                : RunDirectory::gateways_endpoint(directory_.path());
  }
  void open_hub() {
    auto link = RouterLink::bind(
        runtime_, {Role::coordinator, 0, random_.next()},
        {{Role::worker, endpoint(Role::worker)}, {Role::gateway, endpoint(Role::gateway)}});
    ASSERT_TRUE(link.ok()) << describe(link.error());
    hub_link_ = *std::move(link);
    hub_.link = hub_link_.get();
    hub_link_->attach(hub_);
  }
  // ZeroMQ closes its listeners later.
  bool close_hub() {
    hub_link_.reset();
    return until([this] {
      const int worker = plain_connection(endpoint(Role::worker));
      const int gateway = plain_connection(endpoint(Role::gateway));
      close(worker);
      close(gateway);
      return worker < 0 && gateway < 0;
    });
  }
  std::unique_ptr<DealerLink> connect(Leaf& leaf, bool reconnect = false,
                                      Role role = Role::gateway) {
    auto link = DealerLink::connect(
        runtime_, random_,
        {.role = role, .rank = 0, .endpoint = endpoint(role), .reconnect = reconnect});
    EXPECT_TRUE(link.ok());
    (*link)->attach(leaf);
    return *std::move(link);
  }
  // Runs the loop until the condition holds or `limit` has passed.
  bool until(const std::function<bool()>& condition, Duration limit = milliseconds(5000)) {
    const Instant end = runtime_.clock().now() + limit;
    bool held = false;
    condition_ = [&] { return (held = condition()) || runtime_.clock().now() > end; };
    if (!std::exchange(watching_, true)) {
      runtime_.on_tick([this](Instant) {
        if (condition_ && condition_()) runtime_.stop();
      });
    }
    runtime_.restart();
    runtime_.run();
    condition_ = nullptr;
    return held;
  }
  bool for_a_while(Duration time = milliseconds(100)) {
    return !until([] { return false; }, time);
  }

  SeededRandom random_{1};
  RunDirectory directory_;
  ProcessRuntime runtime_;
  Hub hub_;
  std::unique_ptr<RouterLink> hub_link_;
  std::function<bool()> condition_;
  bool watching_ = false;
};

// A peer that speaks ZeroMQ but is none of ours.
class RawPeer {
 public:
  RawPeer(const std::string& endpoint, const std::string& id, int receive_queue = 64) {
    const int linger = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_RCVHWM, &receive_queue, sizeof receive_queue);
    if (!id.empty()) zmq_setsockopt(socket_, ZMQ_ROUTING_ID, id.data(), id.size());
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~RawPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  void send(const std::vector<std::byte>& bytes, bool more = false) {
    EXPECT_EQ(zmq_send(socket_, bytes.data(), bytes.size(), more ? ZMQ_SNDMORE : 0),
              static_cast<int>(bytes.size()));
  }

 private:
  void* context_ = zmq_ctx_new();
  void* socket_ = zmq_socket(context_, ZMQ_DEALER);
};

std::vector<std::byte> frame_of(const PeerId& sender, std::uint64_t sequence = 1) {
  return make_frame({.kind = Kind::cancel,
                     .role = sender.role,
                     .rank = sender.rank,
                     .epoch = 0,
                     .sequence = sequence,
                     .incarnation = sender.incarnation},
                    encode(Cancel{.request = 99}));
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count;
}

TEST_F(ZmqLinks, CarryMessagesBothWaysInOrder) {
  Leaf leaf;
  const auto link = connect(leaf);
  EXPECT_EQ(link->send(kAnyHub, RegisterGateway{}), SendResult::ok);
  ASSERT_TRUE(until([&] { return leaf.welcomes == 1; }));
  EXPECT_EQ(hub_.peer.role, Role::gateway);
  EXPECT_EQ(leaf.hub.role, Role::coordinator);
  std::vector<RequestId> sent;
  for (RequestId request = 0; request < 1000;) {
    while (link->send(kAnyHub, Cancel{.request = request}) == SendResult::ok) {
      sent.push_back(request++);
    }
    ASSERT_TRUE(until([&] { return hub_.cancels.size() == sent.size(); }));
  }
  EXPECT_EQ(hub_.cancels, sent);
  EXPECT_EQ(hub_link_->stale_messages(), 0u);
}

TEST_F(ZmqLinks, KeepAMessageUntilTheRouterIsThere) {
  ASSERT_TRUE(close_hub());
  Leaf leaf;
  const auto link = connect(leaf);
  EXPECT_EQ(link->send(kAnyHub, RegisterGateway{}), SendResult::ok);
  EXPECT_TRUE(for_a_while());
  open_hub();
  EXPECT_TRUE(until([&] { return leaf.welcomes == 1; }));
}

TEST_F(ZmqLinks, DropWhoHasNoNameOfOurs) {
  const PeerId gateway{Role::gateway, 0, 5};
  const PeerId worker{Role::worker, 0, 5};
  RawPeer nameless(endpoint(Role::gateway), "");
  RawPeer odd(endpoint(Role::gateway), "gateway.zero");
  RawPeer elsewhere(endpoint(Role::gateway), to_string(worker));  // at the wrong socket
  RawPeer forger(endpoint(Role::gateway), to_string({Role::gateway, 0, 6}));
  RawPeer talker(endpoint(Role::gateway), to_string({Role::gateway, 0, 7}));
  nameless.send(frame_of(gateway));
  odd.send(frame_of(gateway));
  elsewhere.send(frame_of(worker));
  forger.send(frame_of(gateway));  // claims to be somebody else
  talker.send(frame_of({Role::gateway, 0, 7}), true);
  talker.send({}, true);
  talker.send({std::byte{1}});
  EXPECT_TRUE(until([&] { return hub_link_->stale_messages() == 5; }));
  EXPECT_TRUE(hub_.cancels.empty());
}

TEST_F(ZmqLinks, RefuseASecondPeerOfTheSameName) {
  const PeerId name{Role::gateway, 0, 5};
  RawPeer first(endpoint(Role::gateway), to_string(name));
  first.send(frame_of(name, 1));
  ASSERT_TRUE(until([&] { return hub_.cancels.size() == 1; }));
  RawPeer second(endpoint(Role::gateway), to_string(name));
  second.send(frame_of(name, 2));
  EXPECT_TRUE(for_a_while());
  EXPECT_EQ(hub_.cancels.size(), 1u);
  first.send(frame_of(name, 2));  // the real one is not disturbed
  EXPECT_TRUE(until([&] { return hub_.cancels.size() == 2; }));
}

TEST_F(ZmqLinks, CountMessagesThatTheActorDoesNotKnow) {
  Leaf leaf;
  const auto link = connect(leaf);
  link->send(kAnyHub, GatewayHeartbeat{});
  EXPECT_TRUE(until([&] { return hub_link_->stale_messages() == 1; }));
}

TEST_F(ZmqLinks, EndAStreamAtAGap) {
  const PeerId name{Role::gateway, 0, 5};
  RawPeer peer(endpoint(Role::gateway), to_string(name));
  peer.send(frame_of(name, 1));
  peer.send(frame_of(name, 3));
  EXPECT_TRUE(until([&] { return hub_.lost == 1; }));
  peer.send(frame_of(name, 2));
  EXPECT_TRUE(for_a_while());
  EXPECT_EQ(hub_.cancels.size(), 1u);
  EXPECT_EQ(hub_link_->send(name, GatewayWelcome{}), SendResult::closed);
}

TEST_F(ZmqLinks, TellFullFromClosed) {
  const PeerId name{Role::gateway, 0, 5};
  EXPECT_EQ(hub_link_->send(name, GatewayWelcome{}), SendResult::closed);  // nobody yet
  auto peer = std::make_unique<RawPeer>(endpoint(Role::gateway), to_string(name), 1);
  peer->send(frame_of(name));
  ASSERT_TRUE(until([&] { return hub_.cancels.size() == 1; }));
  // It never reads. A message that no socket buffer swallows:
  RequestFinished large{.reason = FinishReason::stop, .draft = {}, .error = {}};
  large.error.assign(limits::message_string_bytes, 'x');
  int accepted = 0;
  while (hub_link_->send(name, large) == SendResult::ok) ASSERT_LT(++accepted, 1000);
  EXPECT_EQ(hub_link_->send(name, large), SendResult::full);
  EXPECT_GE(accepted, limits::link_high_water_mark);
  EXPECT_LE(accepted, 3 * limits::link_high_water_mark);
  peer.reset();
  EXPECT_TRUE(until([&] { return hub_link_->send(name, large) == SendResult::closed; }));
  EXPECT_EQ(hub_.lost, 1);  // what waited for it could not be sent
}

TEST_F(ZmqLinks, AreBoundedWithoutARouter) {
  ASSERT_TRUE(close_hub());
  Leaf leaf;
  const auto link = connect(leaf);
  int accepted = 0;
  while (link->send(kAnyHub, Cancel{}) == SendResult::ok) ASSERT_LT(++accepted, 1000);
  EXPECT_EQ(accepted, limits::link_high_water_mark);
  EXPECT_EQ(link->send(kAnyHub, Cancel{}), SendResult::full);
  EXPECT_EQ(link->send({Role::worker, 0, 1}, Cancel{}), SendResult::closed);
}

TEST_F(ZmqLinks, NoticeThatTheRouterIsGone) {
  Leaf leaf;
  const auto link = connect(leaf);
  link->send(kAnyHub, RegisterGateway{});
  ASSERT_TRUE(until([&] { return leaf.welcomes == 1; }));
  hub_link_.reset();
  EXPECT_TRUE(until([&] { return leaf.lost == 1; }, milliseconds(2000)));
  EXPECT_EQ(link->send(kAnyHub, Cancel{}), SendResult::closed);
  EXPECT_TRUE(for_a_while());
  EXPECT_EQ(leaf.lost, 1);
}

TEST_F(ZmqLinks, MeetTheNextRouterAsAnotherPeer) {
  Leaf leaf;
  const auto link = connect(leaf, true);
  leaf.on_lost = [&] { link->send(kAnyHub, RegisterGateway{}); };
  link->send(kAnyHub, RegisterGateway{});
  ASSERT_TRUE(until([&] { return leaf.welcomes == 1; }));
  const PeerId before = hub_.peer;
  const PeerId old_hub = leaf.hub;
  ASSERT_TRUE(close_hub());
  ASSERT_TRUE(until([&] { return leaf.lost >= 1; }));
  open_hub();
  ASSERT_TRUE(until([&] { return leaf.welcomes == 2; }));
  EXPECT_NE(hub_.peer, before);
  EXPECT_NE(leaf.hub, old_hub);
}

TEST_F(ZmqLinks, MeetTheSameRouterAgainAfterClosing) {
  Leaf leaf;
  const auto link = connect(leaf, true);
  leaf.on_lost = [&] { link->send(kAnyHub, RegisterGateway{}); };
  link->send(kAnyHub, RegisterGateway{});
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(until([&] { return leaf.welcomes == round; })) << round;
    link->close(leaf.hub);
  }
}

TEST_F(ZmqLinks, TakeNothingFromAClosedPeer) {
  Leaf leaf;
  const auto link = connect(leaf);
  link->send(kAnyHub, RegisterGateway{});
  ASSERT_TRUE(until([&] { return leaf.welcomes == 1; }));
  hub_link_->close(hub_.peer);
  EXPECT_EQ(hub_link_->send(hub_.peer, Tokens{}), SendResult::closed);
  link->send(kAnyHub, Cancel{});
  EXPECT_TRUE(until([&] { return hub_link_->stale_messages() == 1; }));
  EXPECT_TRUE(hub_.cancels.empty());
}

TEST_F(ZmqLinks, ListenNowhereBeyondTheRunDirectory) {
  for (const char* where : {"tcp://127.0.0.1:5555", "tcp://*:5555"}) {
    const auto refused = RouterLink::bind(runtime_, {}, {{Role::worker, where}});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_FALSE(DealerLink::connect(runtime_, random_, {.endpoint = where}).ok());
  }
  for (const char* where : {"", "ipc://relative", "ipc://@abstract", "inproc://x", "pgm://x"}) {
    EXPECT_FALSE(RouterLink::bind(runtime_, {}, {{Role::worker, where}}).ok()) << where;
  }
  EXPECT_FALSE(RouterLink::bind(runtime_, {}, {{Role::worker, "ipc:///nowhere/there"}}).ok());
}

TEST_F(ZmqLinks, RefuseFramesBeyondTheBound) {
  const PeerId name{Role::gateway, 0, 5};
  RawPeer peer(endpoint(Role::gateway), to_string(name));
  peer.send(frame_of(name));
  ASSERT_TRUE(until([&] { return hub_.cancels.size() == 1; }));
  peer.send(std::vector<std::byte>(limits::frame_header_bytes + limits::frame_body_bytes + 1));
  EXPECT_TRUE(for_a_while(milliseconds(300)));
  EXPECT_EQ(hub_.cancels.size(), 1u);
  Leaf leaf;
  const auto link = connect(leaf);
  link->send(kAnyHub, RegisterGateway{});
  EXPECT_TRUE(until([&] { return leaf.welcomes == 1; }));
}

TEST_F(ZmqLinks, SurviveJunkOnTheirSockets) {
  Leaf leaf;
  const auto link = connect(leaf);
  link->send(kAnyHub, RegisterGateway{});
  ASSERT_TRUE(until([&] { return leaf.welcomes == 1; }));
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    const int fd = plain_connection(endpoint(Role::gateway));
    std::array<std::uint64_t, 16> junk{};
    for (auto& word : junk) word = random_.next();
    if (fd >= 0) static_cast<void>(!write(fd, junk.data(), sizeof junk));
    close(fd);
    if (i % 50 == 0) {
      EXPECT_TRUE(for_a_while(milliseconds(40)));
    }
  }
  link->send(kAnyHub, Cancel{.request = 7});
  EXPECT_TRUE(until([&] { return hub_.cancels.size() == 1; }));
  EXPECT_TRUE(until([&] { return open_descriptors() <= before; }));
}

}  // namespace
}  // namespace copse
