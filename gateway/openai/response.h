#pragma once
// The JSON of answers, whole and in chunks, for chat and text completions.
#include <cstdint>
#include <string>
#include <vector>

#include "transport/messages/common.h"

namespace copse {

enum class ReplyKind : std::uint8_t { chat, text };

// What every object of one answer repeats.
struct ReplyHead {
  ReplyKind kind = ReplyKind::chat;
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  bool include_usage = false;  // chunks then have "usage", null but in the last
};

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;  // delivered, over all choices
  std::uint64_t accepted_tokens = 0;    // of those, proposed by the drafter
};

// Where the time went, under the names that llama.cpp's clients read.
struct Timings {
  std::uint64_t prompt_n = 0;
  double prompt_ms = 0;
  std::uint64_t predicted_n = 0;
  double predicted_ms = 0;
  double predicted_per_second = 0;  // tokens after the first, per second of decoding
  std::uint64_t draft_n = 0;
  std::uint64_t draft_n_accepted = 0;
  double accepted_per_round = 0;  // delivered tokens per round, the bonus token counted
};

struct ChoiceAnswer {
  std::string text;
  FinishReason reason = FinishReason::stop;
  std::string stop_string;  // the one that matched; empty: none
};

// The whole answer of a request without stream.
std::string whole_answer(const ReplyHead& head, const std::vector<ChoiceAnswer>& choices,
                         const Usage& usage, const Timings& timings);

// The objects of a stream, in their order: role (chat only), text …, finish for each choice; then
// usage, if asked for.
std::string role_chunk(const ReplyHead& head, std::size_t choice);
std::string text_chunk(const ReplyHead& head, std::size_t choice, const std::string& text);
std::string finish_chunk(const ReplyHead& head, std::size_t choice, const ChoiceAnswer& answer,
                         const Timings& timings);
std::string usage_chunk(const ReplyHead& head, const Usage& usage);

// /v1/models with its one entry.
std::string model_list(const std::string& model, std::int64_t created,
                       std::uint32_t context_tokens);

}  // namespace copse
