#pragma once
// CHECK(condition): a programmer's error ends the process, in release builds too; the supervisor
// then acts (a lost worker restarts its group). Nothing that comes from outside may reach one.

namespace copse {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace copse

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::copse::check_failed(#condition, __FILE__, __LINE__))
