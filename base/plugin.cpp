#include "base/plugin.h"

#include <dlfcn.h>

#include "base/process.h"

namespace copse {

Result<void*> plugin_symbol(const std::string& library, const std::string& symbol) {
  COPSE_TRY(const std::string path, program_beside_self(library));
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Error{ErrorCode::unsupported, library, why == nullptr ? "cannot be loaded" : why};
  }
  void* const address = dlsym(handle, symbol.c_str());
  if (address == nullptr) {
    return Error{ErrorCode::unsupported, library, "is of another build: it lacks " + symbol};
  }
  return address;
}

}  // namespace copse
