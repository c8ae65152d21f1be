#include "transport/client/engine_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/actor/sim.h"

namespace copse {
namespace {

// What the coordinator does towards one gateway, in the smallest form: each test says what it
// answers.
struct FakeCoordinator {
  using Receives = MessageList<RegisterGateway, Submit, Cancel, GatewayHeartbeat>;
  void on(const PeerId& from, const RegisterGateway& message) {
    peer = from;
    builds.push_back(message.build);
    if (answers) link->send(from, GatewayWelcome{.context_tokens = 512, .end_tokens = {}});
  }
  void on(const PeerId&, const Submit& submit) { submits.push_back(submit); }
  void on(const PeerId&, const Cancel& cancel) { cancels.push_back(cancel); }
  void on(const PeerId&, const GatewayHeartbeat& beat) { beats.push_back(beat); }
  void on_peer_lost(const PeerId&) {}
  void on_tick(Instant now) {
    if (!answers || builds.empty() || now < next_status) return;
    next_status = now + milliseconds(limits::heartbeat_ms);
    EngineStatus status;
    status.state = GroupState::ready;
    link->send(peer, status);
  }

  Link* link = nullptr;
  PeerId peer;
  bool answers = true;
  Instant next_status{};
  std::vector<std::string> builds;
  std::vector<Submit> submits;
  std::vector<Cancel> cancels;
  std::vector<GatewayHeartbeat> beats;
};

struct Recorder final : StreamHandler {
  void on_tokens(const Tokens& message) override {
    tokens.insert(tokens.end(), message.tokens.begin(), message.tokens.end());
  }
  void on_finished(const RequestFinished&) override { ++finished; }
  void on_refused(const RequestRefused&) override { ++refused; }
  void on_lost(RequestId) override { ++lost; }
  std::uint32_t backlog() const override { return waiting; }

  std::vector<TokenId> tokens;
  int finished = 0;
  int refused = 0;
  int lost = 0;
  std::uint32_t waiting = 0;
};

class EngineClientTest : public testing::Test {
 protected:
  EngineClientTest() {
    coordinator_ = add_coordinator(engine_, 1);
    gateway_ = world_.add_node({Role::gateway, 0, 99});
    client_.emplace(world_.link(gateway_), world_.clock());
    world_.attach(gateway_, *client_);
  }
  SimNode add_coordinator(FakeCoordinator& engine, std::uint64_t incarnation) {
    const SimNode node = world_.add_node({Role::coordinator, 0, incarnation});
    engine.link = &world_.link(node);
    world_.attach(node, engine);
    return node;
  }
  bool connect() {
    return world_.run_until([&] { return client_->connected(); }, milliseconds(5000));
  }
  RequestId submit() {
    Submit submit;
    submit.prompt = {1, 2, 3};
    submit.max_tokens = 8;
    const auto request = client_->submit(submit, stream_);
    EXPECT_TRUE(request.ok());
    return request.ok() ? *request : 0;
  }
  void send_tokens(RequestId request, std::uint32_t index, TokenId token) {
    engine_.link->send(engine_.peer, Tokens{.request = request, .index = index, .tokens = {token}});
  }
  void finish(RequestId request) {
    RequestFinished finished;
    finished.request = request;
    finished.reason = FinishReason::stop;
    engine_.link->send(engine_.peer, finished);
  }
  void settle(std::int64_t ms = 50) { world_.run_for(milliseconds(ms)); }

