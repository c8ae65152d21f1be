// Fuzzes the frame header and what a link end makes of it:
//  1. bytes that parse are made into a frame again: the same bytes;
//  2. the checksum is then mended, so that the rest of the header is reached too;
//  3. whatever it is, a link end in some epoch judges it twice, and never accepts the repeat.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "transport/actor/endpoint.h"
#include "transport/messages/crc32c.h"
#include "transport/messages/frame.h"

namespace {

using namespace copse;

constexpr std::size_t kChecksumAt = 36;

void mend(std::vector<std::byte>& frame) {
  const std::span<const std::byte> bytes(frame);
  const std::uint32_t crc =
      crc32c(bytes.first(kChecksumAt), bytes.subspan(limits::frame_header_bytes));
  for (std::size_t i = 0; i < 4; ++i) {
    frame[kChecksumAt + i] = static_cast<std::byte>(crc >> (8 * i));
  }
}

void judge(std::span<const std::byte> bytes) {
  const Result<Frame> frame = parse_frame(bytes);
  if (frame.ok()) {
    const auto again = make_frame(frame->header, frame->body);
    CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  }
  Endpoint end({Role::coordinator, 0, 1});
  end.set_epoch(3);
  const PeerId from =
      frame.ok() ? PeerId{frame->header.role, frame->header.rank, frame->header.incarnation}
                 : PeerId{Role::worker, 0, 2};
  const auto first = end.judge(from, bytes).verdict;
  CHECK(frame.ok() || first == Endpoint::Verdict::drop);
  CHECK(end.judge(from, bytes).verdict == Endpoint::Verdict::drop);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  judge(bytes);
  if (size >= limits::frame_header_bytes) {
    mend(bytes);
    judge(bytes);
  }
  return 0;
}
