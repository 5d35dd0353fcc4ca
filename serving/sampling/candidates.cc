#include "serving/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "base/memory.h"
#include "serving/sampling/exact_math.h"

namespace larder::serving::inline sampling {
namespace {

// the logit of a banned token
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// Four floats that the compiler computes side by side, on any processor: GCC 12 makes scalars of
// the same loops over arrays. A choice of 128,256 tokens takes 45 us instead of 84 (family 6 model
// 167).
constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
Lanes LanesAt(const float* at) {
  Lanes lanes;
  std::memcpy(&lanes, at, sizeof lanes);
  return lanes;
}

// A strict total order: the likelier token first, then the lower id.
// An object, so that sorts have it inline.
constexpr auto Before = [](const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
};

// Sorts only as much of the list as it takes until `enough`, which sees one candidate after another
// in order, returns true: usually a few tokens of a large vocabulary have most of the probability.
// Only these are kept.
template <typename Order, typename Enough>
void KeepUntil(std::vector<Candidate>& list, const Order& before, const Enough& enough) {
  size_t sorted = 0;
  for (size_t step = 64; sorted < list.size(); step *= 4) {
    const size_t end = std::min(list.size(), sorted + step);
    const auto at = [&](size_t i) { return list.begin() + static_cast<ptrdiff_t>(i); };
    if (end < list.size()) std::nth_element(at(sorted), at(end), list.end(), before);
    std::sort(at(sorted), at(end), before);
    for (; sorted < end; ++sorted) {
      if (enough(list[sorted], sorted + 1)) {
        list.resize(sorted + 1);
        return;
      }
    }
  }
}

// Groups of tokens whose maxima bound the k-th largest logit from below. Four times as many as k:
// then little more than k logits reach the k-th largest of the maxima. A group is every n-th token,
// so that the maxima of all are vector operations.
size_t Groups(size_t vocab, size_t k) {
  constexpr size_t kUnit = 16;
  const size_t groups = RoundUp(4 * k, kUnit);
  return groups <= vocab / 2 ? groups : 0;
}

}  // namespace

float MaxOf(std::span<const float> logits) {
  constexpr size_t kSideBySide = 4;
  Lanes most[kSideBySide];
  for (Lanes& lanes : most) lanes = Lanes{} + kImpossible;
  size_t i = 0;
  for (; i + kSideBySide * kLanes <= logits.size(); i += kSideBySide * kLanes) {
    for (size_t j = 0; j < kSideBySide; ++j) {
      const Lanes next = LanesAt(&logits[i + j * kLanes]);
      most[j] = next > most[j] ? next : most[j];
    }
  }
  float max = kImpossible;
  for (const Lanes& lanes : most) {
    for (size_t j = 0; j < kLanes; ++j) max = std::max(max, lanes[j]);
  }
  for (; i < logits.size(); ++i) max = std::max(max, logits[i]);
  return max;
}

void Candidates::Reserve(size_t vocab, int top_k) {
  const size_t k = top_k > 0 ? std::min(vocab, static_cast<size_t>(top_k)) : vocab;
  list_.reserve(std::min(vocab, 2 * k));
  maxima_.reserve(Groups(vocab, k));
}

float Candidates::LeastOfTopK(std::span<const float> logits, size_t k, float& largest) {
  const size_t groups = Groups(logits.size(), k);
  if (groups == 0) {
    largest = MaxOf(logits);
    return kImpossible;
  }
  maxima_.assign(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(groups));
  const auto raise = [&](size_t begin, size_t count) {
    for (size_t j = 0; j < count; ++j)
      maxima_[j] = logits[begin + j] > maxima_[j] ? logits[begin + j] : maxima_[j];
  };
  size_t i = groups;
  for (; i + groups <= logits.size(); i += groups) raise(i, groups);
  raise(i, logits.size() - i);
  const auto kth = maxima_.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(maxima_.begin(), kth, maxima_.end(), std::greater<>());
  largest = *std::max_element(maxima_.begin(), kth + 1);
  return *kth;
}

// Two passes over the vocabulary: the first finds a bound below which none of the top k is, the
// second collects what reaches it, soon nothing at all. The buffer holds up to 2k of them; when it
// is full the best k stay. An id later in the pass never beats an equal logit.
float Candidates::Collect(std::span<const float> logits, int top_k) {
  list_.clear();
  const size_t vocab = logits.size();
  const bool few = top_k > 0 && static_cast<size_t>(top_k) < vocab;
  const size_t k = few ? static_cast<size_t>(top_k) : vocab;
  const size_t capacity = std::min(2 * k, vocab);
  float largest = kImpossible;
  // Equal to the bound is enough.
  float threshold = std::nextafter(LeastOfTopK(logits, k, largest), kImpossible);
  const auto cut = [&] {
    if (list_.size() <= k) return;
    const auto last = list_.begin() + static_cast<ptrdiff_t>(k - 1);
    std::nth_element(list_.begin(), last, list_.end(), Before);
    threshold = last->logit;
    list_.resize(k);
  };
  const auto look = [&](size_t i) {
    if (!(logits[i] > threshold)) return;
    if (list_.size() == capacity) {
      cut();
      if (!(logits[i] > threshold)) return;
    }
    list_.push_back({logits[i], static_cast<TokenId>(i), 0});
  };
  // Few blocks have one of the top k.
  constexpr size_t kBlock = 4 * kLanes;
  const auto any = [&](size_t i) {
    const Lanes least = Lanes{} + threshold;
    const auto above = [&](size_t j) { return LanesAt(&logits[i + j * kLanes]) > least; };
    const auto mask = (above(0) | above(1)) | (above(2) | above(3));
    std::array<uint64_t, 2> halves;
    std::memcpy(halves.data(), &mask, sizeof halves);
    return (halves[0] | halves[1]) != 0;
  };
  size_t i = 0;
  for (; i + kBlock <= vocab; i += kBlock) {
    if (!any(i)) continue;
    for (size_t j = i; j < i + kBlock; ++j) look(j);
  }
  for (; i < vocab; ++i) look(i);
  // Few too many are dropped one by one: what stays is in order of id, as it was found.
  constexpr size_t kFew = 16;
  if (list_.size() <= k + kFew) {
    while (list_.size() > k) list_.erase(std::max_element(list_.begin(), list_.end(), Before));
  }
  cut();
  return largest;
}

void Candidates::CollectTopNSigma(std::span<const float> logits, double n) {
  // Eight sums side by side, which the compiler turns into vectors; -infinity counts as no token.
  constexpr size_t kSums = 8;
  std::array<double, kSums> sums{}, counts{}, squares{};
  const auto each = [&](const auto& add) {
    for (size_t i = 0; i + kSums <= logits.size(); i += kSums) {
      for (size_t j = 0; j < kSums; ++j) add(j, logits[i + j]);
    }
    for (size_t i = logits.size() / kSums * kSums; i < logits.size(); ++i) add(0, logits[i]);
  };
  const auto total = [](const std::array<double, kSums>& lanes) {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  };
  each([&](size_t lane, float logit) {
    const bool possible = logit > kImpossible;
    sums[lane] += possible ? static_cast<double>(logit) : 0.0;
    counts[lane] += possible ? 1.0 : 0.0;
  });
  const double count = std::max(1.0, total(counts)), mean = total(sums) / count;
  each([&](size_t lane, float logit) {
    const double off = logit > kImpossible ? static_cast<double>(logit) - mean : 0.0;
    squares[lane] += off * off;
  });
  const double least = static_cast<double>(MaxOf(logits)) - n * std::sqrt(total(squares) / count);
  list_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kImpossible && static_cast<double>(logits[i]) >= least)
      list_.push_back({logits[i], static_cast<TokenId>(i), 0});
  }
}

