// Bodies that nobody honest sends. Each is refused by name, quickly, without memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "transport/allocation_count_for_test.h"
#include "transport/messages/codec.h"

namespace copse {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

// What decoding says, after checking that it reserved next to nothing.
template <class Message>
std::string refusal(std::span<const std::byte> body) {
  const std::size_t before = allocated_bytes();
  const Result<Message> message = decode<Message>(body);
  EXPECT_LE(allocated_bytes() - before, std::size_t{64} << 10);
  return message.ok() ? "accepted" : message.error().field + ": " + message.error().message;
}

template <class Message>
std::string refusal(std::initializer_list<int> body) {
  const Bytes wire = bytes(body);
  return refusal<Message>(wire);
}

TEST(HostileBody, ClaimsSixteenMillionElements) {
  EXPECT_EQ(refusal<GatewayHeartbeat>({0xdd, 0xff, 0, 0, 0}), ": too many elements");
  EXPECT_EQ(refusal<GatewayHeartbeat>({0x91, 0xdd, 0xff, 0, 0, 0}), "backlogs: too many elements");
  // Within the field's bound, beyond what is there.
  EXPECT_EQ(refusal<GatewayHeartbeat>({0x91, 0xdc, 0x04, 0, 0, 0}),
            "backlogs: the message ends early");
  Bytes submit = encode(Submit{});
  submit[2] = std::byte{0xdd};  // the prompt's count: 2^18, which the field allows
  submit.insert(submit.begin() + 3, {std::byte{0}, std::byte{4}, std::byte{0}, std::byte{0}});
  EXPECT_EQ(refusal<Submit>(submit), "prompt: the message ends early");
}

TEST(HostileBody, NestsAHundredThousandDeep) {
  const Bytes deep(100000, std::byte{0x91});
  EXPECT_EQ(refusal<WorkerWelcome>(deep), "epoch: not an integer");
  EXPECT_EQ(refusal<GatewayHeartbeat>(deep), "backlogs[0]: fields are missing");
}

TEST(HostileBody, IsNoMessageAtAll) {
  EXPECT_EQ(refusal<Shutdown>({}), ": the message ends early");
  EXPECT_EQ(refusal<Shutdown>({0x81, 0x00, 0x00}), ": not an array");  // a map
  EXPECT_EQ(refusal<Shutdown>({0xc0}), ": not an array");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xc0}), "epoch: not an integer");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xc1}), "epoch: not an integer");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xd4, 0, 0}), "epoch: not an integer");  // an extension
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xc9, 0xff, 0xff, 0xff, 0xff, 0}), "epoch: not an integer");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xc6, 0xff, 0xff, 0xff, 0xff}), "epoch: not an integer");
}

TEST(HostileBody, HasIntegersOutOfRange) {
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xff}), "epoch: an integer is out of range");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0}),
            "epoch: an integer is out of range");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xcf, 0xff, 0, 0, 0, 0, 0, 0, 1}),
            "epoch: an integer is out of range");
  EXPECT_EQ(refusal<Shutdown>({0x91, 0xca, 0x3f, 0x80, 0, 0}), "epoch: not an integer");
  // request, index, [token 2^31]
  EXPECT_EQ(refusal<Tokens>({0x95, 1, 0, 0x91, 0xce, 0x80, 0, 0, 0, 0, 0xc2}),
            "tokens[0]: an integer is out of range");
}

TEST(HostileBody, HasOddBooleansAndEnumerators) {
  EXPECT_EQ(refusal<Tokens>({0x95, 1, 0, 0x90, 0, 1}), "round: not a boolean");
  EXPECT_EQ(refusal<Cancel>({0x93, 1, 0, 5}), "reason: no such enumerator");
  EXPECT_EQ(refusal<Cancel>({0x93, 1, 0, 0xff}), "reason: an integer is out of range");
  EXPECT_EQ(refusal<Cancel>({0x93, 1, 0, 0xcd, 1, 3}), "reason: no such enumerator");
}

TEST(HostileBody, HasFloatsThatAreNoNumbers) {
  EXPECT_EQ(refusal<StepCost>({0x92, 1, 0xca, 0x7f, 0xc0, 0, 0}), "step_us: a float is not finite");
  EXPECT_EQ(refusal<StepCost>({0x92, 1, 0xca, 0xff, 0x80, 0, 0}), "step_us: a float is not finite");
  EXPECT_EQ(refusal<StepCost>({0x92, 1, 0xcb, 0x7f, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
            "step_us: a float is out of range");
  EXPECT_EQ(refusal<StepCost>({0x92, 1, 1}), "step_us: not a float");
}

TEST(HostileBody, HasTextBeyondItsBound) {
  EXPECT_EQ(refusal<RegisterGateway>({0x91, 0xdb, 0xff, 0xff, 0xff, 0xff}),
            "build: a string is too long");
  EXPECT_EQ(refusal<RegisterGateway>({0x91, 0xda, 0xff, 0xff, 'x'}),
            "build: the message ends early");
  RegisterGateway longest;
  longest.build.assign(limits::message_string_bytes, 'x');
  EXPECT_TRUE(decode<RegisterGateway>(encode(longest)).ok());
  Bytes longer = bytes({0x91, 0xdb, 0, 1, 0, 1});  // one byte more than that
  longer.resize(longer.size() + limits::message_string_bytes + 1, std::byte{'x'});
  EXPECT_EQ(refusal<RegisterGateway>(longer), "build: a string is too long");
}

TEST(HostileBody, IsNamedByItsPath) {
  StepResult result;
  result.slots.resize(3);
  result.slots[2].tokens.push_back(7);
  Bytes wire = encode(result);
  const auto token = std::find(wire.rbegin(), wire.rend(), std::byte{7});
  ASSERT_NE(token, wire.rend());
  *token = std::byte{0xc3};
  EXPECT_EQ(refusal<StepResult>(wire), "slots[2].tokens[0]: not an integer");
}

// Every array of every message, one element beyond its bound.
template <class List>
void expect_bound(const char* field) {
  constexpr std::size_t kMax = List::max_size();
  WireWriter count;
  count.array(kMax + 1);
  Bytes wire = std::move(count).take();
  wire.resize(wire.size() + kMax + 1, std::byte{0});
  WireReader in(wire);
  List list;
  EXPECT_FALSE(codec::read(in, list)) << field;
  EXPECT_EQ(in.error().message, "too many elements") << field;
}

TEST(HostileBody, HasOneElementTooMany) {
  expect_bound<decltype(Submit::prompt)>("prompt");
  expect_bound<decltype(GatewayHeartbeat::backlogs)>("backlogs");
  expect_bound<decltype(StepPlan::decode)>("decode");
  expect_bound<decltype(PrefillChunk::tokens)>("tokens");
  expect_bound<decltype(DraftSummary::walk_lengths)>("walk_lengths");
  expect_bound<decltype(EngineStatus::ranks)>("ranks");
}

}  // namespace
}  // namespace copse
