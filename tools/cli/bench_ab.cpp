#include "tools/cli/bench_ab.h"

#include <set>

namespace copse::cli {
namespace {

Error invalid(const std::string& message) {
  return {ErrorCode::invalid_argument, "--ab", message};
}

std::string value_of(const Json& configuration, const std::string& key) {
  return configuration.contains(key) ? dump_json(configuration.at(key)) : "nothing";
}

}  // namespace

Result<Switch> parse_switch(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t comma = text.find(',', equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || comma == std::string::npos || equals == 0) {
    return invalid("must be KEY=A,B, as in verify-kernel=fast,naive");
  }
  Switch parsed{text.substr(0, equals), text.substr(equals + 1, comma - equals - 1),
                text.substr(comma + 1)};
  if (parsed.a.empty() || parsed.b.empty() || parsed.b.find(',') != std::string::npos) {
    return invalid("must name two values, as in verify-kernel=fast,naive");
  }
  if (parsed.a == parsed.b) return invalid("both sides are " + parsed.key + "=" + parsed.a);
  return parsed;
}

std::string first_name(const std::string& key) {
  EngineOptions unused;
  CLI::App app;
  add_engine_options(app, unused);
  const CLI::Option* option = app.get_option_no_throw("--" + key);
  return option == nullptr || option->get_lnames().empty() ? key : option->get_lnames().front();
}

Result<EngineOptions> with_switch(EngineOptions options, const std::string& key,
                                  const std::string& value) {
  const std::string name = first_name(key);
  if (name == "model" || name == "drafter") {
    return invalid("compares one switch of one model, not two models");
  }
  CLI::App app;
  add_engine_options(app, options);
  CLI::Option* option = app.get_option_no_throw("--" + name);
  if (option == nullptr || name == "help") return invalid(key + " is no flag of the engine");
  try {
    option->add_result(value);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    return invalid(error.what());
  }
  return options;
}

Json configuration(const EngineOptions& o) {
  Json json = {{"model", o.model},
               {"drafter", o.drafter},
               {"tp", o.tp},
               {"device", o.device.device},
               {"draft", o.draft},
               {"budget", o.budget},
               {"threads", o.threads},
               {"max-num-seqs", o.max_num_seqs},
               {"max-model-len", o.max_model_len},
               {"kv-memory-mb", o.kv_memory_mb},
               {"prefill-chunk", o.prefill_chunk},
               {"log-level", o.log_level}};
  const bool gpu = o.device.device == "cuda";
  const auto of_gpu = [&json, gpu](const char* key, const Json& value) {
    json[key] = gpu ? value : Json();
  };
  of_gpu("dtype", o.device.dtype);
  of_gpu("load-format", o.device.load_format);
  of_gpu("verify-kernel", o.device.verify_kernel);
  of_gpu("mem-fraction", o.device.mem_fraction);
  of_gpu("enforce-eager", o.device.eager);
  of_gpu("share-gpu", o.device.share_gpu);
  return json;
}

Status check_one_difference(const Json& a, const Json& b, const std::string& key) {
  std::set<std::string> keys;
  for (const auto& [name, value] : a.items()) keys.insert(name);
  for (const auto& [name, value] : b.items()) keys.insert(name);
  std::string others;
  for (const std::string& name : keys) {
    const std::string left = value_of(a, name), right = value_of(b, name);
    if (name == key || left == right) continue;
    others += (others.empty() ? "" : ", ") + name + " (" + left + " and " + right + ")";
  }
  if (!others.empty()) return invalid("nothing but " + key + " may differ, but so does " + others);
  if (value_of(a, key) == value_of(b, key)) {
    if (a.contains(key) && a.at(key).is_null()) {
      return invalid(key + " does nothing without --device cuda, so the sides do not differ");
    }
    return invalid("the sides do not differ: " + key + " is " + value_of(a, key) + " on both");
  }
  return {};
}

}  // namespace copse::cli