void Candidates::SortById() {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (!std::is_sorted(list_.begin(), list_.end(), by_id))
    std::sort(list_.begin(), list_.end(), by_id);
}

double Candidates::Weigh(double max, double temperature) {
  double sum = 0;
  for (Candidate& c : list_)
    sum += c.weight = ExpOfNegative((static_cast<double>(c.logit) - max) / temperature);
  return sum;
}

void Candidates::KeepTopP(double mass, size_t min_keep) {
  double sum = 0;
  KeepUntil(list_, Before, [&](const Candidate& c, size_t count) {
    sum += c.weight;
    return sum >= mass && count >= min_keep;
  });
}

TokenId Candidates::Draw(double at) const {
  for (const Candidate& c : list_) {
    if (at < c.weight) return c.id;
    at -= c.weight;
  }
  return list_.back().id;  // by rounding, `at` is still positive after the last candidate
}

TokenId Candidates::best() const {
  return std::min_element(list_.begin(), list_.end(), Before)->id;
}

// --- The steps of a chain.

double Candidates::WeighChain() {
  float max = kImpossible;
  for (const Candidate& c : list_) max = std::max(max, c.logit);
  return Weigh(max, temperature_);
}

void Candidates::TopK(size_t k) {
  if (list_.size() <= k) return;
  std::nth_element(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(k), list_.end(), Before);
  list_.resize(k);
  SortById();
}

