#include "serving/batch/remote_request.h"

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline batch {
namespace {

// Sets the field unless it, or another name of it, has a value.
void Default(Json& body, std::initializer_list<const char*> names, Json value) {
  for (const char* name : names) {
    if (const auto found = body.find(name); found != body.end() && !found->is_null()) return;
  }
  body[*names.begin()] = std::move(value);
}

// The biases of the job, then the request's, each as [id, bias].
void AddBiases(Json& body, const CompletionDefaults& defaults) {
  if (defaults.sampling.logit_bias.empty()) return;
  Json all = Json::array();
  for (const auto& [token, bias] : defaults.sampling.logit_bias)
    all.push_back(Json::array({token, std::isfinite(bias) ? Json(bias) : Json(false)}));
  if (const auto own = body.find("logit_bias"); own != body.end() && own->is_object()) {
    for (const auto& [token, bias] : own->items())
      all.push_back(Json::array({std::stoll(token), bias}));
  } else if (own != body.end() && own->is_array()) {
    for (const Json& one : *own) all.push_back(one);
  }
  body["logit_bias"] = std::move(all);
}

}  // namespace

const char* RouteOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kChat:
      return "/v1/chat/completions";
    case Dialect::kResponses:
      return "/v1/responses";
    case Dialect::kEmbeddings:
      return "/v1/embeddings";
    default:
      return "/v1/completions";
  }
}

std::string RemoteBody(const BatchLine& line, const CompletionDefaults& defaults, uint64_t seed,
                       bool ignore_eos) {
  if (line.dialect == Dialect::kEmbeddings) return line.body;
  Json body = ParseJsonText<Json>(line.body);
  const SamplingParams& p = defaults.sampling;
  if (const auto own = body.find("seed"); own == body.end() || !own->is_number() || *own < 0)
    body["seed"] = seed;
  Default(body, {"temperature"}, p.temperature);
  Default(body, {"top_k"}, p.top_k);
  Default(body, {"top_p"}, p.top_p);
  Default(body, {"min_p"}, p.min_p);
  Default(body, {"repeat_penalty", "repetition_penalty"}, p.repeat_penalty);
  Default(body, {"repeat_last_n"}, p.repeat_last_n);
  Default(body, {"presence_penalty"}, p.presence_penalty);
  Default(body, {"frequency_penalty"}, p.frequency_penalty);
  Default(body, {"typical_p"}, p.typical_p);
  Default(body, {"top_n_sigma"}, p.top_n_sigma);
  Default(body, {"xtc_probability"}, p.xtc_probability);
  Default(body, {"xtc_threshold"}, p.xtc_threshold);
  Default(body, {"min_keep"}, p.min_keep);
  Default(body, {"dry_multiplier"}, p.dry_multiplier);
  Default(body, {"dry_base"}, p.dry_base);
  Default(body, {"dry_allowed_length"}, p.dry_allowed_length);
  Default(body, {"dry_penalty_last_n"}, p.dry_penalty_last_n);
  Default(body, {"dry_sequence_breakers"}, p.dry_sequence_breakers);
  Default(body, {"dynatemp_range"}, p.dynatemp_range);
  Default(body, {"dynatemp_exponent"}, p.dynatemp_exponent);
  Default(body, {"mirostat"}, p.mirostat);
  Default(body, {"mirostat_tau"}, p.mirostat_tau);
  Default(body, {"mirostat_eta"}, p.mirostat_eta);
  Json samplers = Json::array();
  for (const SamplerStep step : p.samplers) samplers.push_back(SamplerName(step));
  Default(body, {"samplers"}, std::move(samplers));
  if (line.dialect == Dialect::kResponses) {
    body["store"] = false;  // as the own engine, which keeps none
    Default(body, {"max_output_tokens"}, defaults.max_tokens);
  } else {
    Default(body, {"max_tokens", "max_completion_tokens", "n_predict"}, defaults.max_tokens);
  }
  AddBiases(body, defaults);
  if (ignore_eos) body["ignore_eos"] = true;
  return Dump(body);
}

}  // namespace larder::serving::batch
