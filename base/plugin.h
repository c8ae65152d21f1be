#pragma once
// Code that only some machines can run (CUDA) stands in a shared library beside the programs and is
// opened when it is asked for, so that nobody else needs what it links.
#include <string>

#include "base/result.h"

namespace copse {

// Address of `symbol` in `library`, a file name beside the running program. The library stays open.
// Errors: not_found where there is no such file, unsupported where it cannot be loaded (a library
// that it needs is missing: the message names it) or lacks the symbol.
Result<void*> plugin_symbol(const std::string& library, const std::string& symbol);

}  // namespace copse
