#pragma once
// Finds stop strings in a text that comes in pieces and lets through only what can no longer be
// part of one, so that no prefix of a matched stop string is ever sent.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace copse {

class StopMatcher {
 public:
  // `stops` are not empty strings.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that may be sent now. The match is the one that is complete first, reading byte by
  // byte; of several that end there, the longest. It does not depend on where the pieces are cut.
  // After a match nothing more is returned: the stop string and what follows are dropped.
  std::string push(std::string_view piece);
  // What was held back as a possible beginning of a stop string.
  std::string finish();

  bool matched() const { return matched_ != kNone; }
  // The stop string that was found; matched() must hold.
  const std::string& match() const { return stops_[matched_]; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t undecided_suffix() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::size_t matched_ = kNone;
};

}  // namespace copse
