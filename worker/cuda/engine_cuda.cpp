#include "worker/cuda/engine_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "base/log.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "worker/cost_table.h"
#include "worker/cuda/flight.h"
#include "worker/cuda/graphs.h"
#include "worker/cuda/models_cuda.h"
#include "worker/slot_table.h"

namespace copse {

namespace cuda = kernels::cuda;
using kernels::cuda::cuda_status;

namespace {

// Rows of a sequence in a graph: a tree of 8, 16, ... nodes and its root.
constexpr int kRowBuckets[] = {1, 2, 3, 5, 9, 17, 33, 65, 129, 257, limits::tree_nodes + 1};
constexpr int kSequenceBuckets[] = {1, 2, 4, 8, 16, 32};
constexpr int kChunkBuckets[] = {32, 64, 128, 256, limits::tree_nodes};

template <std::size_t n>
int bucket(const int (&buckets)[n], int count) {
  return *std::lower_bound(std::begin(buckets), std::end(buckets), count);
}

Error misfit(const char* field, int slot, const char* why) {
  return {ErrorCode::invalid_argument, field, "slot " + std::to_string(slot) + ": " + why};
}

const char* describe_misfit(cuda::Misfit kind) {
  switch (kind) {
    case cuda::Misfit::none:
      break;
    case cuda::Misfit::prefill_done:
      return "has finished its prefill";
    case cuda::Misfit::prefill_start:
      return "does not follow the tokens before it";
    case cuda::Misfit::no_prefill:
      return "has not finished its prefill";
    case cuda::Misfit::no_page:
      return "has no page for its tokens";
  }
  return "does not fit";
}

bool filters(const SamplingParams& sampling) {
  const bool draws = sampling.temperature >= kernels::sample_temperature_min;
  return draws && (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0);
}

void copy_pages(const PlanPages& pages, int before, cuda::NewPages& into) {
  into.count = static_cast<std::int32_t>(pages.size());
  into.before = before;
  std::copy(pages.begin(), pages.end(), into.pages);
}

}  // namespace

template <class T>
class CudaEngine final : public StepEngine {
 public:
  static Result<std::unique_ptr<StepEngine>> load(const CudaEngineOptions& options,
                                                  DeviceCollective& group, const Clock& clock,
                                                  const LoadObserver& progress);
  ~CudaEngine() override;

  Status begin(const StepPlan& plan) override;
  Result<StepResult> finish() override;
  int plans_at_once() const override { return limits::plans_in_flight; }
  Result<WorkerReady> measure() override;
  const char* stage() const override { return stage_.load(std::memory_order_relaxed); }

 private:
  // Decode entries that run as one round.
  struct Group {
    RoundKey key;
    std::array<std::size_t, limits::batch_sequences> entries{};  // of the plan
    int count = 0;
  };

  CudaEngine(const CudaEngineOptions& options, DeviceCollective& group, const Clock& clock)
      : options_(options), group_(group), clock_(clock) {}

  Status capture_all(const LoadObserver& progress);
  Status change_slots(const StepPlan& plan, Flight& flight);
  Status prefill(const StepPlan& plan, Flight& flight);
  Status decode(const StepPlan& plan, Flight& flight);
  Status check_entry(const DecodeEntry& entry, int& before);
  RoundKey key_of(const DecodeEntry& entry) const;
  void group_entries(const StepPlan& plan);
  Status run_group(const StepPlan& plan, Group& group, Flight& flight);
  void count_waiting(const DecodeEntry& entry, const RoundKey& key);
  Status run_round(const RoundKey& key);
  Status upload(void* to, const void* from, std::size_t bytes);
  Status results_back(Flight& flight, int count);
  Result<StepResult> read_results(Flight& flight);

  CudaEngineOptions options_;
  DeviceCollective& group_;
  const Clock& clock_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<CudaModels<T>> models_;
  GraphCache graphs_;
  std::unique_ptr<SlotTable> slots_;  // what the host knows: open, generation, sampling, pages
  std::array<std::unique_ptr<Flight>, limits::plans_in_flight> flights_;
  std::size_t begun_ = 0;
  std::size_t finished_ = 0;
  // More features than can wait in a slot; the exact count is on the device.
  std::array<int, limits::batch_sequences> waiting_bound_{};
  std::array<Group, Flight::rounds_max> groups_;
  std::size_t group_count_ = 0;
  std::atomic<const char*> stage_{"idle"};
};

template <class T>
CudaEngine<T>::~CudaEngine() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  graphs_.clear();
  cudaStreamDestroy(stream_);
}

