#include "gateway/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace copse {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) CHECK(!stop.empty());
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched()) return {};
  if (stops_.empty()) return std::string(piece);
  const std::size_t seen = held_.size();
  held_ += piece;
  // No match ends within what was held before: it would have been found then.
  for (std::size_t end = seen + 1; end <= held_.size(); ++end) {
    const std::string_view text(held_.data(), end);
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      if (!text.ends_with(stops_[i])) continue;
      if (!matched() || stops_[i].size() > stops_[matched_].size()) matched_ = i;
    }
    if (matched()) {
      std::string sent = held_.substr(0, end - stops_[matched_].size());
      held_.clear();
      return sent;
    }
  }
  const std::size_t keep = undecided_suffix();
  std::string sent = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return sent;
}

// Length of the longest suffix that is the beginning of a stop string.
std::size_t StopMatcher::undecided_suffix() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    const std::size_t most = std::min(stop.size() - 1, held_.size());
    for (std::size_t length = most; length > longest; --length) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
      }
    }
  }
  return longest;
}

std::string StopMatcher::finish() {
  if (matched()) return {};
  return std::exchange(held_, {});
}

}  // namespace copse
