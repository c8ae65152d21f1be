#include "bench/rank_of/rank_of.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/random.h"
#include "bench/rank_of/left_out_collective.h"
#include "bench/rank_of/pass_marks.h"
#include "kernels/common/cuda/bench.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/status.h"
#include "kernels/kv_commit/kv_commit_cuda.h"
#include "kernels/tree_accept/tree_accept_cuda.h"
#include "model/cuda/random_fill.h"
#include "model/cuda/target_cuda.h"
#include "worker/cuda/sampler_cuda.h"

namespace copse {

namespace cuda = kernels::cuda;
using kernels::cuda::cuda_status;

namespace {

constexpr int kWarmUps = 3;

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// A step without a drafter: verify, sample, accept, commit, for one sequence of a given length.
class RankStep {
 public:
  RankStep(const ModelConfig& config, const RankOfOptions& options)
      : config_(config), options_(options), group_(0, options.tp) {
    rows_max_ = *std::ranges::max_element(options.nodes);
    pages_ = (*std::ranges::max_element(options.contexts) + limits::page_tokens - 1) /
                 limits::page_tokens +
             1;
  }
  ~RankStep() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  RankStep(const RankStep&) = delete;
  RankStep& operator=(const RankStep&) = delete;

  Status load();
  Result<RankOfRow> measure(int context, int nodes);
  double weight_bytes() const { return weight_bytes_; }

 private:
  void place();
  Status set_sequence(int context, int nodes);
  Status launch(int nodes, PassMarks* marks, cuda::Stream stream);
  Status after_pass(int nodes, cuda::Stream stream);
  Result<cudaGraphExec_t> capture(int nodes, PassMarks* marks);
  Result<double> replay(cudaGraphExec_t graph, int times);
  Result<double> choose_experts(int nodes);
  double floor_bytes(int context, double experts_touched) const;

  ModelConfig config_;
  RankOfOptions options_;
  LeftOutCollective group_;
  int rows_max_ = 0;
  int pages_ = 0;
  cudaStream_t stream_ = nullptr;
  cuda::DeviceArena arena_;
  std::byte* gemm_workspace_ = nullptr;
  std::optional<cuda::DenseGemm> gemm_store_;
  cuda::DenseGemm* gemm_ = nullptr;
  std::optional<CudaTarget<Bf16>> target_;
  std::optional<DeviceWeightPlan<Bf16>> weights_;
  std::optional<CudaSampler> sampler_;
  CudaLatentCache<Bf16> cache_;
  cuda::RoundArrays arrays_;
  TokenId* targets_ = nullptr;
  std::int32_t* routing_ = nullptr;  // [layers][rows][k]
  double weight_bytes_ = 0;
};

void RankStep::place() {
  const std::size_t rows = size(rows_max_);
  cache_.layers = config_.layers;
  cache_.width = config_.latent_width();
  cache_.pages_count = pages_;
  cache_.slots = 1;
  cache_.scratch_rows = limits::tree_nodes + 1;
  arena_.place("pages", size(cache_.layers) * cache_.layer_page_values(), cache_.pages);
  arena_.place("scratch", size(cache_.layers) * cache_.layer_scratch_values(), cache_.scratch);
  arena_.place("slots", 1, arrays_.slots);
  arena_.place("page table", size(pages_), arrays_.page_tables);
  for (auto** one : {&arrays_.entry_slot, &arrays_.root_position, &arrays_.rows,
                     &arrays_.walk_length, &arrays_.kept, &arrays_.at_end}) {
    arena_.place("entry", 1, *one);
  }
  for (auto** each : {&arrays_.row_tokens, &arrays_.row_parents, &arrays_.row_positions}) {
    arena_.place("rows", rows, *each);
  }
  arena_.place("ancestors", rows * ((rows + 63) / 64), arrays_.ancestors);
  arena_.place("sequence", 1, arrays_.sequences);
  arena_.place("accepted", limits::draft_block + 1, arrays_.accepted);
  arena_.place("targets", rows, targets_);
  arena_.place("experts to choose", size(config_.layers) * rows * size(config_.experts_per_token),
               routing_);
  arena_.place("workspace of products", target_->gemm_workspace_bytes(), gemm_workspace_);
  sampler_->place(arena_);
}

Status RankStep::load() {
  CudaTargetOptions target;
  target.rows_max = rows_max_;
  target.logit_rows_max = rows_max_;
  target.sequences_max = 1;
  target_.emplace(config_, target, Shard{0, options_.tp}, group_, gemm_);
  weights_.emplace(nullptr, arena_);
  const TargetSpecs specs = target_specs(config_);
  target_->place(specs, *weights_, arena_);
  sampler_.emplace(rows_max_, config_.vocabulary, target_->vocabulary(), group_);
  place();
  COPSE_RETURN_IF_ERROR(arena_.allocate());
  COPSE_TRY(gemm_store_, cuda::DenseGemm::create(gemm_workspace_, target_->gemm_workspace_bytes()));
  gemm_ = &*gemm_store_;
  COPSE_RETURN_IF_ERROR(weights_->load({}));
  weight_bytes_ = static_cast<double>(weights_->bytes());
  COPSE_RETURN_IF_ERROR(target_->finish_load());
  COPSE_RETURN_IF_ERROR(
      random_fill(cache_.pages, size(cache_.layers) * cache_.layer_page_values(), 0.0f, 1.0f, 7));
  std::vector<PageId> table(size(pages_));
  std::iota(table.begin(), table.end(), 0);
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_device(arrays_.page_tables, table.data(), table.size() * sizeof(PageId)));
  cuda::DeviceSlot slot{};
  slot.remaining = 1 << 20;
  slot.has_bonus = 1;
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.slots, &slot, sizeof(slot)));
  return cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                     "cudaStreamCreate");
}

