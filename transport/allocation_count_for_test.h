#pragma once
// Counts what operator new hands out in this test program: what a hostile message made us reserve.
#include <cstddef>

namespace copse {

// Bytes asked for by this thread so far, never less.
std::size_t allocated_bytes();

}  // namespace copse
