#include "model/kv_cache.h"

namespace copse {
namespace {

std::size_t size(int count) {
  CHECK(count >= 0);
  return static_cast<std::size_t>(count);
}

// Not cleared: a row is written before it is read, and untouched pages cost no memory.
std::unique_ptr<float[]> allocate(std::size_t floats) {
  return std::make_unique_for_overwrite<float[]>(floats);
}

std::span<float> part(const std::unique_ptr<float[]>& data, std::size_t count, int index) {
  return {data.get() + size(index) * count, count};
}

}  // namespace

LatentCache::LatentCache(const Shape& shape) : shape_(shape) {
  const std::size_t width = size(shape.width);
  page_floats_ = size(shape.layers) * size(shape.pages) * limits::page_tokens * width;
  scratch_floats_ = size(shape.layers) * size(shape.slots) * size(shape.scratch_rows) * width;
  page_data_ = allocate(page_floats_);
  scratch_data_ = allocate(scratch_floats_);
}

std::span<float> LatentCache::pages(int layer) {
  CHECK(layer >= 0 && layer < shape_.layers);
  return part(page_data_, page_floats_ / size(shape_.layers), layer);
}

std::span<const float> LatentCache::pages(int layer) const {
  return const_cast<LatentCache*>(this)->pages(layer);
}

std::span<float> LatentCache::scratch(int layer) {
  CHECK(layer >= 0 && layer < shape_.layers);
  return part(scratch_data_, scratch_floats_ / size(shape_.layers), layer);
}

std::span<const float> LatentCache::scratch(int layer) const {
  return const_cast<LatentCache*>(this)->scratch(layer);
}

std::span<float> LatentCache::scratch(int layer, int slot) {
  CHECK(slot >= 0 && slot < shape_.slots);
  const std::size_t count = size(shape_.scratch_rows) * size(shape_.width);
  return scratch(layer).subspan(size(slot) * count, count);
}

std::span<float> LatentCache::page_row(int layer, PageId page, int row) {
  CHECK(page >= 0 && page < shape_.pages && row >= 0 && row < limits::page_tokens);
  const std::size_t index = size(page) * limits::page_tokens + size(row);
  return pages(layer).subspan(index * size(shape_.width), size(shape_.width));
}

std::span<float> LatentCache::scratch_row(int layer, int slot, int row) {
  CHECK(row >= 0 && row < shape_.scratch_rows);
  return scratch(layer, slot).subspan(size(row) * size(shape_.width), size(shape_.width));
}

DraftCache::DraftCache(const Shape& shape) : shape_(shape) {
  floats_ = size(shape.layers) * size(shape.pages) * limits::page_tokens * size(shape.kv_heads) *
            size(shape.head_dim);
  keys_ = allocate(floats_);
  values_ = allocate(floats_);
}

std::span<float> DraftCache::keys(int layer) {
  CHECK(layer >= 0 && layer < shape_.layers);
  return part(keys_, floats_ / size(shape_.layers), layer);
}

std::span<const float> DraftCache::keys(int layer) const {
  return const_cast<DraftCache*>(this)->keys(layer);
}

std::span<float> DraftCache::values(int layer) {
  CHECK(layer >= 0 && layer < shape_.layers);
  return part(values_, floats_ / size(shape_.layers), layer);
}

std::span<const float> DraftCache::values(int layer) const {
  return const_cast<DraftCache*>(this)->values(layer);
}

}  // namespace copse
