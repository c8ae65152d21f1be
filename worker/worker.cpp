#include "worker/worker.h"

#include <utility>

#include "base/limits.h"
#include "base/log.h"

namespace copse {

Worker::Worker(WorkerConfig config, Link& link, const Clock& clock, StepExecutor& executor,
               std::function<void(WorkerExit)> exit)
    : config_(std::move(config)),
      link_(link),
      clock_(clock),
      executor_(executor),
      exit_(std::move(exit)) {}

void Worker::start() {
  link_.set_epoch(config_.epoch);
  registered_at_ = last_heartbeat_ = clock_.now();
  RegisterWorker registration;
  registration.epoch = config_.epoch;
  registration.rank = config_.rank;
  registration.world_size = config_.world_size;
  registration.pid = config_.pid;
  registration.build = config_.build;
  if (link_.send(config_.coordinator, registration) != SendResult::ok) {
    fail("cannot reach the coordinator", WorkerExit::failed);
  }
}

void Worker::on(const PeerId& from, const WorkerWelcome& welcome) {
  if (state_ != State::registering || from.role != Role::coordinator ||
      welcome.epoch != config_.epoch) {
    ++refused_;
    return;
  }
  spdlog::debug("welcome to epoch {}", welcome.epoch);
  state_ = State::loading;
  watchdog_.start(clock_.now(), milliseconds(limits::load_hard_ms / 2),
                  milliseconds(limits::load_hard_ms));
  executor_.start(config_.epoch, *this);
}

void Worker::on(const PeerId& from, const StepPlan& plan) {
  if (state_ == State::ended) return;
  if (from.role != Role::coordinator || plan.epoch != config_.epoch) {
    ++refused_;  // of another epoch: stale, and harmless
    return;
  }
  if (state_ != State::ready || shutting_down_) {
    return fail("a plan came before the worker was ready", WorkerExit::failed);
  }
  if (any_submitted_ && plan.step != last_submitted_ + 1) {
    return fail("a plan is missing: step " + std::to_string(plan.step) + " after " +
                    std::to_string(last_submitted_),
                WorkerExit::failed);
  }
  if (in_flight_.size() >= limits::plans_in_flight) {
    return fail("more plans in flight than allowed", WorkerExit::failed);
  }
  if (!any_submitted_) spdlog::debug("the first plan is step {}", plan.step);
  any_submitted_ = true;
  last_submitted_ = plan.step;
  in_flight_.push_back({plan.step, !plan.prefill.empty()});
  if (in_flight_.size() == 1) watch_next_step();
  executor_.submit(plan);
}

void Worker::on(const PeerId& from, const Shutdown& shutdown) {
  if (from.role != Role::coordinator || shutdown.epoch != config_.epoch) {
    ++refused_;
    return;
  }
  shutting_down_ = true;
  if (in_flight_.empty()) end(WorkerExit::ok);
}

void Worker::on_peer_lost(const PeerId& peer) {
  if (peer.role != Role::coordinator || state_ == State::ended) return;
  spdlog::error("the coordinator is gone");
  executor_.abort();
  end(WorkerExit::failed);
}

void Worker::on_tick(Instant now) {
  if (state_ == State::ended) return;
  if (state_ == State::registering) {
    if (now - registered_at_ > 2 * milliseconds(limits::handshake_ms)) {
      fail("the coordinator did not answer the registration", WorkerExit::failed);
    }
    return;
  }
  if (now - last_heartbeat_ >= milliseconds(limits::heartbeat_ms)) send_heartbeat(now);
  const auto age_ms = [&] { return watchdog_.running_for(now) / milliseconds(1); };
  switch (watchdog_.check(now)) {
    case Watchdog::Action::none:
      break;
    case Watchdog::Action::log:
      spdlog::warn("step {} is late: {} ms in {}", last_done_ + 1, age_ms(), executor_.stage());
      break;
    case Watchdog::Action::abort:
      spdlog::error("step {} is stuck: {} ms in {}; aborting", last_done_ + 1, age_ms(),
                    executor_.stage());
      executor_.abort();
      break;
    case Watchdog::Action::exit:
      fail(std::string("stuck in ") + executor_.stage(), WorkerExit::failed);
      break;
  }
}

void Worker::watch_next_step() {
  if (in_flight_.empty()) return watchdog_.stop();
  const std::int64_t hard =
      in_flight_.front().prefill ? limits::prefill_hard_ms : limits::step_hard_ms;
  watchdog_.start(clock_.now(), milliseconds(limits::step_soft_ms), milliseconds(hard));
}

void Worker::send_heartbeat(Instant now) {
  last_heartbeat_ = now;
  WorkerHeartbeat heartbeat;
  heartbeat.epoch = config_.epoch;
  heartbeat.last_step_done = last_done_;
  heartbeat.step_running = !in_flight_.empty();
  if (heartbeat.step_running) {
    heartbeat.running_ms = static_cast<std::uint32_t>(watchdog_.running_for(now) / milliseconds(1));
  }
  // A full queue drops it: the next one says the same.
  static_cast<void>(link_.send(config_.coordinator, heartbeat));
}

void Worker::on_load_progress(const LoadProgress& progress) {
  if (state_ == State::loading) static_cast<void>(link_.send(config_.coordinator, progress));
}

void Worker::on_ready(const WorkerReady& ready) {
  if (state_ != State::loading) return;
  spdlog::debug("ready after {:.2f} s: {} slots, {} pages", ready.load_s, ready.slots, ready.pages);
  state_ = State::ready;
  watchdog_.stop();
  if (link_.send(config_.coordinator, ready) != SendResult::ok) {
    fail("cannot tell the coordinator that this rank is ready", WorkerExit::failed);
  }
}

void Worker::on_step_done(const StepResult& result) {
  if (state_ != State::ready || in_flight_.empty()) return;
  last_done_ = result.step;
  in_flight_.pop_front();
  watch_next_step();
  if (link_.send(config_.coordinator, result) != SendResult::ok) {
    return fail("cannot send the result of step " + std::to_string(result.step),
                WorkerExit::failed);
  }
  if (shutting_down_ && in_flight_.empty()) end(WorkerExit::ok);
}

void Worker::on_failed(const Error& error, bool permanent) {
  fail(describe(error), permanent ? WorkerExit::bad_model : WorkerExit::failed);
}

void Worker::fail(const std::string& cause, WorkerExit status) {
  if (state_ == State::ended) return;
  spdlog::error("{}", cause);
  WorkerFailed failed;
  failed.epoch = config_.epoch;
  failed.permanent = status == WorkerExit::bad_model;
  failed.cause = cause.substr(0, limits::error_text_bytes);
  static_cast<void>(link_.send(config_.coordinator, failed));
  executor_.abort();
  end(status);
}

void Worker::end(WorkerExit status) {
  if (state_ == State::ended) return;
  state_ = State::ended;
  watchdog_.stop();
  exit_(status);
}

}  // namespace copse
