// Sampler chooses the next token from logits; StopStrings decides how much of the text may be
// shown. There is one of each per request, owned by the thread that serves it. Scratch memory is
// allocated at construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"
#include "serving/sampling/candidates.h"
#include "serving/sampling/dry.h"
#include "serving/sampling/sampling_params.h"

namespace larder::serving::inline sampling {

// logit_bias bans every token: the request is wrong.
class EveryTokenIsBanned : public Error {
  using Error::Error;
};

// Applies in this order: bias, then the steps of params.samplers, by default penalties, DRY,
// top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, then the draw. A temperature of 0
// keeps the likeliest of what the steps before it have kept. With Mirostat only penalties, DRY and
// the temperature come before it. Of equal logits the lower id ranks first. The same seed,
// parameters and logits give the same tokens on every machine: the generator and its mapping to [0,
// 1) are fixed, and exponential and logarithm are our own. A draw consumes one random number,
// greedy sampling none, and XTC one more in each Sample().
class Sampler {
 public:
  // Throws Error as Validate. `tokenizer`, which outlives this, is needed for DRY's sequence
  // breakers only.
  Sampler(SamplingParams, size_t vocab, const model::Tokenizer* tokenizer = nullptr);

  // logits[vocab]. Throws Error if one is NaN or +infinity, EveryTokenIsBanned if all are
  // -infinity. `allowed`: a bit for each token that may be chosen (a grammar's mask), before all
  // else; empty: all may.
  TokenId Sample(std::span<const float> logits, std::span<const uint64_t> allowed = {});

  // Adds a token of the sequence: first those of the prompt, then each sampled one (penalties count
  // both).
  void Accept(TokenId);
  // How many of the last tokens matter: Accept needs only these of a long prompt. SIZE_MAX: all.
  size_t history() const { return history_; }

  // The distribution from which the last Sample() drew `token`: returns the token's probability,
  // and puts those of the `most` likeliest tokens, as far as above 0, into `likeliest`, largest
  // first.
  double Drawn(TokenId token, size_t most,
               std::vector<std::pair<TokenId, double>>& likeliest) const;

  const SamplingParams& params() const { return params_; }

 private:
  // The logits that the usual steps choose from: the given ones if nothing changes them, else
  // logits_.
  std::span<const float> Adjust(std::span<const float> logits, std::span<const uint64_t> allowed);
  void Penalize();
  // Changes a logit in logits_, or in the candidates once they are collected.
  void ChangeLogit(TokenId, const std::function<float(float)>& change);
  TokenId SampleByChain();  // sampler_chain.cc, like the following
  void Apply(SamplerStep);
  void PenalizeRepetitions();
  void Narrow();  // the chain goes on with candidates instead of logits_
  void ApplyTemperature();
  double NextUniform();
  [[noreturn]] static void ThrowNoToken();

  SamplingParams params_;
  bool usual_ = true;  // only bias, penalties, top-k, top-p, min-p and temperature, in this order
  size_t history_ = 0;
  std::vector<float> logits_;  // adjusted
  Candidates candidates_;
  bool narrowed_ = false;  // this Sample's candidates have been collected
  bool greedy_ = false;    // this Sample's temperature is 0: there was no draw
  double mirostat_mu_ = 0;
  std::optional<Dry> dry_;
  std::deque<TokenId> recent_;               // at most repeat_last_n
  std::unordered_map<TokenId, int> counts_;  // how often each token occurs in recent_
  std::mt19937_64 generator_;
};

// Takes pieces of text, and returns text that cannot be part of a stop string. The first stop
// string that is complete ends the text before its first byte (if two are complete at the same
// byte, the longer one). The result does not depend on how the text is cut into pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Error if one is empty

  std::string Add(std::string_view piece);  // returns nothing once stopped
  std::string Finish();  // at the end of the generation: returns what was held back
  bool stopped() const { return matched_ >= 0; }
  int matched() const { return matched_; }  // index of the stop string, -1: none yet
  // The stop string; only once stopped.
  const std::string& matched_text() const { return stops_[static_cast<size_t>(matched_)]; }
  bool empty() const { return stops_.empty(); }  // there are no stop strings

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest suffix of the text that is the start of a stop string
  int matched_ = -1;
};

// Ends a text before a line that begins with fewer blanks (spaces and tabs) than asked for. The
// text up to the first line end does not count; an empty line has no blanks.
class IndentLimit {
 public:
  explicit IndentLimit(size_t least) : least_(least) {}  // 0: never

  // How many of the piece's bytes belong to the text; all, unless it ends in it.
  size_t Keep(std::string_view piece);
  bool stopped() const { return stopped_; }

 private:
  const size_t least_;
  bool in_indent_ = false, stopped_ = false;
  size_t blanks_ = 0;  // blanks of the current line, if in_indent_
};

}  // namespace larder::serving::sampling
