#include "transport/messages/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "transport/messages/crc32c.h"

namespace copse {
namespace {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> text(const std::string& value) {
  return std::as_bytes(std::span(value.data(), value.size()));
}

const FrameHeader kHeader{.kind = Kind::step_plan,
                          .role = Role::worker,
                          .rank = 0x0102,
                          .epoch = 0x03040506,
                          .sequence = 0x0708090a0b0c0d0e,
                          .incarnation = 0x1112131415161718};

std::string refusal(const Bytes& frame) {
  const Result<Frame> parsed = parse_frame(frame);
  return parsed.ok() ? "accepted" : parsed.error().field;
}

TEST(Crc32c, MatchesItsPublishedValues) {
  EXPECT_EQ(crc32c(text("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0x00})), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0xff})), 0x62A8AB43u);
  EXPECT_EQ(crc32c(text("1234"), text("56789")), 0xE3069283u);
}

TEST(Crc32c, IsTheSameWithTheInstructionAndWithout) {
  SeededRandom random(3);
  Bytes bytes(100);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto some = std::span(bytes).first(size);
    EXPECT_EQ(crc32c(some), crc32c_portable(some));
  }
}

TEST(Frame, ComesBackAsItWasMade) {
  for (const std::string& body : {std::string(), std::string("x"), std::string(5000, 'y')}) {
    const Bytes wire = make_frame(kHeader, text(body));
    EXPECT_EQ(wire.size(), limits::frame_header_bytes + body.size());
    const Result<Frame> frame = parse_frame(wire);
    ASSERT_TRUE(frame.ok()) << describe(frame.error());
    EXPECT_EQ(frame->header, kHeader);
    EXPECT_TRUE(
        std::equal(frame->body.begin(), frame->body.end(), text(body).begin(), text(body).end()));
  }
}

TEST(Frame, HasThisHeader) {
  const Bytes wire = make_frame(kHeader, text("ab"));
  const int expected[36] = {'C',  'P',  'S',  'E',  1,    0,    33,   1,    2,    1,    0,    0,
                            6,    5,    4,    3,    0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08, 0x07,
                            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 2,    0,    0,    0};
  for (std::size_t i = 0; i < 36; ++i) EXPECT_EQ(std::to_integer<int>(wire[i]), expected[i]) << i;
}

TEST(Frame, NamesWhatIsWrong) {
  const Bytes good = make_frame(kHeader, text("body"));
  const auto with = [&](std::size_t at, int value) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    return refusal(bad);
  };
  EXPECT_EQ(refusal({}), "frame");
  EXPECT_EQ(refusal(Bytes(good.begin(), good.begin() + 39)), "frame");
  EXPECT_EQ(with(0, 'X'), "magic");
  EXPECT_EQ(with(4, 2), "version");
  EXPECT_EQ(with(7, 3), "role");
  EXPECT_EQ(with(10, 1), "reserved");
  EXPECT_EQ(with(32, 5), "length");
  EXPECT_EQ(with(35, 0xff), "length");
  EXPECT_EQ(with(36, 0), "checksum");
  EXPECT_EQ(with(8, 3), "checksum");   // the header is covered
  EXPECT_EQ(with(41, 0), "checksum");  // as is the body
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer), "length");
}

TEST(Frame, IsRefusedCutAnywhereAndWithAnyBitFlipped) {
  Bytes frame = make_frame(kHeader, text("some body of a message"));
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(parse_frame(std::span(frame).first(size)).ok()) << size;
  }
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(parse_frame(frame).ok()) << bit;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace copse
