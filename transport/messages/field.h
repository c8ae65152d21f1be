#pragma once
// How a message struct lists its fields for the codec: in order, by name. On the wire a struct is
// an array with exactly these elements; the names appear only in errors.
#include <tuple>

namespace copse {

template <class Struct, class Member>
struct Field {
  const char* name;
  Member Struct::*member;
};

template <class Struct, class Member>
constexpr Field<Struct, Member> field(const char* name, Member Struct::*member) {
  return {name, member};
}

}  // namespace copse
