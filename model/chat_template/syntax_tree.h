#pragma once
// A template after parsing. Heights are bounded by the parser, so that walking and freeing the
// tree by recursion is safe.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/chat_template/value.h"

namespace copse::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  literal,      // value
  name,         // name
  list,         // operands
  dict,         // operands: key, value, key, value ...
  unary,        // name is the operator: - + not
  binary,       // name is the operator: + - * / // % ** ~ and or
  compare,      // operands compared in a chain by `operators`
  conditional,  // operands: then, condition, otherwise (may be absent)
  attribute,    // operands[0] . name
  item,         // operands[0] [ operands[1] ]
  slice,        // operands[0] [ operands[1] : operands[2] : operands[3] ], each may be null
  call,         // operands[0] ( operands[1...] , named )
  filter,       // operands[0] | name ( operands[1...] , named )
  test,         // operands[0] is name ( operands[1...] )
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 1;
  int height = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

enum class StatementKind : std::uint8_t {
  data,       // text
  output,     // value
  condition,  // branches; the last may have no condition
  loop,       // for targets in value if filter: body, else otherwise
  assign,     // targets (or target . attribute) = value
  capture,    // set target: body
  macro,      // name, parameters with defaults, body
  group,      // body alone
  break_loop,
  continue_loop,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 1;
  std::string text;  // of data; name of a macro; attribute that is assigned
  std::vector<std::string> targets;
  std::vector<ExpressionPtr> defaults;  // of a macro's parameters, null: none
  ExpressionPtr value;
  ExpressionPtr filter;
  Body body;
  Body otherwise;
  std::vector<Branch> branches;
};

}  // namespace copse::chat
