// Which requests are taken at all, and when a waiting one gets a slot.
#include <algorithm>
#include <cmath>
#include <string>

#include "scheduler/scheduler.h"

namespace copse {
namespace {

std::optional<Refusal> invalid(std::string at, std::string message) {
  return Refusal{RefusalKind::invalid, std::move(at), std::move(message), 0};
}

bool sampling_is_sound(const SamplingParams& sampling) {
  return std::isfinite(sampling.temperature) && sampling.temperature >= 0 && sampling.top_p > 0 &&
         sampling.top_p <= 1 && sampling.min_p >= 0 && sampling.min_p < 1 && sampling.top_k >= 0;
}

// The model's end tokens unless ignored, then the request's own, each once. None: too many.
std::optional<EndTokens> merged_end_tokens(const Submit& request, const EndTokens& model) {
  EndTokens merged;
  const auto add_all = [&](const EndTokens& tokens) {
    for (TokenId token : tokens) {
      if (std::find(merged.begin(), merged.end(), token) != merged.end()) continue;
      if (!merged.try_push(token)) return false;
    }
    return true;
  };
  if (!add_all(request.stop_tokens)) return std::nullopt;
  if (!request.ignore_end && !add_all(model)) return std::nullopt;
  return merged;
}

}  // namespace

int pages_of(std::uint32_t tokens) {
  return static_cast<int>((tokens + limits::page_tokens - 1) / limits::page_tokens);
}

// Most tokens that the device can ever hold of a sequence. The last token drawn is not committed,
// but a worker that cuts only what it reports, not what it keeps, may commit one whole draft more.
std::uint32_t Scheduler::longest(std::uint64_t prompt_tokens, std::uint64_t max_tokens) const {
  const std::uint64_t block = std::max<std::uint64_t>(2, ready_.draft_block);
  const std::uint64_t context =
      std::uint64_t{static_cast<unsigned>(pages_of(ready_.context_tokens))} * limits::page_tokens;
  const std::uint64_t needed = prompt_tokens + max_tokens;
  return static_cast<std::uint32_t>(std::max(needed, std::min(needed + block - 2, context)));
}

std::optional<Refusal> Scheduler::refuse_values(const Submit& request) const {
  const auto known = [&](TokenId token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < ready_.vocabulary;
  };
  if (request.prompt.empty()) return invalid("prompt", "the prompt has no tokens");
  if (!std::all_of(request.prompt.begin(), request.prompt.end(), known)) {
    return invalid("prompt", "the prompt has a token that the vocabulary lacks");
  }
  if (request.max_tokens < 1) return invalid("max_tokens", "max_tokens is below 1");
  if (!sampling_is_sound(request.sampling)) {
    return invalid("sampling", "a sampling parameter is out of its range");
  }
  if (!std::all_of(request.stop_tokens.begin(), request.stop_tokens.end(), known)) {
    return invalid("stop_tokens", "a stop token is not in the vocabulary");
  }
  if (!merged_end_tokens(request, ready_.end_tokens)) {
    return invalid("stop_tokens", "with the model's own end tokens these are more than " +
                                      std::to_string(limits::end_token_ids));
  }
  if (request.node_budget > limits::tree_nodes) {
    return invalid("node_budget", "the budget is above " + std::to_string(limits::tree_nodes));
  }
  const bool drafts = request.draft == DraftMode::chain || request.draft == DraftMode::tree;
  if (drafts && ready_.draft_block < 2) return invalid("draft", "no drafter is loaded");
  return std::nullopt;
}

std::optional<Refusal> Scheduler::refuse_length(const Submit& request) const {
  const std::uint64_t prompt = request.prompt.size();
  const std::string lengths = "a prompt of " + std::to_string(prompt) + " tokens and max_tokens " +
                              std::to_string(request.max_tokens);
  if (prompt + request.max_tokens > ready_.context_tokens) {
    return Refusal{
        RefusalKind::too_long, prompt < ready_.context_tokens ? "max_tokens" : "prompt",
        lengths + " exceed the context of " + std::to_string(ready_.context_tokens) + " tokens", 0};
  }
  const int pages = pages_of(longest(prompt, request.max_tokens));
  if (pages > pages_.total()) {
    return Refusal{RefusalKind::too_long, "max_tokens",
                   lengths + " need " + std::to_string(pages) + " cache pages of " +
                       std::to_string(limits::page_tokens) + " tokens, of which there are " +
                       std::to_string(pages_.total()),
                   0};
  }
  return std::nullopt;
}

std::optional<Refusal> Scheduler::submit(SequenceId id, const Submit& request, Instant now) {
  CHECK(started_ && find(id) == nullptr);
  if (auto refusal = refuse_values(request)) return refusal;
  if (auto refusal = refuse_length(request)) return refusal;
  if (waiting() >= limits::queued_requests) {
    // A rough guess is enough: a full queue moves by about a batch in some seconds.
    const int after_s = 1 + waiting() / slots_.total();
    return Refusal{RefusalKind::queue_full, "", "too many requests are waiting",
                   static_cast<std::uint32_t>(std::min(after_s, 60))};
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->tokens.assign(request.prompt.begin(), request.prompt.end());
  sequence->prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  sequence->max_tokens = request.max_tokens;
  sequence->min_tokens = request.min_tokens;
  sequence->sampling = request.sampling;
  sequence->end_tokens = *merged_end_tokens(request, ready_.end_tokens);
  // Stop tokens of the request count even where the model's own are ignored.
  sequence->ignore_end = request.ignore_end && sequence->end_tokens.empty();
  sequence->mode = request.draft == DraftMode::automatic ? options_.draft : request.draft;
  if (ready_.draft_block < 2) sequence->mode = DraftMode::none;
  sequence->node_budget = request.node_budget;
  sequence->summary.mode = sequence->mode;
  sequence->submitted = now;
  totals_.prompt_tokens += sequence->prompt_tokens;
  waiting_.push_back(id);
  sequences_.emplace(id, std::move(sequence));
  return std::nullopt;
}

// The first of the queue that is not paused gets a slot if every page that it can ever need can be
// promised to it. Nobody overtakes it: a long request waits at most for those that run.
bool Scheduler::admit_first() {
  const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](SequenceId id) { return !find(id)->paused; });
  if (first == waiting_.end()) return false;
  Sequence& sequence = *find(*first);
  const int pages = pages_of(longest(sequence.prompt_tokens, sequence.max_tokens));
  if (pages > pages_.available()) return false;
  const std::optional<SlotId> slot = slots_.open();
  if (!slot) return false;
  CHECK(pages_.reserve(slot->index, pages));
  waiting_.erase(first);
  sequence.slot = slot;
  sequence.prefill_end = static_cast<std::uint32_t>(sequence.tokens.size());
  running_.push_back(&sequence);
  return true;
}

}  // namespace copse
