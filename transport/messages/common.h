#pragma once
// Parts that several messages share.
#include <cstdint>
#include <string>

#include "base/bounded.h"
#include "base/limits.h"
#include "base/types.h"
#include "transport/messages/field.h"

namespace copse {

// How a token is drawn from the target's logits. Order of application: bias and penalties, divide
// by temperature, top-k, top-p, min-p, add counter-based Gumbel noise, argmax; ties to the lower
// id.
struct SamplingParams {
  float temperature = 0;   // 0: argmax
  float top_p = 1;         // (0, 1]
  float min_p = 0;         // [0, 1)
  std::int32_t top_k = 0;  // 0: off
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;  // index among the request's n choices
  bool operator==(const SamplingParams&) const = default;
  static constexpr auto fields() {
    using S = SamplingParams;
    return std::tuple{field("temperature", &S::temperature),
                      field("top_p", &S::top_p),
                      field("min_p", &S::min_p),
                      field("top_k", &S::top_k),
                      field("seed", &S::seed),
                      field("choice", &S::choice)};
  }
};

using EndTokens = Bounded<TokenId, limits::end_token_ids>;

enum class DraftMode : std::uint8_t { none = 0, chain = 1, tree = 2, automatic = 3 };
inline constexpr DraftMode kLastDraftMode = DraftMode::automatic;

enum class FinishReason : std::uint8_t {
  none = 0,    // it goes on
  stop = 1,    // an end token
  length = 2,  // max_tokens, or the context is full
  abort = 3,   // cancelled by its client
  error = 4,
};
inline constexpr FinishReason kLastFinishReason = FinishReason::error;

// Where the time of one step went on one rank, in microseconds of wall time; compute_cpu_us is CPU
// time of the rank's compute threads outside collectives.
struct StepTiming {
  std::uint32_t draft_us = 0;
  std::uint32_t build_us = 0;
  std::uint32_t verify_us = 0;
  std::uint32_t accept_us = 0;  // sample, walk and commit
  std::uint32_t prefill_us = 0;
  std::uint32_t collective_us = 0;  // part of the above, waiting included
  std::uint32_t compute_cpu_us = 0;
  std::uint32_t total_us = 0;
  bool operator==(const StepTiming&) const = default;
  static constexpr auto fields() {
    using S = StepTiming;
    return std::tuple{field("draft_us", &S::draft_us),
                      field("build_us", &S::build_us),
                      field("verify_us", &S::verify_us),
                      field("accept_us", &S::accept_us),
                      field("prefill_us", &S::prefill_us),
                      field("collective_us", &S::collective_us),
                      field("compute_cpu_us", &S::compute_cpu_us),
                      field("total_us", &S::total_us)};
  }
};

// The same over all steps of a worker's life, decode steps and prefills together.
struct TimingTotals {
  std::uint64_t draft_us = 0;
  std::uint64_t build_us = 0;
  std::uint64_t verify_us = 0;
  std::uint64_t accept_us = 0;
  std::uint64_t prefill_us = 0;
  std::uint64_t collective_us = 0;
  std::uint64_t compute_cpu_us = 0;
  std::uint64_t total_us = 0;
  std::uint64_t steps = 0;
  bool operator==(const TimingTotals&) const = default;
  void add(const StepTiming& step) {
    draft_us += step.draft_us;
    build_us += step.build_us;
    verify_us += step.verify_us;
    accept_us += step.accept_us;
    prefill_us += step.prefill_us;
    collective_us += step.collective_us;
    compute_cpu_us += step.compute_cpu_us;
    total_us += step.total_us;
    ++steps;
  }
  static constexpr auto fields() {
    using S = TimingTotals;
    return std::tuple{field("draft_us", &S::draft_us),
                      field("build_us", &S::build_us),
                      field("verify_us", &S::verify_us),
                      field("accept_us", &S::accept_us),
                      field("prefill_us", &S::prefill_us),
                      field("collective_us", &S::collective_us),
                      field("compute_cpu_us", &S::compute_cpu_us),
                      field("total_us", &S::total_us),
                      field("steps", &S::steps)};
  }
};

}  // namespace copse
