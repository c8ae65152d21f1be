#include "scheduler/testing/oracle_device.h"

#include <algorithm>

#include "base/digest.h"

namespace copse {
namespace {

Error broken(const char* rule) {
  return Error{ErrorCode::invalid_argument, "plan", rule};
}

std::uint64_t hash_prefix(std::span<const TokenId> prefix, std::uint64_t seed) {
  DigestChain chain(seed);
  chain.add(prefix);
  return chain.value();
}

bool is_end(const SlotOpen& params, TokenId token) {
  return !params.ignore_end && std::find(params.end_tokens.begin(), params.end_tokens.end(),
                                         token) != params.end_tokens.end();
}

}  // namespace

TokenId OracleModel::next(std::span<const TokenId> prefix, const SamplingParams& sampling,
                          std::uint32_t drawn, std::uint32_t min_tokens) const {
  const std::uint64_t draw =
      sampling.temperature > 0 ? sampling.seed * 31 + sampling.choice + 1 : 0;
  const std::uint64_t hash = hash_prefix(prefix, seed ^ draw);
  auto token = static_cast<TokenId>(hash % vocabulary);
  // As if the end tokens' logits were masked: the neighbour that is none.
  while (drawn < min_tokens &&
         std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) {
    token = static_cast<TokenId>((static_cast<std::uint32_t>(token) + 1) % vocabulary);
  }
  return token;
}

OracleModel::Answer OracleModel::answer(const Submit& request) const {
  Answer answer;
  std::vector<TokenId> prefix(request.prompt.begin(), request.prompt.end());
  while (answer.finish == FinishReason::none) {
    const auto drawn = static_cast<std::uint32_t>(answer.tokens.size());
    const TokenId token = next(prefix, request.sampling, drawn, request.min_tokens);
    prefix.push_back(token);
    answer.tokens.push_back(token);
    const auto among = [&](const EndTokens& ends) {
      return std::find(ends.begin(), ends.end(), token) != ends.end();
    };
    if ((!request.ignore_end && among(end_tokens)) || among(request.stop_tokens)) {
      answer.finish = FinishReason::stop;
    } else if (answer.tokens.size() == request.max_tokens) {
      answer.finish = FinishReason::length;
    }
  }
  return answer;
}

WorkerReady OracleModel::ready(std::uint32_t epoch) const {
  WorkerReady ready;
  ready.epoch = epoch;
  ready.slots = slots;
  ready.pages = pages;
  ready.context_tokens = context_tokens;
  ready.vocabulary = vocabulary;
  ready.draft_block = draft_block;
  ready.end_tokens = end_tokens;
  if (draft_block > 1) {
    for (int nodes : {0, 4, 8, 16, 32, 64}) {
      ready.costs.push_back(
          {static_cast<std::uint16_t>(nodes), 1000.0f + 10.0f * static_cast<float>(nodes)});
    }
  }
  return ready;
}

OracleDevice::OracleDevice(OracleModel model)
    : model_(std::move(model)),
      slots_(model_.slots),
      cache_(model_.pages * std::size_t{limits::page_tokens}, -1),
      page_owner_(model_.pages, -1) {}

Result<StepResult> OracleDevice::run(const StepPlan& plan, int rank) {
  if (plan.step <= last_step_) return broken("steps grow");
  last_step_ = plan.step;
  COPSE_RETURN_IF_ERROR(open(plan));
  StepResult result;
  result.epoch = plan.epoch;
  result.step = plan.step;
  int last = -1;
  for (const PrefillChunk& chunk : plan.prefill) {
    if (chunk.slot <= last) return broken("prefill entries ascend by slot");
    last = chunk.slot;
    COPSE_TRY(SlotResult done, prefill(chunk));
    result.slots.push_back(std::move(done));
  }
  last = -1;
  int rows = 0;
  for (const DecodeEntry& entry : plan.decode) {
    if (entry.slot <= last) return broken("decode entries ascend by slot");
    last = entry.slot;
    rows += 1 + entry.node_budget;
    COPSE_TRY(SlotResult done, round(entry));
    result.slots.push_back(std::move(done));
  }
  if (rows > limits::step_rows) return broken("the rows of a step are bounded");
  if (rank != 0) {
    for (SlotResult& slot : result.slots) slot.tokens.clear();
  }
  result.timing.total_us = static_cast<std::uint32_t>(1000 + 10 * rows);
  return result;
}

Status OracleDevice::open(const StepPlan& plan) {
  for (const SlotRelease& release : plan.released) {
    COPSE_TRY(Slot * slot, slot_of(release.slot, release.generation));
    for (PageId page : slot->pages) page_owner_[static_cast<std::size_t>(page)] = -1;
    slot->pages.clear();
    slot->open = false;
  }
  for (const SlotOpen& params : plan.opened) {
    if (params.slot >= slots_.size()) return broken("no such slot");
    Slot& slot = slots_[params.slot];
    if (slot.open || params.generation <= slot.generation) return broken("a slot opens once");
    if (params.remaining_tokens == 0) return broken("something remains to be drawn");
    slot = Slot{};
    slot.open = true;
    slot.generation = params.generation;
    slot.params = params;
    slot.drawn = params.drawn_tokens;
  }
  return {};
}

Result<OracleDevice::Slot*> OracleDevice::slot_of(std::uint16_t index, std::uint32_t generation) {
  if (index >= slots_.size()) return broken("no such slot");
  Slot& slot = slots_[index];
  if (!slot.open || slot.generation != generation) return broken("the slot's generation");
  return &slot;
}

Status OracleDevice::append_pages(std::uint16_t index, const PlanPages& pages) {
  for (PageId page : pages) {
    if (page < 0 || static_cast<std::uint32_t>(page) >= model_.pages) return broken("no such page");
    // A page of a slot whose release is still to come may be taken over: nothing reads it any more.
    page_owner_[static_cast<std::size_t>(page)] = index;
    slots_[index].pages.push_back(page);
  }
  return {};
}

Status OracleDevice::write(Slot& slot, std::uint32_t position, TokenId token) {
  const std::size_t page = position / limits::page_tokens;
  if (page >= slot.pages.size()) return broken("a row has no page");
  const auto row = static_cast<std::size_t>(slot.pages[page]) * limits::page_tokens;
  cache_[row + position % limits::page_tokens] = token;
  return {};
}

std::vector<TokenId> OracleDevice::prefix(const Slot& slot) const {
  std::vector<TokenId> tokens(slot.length);
  for (std::uint32_t i = 0; i < slot.length; ++i) {
    const auto page = static_cast<std::size_t>(slot.pages[i / limits::page_tokens]);
    tokens[i] = cache_[page * limits::page_tokens + i % limits::page_tokens];
  }
  return tokens;
}

// One token that the target drew; nothing more is delivered once the sequence is done.
void OracleDevice::deliver(Slot& slot, TokenId token, SlotResult& result) {
  if (slot.done) return;
  result.tokens.push_back(token);
  ++slot.drawn;
  --slot.params.remaining_tokens;
  if (is_end(slot.params, token)) result.finish = FinishReason::stop;
  if (result.finish == FinishReason::none && slot.params.remaining_tokens == 0) {
    result.finish = FinishReason::length;
  }
  slot.done = result.finish != FinishReason::none;
}

Result<SlotResult> OracleDevice::prefill(const PrefillChunk& chunk) {
  COPSE_TRY(Slot * slot, slot_of(chunk.slot, chunk.generation));
  if (chunk.start != slot->prefilled || slot->bonus >= 0 || chunk.tokens.empty()) {
    return broken("chunks follow each other");
  }
  COPSE_RETURN_IF_ERROR(append_pages(chunk.slot, chunk.new_pages));
  for (TokenId token : chunk.tokens) COPSE_RETURN_IF_ERROR(write(*slot, slot->length++, token));
  slot->prefilled = slot->length;
  SlotResult result;
  result.slot = chunk.slot;
  result.generation = chunk.generation;
  if (chunk.last) {
    slot->bonus =
        model_.next(prefix(*slot), slot->params.sampling, slot->drawn, slot->params.min_tokens);
    deliver(*slot, slot->bonus, result);
  }
  result.length = slot->length;
  DigestChain chain(slot->digest);
  chain.add(std::span<const TokenId>(chunk.tokens.data(), chunk.tokens.size()));
  chain.add(slot->bonus).add(slot->length);
  result.digest = slot->digest = chain.value();
  return result;
}

// The drafter's guesses: right with the chosen chance, as a hash of the prefix decides. A tree
// spends what is left of its budget on second guesses, from the root down.
std::vector<OracleDevice::Node> OracleDevice::draft(const std::vector<TokenId>& prefix,
                                                    const DecodeEntry& entry,
                                                    const Slot& slot) const {
  std::vector<Node> nodes{{slot.bonus, -1}};
  std::vector<TokenId> path = prefix;
  path.push_back(slot.bonus);
  const std::uint32_t depth = std::min<std::uint32_t>(entry.node_budget, model_.draft_block - 1);
  std::uint32_t drawn = slot.drawn;
  std::vector<Node> second;
  for (std::uint32_t d = 0; d < depth; ++d) {
    const std::uint64_t luck = hash_prefix(path, model_.seed + 77) % 100;
    const TokenId target = model_.next(path, slot.params.sampling, drawn++, slot.params.min_tokens);
    const auto other =
        static_cast<TokenId>((static_cast<std::uint32_t>(target) + 1 + luck) % model_.vocabulary);
    const bool right = luck < model_.accept_percent;
    const int parent = static_cast<int>(nodes.size()) - 1;
    nodes.push_back({right ? target : other, parent});
    second.push_back({right || luck % 3 == 0 ? other : target, parent});
    path.push_back(nodes.back().token);
  }
  if (entry.mode != DraftMode::tree) return nodes;
  for (const Node& node : second) {
    if (nodes.size() > entry.node_budget) break;
    if (node.token != nodes[static_cast<std::size_t>(node.parent) + 1].token) nodes.push_back(node);
  }
  return nodes;
}

Result<SlotResult> OracleDevice::round(const DecodeEntry& entry) {
  COPSE_TRY(Slot * slot, slot_of(entry.slot, entry.generation));
  if (slot->bonus < 0) return broken("a round follows the last chunk");
  if (entry.mode == DraftMode::automatic ||
      (entry.mode == DraftMode::none) != (entry.node_budget == 0)) {
    return broken("the mode is settled and has its budget");
  }
  COPSE_RETURN_IF_ERROR(append_pages(entry.slot, entry.new_pages));
  SlotResult result;
  result.slot = entry.slot;
  result.generation = entry.generation;
  result.length = slot->length;
  result.digest = slot->digest;
  if (slot->done) return result;

  const std::vector<TokenId> start = prefix(*slot);
  const std::vector<Node> nodes = draft(start, entry, *slot);
  result.draft_nodes = static_cast<std::uint16_t>(nodes.size() - 1);
  std::vector<TokenId> path = start;
  DigestChain chain(slot->digest);
  chain.add(static_cast<std::uint8_t>(entry.mode)).add(entry.node_budget);
  for (const Node& node : nodes) chain.add(node.token).add(node.parent);
  int at = 0;
  std::uint32_t drawn = slot->drawn;
  while (true) {
    path.push_back(nodes[static_cast<std::size_t>(at)].token);
    COPSE_RETURN_IF_ERROR(write(*slot, slot->length++, path.back()));
    ++result.walk_length;
    const TokenId target =
        model_.next(path, slot->params.sampling, drawn++, slot->params.min_tokens);
    deliver(*slot, target, result);
    chain.add(at);
    slot->bonus = target;
    const auto child = std::find_if(nodes.begin() + at + 1, nodes.end(), [&](const Node& node) {
      return node.parent == at && node.token == target;
    });
    if (child == nodes.end()) break;
    at = static_cast<int>(child - nodes.begin());
  }
  result.length = slot->length;
  chain.add(slot->bonus).add(slot->length);
  result.digest = slot->digest = chain.value();
  return result;
}

}  // namespace copse
