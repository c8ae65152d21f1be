#include "transport/actor/peer_id.h"

#include <fmt/format.h>

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

std::string to_string(const PeerId& peer) {
  return fmt::format("{}.{}.{:016x}", kRoles[static_cast<std::size_t>(peer.role)], peer.rank,
                     peer.incarnation);
}

Result<PeerId> parse_peer_id(std::string_view text) {
  const Error wrong{ErrorCode::malformed, "routing id", "is not role.rank.incarnation"};
  const std::size_t first = text.find('.');
  const std::size_t second = first == text.npos ? text.npos : text.find('.', first + 1);
  if (second == text.npos) return wrong;
  PeerId peer;
  std::size_t role = 0;
  while (role < kRoles.size() && kRoles[role] != text.substr(0, first)) ++role;
  const std::string_view incarnation = text.substr(second + 1);
  if (role == kRoles.size() || incarnation.size() != 16 ||
      !parse_whole(text.substr(first + 1, second - first - 1), peer.rank, 10) ||
      !parse_whole(incarnation, peer.incarnation, 16)) {
    return wrong;
  }
  peer.role = static_cast<Role>(role);
  // One spelling per peer: "worker.03..." is not "worker.3...".
  if (to_string(peer) != text) return wrong;
  return peer;
}

}  // namespace copse
