#pragma once
// Arithmetic and comparison as in Python.
#include <string_view>

#include "model/chat_template/builtins.h"

namespace copse::chat {

// + - * / // % ** ~
Value apply_binary(CallSite site, std::string_view name, const Value& left, const Value& right);
// == != < <= > >= in, and "not in"
Value compare_values(CallSite site, std::string_view name, const Value& left, const Value& right);
// + -
Value apply_sign(CallSite site, std::string_view name, const Value& value);

// value[index] and value[start:stop:step]; null bounds are left out.
Value item_of(CallSite site, const Value& value, const Value& index);
Value slice_of(CallSite site, const Value& value, const Value* start, const Value* stop,
               const Value* step);

}  // namespace copse::chat
