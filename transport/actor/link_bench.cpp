// What a step costs in the control plane: one plan to each of eight workers, one result from each.
// Eight echoing processes behind a bare ROUTER, and behind our links; the same bytes, over ipc.
//
//   build/link_bench [rounds]
//
// Prints for both the median and the 99th percentile of a round's wall time, and the CPU time of
// the coordinator's process per round.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "transport/actor/run_directory.h"
#include "transport/actor/zmq_links.h"

namespace copse {
namespace {

constexpr int kWorkers = limits::world_size;
constexpr int kWarmUp = 200;
constexpr PeerId kAnyHub{Role::coordinator, 0, 0};

StepPlan plan_of(StepId step) {
  StepPlan plan;
  plan.step = step;
  for (std::uint16_t slot = 0; slot < 4; ++slot) {
    plan.decode.push_back({.slot = slot,
                           .generation = 7,
                           .mode = DraftMode::tree,
                           .node_budget = 60,
                           .new_pages = {100 + slot}});
  }
  return plan;
}

StepResult result_of(StepId step) {
  StepResult result;
  result.step = step;
  for (std::uint16_t slot = 0; slot < 4; ++slot) {
    result.slots.push_back({.slot = slot,
                            .generation = 7,
                            .digest = 0x123456789abcdef0u + slot,
                            .length = 5000,
                            .draft_nodes = 60,
                            .walk_length = 4,
                            .tokens = {1000, 2000, 3000, 4000}});
  }
  return result;
}

double cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

// The times of all rounds, begun anew once the first kWarmUp are over.
class Rounds {
 public:
  void begin() { start_ = std::chrono::steady_clock::now(); }
  void end() {
    times_us_.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
            .count());
    if (times_us_.size() == kWarmUp && !std::exchange(warm_, true)) {
      times_us_.clear();
      cpu_start_us_ = cpu_us();
    }
  }
  std::size_t count() const { return warm_ ? times_us_.size() : 0; }
  double report(const char* name) {
    const double cpu = (cpu_us() - cpu_start_us_) / static_cast<double>(times_us_.size());
    std::sort(times_us_.begin(), times_us_.end());
    const double median = times_us_[times_us_.size() / 2];
    std::printf("%-14s %8.1f us median  %8.1f us p99  %8.1f us CPU of the coordinator\n", name,
                median, times_us_[times_us_.size() * 99 / 100], cpu);
    std::fflush(stdout);
    return median;
  }

 private:
  std::vector<double> times_us_;
  std::chrono::steady_clock::time_point start_;
  double cpu_start_us_ = 0;
  bool warm_ = false;
};

// Children that run `body` and never return from it.
template <class Body>
std::vector<pid_t> fork_workers(Body body) {
  std::vector<pid_t> children;
  for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      body(rank);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  return children;
}

void end_workers(const std::vector<pid_t>& children) {
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

std::vector<std::byte> frame_of(Kind kind, const std::vector<std::byte>& body) {
  return make_frame({.kind = kind, .role = Role::worker, .sequence = 1}, body);
}

double bare(const std::string& endpoint, std::size_t rounds) {
  const auto children = fork_workers([&](std::uint16_t rank) {
    void* socket = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
    const std::string id = to_string({Role::worker, rank, 1});
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, id.data(), id.size());
    zmq_connect(socket, endpoint.c_str());
    const auto result = frame_of(Kind::step_result, encode(result_of(1)));
    std::vector<std::byte> plan(1 << 16);
    zmq_send(socket, "", 0, 0);
    while (zmq_recv(socket, plan.data(), plan.size(), 0) >= 0) {
      zmq_send(socket, result.data(), result.size(), 0);
    }
  });
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_ROUTER);
  zmq_bind(socket, endpoint.c_str());
  const auto plan = frame_of(Kind::step_plan, encode(plan_of(1)));
  std::vector<std::byte> buffer(1 << 16);
  const auto receive = [&] {
    zmq_recv(socket, buffer.data(), buffer.size(), 0);
    zmq_recv(socket, buffer.data(), buffer.size(), 0);
  };
  for (int rank = 0; rank < kWorkers; ++rank) receive();
  Rounds times;
  while (times.count() < rounds) {
    times.begin();
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      const std::string id = to_string({Role::worker, rank, 1});
      zmq_send(socket, id.data(), id.size(), ZMQ_SNDMORE);
      zmq_send(socket, plan.data(), plan.size(), 0);
    }
    for (int rank = 0; rank < kWorkers; ++rank) receive();
    times.end();
  }
  end_workers(children);
  zmq_close(socket);
  zmq_ctx_term(context);
  return times.report("bare ZeroMQ");
}

