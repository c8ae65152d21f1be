#include "gateway/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace copse {
namespace {

struct Expected {
  std::string text;
  bool matched = false;
};

// The definition, by trying every end: the first that completes a stop string, the longest there.
Expected by_definition(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

std::string random_text(Random& random, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random.below(3));
  return text;
}

TEST(StopMatcher, GivesTheDefinitionsTextHoweverTheTextIsCut) {
  SeededRandom random(11);
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::string> stops;
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      stops.push_back(random_text(random, 1 + random.below(4)));
    }
    const std::string text = random_text(random, random.below(14));
    const Expected expected = by_definition(text, stops);
    StopMatcher matcher(stops);
    std::string sent;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random.below(4);
      sent += matcher.push(std::string_view(text).substr(at, size));
      at += size;
      // Nothing is sent that would have to be taken back.
      ASSERT_EQ(expected.text.substr(0, sent.size()), sent);
    }
    sent += matcher.finish();
    ASSERT_EQ(sent, expected.text) << text;
    ASSERT_EQ(matcher.matched(), expected.matched) << text;
  }
}

TEST(StopMatcher, NeverSendsTheBeginningOfAStopStringThatThenMatches) {
  StopMatcher matcher({"Observation"});
  EXPECT_EQ(matcher.push("So: Obs"), "So: ");
  EXPECT_EQ(matcher.push("erva"), "");
  EXPECT_EQ(matcher.push("tion and more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "Observation");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ReleasesWhatOnlyLookedLikeOne) {
  StopMatcher matcher({"Observation"});
  EXPECT_EQ(matcher.push("Obs"), "");
  EXPECT_EQ(matcher.push("olete"), "Obsolete");
  EXPECT_EQ(matcher.push("Ob"), "");
  EXPECT_EQ(matcher.finish(), "Ob");
  EXPECT_FALSE(matcher.matched());
}

}  // namespace
}  // namespace copse
