#pragma once
// What one rendering may cost. Everything that runs or copies pays first.
#include <cstddef>

#include "base/limits.h"
#include "model/chat_template/failure.h"
#include "model/chat_template/text.h"

namespace copse::chat {

class Budget {
 public:
  void spend(std::size_t steps, int line) {
    used_ += steps;
    if (used_ > limits::template_steps) {
      fail_template(ErrorCode::resource_exhausted, line, "the template takes too many steps");
    }
  }

  // A copy of so many bytes; a step is worth a cache line.
  void spend_bytes(std::size_t bytes, int line) {
    if (bytes > limits::template_output_bytes) {
      fail_template(ErrorCode::resource_exhausted, line, "a string becomes too long");
    }
    spend(1 + bytes / 64, line);
  }

  void spend_text(const Text& text, int line) {
    spend_bytes(text.size(), line);
    spend(text.span_count() / 4, line);
  }

 private:
  std::size_t used_ = 0;
};

}  // namespace copse::chat
