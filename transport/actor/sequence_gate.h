#pragma once
// Makes stale and repeated frames harmless: a stream is 1, 2, 3, ...
#include <cstdint>

namespace copse {

class SequenceGate {
 public:
  enum class Verdict : std::uint8_t {
    accept,
    stale,  // at or below the last: a repeat; dropped and counted
    gap,    // something was lost: the stream is over
  };

  Verdict check(std::uint64_t sequence) {
    if (sequence <= last_) return Verdict::stale;
    if (sequence != last_ + 1) return Verdict::gap;
    last_ = sequence;
    return Verdict::accept;
  }
  std::uint64_t last() const { return last_; }

 private:
  std::uint64_t last_ = 0;
};

}  // namespace copse
