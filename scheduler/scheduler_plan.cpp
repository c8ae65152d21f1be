// The next step: rounds for what decodes, then prefill chunks in what room is left.
#include <algorithm>

#include "scheduler/planted_bugs.h"
#include "scheduler/scheduler.h"

namespace copse {
namespace {

// What the device holds at most once everything on the way has run.
std::uint32_t length_ahead(const Sequence& sequence) {
  if (sequence.prefilling()) return sequence.prefill_sent;
  return std::max(sequence.length, sequence.prefill_end) + sequence.ahead;
}

bool by_slot(const Sequence* a, const Sequence* b) {
  return a->slot->index < b->slot->index;
}

}  // namespace

std::optional<StepPlan> Scheduler::next_plan(Instant now) {
  if (!active_ || plans_in_flight() >= limits::plans_in_flight) return std::nullopt;
  const std::vector<SlotId> released = slots_.owed_releases();
  const std::vector<DecodePlan> decodes = choose_decodes();
  const std::vector<ChunkPlan> chunks = choose_chunks();
  if (decodes.empty() && chunks.empty()) {
    slots_.keep_owed(released);
    return std::nullopt;
  }
  StepPlan plan;
  InFlight asked;
  plan.epoch = epoch_;
  plan.step = asked.step = next_step_++;
  for (SlotId slot : released) plan.released.push_back({slot.index, slot.generation});
  for (const ChunkPlan& chunk : chunks) {
    if (!chunk.sequence->planned) chunk.sequence->planned = now;
    plan_chunk(chunk, plan, asked);
  }
  for (const DecodePlan& decode : decodes) plan_decode(decode, plan, asked);
  in_flight_.push_back(std::move(asked));
  ++totals_.steps;
  return plan;
}

// One draft token or more is of use only if a second token is still to be drawn, and draft
// positions must lie inside the context.
bool Scheduler::may_draft(const Sequence& sequence) const {
  return sequence.generated() + sequence.draws_ahead + 1 < sequence.max_tokens &&
         length_ahead(sequence) + ready_.draft_block < ready_.context_tokens;
}

DraftChoice Scheduler::fixed_choice(const Sequence& sequence, int nodes_max) const {
  if (sequence.mode == DraftMode::none || !may_draft(sequence)) return {};
  const int depth = static_cast<int>(ready_.draft_block) - 1;
  int nodes = sequence.node_budget == 0 ? options_.node_budget : sequence.node_budget;
  if (sequence.mode == DraftMode::chain) nodes = std::min(nodes, depth);
  nodes = std::min(nodes, nodes_max);
  if (nodes < 1) return {};
  return {sequence.mode, nodes};
}

std::vector<Scheduler::DecodePlan> Scheduler::choose_decodes() {
  std::vector<DecodePlan> decodes;
  for (Sequence* sequence : running_) {
    if (sequence->paused || sequence->prefilling() || sequence->draws_covered()) continue;
    decodes.push_back({sequence, {}});
  }
  if (decodes.empty()) return decodes;
  std::sort(decodes.begin(), decodes.end(), [](const DecodePlan& a, const DecodePlan& b) {
    return by_slot(a.sequence, b.sequence);
  });

  // Prefill keeps its room in every step, so that neither starves the other.
  StepShare others;
  others.rows_max = limits::step_rows - options_.prefill_chunk;
  const int nodes_max =
      std::min(limits::tree_nodes, others.rows_max / static_cast<int>(decodes.size()) - 1);
  std::vector<RequestDraft*> open;
  std::vector<std::size_t> open_at;
  for (std::size_t i = 0; i < decodes.size(); ++i) {
    Sequence& sequence = *decodes[i].sequence;
    if (sequence.mode == DraftMode::automatic && may_draft(sequence)) {
      open.push_back(&sequence.draft);
      open_at.push_back(i);
      continue;
    }
    if (sequence.mode != DraftMode::automatic) {
      decodes[i].choice = fixed_choice(sequence, nodes_max);
    }
    ++others.sequences;
    others.rows += 1 + decodes[i].choice.nodes;
    others.drafting |= decodes[i].choice.nodes > 0;
  }
  const std::vector<DraftChoice> choices = policy_.choose(open, others);
  for (std::size_t i = 0; i < choices.size(); ++i) decodes[open_at[i]].choice = choices[i];
  return decodes;
}

std::vector<Scheduler::ChunkPlan> Scheduler::choose_chunks() {
  std::vector<ChunkPlan> chunks;
  int room = options_.prefill_chunk;
  const auto add = [&](Sequence* sequence, bool opens) {
    const int rows =
        std::min(room, static_cast<int>(sequence->prefill_end - sequence->prefill_sent));
    room -= rows;
    chunks.push_back({sequence, rows, opens});
  };
  for (Sequence* sequence : running_) {
    if (room > 0 && !sequence->paused && sequence->prefilling()) add(sequence, false);
  }
  while (room > 0 && admit_first()) add(running_.back(), true);
  std::sort(chunks.begin(), chunks.end(),
            [](const ChunkPlan& a, const ChunkPlan& b) { return by_slot(a.sequence, b.sequence); });
  return chunks;
}

void Scheduler::plan_decode(const DecodePlan& decode, StepPlan& plan, InFlight& in_flight) {
  Sequence& sequence = *decode.sequence;
  const int depth = std::max(0, static_cast<int>(ready_.draft_block) - 1);
  const auto worst = static_cast<std::uint32_t>(1 + std::min(decode.choice.nodes, depth));
  DecodeEntry entry;
  entry.slot = sequence.slot->index;
  entry.generation = sequence.slot->generation;
  entry.mode = decode.choice.mode;
  entry.node_budget = static_cast<std::uint16_t>(decode.choice.nodes);
  entry.new_pages = grow(sequence, length_ahead(sequence) + worst);
  plan.decode.push_back(std::move(entry));
  sequence.ahead += worst;
  ++sequence.draws_ahead;
  sequence.last_named = plan.step;
  in_flight.asked.push_back({sequence.id, *sequence.slot, 0, true, worst, decode.choice});
}

void Scheduler::plan_chunk(const ChunkPlan& part, StepPlan& plan, InFlight& in_flight) {
  Sequence& sequence = *part.sequence;
  if (part.opens) plan.opened.push_back(open_of(sequence));
  PrefillChunk chunk;
  chunk.slot = sequence.slot->index;
  chunk.generation = sequence.slot->generation;
  chunk.start = sequence.prefill_sent;
  const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.prefill_sent);
  chunk.tokens.assign(first, first + part.rows);
  sequence.prefill_sent += static_cast<std::uint32_t>(part.rows);
  chunk.last = !sequence.prefilling();
  chunk.new_pages = grow(sequence, sequence.prefill_sent);
  if (chunk.last) ++sequence.draws_ahead;
  sequence.last_named = plan.step;
  in_flight.asked.push_back(
      {sequence.id, *sequence.slot, sequence.prefill_sent, chunk.last, 0, {}});
  plan.prefill.push_back(std::move(chunk));
}

SlotOpen Scheduler::open_of(const Sequence& sequence) const {
  SlotOpen open;
  open.slot = sequence.slot->index;
  open.generation = sequence.slot->generation;
  open.sampling = sequence.sampling;
  open.remaining_tokens = sequence.max_tokens - sequence.generated();
  open.min_tokens = sequence.min_tokens;
  open.drawn_tokens = planted(PlantedBug::restart_forgets_drawn) ? 0 : sequence.generated();
  open.ignore_end = sequence.ignore_end;
  open.end_tokens = sequence.end_tokens;
  return open;
}

// Pages so that `tokens` fit, out of what was promised at admission.
PlanPages Scheduler::grow(const Sequence& sequence, std::uint32_t tokens) {
  const KvPages::Owner owner = sequence.slot->index;
  const std::uint32_t most = longest(sequence.prompt_tokens, sequence.max_tokens);
  PlanPages added;
  while (pages_.owned(owner) < pages_of(std::min(tokens, most)))
    added.push_back(pages_.take(owner));
  return added;
}

}  // namespace copse
