// Candidates: the tokens that may still be chosen, and the steps that drop some of them. Owned by a
// Sampler, whose thread uses it. Scratch memory is allocated once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline sampling {

using model::TokenId;

struct Candidate {
  float logit;
  TokenId id;
  double weight;  // proportional to the probability, once weighed
};

// The largest logit; -infinity if there are none.
float MaxOf(std::span<const float> logits);

class Candidates {
 public:
  // Makes room for lists that begin with the top_k (0 or less: all) of a vocabulary.
  void Reserve(size_t vocab, int top_k);

  // The top_k likeliest of the vocabulary (0 or less: all that are possible) in no certain order;
  // of equals the lower ids. Returns the largest logit; -infinity if none is possible.
  float Collect(std::span<const float> logits, int top_k);
  // Collects TopNSigma of the vocabulary, in order of id.
  void CollectTopNSigma(std::span<const float> logits, double n);
  void SortById();

  // Weights are e^((logit - max) / temperature); returns their sum, in the list's order.
  double Weigh(double max, double temperature);
  // Keeps the shortest list, in order of probability, whose weights reach `mass`, but at least
  // `min_keep` tokens.
  void KeepTopP(double mass, size_t min_keep = 0);

  // The steps of a chain whose order is not the usual one. Each weighs what the step before it has
  // kept, at the temperature so far, and leaves the list in order of id. None of them drops the
  // last candidate.
  void TopK(size_t k);
  void TopNSigma(double n);
  void TypicalP(double mass, size_t min_keep);
  void TopP(double share, size_t min_keep);
  void MinP(double share, size_t min_keep);
  void Xtc(double threshold, size_t min_keep);
  // 0 or less: only the likeliest stays.
  void Temperature(double temperature);
  void DynamicTemperature(double from, double to, double exponent);
  // `mu` is the largest surprise, in bits, of what is kept.
  void Mirostat1(double mu, size_t vocab);
  void Mirostat2(double mu);
  // Starts a chain: the temperature is 1.
  void Begin() { temperature_ = 1; }
  // Changes the logit of a token, at the temperature so far, if it is still a candidate.
  void Change(TokenId, const std::function<float(float)>& change);

  // The token in whose share of the weights' sum `at` falls.
  TokenId Draw(double at) const;
  // The same at the temperature so far, with a number from [0, 1). surprise_bits: -log2 of its
  // probability.
  TokenId DrawFromChain(double uniform, double* surprise_bits = nullptr);

  size_t size() const { return list_.size(); }
  std::span<const Candidate> all() const { return list_; }
  TokenId best() const;  // the likeliest
  template <typename Condition>
  void EraseIf(const Condition& condition) {
    std::erase_if(list_, condition);
  }

 private:
  // A lower bound of the k largest logits (at worst -infinity), and the largest.
  float LeastOfTopK(std::span<const float> logits, size_t k, float& largest);
  double WeighChain();  // weighs at the current temperature, relative to the likeliest; returns the
                        // sum

  std::vector<Candidate> list_;
  std::vector<float> maxima_;  // for Collect: maxima of groups of tokens
  double temperature_ = 1;     // the product of the chain's temperatures so far
};

}  // namespace larder::serving::sampling
