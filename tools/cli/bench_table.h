#pragma once
// The arithmetic and the table of `copse bench context`: one sample a prompt, one row a context
// length, medians between them.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace copse::cli {

struct ContextSample {
  int round = 0;
  int requested = 0;  // context length asked for, tokens
  int prompt_tokens = 0;
  int generated = 0;              // tokens, the prefill's own one included
  double ttft_s = 0;              // from sending the request to its first token, at the client
  double decode_wall_s = 0;       // from the first token to the last
  double accepted_per_round = 0;  // tokens that a decode step delivered, mean
  std::uint64_t digest = 0;       // of the generated ids
};

// 0 where nothing was measured: no time, or no token behind the first.
double prefill_tok_s(const ContextSample& sample);  // prompt tokens over TTFT
double decode_tok_s(const ContextSample& sample);   // tokens behind the first over decode_wall

// Each figure is the median of the samples', so a row need not be one prompt's.
struct ContextRow {
  int requested = 0;
  int prompt_tokens = 0;
  double ttft_s = 0;
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
  int generated = 0;
  double decode_wall_s = 0;
  double accepted_per_round = 0;
  int samples = 0;
};

double median(std::vector<double> values);  // the mean of the middle two; 0 of none
std::vector<ContextRow> summarize(std::span<const ContextSample> samples);  // ascending context

// Two sides at one context length; only lengths that both measured.
struct ContextRatio {
  int requested = 0;
  double decode = 0;         // A's decode_tok/s over B's: above 1, A is faster
  double prefill = 0;        // the same of prefill_tok/s
  bool same_tokens = false;  // every prompt was continued alike on both sides
};
std::vector<ContextRatio> compare_sides(std::span<const ContextSample> a,
                                        std::span<const ContextSample> b);

std::string render(std::span<const ContextRow> rows);
std::string render(std::span<const ContextRatio> ratios);
Json to_json(std::span<const ContextRow> rows);
Json to_json(std::span<const ContextSample> samples);
Json to_json(std::span<const ContextRatio> ratios);

}  // namespace copse::cli
