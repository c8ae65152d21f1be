#include "base/json.h"
#include "base/limits.h"
#include "model/chat_template/chat_template.h"

namespace copse {
namespace {

Error bad(const std::string& key, const std::string& what) {
  return {ErrorCode::malformed, key, what};
}

// A special token is a string, or an object with its "content".
OrderedJson special_tokens(const Json& config) {
  OrderedJson variables = OrderedJson::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string()) variables[name] = *found;
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
      variables[name] = (*found)["content"];
    }
  }
  return variables;
}

Result<std::string> source_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const Json& one : value) {
      const bool fits = one.is_object() && one.value("name", Json()) == "default" &&
                        one.contains("template") && one["template"].is_string();
      if (fits) return one["template"].get<std::string>();
    }
  }
  return bad("chat_template", "must be a string, or a list with one that is called default");
}

}  // namespace

Result<ChatTemplate> load_chat_template(const std::string& dir) {
  Json config = Json::object();
  Result<Json> read = read_json_file(dir + "/tokenizer_config.json", {});
  if (read) {
    config = std::move(read).value();
    if (!config.is_object()) return bad("tokenizer_config.json", "must be an object");
  } else if (read.error().code != ErrorCode::not_found) {
    return std::move(read).error();
  }
  Result<std::string> file = read_file(dir + "/chat_template.jinja", limits::template_bytes);
  if (file) return ChatTemplate::parse(*file, special_tokens(config));
  if (file.error().code != ErrorCode::not_found) return std::move(file).error();
  if (!config.contains("chat_template") || config["chat_template"].is_null()) {
    return Error{ErrorCode::not_found, "chat_template", "the model has none"};
  }
  COPSE_TRY(const std::string source, source_of(config["chat_template"]));
  return ChatTemplate::parse(source, special_tokens(config));
}

}  // namespace copse
