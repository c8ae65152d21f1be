#pragma once
// Small tokenizer.json documents for tests.
#include <string>

#include "base/json.h"
#include "model/tokenizer/byte_level.h"

namespace copse {

// All 256 bytes (id = byte), "ab" 256, "aba" 257, "<s>" 300 and "<think>" 301 (not special).
inline Json small_tokenizer_json() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[byte_symbol(static_cast<unsigned char>(byte))] = byte;
  }
  vocab["ab"] = 256;
  vocab["aba"] = 257;
  return {
      {"added_tokens",
       {{{"id", 300}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
        {{"id", 301}, {"content", "<think>"}, {"special", false}, {"normalized", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", {{"type", "ByteLevel"}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab a"}}}}};
}

}  // namespace copse
