#pragma once
// How the interpreter gives up. The exception never leaves this folder: ChatTemplate turns it into
// an Error. Expressions nest, and a Result in each of their steps would hide what they do.
#include <string>

#include "base/result.h"

namespace copse::chat {

struct Failure {
  Error error;
};

// "line 3: ..." about the template itself.
[[noreturn]] inline void fail_template(ErrorCode code, int line, const std::string& what) {
  throw Failure{{code, "chat_template", "line " + std::to_string(line) + ": " + what}};
}

}  // namespace copse::chat
