#include "pipeline/stage/exchange.h"

namespace larder::pipeline::inline stage {

ExchangeShape::ExchangeShape(const model::ModelConfig& config, size_t rows, size_t weight_threads,
                             size_t thread_heads, const std::vector<size_t>& attention_groups)
    : thread_heads_(thread_heads) {
  size_t flags = weight_threads * thread_heads;
  for (const size_t n : attention_groups) {
    first_attended_.push_back(flags);
    flags += n;
  }
  half_flags_ = flags;
  qkv_stride_ = weight_node::QkvStride(config);
  attn_stride_ = weight_node::AttnStride(config);
  qkv_offset_ = RoundUp(flag_bytes(), kPageBytes);
  attn_offset_ = qkv_offset_ + RoundUp(rows * qkv_stride_ * sizeof(float), kPageBytes);
  bytes_ = attn_offset_ + RoundUp(rows * attn_stride_ * sizeof(float), kPageBytes);
}

const char* FrameMessage::WrongHalves(size_t max_batch_tokens) const {
  if (halves != 1 && halves != kHalves) return "a frame of an impossible number of halves";
  size_t rows = 0;
  for (size_t h = 0; h < halves; ++h) {
    const Half& of = half[h];
    if (of.rows > max_batch_tokens - rows || of.first_row > max_batch_tokens - of.rows ||
        of.kept > of.rows || of.first_kept > max_batch_tokens - of.kept)
      return "a frame of more rows than there is room for";
    rows += of.rows;
  }
  return nullptr;
}

}  // namespace larder::pipeline::stage