// The deviation does not depend on the temperature's unit: all logits are divided by it.
void Candidates::TopNSigma(double n) {
  if (list_.size() <= 1) return;
  double max = kImpossible, sum = 0, squares = 0;
  for (const Candidate& c : list_) {
    max = std::max(max, static_cast<double>(c.logit));
    sum += static_cast<double>(c.logit);
  }
  const auto count = static_cast<double>(list_.size());
  const double mean = sum / count;
  for (const Candidate& c : list_) {
    const double off = static_cast<double>(c.logit) - mean;
    squares += off * off;
  }
  const double least = max - n * std::sqrt(squares / count);
  EraseIf([&](const Candidate& c) { return static_cast<double>(c.logit) < least; });
}

// With x = (logit - max) / temperature and S the sum of all e^x, a token's information is ln S - x
// and the entropy, its expectation, is ln S - E[x]: they differ by |x - E[x]|, which needs no
// logarithm.
void Candidates::TypicalP(double mass, size_t min_keep) {
  const double sum = WeighChain();
  double expected = 0;
  for (const Candidate& c : list_)
    expected += c.weight * (static_cast<double>(c.logit) / temperature_);
  expected /= sum;
  const auto off = [&](const Candidate& c) {
    return std::abs(static_cast<double>(c.logit) / temperature_ - expected);
  };
  const auto before = [&](const Candidate& a, const Candidate& b) {
    const double of_a = off(a), of_b = off(b);
    return of_a < of_b || (of_a == of_b && Before(a, b));
  };
  double reached = 0;
  KeepUntil(list_, before, [&](const Candidate& c, size_t count) {
    reached += c.weight;
    return reached > mass * sum && count >= min_keep;
  });
  SortById();
}

void Candidates::TopP(double share, size_t min_keep) {
  KeepTopP(share * WeighChain(), min_keep);
  SortById();
}

void Candidates::MinP(double share, size_t min_keep) {
  WeighChain();
  const auto likely = [&](const Candidate& c) { return c.weight >= share; };
  if (static_cast<size_t>(std::count_if(list_.begin(), list_.end(), likely)) < min_keep)
    return TopK(min_keep);
  EraseIf([&](const Candidate& c) { return !likely(c); });
}

