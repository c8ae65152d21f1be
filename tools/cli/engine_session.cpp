#include "tools/cli/engine_session.h"

#include <csignal>

#include "base/limits.h"
#include "tools/cli/progress_bar.h"

namespace copse::cli {
namespace {

constexpr int kEndMilliseconds = 10000;

Error engine_failed(const std::optional<EngineStatus>& status) {
  const std::string cause =
      status.has_value() && !status->cause.empty() ? ": " + status->cause : "";
  return {ErrorCode::unavailable, "engine", "it ended before it was ready" + cause};
}

}  // namespace

// From here on a signal ends the session in order, whatever of it is there.
EngineSession::EngineSession(bool progress) : progress_(progress) {
  runtime_.on_stop_signal([this](int) {
    interrupted_ = true;
    runtime_.stop();
  });
}

Result<std::unique_ptr<EngineSession>> EngineSession::start(const EngineOptions& options,
                                                            bool progress) {
  std::unique_ptr<EngineSession> session(new EngineSession(progress));
  COPSE_RETURN_IF_ERROR(session->open(options));
  return session;
}

Status EngineSession::open(const EngineOptions& options) {
  COPSE_TRY(const std::string program, program_beside_self("copse-coordinator"));
  COPSE_TRY(RunDirectory run_directory, RunDirectory::create());
  run_directory_.emplace(std::move(run_directory));
  COPSE_TRY(ChildProcess coordinator,
            ChildProcess::start(program, coordinator_arguments(options, run_directory_->path())));
  coordinator_.emplace(std::move(coordinator));
  return connect();
}

Status EngineSession::connect() {
  COPSE_TRY(link_, DealerLink::connect(
                       runtime_, random_,
                       {.role = Role::gateway,
                        .rank = 0,
                        .endpoint = RunDirectory::gateways_endpoint(run_directory_->path()),
                        .reconnect = true}));
  client_ = std::make_unique<EngineClient>(*link_, runtime_.clock());
  link_->attach(*client_);
  COPSE_TRY(const int pidfd, coordinator_->open_pidfd());
  runtime_.on_readable(pidfd, [this] {
    coordinator_died_ = true;
    runtime_.stop();
  });
  runtime_.on_tick([this](Instant) {
    if (done_ && done_()) runtime_.stop();
  });
  return {};
}

EngineSession::~EngineSession() {
  if (!coordinator_.has_value()) return;
  coordinator_->signal(SIGTERM);
  coordinator_->wait(kEndMilliseconds);
}

Status EngineSession::run_until(const std::function<bool()>& done) {
  done_ = done;
  if (!done() && !interrupted_ && !coordinator_died_) {
    runtime_.restart();
    runtime_.run();
  }
  done_ = nullptr;
  if (interrupted_) return Error{ErrorCode::aborted, "", "interrupted"};
  if (coordinator_died_) return engine_failed(client_->status());
  return {};
}

// The coordinator ends by itself once it has told why; its status says whose fault it was.
Outcome EngineSession::failed() {
  const bool of_model = coordinator_->wait(kEndMilliseconds) == kBadModel;
  return Failure{engine_failed(client_->status()), of_model ? kBadModel : kFailed};
}

Outcome EngineSession::wait_ready() {
  const Instant start = runtime_.clock().now();
  ProgressBar bar(progress_);
  const auto state = [this] {
    return client_->status().has_value() ? client_->status()->state : GroupState::loading;
  };
  const Status status = run_until([&] {
    if (client_->status().has_value()) bar.show(*client_->status());
    return state() == GroupState::failed ||
           (state() == GroupState::ready && client_->welcome().has_value());
  });
  bar.finish();
  load_s_ = seconds(runtime_.clock().now() - start);
  if (coordinator_died_ || (status.ok() && state() == GroupState::failed)) return failed();
  if (!status.ok()) return status.error();
  return kSuccess;
}

}  // namespace copse::cli
