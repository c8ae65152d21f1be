// `copse chat`: a conversation in the terminal, through the model's own chat template.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "model/chat_template/chat_template.h"
#include "tools/cli/commands.h"
#include "tools/cli/model_folder.h"
#include "tools/cli/request.h"
#include "tools/cli/sampling_options.h"

namespace copse::cli {
namespace {

struct ChatOptions {
  EngineOptions engine;
  SamplingOptions sampling;
  std::string system;
};

// The user's next line; false at the end of input. The prompt is for people, not for pipes.
bool read_line(std::string& line) {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("> ", stdout);
    std::fflush(stdout);
  }
  return static_cast<bool>(std::getline(std::cin, line));
}

Outcome converse(const ChatOptions& options, EngineSession& session, const Tokenizer& tokenizer,
                 const ChatTemplate& chat_template) {
  ChatInputs conversation;
  const auto say = [&conversation](const char* role, const std::string& text) {
    conversation.messages.push_back({{"role", role}, {"content", text}});
  };
  if (!options.system.empty()) say("system", options.system);
  std::string line;
  while (read_line(line)) {
    if (line.empty()) continue;
    say("user", line);
    COPSE_TRY(const RenderedPrompt prompt, chat_template.render(conversation));
    // The template writes the begin token itself.
    COPSE_TRY(const std::vector<TokenId> ids, tokenizer.encode(prompt.spans, /*add_bos=*/false));
    COPSE_TRY(const auto answer,
              run_request(session, tokenizer, to_submit(options.sampling), ids, /*print=*/true));
    std::fputs("\n", stdout);
    say("assistant", answer->text);
  }
  return 0;
}

Outcome run(ChatOptions& options) {
  COPSE_RETURN_IF_ERROR(complete(options.engine));
  COPSE_RETURN_IF_ERROR(check_models(options.engine));
  COPSE_TRY_MODEL(const auto tokenizer, Tokenizer::load(options.engine.model));
  COPSE_TRY_MODEL(const ChatTemplate chat_template, load_chat_template(options.engine.model));
  COPSE_TRY(const auto session, EngineSession::start(options.engine, /*progress=*/true));
  COPSE_RETURN_IF_ERROR(session->wait_ready());
  return converse(options, *session, *tokenizer, chat_template);
}

}  // namespace

Run add_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  options->sampling.max_tokens = 256;
  add_engine_options(app, options->engine);
  add_sampling_options(app, options->sampling);
  app.add_option("--system", options->system, "A system message before the conversation");
  return [options] { return run(*options); };
}

}  // namespace copse::cli
