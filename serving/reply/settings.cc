#include "serving/reply/settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace larder::serving::inline reply {

using nlohmann::json;

json SamplingJson(const SamplingParams& p) {
  json samplers = json::array();
  for (const SamplerStep step : p.samplers) samplers.push_back(SamplerName(step));
  return {{"samplers", std::move(samplers)},
          {"typical_p", p.typical_p},
          {"top_n_sigma", p.top_n_sigma},
          {"min_keep", p.min_keep},
          {"xtc_probability", p.xtc_probability},
          {"xtc_threshold", p.xtc_threshold},
          {"dry_multiplier", p.dry_multiplier},
          {"dry_base", p.dry_base},
          {"dry_allowed_length", p.dry_allowed_length},
          {"dry_penalty_last_n", p.dry_penalty_last_n},
          {"dry_sequence_breakers", p.dry_sequence_breakers},
          {"dynatemp_range", p.dynatemp_range},
          {"dynatemp_exponent", p.dynatemp_exponent},
          {"mirostat", p.mirostat},
          {"mirostat_tau", p.mirostat_tau},
          {"mirostat_eta", p.mirostat_eta},
          {"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repeat_penalty", p.repeat_penalty},
          {"repeat_last_n", p.repeat_last_n},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty}};
}

json SettingsJson(const GenerationSpec& spec, const CompletionRequest& request) {
  json settings = SamplingJson(spec.sampling);
  json& biases = settings["logit_bias"] = json::array();
  for (const auto& [token, bias] : spec.sampling.logit_bias)
    biases.push_back({{"token", token}, {"bias", bias}});  // -infinity is written as null
  settings.update({{"seed", spec.sampling.seed},
                   {"n_predict", spec.max_tokens},
                   {"max_tokens", spec.max_tokens},
                   {"stop", spec.stops},
                   {"stream", request.stream},
                   {"ignore_eos", request.ignore_eos},
                   {"n_probs", std::max(spec.logprobs, 0)},
                   {"post_sampling_probs", spec.drawn_probs},
                   {"timings_per_token", request.form.timings},
                   {"grammar_lazy", !spec.grammar_triggers.empty()},
                   {"n_keep", 0},
                   {"n_discard", 0},
                   {"adaptive_target", -1},
                   {"adaptive_decay", 0},
                   {"speculative.types", "none"},
                   {"backend_sampling", false},
                   {"lora", json::array()}});
  return settings;
}

}  // namespace larder::serving::reply
