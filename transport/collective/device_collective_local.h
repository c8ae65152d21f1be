#pragma once
// The device collective of a group of one rank: every sum is the value itself.
#include <memory>

#include "transport/collective/device_collective.h"

namespace copse {

// Calls succeed until abort(); afterwards they return Error{aborted}, as those of any group do.
std::unique_ptr<DeviceCollective> make_local_device_collective();

}  // namespace copse
