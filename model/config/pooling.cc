#include "model/config/pooling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace larder::model::inline config {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "mean", "cls", "last", "rank"};
constexpr std::string_view kWeights = "cls.output.weight", kBias = "cls.output.bias";

}  // namespace

Pooling ReadPooling(const GgufFile& file) {
  const std::string key = std::string(file.GetString("general.architecture")) + ".pooling_type";
  const uint64_t number = file.FindUnsigned(key).value_or(0);
  if (number >= kNames.size()) {
    throw Error("{}: key '{}' is {}, expected 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)",
                file.path(), key, number);
  }
  return static_cast<Pooling>(number);
}

std::optional<Pooling> PoolingByName(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) return std::nullopt;
  return static_cast<Pooling>(at - kNames.begin());
}

std::string_view PoolingName(Pooling pooling) { return kNames.at(static_cast<size_t>(pooling)); }

float RankHead::Score(std::span<const float> hidden) const {
  LARDER_CHECK(hidden.size() == dim && outputs > 0);
  std::vector<double> logits(outputs);
  for (size_t k = 0; k < outputs; ++k) {
    double sum = bias.empty() ? 0 : static_cast<double>(bias[k]);
    for (size_t i = 0; i < dim; ++i) sum += double{weights[k * dim + i]} * double{hidden[i]};
    logits[k] = sum;
  }
  if (outputs == 1) return static_cast<float>(logits[0]);
  const double most = *std::max_element(logits.begin(), logits.end());
  double all = 0;
  for (const double logit : logits) all += std::exp(logit - most);
  return static_cast<float>(std::exp(logits[0] - most) / all);
}

std::shared_ptr<const RankHead> ReadRankHead(const GgufFile& file, size_t dim) {
  const TensorInfo* weights = file.FindTensor(kWeights);
  if (weights == nullptr) return nullptr;
  constexpr size_t kMostOutputs = 1024;
  if (weights->cols != dim || weights->rows == 0 || weights->rows > kMostOutputs) {
    throw Error("{}: tensor '{}' is {} x {}, expected 1 to {} rows of {}", file.path(), kWeights,
                weights->rows, weights->cols, kMostOutputs, dim);
  }
  auto head = std::make_shared<RankHead>();
  head->outputs = weights->rows;
  head->dim = dim;
  head->weights.resize(weights->rows * dim);
  file.ReadRowsF32(*weights, 0, weights->rows, head->weights.data());
  if (const TensorInfo* bias = file.FindTensor(kBias)) {
    if (bias->rows * bias->cols != head->outputs)
      throw Error("{}: tensor '{}' has {} values, expected {}", file.path(), kBias,
                  bias->rows * bias->cols, head->outputs);
    head->bias.resize(head->outputs);
    file.ReadRowsF32(*bias, 0, bias->rows, head->bias.data());
  }
  return head;
}

}  // namespace larder::model::config
