// Fuzzes the decoder of every message:
//  1. the first byte chooses the message, the others are its body;
//  2. a body that decodes is encoded and decoded again: the same message;
//  3. and its second encoding equals its first.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "transport/messages/all_for_test.h"

namespace {

using namespace copse;

template <class Message>
void go_through(std::span<const std::byte> body) {
  const Result<Message> message = decode<Message>(body);
  if (!message.ok()) return;
  const std::vector<std::byte> wire = encode(*message);
  const Result<Message> again = decode<Message>(wire);
  CHECK(again.ok());
  CHECK(*again == *message);
  CHECK(encode(*again) == wire);
}

template <class... Messages>
struct Chooser {
  static void go(std::size_t chosen, std::span<const std::byte> body) {
    std::size_t index = 0;
    ((index++ == chosen ? go_through<Messages>(body) : void()), ...);
  }
  static constexpr std::size_t kCount = sizeof...(Messages);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using Choice = AllMessages<Chooser>;
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  Choice::go(data[0] % Choice::kCount, {bytes + 1, size - 1});
  return 0;
}
