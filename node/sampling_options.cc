#include "node/sampling_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

namespace larder::node {

void AddSamplingOptions(CLI::App& command, SamplingOptions& options) {
  const char* group = "Sampling";
  auto& p = options.params;
  auto add = [&](const char* name, auto& value, const char* type, const char* text) {
    command.add_option(name, value, text)->type_name(type)->group(group);
  };
  add("--temp", p.temperature, "F", "temperature; 0: always the likeliest token (default: 0.8)");
  add("--top-k", p.top_k, "N", "draw from the k likeliest tokens; 0: all (default: 40)");
  add("--top-p", p.top_p, "F", "from the likeliest that together reach this probability (default: 0.95)");
  add("--min-p", p.min_p, "F", "from those this probable relative to the likeliest (default: 0.05)");
  add("-s,--seed", options.seed, "N", "seed of the random numbers; -1: a new one each time (default: -1)");
  add("--repeat-penalty", p.repeat_penalty, "F", "divides the logits of recent tokens; 1: off (default: 1)");
  add("--repeat-last-n", p.repeat_last_n, "N", "how many tokens are recent; 0: none, -1: all (default: 64)");
  add("--presence-penalty", p.presence_penalty, "F",
      "subtracted from the logits of recent tokens (default: 0)");
  add("--frequency-penalty", p.frequency_penalty, "F", "the same for each time they occurred (default: 0)");
  command
      .add_option("--logit-bias", options.logit_bias,
                  "adds to a token's logit, as 15043+1 or 15043-inf; repeatable")
      ->type_name("ID(+|-)V")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command.add_flag("--ignore-eos", options.ignore_eos, "never end a text: bans the end tokens")->group(group);
}

std::pair<model::TokenId, float> ParseLogitBias(const std::string& text) {
  const size_t sign = text.find_first_of("+-");
  model::TokenId id = -1;
  float bias = 0;
  bool good = sign != std::string::npos && sign > 0 && sign + 1 < text.size();
  if (good) {
    const char* end = text.data() + text.size();
    const auto id_end = std::from_chars(text.data(), text.data() + sign, id);
    const auto bias_end = std::from_chars(text.data() + sign + 1, end, bias);
    good = id_end.ec == std::errc() && id_end.ptr == text.data() + sign && bias_end.ec == std::errc() &&
           bias_end.ptr == end && !std::isnan(bias) && !std::signbit(bias);
  }
  if (!good) {
    throw CLI::ValidationError(
        "--logit-bias", fmt::format("'{}' is not a token id, + or -, and a number, as 15043-1.5", text));
  }
  return {id, text[sign] == '-' ? -bias : bias};
}

serving::SamplingParams ResolveSampling(const SamplingOptions& options, const model::Tokenizer& tokenizer,
                                        size_t vocab) {
  serving::SamplingParams params = options.params;
  params.seed = options.seed >= 0 ? static_cast<uint64_t>(options.seed) : std::random_device()();
  for (const std::string& text : options.logit_bias) params.logit_bias.push_back(ParseLogitBias(text));
  if (options.ignore_eos) {
    for (size_t id = 0; id < std::min(tokenizer.size(), vocab); ++id) {
      const auto token = static_cast<model::TokenId>(id);
      if (tokenizer.IsEndOfGeneration(token)) {
        params.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
      }
    }
  }
  serving::Validate(params, vocab);
  return params;
}

}  // namespace larder::node
