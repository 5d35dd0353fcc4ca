// Vectors and relevance: the answers of /v1/embeddings, /embedding, /api/embed and /v1/rerank.
#include <sodium.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

std::vector<float> InForm(std::vector<float> vector, const EmbeddingForm& form) {
  if (form.dimensions > 0 && form.dimensions < vector.size()) vector.resize(form.dimensions);
  if (!form.normalize) return vector;
  double sum = 0;
  for (const float value : vector) sum += double{value} * double{value};
  const double scale = sum > 0 ? 1 / std::sqrt(sum) : 0;
  for (float& value : vector) value = static_cast<float>(double{value} * scale);
  return vector;
}

json Written(const std::vector<float>& vector, bool base64) {
  if (!base64) return vector;
  const size_t bytes = vector.size() * sizeof(float);
  std::string text(sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(vector.data()),
                    bytes, sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the terminating zero
  return text;
}

class EmbeddingEncoder : public ReplyEncoder {
 public:
  explicit EmbeddingEncoder(ReplyFacts facts) : facts_(std::move(facts)) {}

  json Whole(const std::vector<ChoiceResult>& results) const override {
    switch (facts_.dialect) {
      case Dialect::kRerank:
        return Ranks(results);
      case Dialect::kNativeEmbedding: {
        json all = json::array();
        for (size_t i = 0; i < results.size(); ++i)
          all.push_back({{"index", i}, {"embedding", json::array({VectorOf(results[i])})}});
        return all;
      }
      case Dialect::kOllamaEmbedding:
        return {{"embedding", VectorOf(results[0])}};
      case Dialect::kOllamaEmbed: {
        json vectors = json::array();
        int64_t ns = 0;
        for (const ChoiceResult& result : results) {
          vectors.push_back(VectorOf(result));
          ns = std::max(ns, result.end.stats.total_ns);
        }
        return {{"model", facts_.model},
                {"embeddings", vectors},
                {"total_duration", ns},
                {"load_duration", 0},
                {"prompt_eval_count", UsageOf(results).prompt}};
      }
      default:
        break;
    }
    json data = json::array();
    for (size_t i = 0; i < results.size(); ++i)
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", VectorOf(results[i])}});
    return {
        {"object", "list"}, {"data", data}, {"model", facts_.model}, {"usage", Tokens(results)}};
  }

  // These dialects have no streams.
  void Delta(size_t, const AnswerDelta&, const std::vector<TokenLogprobs>*, size_t,
             const ChoiceResult&) override {}
  void End(size_t, const ChoiceResult&) override {}
  void Failed(int, const std::string&) override {}

 private:
  static json Tokens(const std::vector<ChoiceResult>& results) {
    const size_t tokens = UsageOf(results).prompt;
    return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  }

  json VectorOf(const ChoiceResult& result) const {
    return Written(InForm(result.end.embedding, facts_.embedding), facts_.embedding.base64);
  }

  json Ranks(const std::vector<ChoiceResult>& results) const {
    std::vector<float> scores;
    scores.reserve(results.size());
    for (const ChoiceResult& result : results)
      scores.push_back(facts_.rank_head->Score(result.end.embedding));
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), facts_.embedding.top_n));
    const bool listed = facts_.embedding.listed;
    json ranks = json::array();
    for (const size_t i : order) {
      json one = {{"index", i}, {listed ? "score" : "relevance_score", scores[i]}};
      if (!facts_.embedding.documents.empty()) {
        const std::string& text = facts_.embedding.documents[i];
        one.update(listed ? json{{"text", text}} : json{{"document", {{"text", text}}}});
      }
      ranks.push_back(std::move(one));
    }
    if (listed) return ranks;
    return {{"object", "list"},
            {"model", facts_.model},
            {"results", ranks},
            {"usage", Tokens(results)}};
  }

  const ReplyFacts facts_;
};

}  // namespace

std::unique_ptr<ReplyEncoder> MakeEmbeddingEncoder(ReplyFacts facts) {
  return std::make_unique<EmbeddingEncoder>(std::move(facts));
}

}  // namespace larder::serving::reply
