#include "gateway/openai/parse_options.h"

#include <algorithm>
#include <cfloat>
#include <utility>

#include "base/limits.h"

namespace copse {
namespace {

constexpr double kTemperatureMax = 100;
// Below this the scaled logits leave float's range; the limit of sampling is argmax.
constexpr double kTemperatureArgmax = 1e-5;

float parse_temperature(Fields& fields) {
  const double value = fields.number("temperature", 0, kTemperatureMax).value_or(1);
  // A subnormal is nobody's intent: it is the attempt to divide by nearly nothing.
  if (value > 0 && value < static_cast<double>(FLT_MIN)) {
    fields.invalid("temperature", "must be 0 or a normal number");
  }
  return value < kTemperatureArgmax ? 0.0f : static_cast<float>(value);
}

void parse_sampling(Fields& fields, GenerateOptions& options) {
  options.temperature = parse_temperature(fields);
  options.top_p = static_cast<float>(fields.number("top_p", 0, 1).value_or(1));
  if (options.top_p <= 0) fields.invalid("top_p", "must be greater than 0 and at most 1");
  options.min_p = static_cast<float>(fields.number("min_p", 0, 1).value_or(0));
  if (options.min_p >= 1) fields.invalid("min_p", "must be at least 0 and less than 1");
  const std::int64_t top_k = fields.integer("top_k", -1, limits::vocabulary).value_or(0);
  options.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));
  if (const Json* seed = fields.find("seed"); seed != nullptr) {
    if (seed->is_number_unsigned()) {
      options.seed = seed->get<std::uint64_t>();
    } else if (seed->is_number_integer()) {
      options.seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());
    } else {
      fields.invalid("seed", "must be an integer");
    }
  }
}

void parse_stop(Fields& fields, GenerateOptions& options) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const Json& value) {
    if (!value.is_string()) return fields.invalid("stop", "must be a string or a list of strings");
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return fields.invalid("stop", "must not hold an empty string");
    if (text.size() > limits::stop_string_bytes) {
      return fields.invalid("stop", "holds a string of more than " +
                                        std::to_string(limits::stop_string_bytes) + " bytes");
    }
    options.stop.push_back(text);
  };
  if (!stop->is_array()) return add(*stop);
  if (stop->size() > limits::stop_strings) {
    return fields.invalid("stop",
                          "must hold at most " + std::to_string(limits::stop_strings) + " strings");
  }
  for (const Json& value : *stop) add(value);
}

void parse_stop_tokens(Fields& fields, GenerateOptions& options) {
  const Json* ids = fields.find("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array() || ids->size() > limits::end_token_ids) {
    return fields.invalid(
        "stop_token_ids",
        "must be a list of at most " + std::to_string(limits::end_token_ids) + " token ids");
  }
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id >= limits::vocabulary) {
      return fields.invalid("stop_token_ids", "holds something that is not a token id");
    }
    options.stop_token_ids.push_back(id.get<TokenId>());
  }
}

void parse_stream(Fields& fields, GenerateOptions& options) {
  options.stream = fields.boolean("stream").value_or(false);
  const Json* stream_options = fields.find("stream_options");
  if (stream_options == nullptr) return;
  if (!stream_options->is_object()) return fields.invalid("stream_options", "must be an object");
  const auto include = stream_options->find("include_usage");
  if (include == stream_options->end() || include->is_null()) return;
  if (!include->is_boolean()) {
    return fields.invalid("stream_options.include_usage", "must be true or false");
  }
  options.include_usage = include->get<bool>();
}

void parse_draft(Fields& fields, GenerateOptions& options) {
  static constexpr std::pair<const char*, DraftMode> kModes[] = {{"none", DraftMode::none},
                                                                 {"chain", DraftMode::chain},
                                                                 {"tree", DraftMode::tree},
                                                                 {"auto", DraftMode::automatic}};
  if (const Json* draft = fields.find("draft"); draft != nullptr) {
    const auto* mode = std::find_if(std::begin(kModes), std::end(kModes), [&](const auto& entry) {
      return draft->is_string() && draft->get_ref<const std::string&>() == entry.first;
    });
    if (mode == std::end(kModes))
      return fields.invalid("draft", "must be none, chain, tree or auto");
    options.draft = mode->second;
  }
  options.draft_budget =
      static_cast<std::uint16_t>(fields.integer("draft_budget", 0, limits::tree_nodes).value_or(0));
}

}  // namespace

GenerateOptions parse_options(Fields& fields) {
  GenerateOptions options;
  options.model = fields.text("model", limits::model_name_bytes).value_or("");
  options.choices = static_cast<std::uint32_t>(fields.integer("n", 1, limits::choices).value_or(1));
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (const auto most = fields.integer(name, 1, limits::sequence_tokens)) {
      options.max_tokens = static_cast<std::uint32_t>(*most);
    }
  }
  options.min_tokens = static_cast<std::uint32_t>(
      fields.integer("min_tokens", 0, limits::sequence_tokens).value_or(0));
  if (options.max_tokens && options.min_tokens > *options.max_tokens) {
    fields.invalid("min_tokens", "must not be greater than max_tokens");
  }
  options.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  parse_sampling(fields, options);
  parse_stop(fields, options);
  parse_stop_tokens(fields, options);
  parse_stream(fields, options);
  parse_draft(fields, options);
  return options;
}

}  // namespace copse