struct EchoWorker {
  using Receives = MessageList<StepPlan>;
  void on(const PeerId& from, const StepPlan& plan) { link.send(from, result_of(plan.step)); }
  void on_peer_lost(const PeerId&) { std::_Exit(1); }
  void on_tick(Instant) {}
  Link& link;
};

struct Hub {
  using Receives = MessageList<RegisterWorker, StepResult>;
  void on(const PeerId& from, const RegisterWorker&) {
    workers.push_back(from);
    if (workers.size() == kWorkers) begin();
  }
  void on(const PeerId&, const StepResult&) {
    if (++answers < kWorkers) return;
    times.end();
    if (times.count() == rounds) return runtime.stop();
    begin();
  }
  void on_peer_lost(const PeerId&) {}
  void on_tick(Instant) {}
  void begin() {
    answers = 0;
    times.begin();
    const StepPlan plan = plan_of(++step);
    for (const PeerId& worker : workers) link.send(worker, plan);
  }

  ProcessRuntime& runtime;
  Link& link;
  std::size_t rounds;
  std::vector<PeerId> workers{};
  std::size_t answers = 0;
  StepId step = 0;
  Rounds times{};
};

double linked(const std::string& endpoint, std::size_t rounds) {
  const auto children = fork_workers([&](std::uint16_t rank) {
    ProcessRuntime runtime;
    SeededRandom random(rank);
    auto link = DealerLink::connect(runtime, random,
                                    {.role = Role::worker, .rank = rank, .endpoint = endpoint});
    EchoWorker worker{**link};
    (*link)->attach(worker);
    (*link)->send(kAnyHub, RegisterWorker{.rank = rank, .build = {}});
    runtime.run();
  });
  ProcessRuntime runtime;
  auto link = RouterLink::bind(runtime, {Role::coordinator, 0, 1}, {{Role::worker, endpoint}});
  Hub hub{runtime, **link, rounds};
  (*link)->attach(hub);
  runtime.run();
  end_workers(children);
  return hub.times.report("our links");
}

void measure_prompt() {
  Submit submit;
  submit.prompt.resize(limits::sequence_tokens);
  for (std::size_t i = 0; i < submit.prompt.size(); ++i) {
    submit.prompt[i] = static_cast<TokenId>(i * 2654435761u % 163840);
  }
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto ms = [](auto from, auto to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  double best_send = 1e9;
  double best_receive = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = now();
    const auto frame = frame_of(Kind::submit, encode(submit));
    const auto sent = now();
    const bool same = *decode<Submit>(parse_frame(frame)->body) == submit;
    CHECK(same);
    best_receive = std::min(best_receive, ms(sent, now()));
    best_send = std::min(best_send, ms(start, sent));
  }
  std::printf("a prompt of %d tokens: %.2f ms to frame, %.2f ms to read\n", limits::sequence_tokens,
              best_send, best_receive);
}

int run(std::size_t rounds) {
  measure_prompt();
  std::fflush(stdout);
  const auto directory = RunDirectory::create();
  if (!directory.ok()) return 1;
  double bare_us = 0;
  double linked_us = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const std::string suffix = std::to_string(pass);
    bare_us += bare("ipc://" + directory->path() + "/bare" + suffix, rounds);
    linked_us += linked("ipc://" + directory->path() + "/ours" + suffix, rounds);
  }
  std::printf("ours / bare = %.2f\n", linked_us / bare_us);
  return 0;
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  return copse::run(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 3000);
}
