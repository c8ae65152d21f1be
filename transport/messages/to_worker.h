#pragma once
// coordinator -> worker. The same bytes go to every rank of the group.
#include <cstdint>

#include "transport/messages/common.h"
#include "transport/messages/kind.h"

namespace copse {

// A slot begins a request (or continues one after a restart). Everything the device must hold to
// run rounds without asking: sampling, remaining tokens, end tokens.
struct SlotOpen {
  std::uint16_t slot = 0;
  std::uint32_t generation = 0;
  SamplingParams sampling;
  std::uint32_t remaining_tokens = 0;  // max_tokens less what was delivered before a restart; > 0
  std::uint32_t min_tokens = 0;        // end tokens are masked until as many were drawn
  std::uint32_t drawn_tokens = 0;      // delivered before a restart
  bool ignore_end = false;
  EndTokens end_tokens;
  bool operator==(const SlotOpen&) const = default;
  static constexpr auto fields() {
    using S = SlotOpen;
    return std::tuple{field("slot", &S::slot),
                      field("generation", &S::generation),
                      field("sampling", &S::sampling),
                      field("remaining_tokens", &S::remaining_tokens),
                      field("min_tokens", &S::min_tokens),
                      field("drawn_tokens", &S::drawn_tokens),
                      field("ignore_end", &S::ignore_end),
                      field("end_tokens", &S::end_tokens)};
  }
};

using PlanPages = Bounded<PageId, limits::plan_entry_pages>;

// Known tokens of a sequence: prompt, or prompt and committed tokens after a restart. The last
// chunk samples the bonus token that follows it.
struct PrefillChunk {
  std::uint16_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t start = 0;  // position of the first token: tokens of this sequence prefilled so far
  bool last = false;
  Bounded<TokenId, limits::tree_nodes> tokens;  // 1 or more
  PlanPages new_pages;                          // appended to the slot's page table first
  bool operator==(const PrefillChunk&) const = default;
  static constexpr auto fields() {
    using S = PrefillChunk;
    return std::tuple{field("slot", &S::slot),     field("generation", &S::generation),
                      field("start", &S::start),   field("last", &S::last),
                      field("tokens", &S::tokens), field("new_pages", &S::new_pages)};
  }
};

// One round of a sequence. It carries no tokens: length, bonus token and features are on the
// device, so the next plan can be sent before this one's result is back. A slot that is done is a
// no-op.
struct DecodeEntry {
  std::uint16_t slot = 0;
  std::uint32_t generation = 0;
  DraftMode mode = DraftMode::none;  // none, chain or tree; never automatic
  std::uint16_t node_budget = 0;     // draft nodes besides the root; 0 with none
  PlanPages new_pages;
  bool operator==(const DecodeEntry&) const = default;
  static constexpr auto fields() {
    using S = DecodeEntry;
    return std::tuple{field("slot", &S::slot), field("generation", &S::generation),
                      field("mode", &S::mode), field("node_budget", &S::node_budget),
                      field("new_pages", &S::new_pages)};
  }
};

struct SlotRelease {
  std::uint16_t slot = 0;
  std::uint32_t generation = 0;
  bool operator==(const SlotRelease&) const = default;
  static constexpr auto fields() {
    using S = SlotRelease;
    return std::tuple{field("slot", &S::slot), field("generation", &S::generation)};
  }
};

// One step: releases, then opens, then an optional prefill segment, then the round of the decoding
// sequences. A slot stands in at most one of prefill and decode; entries are in ascending slot
// order.
struct StepPlan {
  static constexpr Kind kKind = Kind::step_plan;
  static constexpr OnOverflow kOnOverflow = OnOverflow::end_epoch;
  std::uint32_t epoch = 0;
  StepId step = 0;
  Bounded<SlotRelease, limits::batch_sequences> released;
  Bounded<SlotOpen, limits::batch_sequences> opened;
  Bounded<PrefillChunk, limits::batch_sequences> prefill;
  Bounded<DecodeEntry, limits::batch_sequences> decode;
  bool operator==(const StepPlan&) const = default;
  static constexpr auto fields() {
    using S = StepPlan;
    return std::tuple{field("epoch", &S::epoch),       field("step", &S::step),
                      field("released", &S::released), field("opened", &S::opened),
                      field("prefill", &S::prefill),   field("decode", &S::decode)};
  }
};

// The answer to RegisterWorker: the worker may load. Refused workers get Shutdown.
struct WorkerWelcome {
  static constexpr Kind kKind = Kind::worker_welcome;
  static constexpr OnOverflow kOnOverflow = OnOverflow::end_epoch;
  std::uint32_t epoch = 0;
  bool operator==(const WorkerWelcome&) const = default;
  static constexpr auto fields() { return std::tuple{field("epoch", &WorkerWelcome::epoch)}; }
};

// Finish the running step, then exit with status 0.
struct Shutdown {
  static constexpr Kind kKind = Kind::shutdown;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;  // SIGKILL follows on a timer
  std::uint32_t epoch = 0;
  bool operator==(const Shutdown&) const = default;
  static constexpr auto fields() { return std::tuple{field("epoch", &Shutdown::epoch)}; }
};

}  // namespace copse
