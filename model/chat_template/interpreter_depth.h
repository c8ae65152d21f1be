#pragma once
// One level of recursion of the interpreter: the machine stack must outlast the deepest template.
#include "model/chat_template/interpreter.h"

namespace copse::chat {

class Interpreter::Deeper {
 public:
  Deeper(Interpreter& interpreter, int line) : depth_(interpreter.depth_) {
    if (++depth_ > kDepthMax) {
      --depth_;
      fail_template(ErrorCode::resource_exhausted, line, "the template nests too deeply");
    }
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  // Each macro call takes several levels: its statements and the expressions around it.
  static constexpr int kDepthMax = 8 * limits::template_depth;
  int& depth_;
};

}  // namespace copse::chat
