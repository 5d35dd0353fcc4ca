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

}  // namespace larder::pipeline::stage
