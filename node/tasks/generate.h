// Generator: runs one sequence at a time, with the same Scheduler as a server. It runs only the
// part of the prompt that the KV cache does not hold yet, and samples until there is a reason to
// stop. For one thread, the engine's.
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
#include "pipeline/scheduler/scheduler.h"
#include "serving/constraint/mask_thread.h"
#include "serving/generation/generation.h"
#include "serving/grammar/grammar.h"
#include "serving/sampling/sampler.h"

namespace larder::node::inline tasks {

struct GeneratorStats {
  size_t prompt_tokens = 0;  // all of the prompt
  size_t cached_tokens = 0;  // of these, already in the KV cache
  size_t generated_tokens = 0;
  size_t decode_steps = 0;
  double prefill_s = 0;
  double ttft_s = 0;  // time to the first sampled token
  double decode_s = 0;
  serving::FinishReason reason = serving::FinishReason::kLength;  // never a failure: failures are
                                                                  // thrown
  std::string stop_string;  // the stop string that ended the text

  double prompt_tokens_per_s() const;
  double decode_tokens_per_s() const;
  double tpot_ms() const;
};
// Three lines for a person to read.
std::string Describe(const GeneratorStats& stats, size_t context);

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: no limit
  bool continues = false;   // the text continues the prompt's: an SPM leading space is kept
  bool special = false;     // show control tokens
  std::vector<std::string> stops;
  std::shared_ptr<const serving::Grammar> grammar;  // what the text must match; null: anything
};

class Generator {
 public:
  Generator(pipeline::Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
            serving::SamplingParams params);

  // Calls `write` with whole UTF-8 characters. Ends early when Interrupts()
  // (node/service/signals.h) is not 0. Throws Error if the prompt is empty or longer than the
  // context, if the model's output is not finite, or if a socket of the chain was lost.
  GeneratorStats Run(std::span<const model::TokenId> prompt, const GenerateOptions& options,
                     const std::function<void(std::string_view)>& write);
  // Forgets the sequence and resets the sampler.
  void Clear();
  size_t context() const { return engine_.plan().options.capacity.context; }

 private:
  pipeline::Engine& engine_;
  std::optional<pipeline::Scheduler> scheduler_;  // its slots hold the earlier sequences
  std::shared_ptr<const model::Tokenizer> tokenizer_;
  serving::SamplingParams params_;
  serving::Sampler sampler_;
  std::shared_ptr<serving::MaskThread> masks_;  // made for the first text with a grammar
};

}  // namespace larder::node::tasks