// A tree whose node i hangs under node (i - 1) / 2; tokens apart from each other.
Status RankStep::set_sequence(int context, int nodes) {
  const std::size_t rows = size(nodes);
  const std::size_t words = (rows + 63) / 64;
  std::vector<TokenId> tokens(rows);
  std::vector<std::int32_t> parents(rows, -1);
  std::vector<std::int32_t> positions(rows, context);
  std::vector<std::uint64_t> ancestors(rows * words);
  for (std::size_t i = 0; i < rows; ++i) {
    tokens[i] = static_cast<TokenId>((i * 7919 + 13) % size(config_.vocabulary));
    if (i > 0) {
      const std::size_t parent = (i - 1) / 2;
      parents[i] = static_cast<std::int32_t>(parent);
      positions[i] = positions[parent] + 1;
      std::copy_n(ancestors.begin() + static_cast<std::ptrdiff_t>(parent * words), words,
                  ancestors.begin() + static_cast<std::ptrdiff_t>(i * words));
    }
    ancestors[i * words + i / 64] |= std::uint64_t{1} << (i % 64);
  }
  kernels::VerifySequence sequence;
  sequence.rows = nodes;
  sequence.prefix_length = context;
  sequence.pages = arrays_.page_tables;
  sequence.ancestors = arrays_.ancestors;
  sequence.mask_words = static_cast<int>(words);
  const std::int32_t slot = 0;
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.row_tokens, tokens.data(), rows * 4));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.row_parents, parents.data(), rows * 4));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.row_positions, positions.data(), rows * 4));
  COPSE_RETURN_IF_ERROR(
      cuda::copy_to_device(arrays_.ancestors, ancestors.data(), ancestors.size() * 8));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.sequences, &sequence, sizeof(sequence)));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.entry_slot, &slot, 4));
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(arrays_.root_position, &context, 4));
  return cuda::copy_to_device(arrays_.rows, &nodes, 4);
}

Status RankStep::after_pass(int nodes, cuda::Stream stream) {
  COPSE_RETURN_IF_ERROR(
      sampler_->draw({target_->logits(), nodes, nodes, nullptr, false}, arrays_, targets_, stream));
  cuda::TreeAcceptCall walk;
  walk.sequences = 1;
  walk.rows_per_sequence = nodes;
  walk.row_tokens = arrays_.row_tokens;
  walk.row_parents = arrays_.row_parents;
  walk.rows = arrays_.rows;
  walk.targets = targets_;
  walk.slots = arrays_.slots;
  walk.entry_slot = arrays_.entry_slot;
  walk.accepted = arrays_.accepted;
  walk.walk_length = arrays_.walk_length;
  walk.kept = arrays_.kept;
  walk.at_end = arrays_.at_end;
  COPSE_RETURN_IF_ERROR(cuda::tree_accept(walk, stream));
  cuda::KvCommitCall<Bf16> commit;
  commit.layers = cache_.layers;
  commit.slots = 1;
  commit.scratch_rows = cache_.scratch_rows;
  commit.pages_count = cache_.pages_count;
  commit.width = cache_.width;
  commit.scratch = cache_.scratch;
  commit.pages = cache_.pages;
  commit.sequences = 1;
  commit.rows_max = std::min(nodes, limits::draft_block + 1);
  commit.accepted_stride = limits::draft_block + 1;
  commit.table_pages = pages_;
  commit.accepted = arrays_.accepted;
  commit.counts = arrays_.kept;
  commit.entry_slot = arrays_.entry_slot;
  commit.first_position = arrays_.root_position;
  commit.page_tables = arrays_.page_tables;
  return cuda::kv_commit(commit, stream);
}

Status RankStep::launch(int nodes, PassMarks* marks, cuda::Stream stream) {
  CudaBatch batch;
  batch.rows_per_sequence = nodes;
  batch.tokens = arrays_.row_tokens;
  batch.positions = arrays_.row_positions;
  batch.sequence = arrays_.sequences;
  target_->observe(marks);
  if (marks != nullptr) COPSE_RETURN_IF_ERROR(marks->begin(stream));
  COPSE_RETURN_IF_ERROR(target_->forward(batch, cache_, stream));
  COPSE_RETURN_IF_ERROR(after_pass(nodes, stream));
  return marks == nullptr ? Status() : marks->launched(PassPart::sampling, -1, stream);
}