  SimWorld world_{1};
  FakeCoordinator engine_;
  std::shared_ptr<Recorder> stream_ = std::make_shared<Recorder>();
  SimNode coordinator_ = 0;
  SimNode gateway_ = 0;
  std::optional<EngineClient> client_;
};

TEST_F(EngineClientTest, RegistersAndRemembersWhatItIsTold) {
  EXPECT_FALSE(client_->connected());
  ASSERT_TRUE(connect());
  settle(600);
  EXPECT_EQ(engine_.builds, std::vector<std::string>{build_identity()});
  ASSERT_TRUE(client_->welcome().has_value());
  EXPECT_EQ(client_->welcome()->context_tokens, 512u);
  ASSERT_TRUE(client_->status().has_value());
  EXPECT_EQ(client_->status()->state, GroupState::ready);
}

TEST_F(EngineClientTest, StreamsARequestToItsEnd) {
  ASSERT_TRUE(connect());
  const RequestId request = submit();
  settle();
  ASSERT_EQ(engine_.submits.size(), 1u);
  EXPECT_EQ(engine_.submits[0].request, request);
  send_tokens(request, 0, 10);
  send_tokens(request, 1, 11);
  finish(request);
  settle();
  EXPECT_EQ(stream_->tokens, (std::vector<TokenId>{10, 11}));
  EXPECT_EQ(stream_->finished, 1);
  finish(request);  // a second end is nobody's
  settle();
  EXPECT_EQ(stream_->finished, 1);
  EXPECT_EQ(stream_->lost, 0);
}

TEST_F(EngineClientTest, GivesEveryRequestAnotherNumber) {
  ASSERT_TRUE(connect());
  const RequestId first = submit();
  EXPECT_NE(submit(), first);
}

TEST_F(EngineClientTest, RefusesWithoutACoordinator) {
  const auto refused = client_->submit({}, stream_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(stream_->lost, 0);  // told by the result alone
}

TEST_F(EngineClientTest, RefusesWhenTheLinkIsFull) {
  ASSERT_TRUE(connect());
  world_.pause(coordinator_, true);
  int accepted = 0;
  for (;; ++accepted) {
    const auto request = client_->submit({}, std::make_shared<Recorder>());
    if (!request.ok()) {
      EXPECT_EQ(request.error().code, ErrorCode::resource_exhausted);
      break;
    }
    ASSERT_LT(accepted, 1000);
  }
  EXPECT_GE(accepted, limits::link_high_water_mark);
}

TEST_F(EngineClientTest, PassesARefusalOn) {
  ASSERT_TRUE(connect());
  const RequestId request = submit();
  engine_.link->send(engine_.peer, RequestRefused{.request = request, .at = {}, .message = "full"});
  settle();
  EXPECT_EQ(stream_->refused, 1);
  EXPECT_EQ(stream_->finished + stream_->lost, 0);
}

TEST_F(EngineClientTest, EndsAStreamWithAHoleOrARepeat) {
  ASSERT_TRUE(connect());
  for (const std::uint32_t wrong : {0u, 2u}) {
    stream_ = std::make_shared<Recorder>();
    const RequestId request = submit();
    send_tokens(request, 0, 10);
    send_tokens(request, wrong, 11);
    send_tokens(request, 1, 12);
    finish(request);
    settle();
    EXPECT_EQ(stream_->tokens, std::vector<TokenId>{10});
    EXPECT_EQ(stream_->lost, 1);
    EXPECT_EQ(stream_->finished, 0);
    ASSERT_FALSE(engine_.cancels.empty());
    EXPECT_EQ(engine_.cancels.back().request, request);
    EXPECT_EQ(engine_.cancels.back().delivered_tokens, 1u);
  }
  EXPECT_EQ(client_->broken_streams(), 2u);
  EXPECT_EQ(engine_.cancels.size(), 2u);
}

TEST_F(EngineClientTest, CancelsOnce) {
  ASSERT_TRUE(connect());
  const RequestId request = submit();
  client_->cancel(request, 3, FinishReason::stop);
  client_->cancel(request, 3, FinishReason::stop);
  client_->cancel(request + 1, 0, FinishReason::abort);
  settle();
  ASSERT_EQ(engine_.cancels.size(), 1u);
  EXPECT_EQ(engine_.cancels[0].delivered_tokens, 3u);
  EXPECT_EQ(engine_.cancels[0].reason, FinishReason::stop);
  finish(request);
  settle();
  EXPECT_EQ(stream_->finished, 1);
}

TEST_F(EngineClientTest, SendsACancelLaterThatFoundNoRoom) {
  ASSERT_TRUE(connect());
  const RequestId request = submit();
  settle();
  world_.pause(coordinator_, true);
  while (client_->submit({}, std::make_shared<Recorder>()).ok()) {
  }
  client_->cancel(request, 0, FinishReason::abort);
  settle(200);
  EXPECT_TRUE(engine_.cancels.empty());
  world_.pause(coordinator_, false);
  settle(200);
  ASSERT_EQ(engine_.cancels.size(), 1u);
  EXPECT_EQ(engine_.cancels[0].request, request);
}

TEST_F(EngineClientTest, TellsOfSlowReaders) {
  ASSERT_TRUE(connect());
  const RequestId request = submit();
  settle(600);
  ASSERT_FALSE(engine_.beats.empty());
  EXPECT_TRUE(engine_.beats.back().backlogs.empty());
  stream_->waiting = limits::stream_outbox_events;
  settle(600);
  ASSERT_EQ(engine_.beats.back().backlogs.size(), 1u);
  EXPECT_EQ(engine_.beats.back().backlogs[0], (StreamBacklog{request, 256}));
  stream_->waiting = 0;
  settle(600);
  EXPECT_TRUE(engine_.beats.back().backlogs.empty());
}

TEST_F(EngineClientTest, EndsEveryStreamWhenTheCoordinatorDies) {
  ASSERT_TRUE(connect());
  const auto other = stream_;
  submit();
  stream_ = std::make_shared<Recorder>();
  submit();
  world_.crash(coordinator_);
  settle(100);
  EXPECT_EQ(stream_->lost, 1);
  EXPECT_EQ(other->lost, 1);
  EXPECT_FALSE(client_->connected());
  EXPECT_FALSE(client_->status().has_value());
  EXPECT_FALSE(client_->submit({}, stream_).ok());

  FakeCoordinator next;
  add_coordinator(next, 2);
  ASSERT_TRUE(connect());
  EXPECT_EQ(next.builds.size(), 1u);
  EXPECT_TRUE(client_->submit({}, stream_).ok());
  settle();
  EXPECT_EQ(next.submits.size(), 1u);
}

TEST_F(EngineClientTest, TakesSilenceForDeath) {
  ASSERT_TRUE(connect());
  submit();
  engine_.answers = false;  // it lives, and does not work
  settle(limits::heartbeat_timeout_ms + 100);
  EXPECT_EQ(stream_->lost, 1);
  EXPECT_FALSE(client_->connected());
  engine_.answers = true;
  EXPECT_TRUE(connect());
}

TEST_F(EngineClientTest, RegistersOncePerConnection) {
  engine_.answers = false;
  settle(10000);
  // One every two seconds, each on a connection of its own.
  EXPECT_GE(engine_.builds.size(), 4u);
  EXPECT_LE(engine_.builds.size(), 6u);
}

// Whatever happens to the connection, each stream ends exactly once, and what it was given is a
// prefix of what the engine sent.
TEST_F(EngineClientTest, EndsEachStreamOnceUnderFaults) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimWorld world(seed);
    SeededRandom random(seed);
    world.set_faults(SimFaults::drawn(random));
    FakeCoordinator engine;
    const SimNode hub = world.add_node({Role::coordinator, 0, 1});
    engine.link = &world.link(hub);
    world.attach(hub, engine);
    const SimNode node = world.add_node({Role::gateway, 0, 2});
    EngineClient client(world.link(node), world.clock());
    world.attach(node, client);
    std::vector<std::shared_ptr<Recorder>> streams;
    for (int step = 0; step < 200; ++step) {
      world.run_for(milliseconds(20));
      auto stream = std::make_shared<Recorder>();
      if (client.submit({}, stream).ok()) streams.push_back(stream);
      for (const Submit& submit : std::exchange(engine.submits, {})) {
        for (std::uint32_t i = 0; i < 3; ++i) {
          const Tokens tokens{.request = submit.request, .index = i, .tokens = {TokenId(i)}};
          static_cast<void>(engine.link->send(engine.peer, tokens));
        }
        RequestFinished finished;
        finished.request = submit.request;
        static_cast<void>(engine.link->send(engine.peer, finished));
      }
    }
    world.set_faults({});
    world.disconnect(node);  // ends what still waits
    world.run_for(milliseconds(5000));
    EXPECT_TRUE(client.connected()) << world.trace();
    for (const auto& stream : streams) {
      ASSERT_EQ(stream->finished + stream->lost, 1) << "seed " << seed << "\n" << world.trace();
      for (std::size_t i = 0; i < stream->tokens.size(); ++i) {
        ASSERT_EQ(stream->tokens[i], static_cast<TokenId>(i)) << "seed " << seed;
      }
      if (stream->finished == 1) {
        ASSERT_EQ(stream->tokens.size(), 3u) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace copse
