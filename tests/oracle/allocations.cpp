#include "tests/oracle/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// In a file of their own: where the compiler can inline one of them it takes the pair for
// mismatched.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace copse::oracle {

std::int64_t allocation_count() {
  return allocations;
}

}  // namespace copse::oracle