void Candidates::Xtc(double threshold, size_t min_keep) {
  const double least = threshold * WeighChain();
  size_t likely = 0;
  const Candidate* last = nullptr;  // the least likely of these
  for (const Candidate& c : list_) {
    if (c.weight < least) continue;
    ++likely;
    if (last == nullptr || Before(*last, c)) last = &c;
  }
  if (likely < 2 || list_.size() - (likely - 1) < min_keep) return;
  const TokenId stays = last->id;
  EraseIf([&](const Candidate& c) { return c.weight >= least && c.id != stays; });
}

void Candidates::Temperature(double temperature) {
  if (temperature <= 0) return TopK(1);
  temperature_ *= temperature;
}

void Candidates::DynamicTemperature(double from, double to, double exponent) {
  if (list_.size() <= 1) return;
  const double sum = WeighChain();
  double max = kImpossible, expected = 0;
  for (const Candidate& c : list_) max = std::max(max, static_cast<double>(c.logit));
  for (const Candidate& c : list_)
    expected += c.weight * ((static_cast<double>(c.logit) - max) / temperature_);
  const double entropy = Log(sum) - expected / sum;
  const double share = std::clamp(entropy / Log(static_cast<double>(list_.size())), 0.0, 1.0);
  double power = exponent == 0 ? 1 : 0;
  if (share > 0) power = ExpOfNegative(std::min(0.0, exponent * Log(share)));
  Temperature(from + (to - from) * power);
}

// Algorithm 1: the exponent of Zipf's law is estimated from the 100 likeliest, and k follows from
// it.
void Candidates::Mirostat1(double mu, size_t vocab) {
  constexpr size_t kMost = 100;
  const size_t likeliest = std::min(kMost, list_.size());
  std::partial_sort(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(likeliest), list_.end(),
                    Before);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < likeliest; ++i) {
    const double t = Log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b =
        (static_cast<double>(list_[i].logit) - static_cast<double>(list_[i + 1].logit)) /
        temperature_;
    products += t * b;
    squares += t * t;
  }
  double log_k = mu * kLn2;  // where all are equally likely and the formula has no value
  if (const double s = squares > 0 ? products / squares : 0; s > 0) {
    const double epsilon = s - 1, log_n = Log(static_cast<double>(vocab));
    // (1 - n^-epsilon) / epsilon, which is ln n where epsilon is 0.
    const double divisor = std::abs(epsilon) < 1e-9 ? log_n : (1 - Exp(-epsilon * log_n)) / epsilon;
    log_k = (log_k - Log(divisor)) / s;
  }
  const double k = std::clamp(Exp(log_k), 1.0, static_cast<double>(list_.size()));
  TopK(static_cast<size_t>(k));
  SortById();
}

// Algorithm 2. -log2 of the probability is at most mu if x >= ln S - mu ln 2.
void Candidates::Mirostat2(double mu) {
  const double sum = WeighChain();
  double max = kImpossible;
  for (const Candidate& c : list_) max = std::max(max, static_cast<double>(c.logit));
  const double least = Log(sum) - mu * kLn2;
  if (least > 0) return TopK(1);
  EraseIf([&](const Candidate& c) {
    return (static_cast<double>(c.logit) - max) / temperature_ < least;
  });
}

void Candidates::Change(TokenId id, const std::function<float(float)>& change) {
  const auto at =
      std::lower_bound(list_.begin(), list_.end(), id,
                       [](const Candidate& c, TokenId wanted) { return c.id < wanted; });
  if (at == list_.end() || at->id != id) return;
  const auto unit = static_cast<float>(temperature_);
  at->logit = change(at->logit / unit) * unit;
}

TokenId Candidates::DrawFromChain(double uniform, double* surprise_bits) {
  const double sum = WeighChain();
  const TokenId token = Draw(uniform * sum);
  if (surprise_bits != nullptr) {
    const auto at =
        std::find_if(list_.begin(), list_.end(), [&](const Candidate& c) { return c.id == token; });
    *surprise_bits = at->weight > 0 ? Log(sum / at->weight) / kLn2 : 1024;
  }
  return token;
}

}  // namespace larder::serving::sampling
