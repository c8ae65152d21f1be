#pragma once
// Sleeping on a word that several processes map. The kernel's key is the page behind the mapping,
// so nothing has a name and nothing outlives its users. std::atomic::wait cannot do this: it waits
// on an address of this process, and has no timeout.
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace copse {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

// Returns when woken, at once if the word is not `expected`, after `timeout`, or for no reason.
void futex_wait(FutexWord& word, std::uint32_t expected, Duration timeout) noexcept;
void futex_wake_all(FutexWord& word) noexcept;

}  // namespace copse
