#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "base/limits.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/json_fields.h"

namespace copse {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// One symbol of the word being merged, linked to its living neighbours.
struct Symbol {
  TokenId id;  // -1 once it was merged into its left neighbour
  std::int32_t previous;
  std::int32_t next;  // -1 at the end
};

// A pair that could merge: its rank above the place of its left symbol, so that the smallest is the
// next to merge. A pair at a place is never followed there by another that makes the same token,
// for symbols only grow: the rank alone tells whether the pair still stands.
using Candidate = std::uint64_t;

Candidate candidate(std::int32_t rank, std::int32_t at) {
  return static_cast<Candidate>(rank) << 32 | static_cast<Candidate>(at);
}

Status refuse_other_kinds(const Json& model) {
  COPSE_TRY(const std::string type, json_string(model, "type", "model"));
  if (type != "BPE") return json_unsupported("model.type", type);
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_absent(model, key) && model[key] != "") {
      return json_unsupported(std::string("model.") + key, "a value");
    }
  }
  if (!json_absent(model, "dropout") && model["dropout"] != 0.0) {
    return json_unsupported("model.dropout", "a value");
  }
  COPSE_TRY(const bool fallback, json_bool(model, "byte_fallback", "model", false));
  if (fallback) return json_unsupported("model.byte_fallback", "true");
  return {};
}

// A merge is ["a", "b"], or "a b" in older files.
struct MergeText {
  std::string_view left;
  std::string_view right;
};

Result<MergeText> merge_text(const Json& merge, const std::string& key) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return MergeText{merge[0].get_ref<const std::string&>(),
                     merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return MergeText{text.substr(0, space), text.substr(space + 1)};
    }
  }
  return json_malformed(key, "a pair of tokens");
}

}  // namespace

Result<Bpe> Bpe::parse(const Json& model) {
  COPSE_RETURN_IF_ERROR(refuse_other_kinds(model));
  Bpe bpe;
  COPSE_TRY(const Ids ids, bpe.read_vocabulary(model));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(byte_symbol(static_cast<unsigned char>(byte)));
    if (found == ids.end()) {
      return json_malformed("model.vocab", "complete: byte " + std::to_string(byte) + " is absent");
    }
    bpe.byte_ids_[byte] = found->second;
  }
  COPSE_RETURN_IF_ERROR(bpe.read_merges(model, ids));
  COPSE_TRY(const bool ignore_merges, json_bool(model, "ignore_merges", "model", false));
  if (ignore_merges) {
    for (const auto& [entry, id] : ids) {
      // Entries outside the byte alphabet cannot be met in a text.
      std::string bytes = bytes_of_entry(entry);
      std::string spelled;
      for (const char c : bytes) spelled += byte_symbol(static_cast<unsigned char>(c));
      if (spelled == entry) bpe.whole_words_.emplace(std::move(bytes), id);
    }
  }
  return bpe;
}

Result<Bpe::Ids> Bpe::read_vocabulary(const Json& model) {
  COPSE_TRY(const Json* vocab, json_object(model, "vocab", "model"));
  Ids ids;
  ids.reserve(vocab->size());
  for (const auto& [entry, value] : vocab->items()) {
    const std::string key = "model.vocab['" + entry.substr(0, 64) + "']";
    if (!value.is_number_integer() || value < 0 || value >= limits::vocabulary) {
      return json_malformed(key, "an id below " + std::to_string(limits::vocabulary));
    }
    const auto id = value.get<TokenId>();
    const auto at = static_cast<std::size_t>(id);
    if (at >= entries_.size()) entries_.resize(at + 1);
    if (entries_[at].known) return json_malformed(key, "an id that no other token has");
    entries_[at] = {bytes_of_entry(entry), true};
    ids.emplace(entry, id);
  }
  return ids;
}

Status Bpe::read_merges(const Json& model, const Ids& ids) {
  COPSE_TRY(const Json* merges, json_array(model, "merges", "model"));
  if (merges->size() > static_cast<std::size_t>(limits::tokenizer_merges)) {
    return Error{ErrorCode::resource_exhausted, "model.merges", "too many"};
  }
  merges_.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const std::string key = "model.merges[" + std::to_string(i) + "]";
    COPSE_TRY(const MergeText text, merge_text((*merges)[i], key));
    const std::string joined = std::string(text.left) + std::string(text.right);
    const auto left = ids.find(text.left);
    const auto right = ids.find(text.right);
    const auto merged = ids.find(joined);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return json_malformed(key, "made of tokens of the vocabulary");
    }
    merges_.insert_or_assign(pair_key(left->second, right->second),
                             Merge{static_cast<std::int32_t>(i), merged->second});
  }
  return {};
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const auto size = static_cast<std::int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const TokenId id = byte_ids_[static_cast<unsigned char>(word[at])];
    symbols[at] = {id, i - 1, i + 1 < size ? i + 1 : -1};
  }
  std::vector<Candidate> heap;
  const auto consider = [&](std::int32_t at) {
    if (at < 0) return;
    const Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.next < 0) return;
    const Merge* merge = find(left.id, symbols[static_cast<std::size_t>(left.next)].id);
    if (merge == nullptr) return;
    heap.push_back(candidate(merge->rank, at));
  };
  for (std::int32_t i = 0; i < size; ++i) consider(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto at = static_cast<std::int32_t>(heap.back() & 0xFFFFFFFFu);
    const auto rank = static_cast<std::int32_t>(heap.back() >> 32);
    heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.id < 0 || left.next < 0) continue;  // merged away since it was considered
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    const Merge* merge = find(left.id, right.id);
    if (merge == nullptr || merge->rank != rank) continue;  // another pair stands here now
    left.id = merge->merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = at;
    for (const std::int32_t changed : {left.previous, at}) {
      const std::size_t before = heap.size();
      consider(changed);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (std::int32_t at = size > 0 ? 0 : -1; at >= 0;) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(at)];
    ids.push_back(symbol.id);
    at = symbol.next;
  }
}

}  // namespace copse
