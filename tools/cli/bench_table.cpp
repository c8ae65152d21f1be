#include "tools/cli/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace copse::cli {
namespace {

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

ContextRow row_of(std::span<const ContextSample> samples) {
  const auto middle = [samples](const std::function<double(const ContextSample&)>& figure) {
    std::vector<double> values;
    for (const ContextSample& sample : samples) values.push_back(figure(sample));
    return median(std::move(values));
  };
  ContextRow row;
  row.requested = samples.front().requested;
  row.prompt_tokens = samples.front().prompt_tokens;
  row.ttft_s = middle([](const ContextSample& s) { return s.ttft_s; });
  row.prefill_tok_s = middle(prefill_tok_s);
  row.decode_tok_s = middle(decode_tok_s);
  row.generated = samples.front().generated;
  row.decode_wall_s = middle([](const ContextSample& s) { return s.decode_wall_s; });
  row.accepted_per_round = middle([](const ContextSample& s) { return s.accepted_per_round; });
  row.samples = static_cast<int>(samples.size());
  return row;
}

std::set<std::uint64_t> answers(std::span<const ContextSample> samples, int requested) {
  std::set<std::uint64_t> found;
  for (const ContextSample& sample : samples) {
    if (sample.requested == requested) found.insert(sample.digest);
  }
  return found;
}

}  // namespace

double prefill_tok_s(const ContextSample& sample) {
  return ratio(sample.prompt_tokens, sample.ttft_s);
}

double decode_tok_s(const ContextSample& sample) {
  return ratio(std::max(0, sample.generated - 1), sample.decode_wall_s);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<ContextRow> summarize(std::span<const ContextSample> samples) {
  std::map<int, std::vector<ContextSample>> by_context;
  for (const ContextSample& sample : samples) by_context[sample.requested].push_back(sample);
  std::vector<ContextRow> rows;
  for (const auto& [requested, found] : by_context) rows.push_back(row_of(found));
  return rows;
}

std::vector<ContextRatio> compare_sides(std::span<const ContextSample> a,
                                        std::span<const ContextSample> b) {
  std::vector<ContextRatio> ratios;
  const std::vector<ContextRow> rows_b = summarize(b);
  for (const ContextRow& row : summarize(a)) {
    const auto other = std::find_if(rows_b.begin(), rows_b.end(), [&row](const ContextRow& r) {
      return r.requested == row.requested;
    });
    if (other == rows_b.end()) continue;
    ratios.push_back({row.requested, ratio(row.decode_tok_s, other->decode_tok_s),
                      ratio(row.prefill_tok_s, other->prefill_tok_s),
                      answers(a, row.requested) == answers(b, row.requested)});
  }
  return ratios;
}

std::string render(std::span<const ContextRow> rows) {
  std::string text =
      fmt::format("{:>8} {:>10} {:>9} {:>13} {:>12} {:>7} {:>11} {:>8}\n", "ctx_req", "prompt_tok",
                  "TTFT_s", "prefill_tok/s", "decode_tok/s", "gen_tok", "decode_wall", "accepted");
  for (const ContextRow& row : rows) {
    text += fmt::format("{:>8} {:>10} {:>9.4f} {:>13.1f} {:>12.1f} {:>7} {:>11.4f} {:>8.2f}\n",
                        row.requested, row.prompt_tokens, row.ttft_s, row.prefill_tok_s,
                        row.decode_tok_s, row.generated, row.decode_wall_s, row.accepted_per_round);
  }
  return text;
}

std::string render(std::span<const ContextRatio> ratios) {
  std::string text =
      fmt::format("{:>8} {:>13} {:>12} {:>11}\n", "ctx_req", "A/B prefill", "A/B decode", "tokens");
  for (const ContextRatio& r : ratios) {
    text += fmt::format("{:>8} {:>13.3f} {:>12.3f} {:>11}\n", r.requested, r.prefill, r.decode,
                        r.same_tokens ? "the same" : "differ");
  }
  return text;
}

Json to_json(std::span<const ContextRow> rows) {
  Json list = Json::array();
  for (const ContextRow& row : rows) {
    list.push_back({{"ctx_req", row.requested},
                    {"prompt_tok", row.prompt_tokens},
                    {"ttft_s", row.ttft_s},
                    {"prefill_tok_s", row.prefill_tok_s},
                    {"decode_tok_s", row.decode_tok_s},
                    {"gen_tok", row.generated},
                    {"decode_wall_s", row.decode_wall_s},
                    {"accepted_per_round", row.accepted_per_round},
                    {"samples", row.samples}});
  }
  return list;
}

Json to_json(std::span<const ContextSample> samples) {
  Json list = Json::array();
  for (const ContextSample& sample : samples) {
    list.push_back({{"round", sample.round},
                    {"ctx_req", sample.requested},
                    {"prompt_tok", sample.prompt_tokens},
                    {"ttft_s", sample.ttft_s},
                    {"gen_tok", sample.generated},
                    {"decode_wall_s", sample.decode_wall_s},
                    {"accepted_per_round", sample.accepted_per_round},
                    {"tokens_digest", fmt::format("{:016x}", sample.digest)}});
  }
  return list;
}

Json to_json(std::span<const ContextRatio> ratios) {
  Json list = Json::array();
  for (const ContextRatio& r : ratios) {
    list.push_back({{"ctx_req", r.requested},
                    {"decode", r.decode},
                    {"prefill", r.prefill},
                    {"same_tokens", r.same_tokens}});
  }
  return list;
}

}  // namespace copse::cli
