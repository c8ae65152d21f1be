#include "transport/messages/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "transport/messages/all_for_test.h"

namespace copse {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

template <class Message>
class EveryMessage : public testing::Test {};
TYPED_TEST_SUITE(EveryMessage, AllMessages<testing::Types>);

TYPED_TEST(EveryMessage, ComesBackAsItWasSent) {
  EXPECT_EQ(*decode<TypeParam>(encode(TypeParam{})), TypeParam{});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto message = filled<TypeParam>(seed);
    const Result<TypeParam> back = decode<TypeParam>(encode(message));
    ASSERT_TRUE(back.ok()) << describe(back.error());
    EXPECT_EQ(*back, message);
  }
}

TYPED_TEST(EveryMessage, IsRefusedWhereverItIsCut) {
  const Bytes whole = encode(filled<TypeParam>(7));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = decode<TypeParam>(std::span(whole).first(size));
    ASSERT_FALSE(cut.ok()) << size << " of " << whole.size();
    EXPECT_EQ(cut.error().code, ErrorCode::malformed);
  }
}

TYPED_TEST(EveryMessage, IsRefusedWithAnythingBehindIt) {
  Bytes longer = encode(filled<TypeParam>(7));
  longer.push_back(std::byte{0xc0});
  const auto refused = decode<TypeParam>(longer);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "bytes after the message");
}

// A flipped bit may give another valid message, never a value that cannot travel again.
TYPED_TEST(EveryMessage, SurvivesEveryFlippedBit) {
  Bytes wire = encode(filled<TypeParam>(7));
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < wire.size() * 8; ++bit) {
    wire[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto other = decode<TypeParam>(wire);
    if (!other.ok()) {
      ++refused;
    } else {
      EXPECT_EQ(*decode<TypeParam>(encode(*other)), *other);
    }
    wire[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_GE(refused, 8u);  // the array that a struct is has one right first byte
}

TYPED_TEST(EveryMessage, NeedsExactlyItsFields) {
  Bytes wire = encode(TypeParam{});
  const auto fields = codec::field_count<TypeParam>();
  ASSERT_LT(fields, 20u);
  const bool fix = fields < 15;
  const std::size_t count_at = fix ? 0 : 2;
  wire[count_at] = static_cast<std::byte>(std::to_integer<int>(wire[count_at]) + 1);
  wire.push_back(std::byte{0});
  EXPECT_FALSE(decode<TypeParam>(wire).ok());
  wire = encode(TypeParam{});
  wire[count_at] = static_cast<std::byte>(std::to_integer<int>(wire[count_at]) - 1);
  EXPECT_FALSE(decode<TypeParam>(wire).ok());
}

// The bytes that this protocol version means. A change here is a new version.
TEST(Codec, WritesTheseBytes) {
  RegisterWorker message;
  message.epoch = 3;
  message.rank = 200;
  message.world_size = 8;
  message.pid = -70000;
  message.build = "copse";
  const Bytes wire = encode(message);
  EXPECT_EQ(wire, bytes({0x95, 0x03, 0xcc, 200, 0x08, 0xd2, 0xff, 0xfe, 0xee, 0x90, 0xa5, 'c', 'o',
                         'p', 's', 'e'}));
  const auto handle = msgpack::unpack(reinterpret_cast<const char*>(wire.data()), wire.size());
  const msgpack::object& object = handle.get();
  ASSERT_EQ(object.type, msgpack::type::ARRAY);
  ASSERT_EQ(object.via.array.size, 5u);
  EXPECT_EQ(object.via.array.ptr[1].as<int>(), 200);
  EXPECT_EQ(object.via.array.ptr[3].as<int>(), -70000);
  EXPECT_EQ(object.via.array.ptr[4].as<std::string>(), "copse");
}

TEST(Codec, FloatsStayFloatsForOtherReaders) {
  const Bytes wire = encode(StepCost{.nodes = 4, .step_us = 12});
  const auto handle = msgpack::unpack(reinterpret_cast<const char*>(wire.data()), wire.size());
  EXPECT_EQ(handle.get().via.array.ptr[1].type, msgpack::type::FLOAT32);
}

// The fast way of arrays of tokens spells them as the packer does, at each edge of each width.
TEST(Codec, SpellsTokensAsThePackerDoes) {
  Submit submit;
  for (const std::int64_t edge :
       {0x0, 0x20, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff}) {
    for (std::int64_t near = edge - 1; near <= edge + 1; ++near) {
      for (const std::int64_t value : {near, -near - 1}) {
        if (std::in_range<TokenId>(value)) submit.prompt.push_back(static_cast<TokenId>(value));
      }
    }
  }
  msgpack::sbuffer packed;
  msgpack::pack(packed, std::vector<TokenId>(submit.prompt.begin(), submit.prompt.end()));
  const Bytes wire = encode(submit);
  ASSERT_GT(wire.size(), packed.size() + 2);
  EXPECT_EQ(std::memcmp(wire.data() + 2, packed.data(), packed.size()), 0);
  EXPECT_EQ(*decode<Submit>(wire), submit);
}

TEST(Codec, CarriesTheLongestPrompt) {
  const auto submit = filled<Submit>(1, limits::sequence_tokens);
  ASSERT_EQ(submit.prompt.size(), static_cast<std::size_t>(limits::sequence_tokens));
  const Bytes wire = encode(submit);
  EXPECT_LE(wire.size(), limits::frame_body_bytes);
  EXPECT_EQ(*decode<Submit>(wire), submit);
}

TEST(Codec, AcceptsIntegersThatAreNotMinimal) {
  EXPECT_EQ(decode<WorkerWelcome>(bytes({0x91, 0xcf, 0, 0, 0, 0, 0, 0, 0, 5}))->epoch, 5u);
  EXPECT_EQ(decode<WorkerWelcome>(bytes({0x91, 0xd1, 0, 5}))->epoch, 5u);
  EXPECT_EQ(decode<WorkerWelcome>(bytes({0xdd, 0, 0, 0, 1, 0xcc, 5}))->epoch, 5u);
}

}  // namespace
}  // namespace copse
