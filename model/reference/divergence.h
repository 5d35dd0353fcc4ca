// How far the next-token distributions of two engines diverge. All in double. A NaN or +infinity in
// either row is an infinite divergence, so that no comparison passes by accident.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline reference {

// log(softmax(logits)). A logit of -infinity is a probability of 0.
std::vector<double> LogSoftmax(std::span<const float> logits);

// KL(P || Q) = sum P log(P / Q) in nats, for the softmaxes of two rows of equal length. Never below
// 0.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

// The lowest index of the greatest logit, which greedy sampling takes.
TokenId Top1(std::span<const float> logits);

struct Divergence {
  size_t rows = 0;
  double mean_kl = 0;
  double max_kl = 0;
  double median_kl = 0;  // which a few rows whose routers chose otherwise do not move; of an even
                         // number the mean of the middle two
  size_t max_kl_row = 0;
  double top1_agreement = 0;   // share of rows whose Top1 is the same in both
  double max_logit_error = 0;  // largest |p - q| over all logits; +infinity if one is NaN
};

// `truth` and `other`: [rows][vocab], with at least one row.
Divergence CompareLogits(std::span<const float> truth, std::span<const float> other, size_t vocab);

}  // namespace larder::model::reference
