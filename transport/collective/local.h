#pragma once
// The collective of a group of one rank: every sum is the value itself.
#include <memory>

#include "transport/collective/collective.h"

namespace copse {

// Calls succeed until abort(); afterwards they return Error{aborted}, as those of any group do.
std::unique_ptr<Collective> make_local_collective();

}  // namespace copse
