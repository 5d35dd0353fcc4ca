// Generator: one sequence at a time: the same Scheduler as a server's runs it, of its prompt only what a KV
// cache does not hold yet, and it samples until there is a reason to stop. One thread, the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/scheduler.h"
#include "serving/sampling/sampler.h"

namespace larder::node {

enum class StopReason { kEndOfText, kLength, kContextFull, kStopString, kInterrupted };

struct GenerationStats {
  size_t prompt_tokens = 0;  // all of the prompt
  size_t cached_tokens = 0;  // of them, those that were in the KV cache already
  size_t generated_tokens = 0;
  size_t decode_steps = 0;
  double prefill_s = 0;
  double ttft_s = 0;  // until the first token was sampled
  double decode_s = 0;
  StopReason reason = StopReason::kLength;
  std::string stop_string;  // the one that ended the text

  double prompt_tokens_per_s() const;
  double decode_tokens_per_s() const;
  double tpot_ms() const;
};
// Three lines for people.
std::string Describe(const GenerationStats& stats, size_t context);

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: no limit
  bool continues = false;   // the text goes on from the prompt's: an SPM leading space is text
  bool special = false;     // show control tokens
  std::vector<std::string> stops;
};

class Generator {
 public:
  Generator(pipeline::Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
            serving::SamplingParams params);

  // `write` gets text in whole UTF-8 characters. Ends early when Interrupts() (node/service/signals.h) is not
  // 0. Throws Error if the prompt is empty or longer than the context, if the model's output is not finite,
  // or if a socket of the pipeline was lost.
  GenerationStats Run(std::span<const model::TokenId> prompt, const GenerateOptions& options,
                      const std::function<void(std::string_view)>& write);
  // Forgets the sequence and starts the sampler anew.
  void Clear();
  size_t context() const { return engine_.plan().options.context; }

 private:
  pipeline::Engine& engine_;
  std::optional<pipeline::Scheduler> scheduler_;  // its slots hold what was said before
  std::shared_ptr<const model::Tokenizer> tokenizer_;
  serving::SamplingParams params_;
  serving::Sampler sampler_;
};

}  // namespace larder::node
