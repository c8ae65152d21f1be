#pragma once
// Boost.Asio 1.74's coroutine support uses std::exchange without including <utility>.
#include <utility>
// After <utility>:
#include <boost/asio.hpp>
