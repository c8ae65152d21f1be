#pragma once
// Which cores a rank may use.
#include <vector>

namespace copse {

// Those that the calling thread may run on; empty if the kernel does not say.
std::vector<int> usable_cores();

// Gives the calling thread its rank's share of the cores: several, or one that ranks share. A
// kernel that refuses leaves the thread where it is: slower, not wrong.
void pin_rank(const std::vector<int>& cores, int rank, int world_size);

}  // namespace copse