template <class T>
Result<std::unique_ptr<StepEngine>> CudaEngine<T>::load(const CudaEngineOptions& options,
                                                        DeviceCollective& group, const Clock& clock,
                                                        const LoadObserver& progress) {
  std::unique_ptr<CudaEngine> engine(new CudaEngine(options, group, clock));
  COPSE_TRY(engine->models_, CudaModels<T>::load(options, group, progress));
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaStreamCreateWithFlags(&engine->stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
  for (std::unique_ptr<Flight>& flight : engine->flights_) {
    COPSE_TRY(flight, Flight::create());
  }
  engine->slots_ = std::make_unique<SlotTable>(options.engine.slots, engine->models_->pages(),
                                               engine->models_->context_tokens());
  COPSE_RETURN_IF_ERROR(engine->capture_all(progress));
  return std::unique_ptr<StepEngine>(std::move(engine));
}

// Every shape once without a graph, on an empty plan, then captured.
template <class T>
Status CudaEngine<T>::capture_all(const LoadObserver& progress) {
  CudaRound<T>& round = models_->round();
  const bool drafts = models_->drafter() != nullptr;
  std::vector<RoundKey> keys;
  for (const int sequences : kSequenceBuckets) {
    if (sequences > models_->sequences_max()) break;
    for (const int rows : kRowBuckets) {
      if (sequences * rows > models_->rows_max() || (rows > 1 && !drafts)) break;
      keys.push_back({sequences, rows, false, false});
      if (rows == 1 && drafts) keys.push_back({sequences, rows, true, false});
    }
  }
  const Instant started = clock_.now();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto launches = [&](cuda::Stream stream) { return round.round(keys[i], stream); };
    COPSE_RETURN_IF_ERROR(launches(stream_));
    COPSE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "first round of a shape"));
    if (options_.graphs) COPSE_RETURN_IF_ERROR(graphs_.capture(keys[i], launches, stream_));
    if (progress) progress("graphs", i + 1, keys.size());
  }
  for (const int rows : kChunkBuckets) COPSE_RETURN_IF_ERROR(round.prefill(rows, false, stream_));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "first prefill"));
  spdlog::info("{} graphs captured in {:.2f} s", graphs_.count(), seconds(clock_.now() - started));
  return {};
}

template <class T>
Status CudaEngine<T>::upload(void* to, const void* from, std::size_t bytes) {
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_),
                     "copying a plan to the device");
}

template <class T>
Status CudaEngine<T>::results_back(Flight& flight, int count) {
  cuda::RoundResult* const to = flight.memory().results.data() + flight.results_used;
  flight.results_used += static_cast<std::size_t>(count);
  return cuda_status(
      cudaMemcpyAsync(to, models_->round().results(), static_cast<std::size_t>(count) * sizeof(*to),
                      cudaMemcpyDeviceToHost, stream_),
      "copying results to the host");
}

template <class T>
Status CudaEngine<T>::begin(const StepPlan& plan) {
  CHECK(begun_ - finished_ < flights_.size());
  Flight& flight = *flights_[begun_ % flights_.size()];
  flight.clear();
  stage_.store("launch", std::memory_order_relaxed);
  COPSE_RETURN_IF_ERROR(flight.record(Flight::Mark::begin, stream_));
  COPSE_RETURN_IF_ERROR(change_slots(plan, flight));
  COPSE_RETURN_IF_ERROR(prefill(plan, flight));
  COPSE_RETURN_IF_ERROR(flight.record(Flight::Mark::prefilled, stream_));
  COPSE_RETURN_IF_ERROR(decode(plan, flight));
  COPSE_RETURN_IF_ERROR(flight.record(Flight::Mark::end, stream_));
  ++begun_;
  stage_.store("step", std::memory_order_relaxed);
  return {};
}

