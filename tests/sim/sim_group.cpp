#include "tests/sim/sim_group.h"

#include <algorithm>

#include "base/limits.h"
#include "transport/messages/frame.h"

namespace copse {

// --- one rank -----------------------------------------------------------------------------------

void SimExecutor::start(std::uint32_t epoch, StepSink& sink) {
  sink_ = &sink;
  epoch_ = epoch;
  const auto load =
      milliseconds(20 + static_cast<std::int64_t>(group_.world().random().below(150)));
  group_.world().after_on(node_, load / 2, [this] {
    if (!aborted_) sink_->on_load_progress({epoch_, "weights", 1, 2});
  });
  group_.world().after_on(node_, load, [this] {
    if (!aborted_) sink_->on_ready(model_.ready(epoch_));
  });
}

void SimExecutor::submit(const StepPlan& plan) {
  queue_.push_back(plan);
  if (!running_) begin();
}

void SimExecutor::begin() {
  running_ = true;
  if (!hung_) group_.arrive(epoch_, queue_.front().step, *this);
}

void SimExecutor::complete() {
  if (aborted_ || queue_.empty()) return;
  const StepPlan plan = std::move(queue_.front());
  queue_.pop_front();
  running_ = false;
  Result<StepResult> result = device_.run(plan, rank_);
  if (!result.ok()) {
    group_.report_broken_plan(describe(result.error()));
    return sink_->on_failed(result.error(), false);
  }
  const bool flipped = flip_ != 0 && !result->slots.empty();
  if (flipped) {
    result->slots[0].digest ^= 1u << group_.world().random().below(32);
    auto& tokens = result->slots[0].tokens;
    if (flip_ == 2 && !tokens.empty()) tokens[0] = tokens[0] == 1 ? 2 : 1;
    flip_ = 0;
  }
  group_.report(epoch_, rank_, *result, flipped);
  if (!queue_.empty()) begin();
  sink_->on_step_done(*result);
}

void SimExecutor::abort() {
  if (aborted_) return;
  aborted_ = true;
  // The thread notices, and says so on the loop.
  group_.world().after_on(node_, milliseconds(1), [this] {
    if (sink_ != nullptr) sink_->on_failed({ErrorCode::aborted, "", "aborted"}, false);
  });
}

// --- the group ----------------------------------------------------------------------------------

Status SimGroup::spawn(std::uint32_t epoch) {
  CHECK(alive() == 0);
  epoch_ = epoch;
  for (int rank = 0; rank < world_size_; ++rank) start_process(epoch, rank);
  return {};
}

void SimGroup::start_process(std::uint32_t epoch, int rank) {
  auto process = std::make_unique<Process>();
  process->epoch = epoch;
  process->rank = rank;
  process->pid = next_pid_++;
  process->peer = {Role::worker, static_cast<std::uint16_t>(rank), world_.random().next()};
  process->node = world_.add_node(process->peer);
  process->executor = std::make_unique<SimExecutor>(*this, process->node, rank, model_);
  WorkerConfig config;
  config.epoch = epoch;
  config.rank = static_cast<std::uint16_t>(rank);
  config.world_size = static_cast<std::uint16_t>(world_size_);
  config.pid = process->pid;
  config.build = build_identity();
  config.coordinator = {Role::coordinator, 0, 0};
  Process* self = process.get();
  process->worker =
      std::make_unique<Worker>(config, world_.link(process->node), world_.clock(),
                               *process->executor, [this, self](WorkerExit status) {
                                 end(*self, false, static_cast<int>(status), milliseconds(2));
                               });
  const auto begin = milliseconds(1 + static_cast<std::int64_t>(world_.random().below(20)));
  world_.after_on(process->node, begin, [this, self] {
    self->worker->start();
    world_.attach(self->node, *self->worker);
  });
  processes_.push_back(std::move(process));
}

// The node dies after `delay`, and the coordinator hears of it a little later.
void SimGroup::end(Process& process, bool signalled, int status, Duration delay) {
  if (process.ending) return;
  process.ending = true;
  world_.after(delay, [this, &process, signalled, status] {
    world_.crash(process.node);
    const auto notice = milliseconds(static_cast<std::int64_t>(world_.random().below(10)));
    world_.after_on(coordinator_, notice, [this, &process, signalled, status] {
      process.alive = false;
      listener_->on_worker_exit({process.epoch, process.rank, signalled, status});
    });
  });
}

void SimGroup::kill_all() {
  for (const auto& process : processes_) end(*process, true, 9, Duration(0));
}

int SimGroup::alive() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                        [](const auto& process) { return process->alive; }));
}

std::int32_t SimGroup::pid(int rank) const {
  for (const auto& process : processes_) {
    if (process->epoch == epoch_ && process->rank == rank) return process->pid;
  }
  return 0;
}

SimGroup::Process* SimGroup::living(int rank) {
  for (const auto& process : processes_) {
    if (process->rank == rank && process->alive && !process->ending) return process.get();
  }
  return nullptr;
}

bool SimGroup::crash(int rank) {
  Process* process = living(rank);
  if (process != nullptr) end(*process, true, 9, Duration(0));
  return process != nullptr;
}

bool SimGroup::pause(int rank, Duration time) {
  Process* process = living(rank);
  if (process == nullptr) return false;
  world_.pause(process->node, true);
  world_.after(time, [this, node = process->node] {
    if (world_.alive(node)) world_.pause(node, false);
  });
  return true;
}

bool SimGroup::hang(int rank) {
  Process* process = living(rank);
  if (process != nullptr) process->executor->hang();
  return process != nullptr;
}

bool SimGroup::flip(int rank, bool token) {
  Process* process = living(rank);
  if (process != nullptr) process->executor->flip(token);
  return process != nullptr;
}

bool SimGroup::disconnect(int rank) {
  Process* process = living(rank);
  if (process != nullptr) world_.disconnect(process->node);
  return process != nullptr;
}

void SimGroup::arrive(std::uint32_t epoch, StepId step, SimExecutor& executor) {
  auto& here = arrived_[{epoch, step}];
  here.push_back(&executor);
  if (static_cast<int>(here.size()) < world_size_) return;
  for (SimExecutor* each : here) {
    const auto jitter = milliseconds(static_cast<std::int64_t>(world_.random().below(3)));
    world_.after_on(each->node(), step_time_ + jitter, [each] { each->complete(); });
  }
  arrived_.erase({epoch, step});
}

void SimGroup::report(std::uint32_t epoch, int rank, const StepResult& result, bool flipped) {
  flips_reported_ += flipped ? 1 : 0;
  const Process* process = living(rank);
  if (process == nullptr) return;
  results_.push_back({epoch, {process->peer, result}});
  if (results_.size() > 64) results_.erase(results_.begin());
}

std::vector<SimGroup::Stale> SimGroup::stale_results() const {
  std::vector<Stale> stale;
  for (const auto& [epoch, result] : results_) {
    if (epoch < epoch_) stale.push_back(result);
  }
  return stale;
}

}  // namespace copse
