#pragma once

namespace copse {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace copse
