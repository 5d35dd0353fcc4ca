#include "node/options/sampling_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "node/options/count_option.h"

namespace larder::node::inline options {

namespace {

constexpr double kMost =
    1e6;  // larger values change nothing more; serving/sampling/sampler.h refuses them too
constexpr int64_t kMostTokens = std::numeric_limits<int>::max();

std::string NotASeed(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, seed);
  if (text == "-1" || (failed == std::errc() && stop == end)) return "";
  return fmt::format("'{}' is not a whole number from 0 to 2^64 - 1, or -1", text);
}

}  // namespace

void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& drawn_seed) {
  const char* group = "Sampling";
  auto& p = options.params;
  auto number = [&](const char* name, float& value, double least, double most, const char* text) {
    command.add_option(name, value, text)->type_name("F")->check(NumberFrom(least, most), "")->group(group);
  };
  auto whole = [&](const char* name, int& value, int least, const char* text) {
    command.add_option(name, value, text)
        ->type_name("N")
        ->check(WholeNumberFrom(least, kMostTokens), "")
        ->group(group);
  };
  number("--temp", p.temperature, -kMost, kMost, "temperature; 0: always the likeliest token (default: 0.8)");
  whole("--top-k", p.top_k, -1, "draw from the k likeliest tokens; 0: all (default: 40)");
  number("--top-p", p.top_p, 0, 1,
         "draw from the likeliest tokens that together reach this probability (default: 0.95)");
  number("--min-p", p.min_p, 0, 1,
         "draw from tokens at least this probable relative to the likeliest (default: 0.05)");
  command
      .add_option("-s,--seed", options.seed,
                  fmt::format("seed of the random numbers; -1: {} (default: -1)", drawn_seed))
      ->type_name("N")
      ->check(NotASeed, "")
      ->group(group);
  number("--repeat-penalty", p.repeat_penalty, 1e-3, 1e3,
         "divides the logits of recent tokens; 1: off (default: 1)");
  whole("--repeat-last-n", p.repeat_last_n, -1,
        "how many tokens count as recent; 0: none, -1: all (default: 64)");
  number("--presence-penalty", p.presence_penalty, -kMost, kMost,
         "subtracted from the logits of recent tokens (default: 0)");
  number("--frequency-penalty", p.frequency_penalty, -kMost, kMost,
         "subtracted again for each time they occurred (default: 0)");
  command
      .add_option("--logit-bias", options.logit_bias,
                  "added to a token's logit, such as 15043+1 or 15043-inf; repeatable")
      ->type_name("ID(+|-)V")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command.add_flag("--ignore-eos", options.ignore_eos, "never end a text: ban the end tokens")->group(group);
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
        "--logit-bias", fmt::format("'{}' is not a token id, + or -, and a number, such as 15043-1.5", text));
  }
  return {id, text[sign] == '-' ? -bias : bias};
}

serving::SamplingParams ResolveSampling(const SamplingOptions& options, size_t vocab) {
  serving::SamplingParams params = options.params;
  if (options.seed == "-1") {
    params.seed = std::random_device()();
  } else {
    std::from_chars(options.seed.data(), options.seed.data() + options.seed.size(), params.seed);
  }
  for (const std::string& text : options.logit_bias) {
    const auto& [token, bias] = params.logit_bias.emplace_back(ParseLogitBias(text));
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      throw CLI::ValidationError(
          "--logit-bias", fmt::format("there is no token {}; the model has 0 to {}", token, vocab - 1));
    }
    if (std::isfinite(bias) && std::abs(bias) > static_cast<float>(kMost)) {
      throw CLI::ValidationError(
          "--logit-bias",
          fmt::format("'{}' is out of range; expected at most {} in magnitude (-inf bans a token)", text,
                      kMost));
    }
  }
  serving::Validate(params, vocab);
  return params;
}

serving::SamplingParams ResolveSampling(const SamplingOptions& options, const model::Tokenizer& tokenizer,
                                        size_t vocab) {
  serving::SamplingParams params = ResolveSampling(options, vocab);
  if (options.ignore_eos) {
    for (size_t id = 0; id < std::min(tokenizer.size(), vocab); ++id) {
      const auto token = static_cast<model::TokenId>(id);
      if (tokenizer.IsEndOfGeneration(token)) {
        params.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
      }
    }
  }
  return params;
}

}  // namespace larder::node::options
