#pragma once
// Every message, and values for it: what the tests of the codec and of the frames go through.
#include <concepts>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/random.h"
#include "transport/messages/codec.h"

namespace copse {

template <template <class...> class List>
using AllMessages =
    List<RegisterWorker, LoadProgress, WorkerReady, StepResult, WorkerHeartbeat, WorkerFailed,
         RegisterGateway, Submit, Cancel, GatewayHeartbeat, WorkerWelcome, StepPlan, Shutdown,
         GatewayWelcome, RequestRefused, Tokens, RequestFinished, EngineStatus>;

// Some value of any type that travels: integers of every width and sign, texts, arrays of up to
// `items` elements.
template <class T>
void fill(T& value, Random& random, std::size_t items) {
  if constexpr (std::same_as<T, bool>) {
    value = random.below(2) != 0;
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(random.below(codec::last_enumerator(T{}) + 1));
  } else if constexpr (std::floating_point<T>) {
    value = static_cast<T>(random.below(1000)) / 8;
  } else if constexpr (std::integral<T>) {
    value = static_cast<T>(random.next() >> random.below(64));
  } else if constexpr (std::same_as<T, std::string>) {
    value.assign(random.below(300), static_cast<char>('a' + random.below(26)));
  } else if constexpr (codec::IsBounded<T>::value) {
    value.resize(std::min(items, T::max_size()));
    for (auto& item : value) fill(item, random, items);
  } else {
    std::apply([&](const auto&... f) { (fill(value.*f.member, random, items), ...); }, T::fields());
  }
}

template <class Message>
Message filled(std::uint64_t seed, std::size_t items = 3) {
  SeededRandom random(seed);
  Message message;
  fill(message, random, items);
  return message;
}

}  // namespace copse
