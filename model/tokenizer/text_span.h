#pragma once
// Text with its origin. A special token is recognised only in text that the template wrote: what a
// user typed stays text, even where it spells a special token.
#include <cstdint>
#include <string>

namespace copse {

enum class TextOrigin : std::uint8_t {
  from_template,  // written by the model's own template, or by the operator
  from_data,      // came in with a request
};

struct TextSpan {
  std::string text;
  TextOrigin origin = TextOrigin::from_data;
};

}  // namespace copse