Result<cudaGraphExec_t> RankStep::capture(int nodes, PassMarks* marks) {
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning a capture"));
  const Status launched = launch(nodes, marks, stream_);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  COPSE_RETURN_IF_ERROR(launched);
  COPSE_RETURN_IF_ERROR(cuda_status(ended, "ending a capture"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  COPSE_RETURN_IF_ERROR(cuda_status(made, "instantiating a graph"));
  return exec;
}

// Median µs of a replay.
Result<double> RankStep::replay(cudaGraphExec_t graph, int times) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&begin), "cudaEventCreate"));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&end), "cudaEventCreate"));
  std::vector<double> us;
  for (int i = 0; i < kWarmUps + times; ++i) {
    cudaEventRecord(begin, stream_);
    cudaGraphLaunch(graph, stream_);
    cudaEventRecord(end, stream_);
    COPSE_RETURN_IF_ERROR(cuda_status(cudaEventSynchronize(end), "replaying a step"));
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= kWarmUps) us.push_back(static_cast<double>(ms) * 1000.0);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::ranges::nth_element(us, us.begin() + times / 2);
  return us[size(times / 2)];
}

// Every row of every layer its own experts, each as likely as any other: distinct ones, ascending.
// Returns how many distinct ones of this rank a layer has, on average.
Result<double> RankStep::choose_experts(int nodes) {
  if (config_.experts == 0) return 0.0;
  const std::size_t k = size(config_.experts_per_token);
  std::vector<std::int32_t> routing;
  SeededRandom random(17);
  double sum = 0;
  int layers = 0;
  for (int layer = 0; layer < config_.layers; ++layer) {
    std::set<std::int32_t> held;
    for (int row = 0; row < nodes; ++row) {
      std::set<std::int32_t> own;
      while (own.size() < k) {
        own.insert(static_cast<std::int32_t>(random.below(size(config_.experts))));
      }
      routing.insert(routing.end(), own.begin(), own.end());
      held.insert(own.begin(), own.end());
    }
    const Range part = target_->shard().experts.part;
    std::erase_if(held, [&](std::int32_t id) { return id < part.begin || id >= part.end; });
    if (!config_.is_moe(layer)) continue;
    sum += static_cast<double>(held.size());
    ++layers;
  }
  COPSE_RETURN_IF_ERROR(cuda::copy_to_device(routing_, routing.data(), routing.size() * 4));
  return sum / std::max(layers, 1);
}

// Weights that are read whole, experts that were touched, and the context's latent rows.
double RankStep::floor_bytes(int context, double experts_touched) const {
  double bytes = weight_bytes_;
  // Of the embedding a row a token is read; it is not worth counting.
  bytes -= 2.0 * target_->shard().embedding_rows.size() * config_.hidden;
  for (int layer = 0; layer < config_.layers; ++layer) {
    if (!config_.is_moe(layer)) continue;
    const cuda::ExpertShape& shape = target_->experts(layer).shape();
    bytes -= static_cast<double>(shape.layer_bytes());
    bytes += experts_touched * static_cast<double>(shape.expert_bytes());
  }
  return bytes + 2.0 * context * config_.latent_width() * config_.layers;
}

Result<RankOfRow> RankStep::measure(int context, int nodes) {
  RankOfRow row;
  row.context = context;
  row.nodes = nodes;
  COPSE_RETURN_IF_ERROR(set_sequence(context, nodes));
  COPSE_TRY(row.experts_touched, choose_experts(nodes));
  const std::size_t chosen = size(nodes) * size(config_.experts_per_token);
  COPSE_RETURN_IF_ERROR(launch(nodes, nullptr, stream_));  // loads what is loaded lazily
  COPSE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "a first step"));
  PassMarks routing(false, routing_, chosen);
  COPSE_TRY(cudaGraphExec_t plain, capture(nodes, &routing));
  COPSE_TRY(row.step_us, replay(plain, options_.replays));
  cudaGraphExecDestroy(plain);
  PassMarks marks(true, routing_, chosen);
  COPSE_TRY(cudaGraphExec_t marked, capture(nodes, &marks));
  COPSE_TRY([[maybe_unused]] const double marked_us, replay(marked, 3));
  cudaGraphExecDestroy(marked);
  COPSE_TRY(row.split_us, marks.split());
  row.bytes = floor_bytes(context, row.experts_touched);
  row.floor_us = row.bytes / cuda::bench::read_bytes_per_s * 1e6;
  target_->observe(nullptr);
  return row;
}

}  // namespace

Result<RankOfTable> rank_of(const RankOfOptions& options) {
  COPSE_TRY(const cuda::DeviceInfo device, cuda::open_device(0));
  COPSE_TRY(ModelConfig config, read_model_config(options.model));
  if (options.layers > 0) config.layers = std::min(config.layers, options.layers);
  RankStep step(config, options);
  COPSE_RETURN_IF_ERROR(step.load());
  RankOfTable table;
  table.device = device.name;
  table.weight_bytes = step.weight_bytes();
  for (const int context : options.contexts) {
    for (const int nodes : options.nodes) {
      COPSE_TRY(const RankOfRow row, step.measure(context, nodes));
      table.rows.push_back(row);
    }
  }
  return table;
}

}  // namespace copse
