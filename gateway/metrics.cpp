#include "gateway/metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace copse {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

const Histogram::BucketBoundaries kLatency{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                           0.5,   1,     2,     5,    10,   30,   60,  300};
constexpr std::array kReasons{FinishReason::stop, FinishReason::length, FinishReason::abort,
                              FinishReason::error};
constexpr std::array kReasonNames{"stop", "length", "abort", "error"};

// Collects families that all carry the model's name.
class Page {
 public:
  explicit Page(const std::string& model) : model_(model) {}

  MetricFamily& family(const char* name, const char* help, MetricType type) {
    families_.push_back({std::string("copse_") + name, help, type, {}});
    return families_.back();
  }
  void add(MetricFamily& to, double value, Labels labels = {}) const {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.label.insert(metric.label.begin(), {"model_name", model_});
    (to.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    to.metric.push_back(std::move(metric));
  }
  void gauge(const char* name, const char* help, double value) {
    add(family(name, help, MetricType::Gauge), value);
  }
  void counter(const char* name, const char* help, std::uint64_t value) {
    add(family(name, help, MetricType::Counter), static_cast<double>(value));
  }
  void histogram(const char* name, const char* help, const Histogram& values) {
    ClientMetric metric = values.Collect();
    metric.label = {{"model_name", model_}};
    family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }
  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return std::move(out).str();
  }

 private:
  const std::string& model_;
  std::vector<MetricFamily> families_;  // a reference from family() lasts until the next call
};

void add_engine(Page& page, const EngineStatus& status) {
  page.gauge("num_requests_running", "Sequences that hold a slot.", status.running);
  page.gauge("num_requests_waiting", "Sequences in the admission queue.", status.waiting);
  const double pages = status.pages_total > 0 ? status.pages_total : 1;
  page.gauge("kv_cache_usage_perc", "Share of the KV pages in use, 0 to 1.",
             status.pages_used / pages);
  page.counter("prompt_tokens_total", "Prompt tokens prefilled.", status.prompt_tokens);
  page.counter("generation_tokens_total", "Tokens delivered.", status.generated_tokens);
  page.counter("steps_total", "Steps of the worker group.", status.steps);
  page.counter("worker_restarts_total", "Restarts of the worker group.", status.restarts);
  page.counter("stale_messages_total", "Control messages refused as stale.", status.stale_messages);
  page.add(page.family("control_seconds_total", "CPU time of the coordinator in all steps.",
                       MetricType::Counter),
           static_cast<double>(status.control_us) * 1e-6);
}

void add_drafting(Page& page, const EngineStatus& status) {
  page.counter("spec_decode_num_drafts_total", "Rounds that drafted.", status.rounds);
  page.counter("spec_decode_num_draft_tokens_total", "Draft nodes verified.", status.draft_nodes);
  page.counter("spec_decode_num_accepted_tokens_total",
               "Draft tokens delivered, bonus tokens not counted.", status.accepted_tokens);
  MetricFamily& by_position =
      page.family("spec_decode_num_accepted_tokens_per_pos_total",
                  "Draft tokens delivered, by depth in the draft.", MetricType::Counter);
  for (std::size_t i = 0; i < status.accepted_by_position.size(); ++i) {
    page.add(by_position, static_cast<double>(status.accepted_by_position[i]),
             {{"position", std::to_string(i)}});
  }
}

