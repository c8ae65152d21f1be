#include "transport/collective/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace copse {

// Never FUTEX_PRIVATE_FLAG: the waiters are processes that share no address space.
void futex_wait(FutexWord& word, std::uint32_t expected, Duration timeout) noexcept {
  const std::int64_t ns = timeout.count() > 0 ? timeout.count() : 0;
  timespec limit{};
  limit.tv_sec = ns / 1'000'000'000;
  limit.tv_nsec = ns % 1'000'000'000;
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake_all(FutexWord& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace copse