template <class T>
Status CudaEngine<T>::change_slots(const StepPlan& plan, Flight& flight) {
  for (const SlotRelease& release : plan.released) COPSE_RETURN_IF_ERROR(slots_->release(release));
  cuda::StartPlan& start = flight.memory().start;
  start.count = 0;
  for (const SlotOpen& open : plan.opened) {
    COPSE_RETURN_IF_ERROR(slots_->open(open));
    const Slot& slot = (*slots_)[open.slot];
    cuda::SlotStart& entry = start.start[start.count++];
    entry.slot = open.slot;
    cuda::DeviceSlot& state = entry.state;
    state = {};
    state.digest = slot.digest;
    state.seed = slot.sampling.seed;
    state.choice = slot.sampling.choice;
    state.temperature = slot.sampling.temperature;
    state.top_p = slot.sampling.top_p;
    state.min_p = slot.sampling.min_p;
    state.top_k = slot.sampling.top_k;
    state.remaining = slot.remaining;
    state.drawn = slot.drawn;
    state.min_tokens = slot.min_tokens;
    state.ignore_end = slot.ignore_end ? 1 : 0;
    state.end_token_count = slot.end_token_count;
    std::copy_n(slot.end_token_ids.begin(), slot.end_token_count, state.end_tokens);
    waiting_bound_[open.slot] = 0;
  }
  if (start.count == 0) return {};
  COPSE_RETURN_IF_ERROR(upload(models_->round().start_plan(), &start, sizeof(start)));
  return models_->round().start_slots(stream_);
}

template <class T>
Status CudaEngine<T>::prefill(const StepPlan& plan, Flight& flight) {
  const int vocabulary = models_->target().config().vocabulary;
  int chunks = 0;
  for (const PrefillChunk& chunk : plan.prefill) {
    const int before =
        chunk.slot < slots_->slots() ? static_cast<int>(slots_->pages(chunk.slot).size()) : 0;
    COPSE_TRY(const int slot, slots_->enter(chunk.slot, chunk.generation, chunk.new_pages));
    const int count = static_cast<int>(chunk.tokens.size());
    if (count == 0) return misfit("prefill.tokens", slot, "has none");
    const bool known = std::ranges::all_of(
        chunk.tokens, [&](TokenId token) { return token >= 0 && token < vocabulary; });
    if (!known) return misfit("prefill.tokens", slot, "has a token beyond the vocabulary");
    cuda::PrefillPlan& entry = flight.memory().prefill[static_cast<std::size_t>(chunks++)];
    entry.slot = slot;
    entry.start = chunk.start;
    entry.last = chunk.last ? 1 : 0;
    entry.count = count;
    copy_pages(chunk.new_pages, before, entry.pages);
    std::copy(chunk.tokens.begin(), chunk.tokens.end(), entry.tokens);
    COPSE_RETURN_IF_ERROR(upload(models_->round().prefill_plan(), &entry, sizeof(entry)));
    const bool filtered = chunk.last && filters((*slots_)[slot].sampling);
    COPSE_RETURN_IF_ERROR(
        models_->round().prefill(bucket(kChunkBuckets, count), filtered, stream_));
    flight.places.push_back(flight.results_used);
    flight.generations.push_back(chunk.generation);
    flight.prefills = true;
    COPSE_RETURN_IF_ERROR(results_back(flight, 1));
  }
  return {};
}

template <class T>
RoundKey CudaEngine<T>::key_of(const DecodeEntry& entry) const {
  RoundKey key;
  const bool drafts = entry.mode != DraftMode::none && entry.node_budget > 0;
  key.rows = drafts ? bucket(kRowBuckets, 1 + entry.node_budget) : 1;
  key.filtered = filters((*slots_)[entry.slot].sampling);
  const CudaRound<T>& round = models_->round();
  key.context = round.block() > 0 && !drafts &&
                waiting_bound_[entry.slot] + round.block() > round.waiting_max();
  return key;
}

