// Pooling: how a model that makes embeddings or relevance scores turns the hidden states of a text
// into one vector, as GGUF files say it (ARCHITECTURE.pooling_type, cls.output).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/gguf.h"

namespace larder::model::inline config {

// The numbers are GGUF's.
enum class Pooling : uint8_t {
  kNone = 0,  // the model generates text
  kMean = 1,  // the mean of all tokens' hidden states
  kCls = 2,   // the first token's
  kLast = 3,  // the last token's
  kRank = 4,  // the last token's, through RankHead
};

// Throws Error for a number that is none of these.
Pooling ReadPooling(const GgufFile&);
std::optional<Pooling> PoolingByName(std::string_view);  // none, mean, cls, last, rank
std::string_view PoolingName(Pooling);

// cls.output: hidden state [dim] to the logits of its classes, [outputs]. With one output that is
// the score; with more, the first one's probability is ("yes", of Qwen3-Reranker).
struct RankHead {
  size_t outputs = 0, dim = 0;
  std::vector<float> weights;  // [outputs][dim]
  std::vector<float> bias;     // [outputs], or empty

  float Score(std::span<const float> hidden) const;
};
inline constexpr std::string_view kRankHeadPrefix = "cls.output.";
// Null if the file has none. Throws Error if its tensors contradict each other or `dim`.
std::shared_ptr<const RankHead> ReadRankHead(const GgufFile&, size_t dim);

}  // namespace larder::model::config