void add_ranks(Page& page, const EngineStatus& status) {
  using Value = double (*)(const RankStatus&);
  const auto each = [&](const char* name, const char* help, Value value) {
    MetricFamily& family = page.family(name, help, MetricType::Gauge);
    for (std::size_t rank = 0; rank < status.ranks.size(); ++rank) {
      page.add(family, value(status.ranks[rank]), {{"rank", std::to_string(rank)}});
    }
  };
  each("rank_ready", "1 if the worker is loaded and joined.",
       [](const RankStatus& r) { return r.ready ? 1.0 : 0.0; });
  each("rank_weight_bytes", "Bytes of weights that the rank holds.",
       [](const RankStatus& r) { return static_cast<double>(r.weight_bytes); });
  each("rank_sharded_bytes", "Of those, what is split over ranks.",
       [](const RankStatus& r) { return static_cast<double>(r.sharded_bytes); });
  each("rank_cache_bytes", "Bytes of the rank's KV cache.",
       [](const RankStatus& r) { return static_cast<double>(r.cache_bytes); });
  each("rank_last_step", "The last step that the rank finished.",
       [](const RankStatus& r) { return static_cast<double>(r.last_step); });
  static constexpr std::pair<const char*, std::uint32_t StepTiming::*> kPhases[] = {
      {"draft", &StepTiming::draft_us},
      {"build", &StepTiming::build_us},
      {"verify", &StepTiming::verify_us},
      {"accept", &StepTiming::accept_us},
      {"prefill", &StepTiming::prefill_us},
      {"collective", &StepTiming::collective_us},
      {"compute_cpu", &StepTiming::compute_cpu_us},
      {"total", &StepTiming::total_us}};
  MetricFamily& steps = page.family(
      "rank_step_seconds",
      "The last step by phase; collective is part of the others, compute_cpu is CPU time.",
      MetricType::Gauge);
  for (std::size_t rank = 0; rank < status.ranks.size(); ++rank) {
    for (const auto& [phase, microseconds] : kPhases) {
      page.add(steps, status.ranks[rank].last_timing.*microseconds * 1e-6,
               {{"rank", std::to_string(rank)}, {"phase", phase}});
    }
  }
}

}  // namespace

struct Metrics::Own {
  std::string model;
  Histogram first_token{kLatency};
  Histogram inter_token{kLatency};
  Histogram whole{kLatency};
  std::array<std::uint64_t, kReasons.size()> finished{};
  std::map<int, std::uint64_t> refused;
};

Metrics::Metrics(std::string model) : own_(std::make_unique<Own>()) {
  own_->model = std::move(model);
}
Metrics::~Metrics() = default;

void Metrics::first_token(Duration since_arrival) {
  own_->first_token.Observe(seconds(since_arrival));
}

void Metrics::next_tokens(Duration since_previous, std::size_t tokens) {
  for (std::size_t i = 0; i < tokens; ++i) {
    own_->inter_token.Observe(seconds(since_previous) / static_cast<double>(tokens));
  }
}

void Metrics::finished(FinishReason reason, Duration since_arrival) {
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    if (kReasons[i] == reason) ++own_->finished[i];
  }
  own_->whole.Observe(seconds(since_arrival));
}

void Metrics::refused(int status) {
  ++own_->refused[status];
}

std::string Metrics::text(const EngineStatus* status, bool connected,
                          std::size_t connections) const {
  Page page(own_->model);
  page.gauge("engine_connected", "1 while the coordinator is heard.", connected ? 1 : 0);
  page.gauge("http_connections", "Open connections of clients.", static_cast<double>(connections));
  if (status != nullptr) {
    page.gauge("engine_ready", "1 while the worker group takes steps.",
               connected && status->state == GroupState::ready ? 1 : 0);
    add_engine(page, *status);
    add_drafting(page, *status);
    add_ranks(page, *status);
  }
  MetricFamily& ends =
      page.family("request_success_total", "Choices ended, by reason.", MetricType::Counter);
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    page.add(ends, static_cast<double>(own_->finished[i]), {{"finished_reason", kReasonNames[i]}});
  }
  MetricFamily& refusals = page.family(
      "request_refused_total", "Requests answered by an error, by status.", MetricType::Counter);
  for (const auto& [code, count] : own_->refused) {
    page.add(refusals, static_cast<double>(count), {{"status", std::to_string(code)}});
  }
  page.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.",
                 own_->first_token);
  page.histogram("inter_token_latency_seconds",
                 "Between tokens; those of one round share its time equally.", own_->inter_token);
  page.histogram("e2e_request_latency_seconds", "From a request's arrival to a choice's end.",
                 own_->whole);
  return page.text();
}

}  // namespace copse
