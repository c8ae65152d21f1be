#include "transport/actor/peer_id.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace copse {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"coordinator", "worker", "gateway"};

template <class T>
bool parse_whole(std::string_view text, T& value, int base) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc() && at == end && !text.empty();
}

}  // namespace

// By hand, since it runs for every message sent.
std::string to_string(const PeerId& peer) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 48> text{};
  const std::string_view role = kRoles[static_cast<std::size_t>(peer.role)];
  char* at = std::copy(role.begin(), role.end(), text.data());
  *at++ = '.';
  at = std::to_chars(at, text.data() + text.size(), peer.rank).ptr;
  *at++ = '.';
  for (int shift = 60; shift >= 0; shift -= 4) *at++ = kDigits[peer.incarnation >> shift & 15];
  return {text.data(), at};
}

Result<PeerId> parse_peer_id(std::string_view text) {
  const auto wrong = [] {
    return Error{ErrorCode::malformed, "routing id", "is not role.rank.incarnation"};
  };
  const std::size_t first = text.find('.');
  const std::size_t second = first == text.npos ? text.npos : text.find('.', first + 1);
  if (second == text.npos) return wrong();
  PeerId peer;
  std::size_t role = 0;
  while (role < kRoles.size() && kRoles[role] != text.substr(0, first)) ++role;
  if (role == kRoles.size() ||
      !parse_whole(text.substr(first + 1, second - first - 1), peer.rank, 10) ||
      !parse_whole(text.substr(second + 1), peer.incarnation, 16)) {
    return wrong();
  }
  peer.role = static_cast<Role>(role);
  // One spelling per peer: "worker.03..." is not "worker.3...".
  if (to_string(peer) != text) return wrong();
  return peer;
}

}  // namespace copse
