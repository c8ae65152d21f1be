#pragma once
// The step path may not allocate after `ready`: a program that links this counts every operator
// new.
#include <cstdint>

namespace copse::oracle {

std::int64_t allocation_count();

}  // namespace copse::oracle