// Entries of alike size run together; a round's rows are padded to its largest entry's, so one
// large tree among many small ones runs by itself.
template <class T>
void CudaEngine<T>::group_entries(const StepPlan& plan) {
  group_count_ = 0;
  for (std::size_t i = 0; i < plan.decode.size(); ++i) {
    const RoundKey key = key_of(plan.decode[i]);
    Group* fit = nullptr;
    for (std::size_t g = 0; g < group_count_ && fit == nullptr; ++g) {
      Group& group = groups_[g];
      const int sequences = bucket(kSequenceBuckets, group.count + 1);
      if (sequences * std::max(group.key.rows, key.rows) <= models_->rows_max()) fit = &group;
    }
    if (fit == nullptr) {
      fit = &groups_[group_count_++];
      *fit = Group();
    }
    fit->entries[static_cast<std::size_t>(fit->count++)] = i;
    fit->key.sequences = bucket(kSequenceBuckets, fit->count);
    fit->key.rows = std::max(fit->key.rows, key.rows);
    fit->key.context = fit->key.context || key.context;
    fit->key.filtered = fit->key.filtered || key.filtered;
  }
}

template <class T>
Status CudaEngine<T>::check_entry(const DecodeEntry& entry, int& before) {
  before = entry.slot < slots_->slots() ? static_cast<int>(slots_->pages(entry.slot).size()) : 0;
  COPSE_TRY(const int slot, slots_->enter(entry.slot, entry.generation, entry.new_pages));
  if (entry.mode > DraftMode::tree)
    return misfit("decode.mode", slot, "is none that a worker knows");
  if (entry.mode != DraftMode::none && models_->drafter() == nullptr) {
    return misfit("decode.mode", slot, "there is no drafter");
  }
  if (entry.node_budget > limits::tree_nodes) {
    return misfit("decode.node_budget", slot, "is above the largest tree");
  }
  return {};
}

template <class T>
Status CudaEngine<T>::decode(const StepPlan& plan, Flight& flight) {
  std::array<int, limits::batch_sequences> before{};
  for (std::size_t i = 0; i < plan.decode.size(); ++i) {
    COPSE_RETURN_IF_ERROR(check_entry(plan.decode[i], before[i]));
  }
  group_entries(plan);
  const std::size_t first = flight.places.size();
  flight.places.resize(first + plan.decode.size());
  for (const DecodeEntry& entry : plan.decode) flight.generations.push_back(entry.generation);
  for (std::size_t g = 0; g < group_count_; ++g) {
    Group& group = groups_[g];
    cuda::RoundPlan& round = flight.memory().round[g];
    round.entries = group.count;
    for (int i = 0; i < group.count; ++i) {
      const std::size_t index = group.entries[static_cast<std::size_t>(i)];
      const DecodeEntry& entry = plan.decode[index];
      round.entry[i].slot = entry.slot;
      round.entry[i].mode = static_cast<std::int32_t>(entry.mode);
      round.entry[i].budget = entry.node_budget;
      copy_pages(entry.new_pages, before[index], round.entry[i].pages);
      flight.places[first + index] = flight.results_used + static_cast<std::size_t>(i);
      count_waiting(entry, group.key);
    }
    const std::size_t bytes = offsetof(cuda::RoundPlan, entry) +
                              static_cast<std::size_t>(group.count) * sizeof(cuda::PlanEntry);
    COPSE_RETURN_IF_ERROR(upload(models_->round().round_plan(), &round, bytes));
    COPSE_RETURN_IF_ERROR(run_round(group.key));
    COPSE_RETURN_IF_ERROR(results_back(flight, group.count));
  }
  return {};
}

// As the device will count, or more.
template <class T>
void CudaEngine<T>::count_waiting(const DecodeEntry& entry, const RoundKey& key) {
  const int block = models_->round().block();
  int& bound = waiting_bound_[entry.slot];
  const bool drafts = entry.mode != DraftMode::none && entry.node_budget > 0;
  if (key.context || key.drafts()) bound = std::min(bound, models_->round().waiting_max() - block);
  bound += drafts ? block : 1;
}

template <class T>
Status CudaEngine<T>::run_round(const RoundKey& key) {
  if (!options_.graphs) return models_->round().round(key, stream_);
  if (!graphs_.has(key)) {
    // Filtered sampling is rare: its graphs are captured when it is first asked for.
    COPSE_RETURN_IF_ERROR(models_->round().round(key, stream_));
    return graphs_.capture(
        key, [&](cuda::Stream stream) { return models_->round().round(key, stream); }, stream_);
  }
  return graphs_.launch(key, stream_);
}

