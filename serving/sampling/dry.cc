#include "serving/sampling/dry.h"

#include <algorithm>
#include <limits>

namespace larder::serving::inline sampling {
namespace {

// base^exponent, but at most `most`: by squaring, whose roundings are the same everywhere.
double Power(double base, size_t exponent, double most) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = std::min(result * base, most);
    base = std::min(base * base, most);
  }
  return result;
}

}  // namespace

Dry::Dry(const SamplingParams& params, const model::Tokenizer* tokenizer)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_(static_cast<size_t>(params.dry_allowed_length)),
      last_n_(params.dry_penalty_last_n < 0 ? SIZE_MAX / 4
                                            : static_cast<size_t>(params.dry_penalty_last_n)),
      breakers_(params.dry_sequence_breakers),
      tokenizer_(tokenizer) {
  for (const std::string& breaker : breakers_)
    longest_breaker_ = std::max(longest_breaker_, breaker.size());
}

bool Dry::Breaks(TokenId token) {
  if (tokenizer_ == nullptr || longest_breaker_ == 0) return false;
  if (token < 0 || static_cast<size_t>(token) >= tokenizer_->size()) return false;
  const size_t before = tail_.size();
  tail_ += tokenizer_->Piece(token, /*special=*/true);
  bool breaks = false;
  for (const std::string& breaker : breakers_) {
    // One that ends in the new text begins at most its length less one before it.
    const size_t from = before - std::min(before, breaker.size() - 1);
    breaks |= tail_.find(breaker, from) != std::string::npos;
  }
  if (tail_.size() >= longest_breaker_) tail_.erase(0, tail_.size() - (longest_breaker_ - 1));
  return breaks;
}

void Dry::Accept(TokenId token) {
  if (tokens_.size() >= 2 * last_n_)
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<ptrdiff_t>(last_n_));
  tokens_.push_back(token);
  unbroken_ = Breaks(token) ? 0 : unbroken_ + 1;
}

// lengths_[k]: how many of the last tokens, backwards, equal those that end k tokens earlier (the Z
// algorithm over the reversed sequence, which takes linear time), but at most `unbroken`. If n do,
// the token behind the earlier ones would continue a repetition of n.
const std::vector<std::pair<TokenId, float>>& Dry::Find() {
  found_.clear();
  const size_t count = std::min(tokens_.size(), last_n_);
  const size_t most = std::min(unbroken_, count);
  if (count <= allowed_ || most < allowed_) return found_;
  const TokenId* const last = tokens_.data() + tokens_.size() - 1;
  const auto back = [&](size_t i) { return *(last - i); };
  lengths_.assign(count, 0);
  size_t left = 0, right = 0;  // back(left..right) equals back(0..right - left); right is exclusive
  for (size_t k = 1; k < count; ++k) {
    size_t n = 0;
    if (k < right) n = std::min<size_t>(lengths_[k - left], right - k);
    if (k + n >= right || n == most) {
      while (n < most && k + n < count && back(n) == back(k + n)) ++n;
    }
    n = std::min(n, most);
    lengths_[k] = static_cast<uint32_t>(n);
    if (k + n > right) left = k, right = k + n;
    if (n >= allowed_) found_.emplace_back(back(k - 1), static_cast<float>(n));
  }
  // The longest repetition of each token counts.
  std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
  constexpr double kMost = 1e30;  // keeps float logits finite
  for (auto& [token, length] : found_) {
    const size_t n = static_cast<size_t>(length);
    length = static_cast<float>(std::min(kMost, multiplier_ * Power(base_, n - allowed_, kMost)));
  }
  return found_;
}

}  // namespace larder::serving::sampling