template <class T>
Result<StepResult> CudaEngine<T>::finish() {
  CHECK(begun_ > finished_);
  Flight& flight = *flights_[finished_ % flights_.size()];
  for (int polls = 0;; ++polls) {
    COPSE_TRY(const bool done, flight.done());
    if (done) break;
    // A peer that is gone never lets the stream end by itself.
    if (polls % 1024 == 0) COPSE_RETURN_IF_ERROR(group_.status());
    std::this_thread::yield();
  }
  COPSE_RETURN_IF_ERROR(group_.status());
  COPSE_TRY(StepResult result, read_results(flight));
  ++finished_;
  if (begun_ == finished_) stage_.store("idle", std::memory_order_relaxed);
  return result;
}

template <class T>
Result<StepResult> CudaEngine<T>::read_results(Flight& flight) {
  StepResult result;
  for (std::size_t i = 0; i < flight.places.size(); ++i) {
    const cuda::RoundResult& from = flight.memory().results[flight.places[i]];
    if (from.misfit != cuda::Misfit::none) {
      return misfit("plan", from.slot, describe_misfit(from.misfit));
    }
    SlotResult slot;
    slot.slot = static_cast<std::uint16_t>(from.slot);
    slot.generation = flight.generations[i];
    slot.digest = from.digest;
    slot.length = static_cast<std::uint32_t>(from.length);
    slot.draft_nodes = static_cast<std::uint16_t>(from.draft_nodes);
    slot.walk_length = static_cast<std::uint16_t>(from.walk_length);
    slot.finish = static_cast<FinishReason>(from.finish);
    if (group_.rank() == 0) slot.tokens.assign(from.tokens, from.tokens + from.token_count);
    result.slots.push_back(std::move(slot));
  }
  COPSE_TRY(const float total, flight.milliseconds(Flight::Mark::begin, Flight::Mark::end));
  COPSE_TRY(const float prefill, flight.milliseconds(Flight::Mark::begin, Flight::Mark::prefilled));
  result.timing.total_us = static_cast<std::uint32_t>(total * 1000);
  if (flight.prefills) result.timing.prefill_us = static_cast<std::uint32_t>(prefill * 1000);
  result.timing.verify_us = static_cast<std::uint32_t>((total - prefill) * 1000);
  return result;
}

template <class T>
Result<WorkerReady> CudaEngine<T>::measure() {
  WorkerReady ready;
  const ModelConfig& config = models_->target().config();
  ready.slots = static_cast<std::uint32_t>(slots_->slots());
  ready.pages = static_cast<std::uint32_t>(models_->pages());
  ready.context_tokens = static_cast<std::uint32_t>(models_->context_tokens());
  ready.vocabulary = static_cast<std::uint32_t>(config.vocabulary);
  ready.draft_block = static_cast<std::uint32_t>(models_->round().block());
  ready.weight_bytes = models_->weight_bytes();
  ready.cache_bytes = models_->cache_bytes();
  for (const TokenId token : config.end_tokens) {
    if (!ready.end_tokens.try_push(token)) break;
  }
  COPSE_TRY(ready.costs, measure_costs(
                             [this](const StepPlan& plan) -> Result<std::uint32_t> {
                               COPSE_RETURN_IF_ERROR(begin(plan));
                               COPSE_TRY(const StepResult result, finish());
                               return result.timing.total_us;
                             },
                             models_->context_tokens(), models_->drafter() != nullptr));
  return ready;
}

Result<std::unique_ptr<StepEngine>> load_cuda_engine(const CudaEngineOptions& options,
                                                     DeviceCollective& group, const Clock& clock,
                                                     const LoadObserver& progress) {
  if (options.engine.slots < 1 || options.engine.slots > limits::batch_sequences) {
    return Error{ErrorCode::invalid_argument, "max-num-seqs", "is out of bounds"};
  }
  COPSE_TRY([[maybe_unused]] const cuda::DeviceInfo device, cuda::open_device(options.device));
  if (options.float32) return CudaEngine<float>::load(options, group, clock, progress);
  return CudaEngine<Bf16>::load(options, group, clock, progress);
}

}  // namespace copse
