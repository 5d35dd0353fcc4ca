#include "serving/batch/remote_request.h"

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "serving/api/completion_reply.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

// Sets the field unless it, or another name of it, has a value.
void Default(json& body, std::initializer_list<const char*> names, json value) {
  for (const char* name : names) {
    if (const auto found = body.find(name); found != body.end() && !found->is_null()) return;
  }
  body[*names.begin()] = std::move(value);
}

// The biases of the job, then the request's, each as [id, bias].
void AddBiases(json& body, const CompletionDefaults& defaults) {
  if (defaults.sampling.logit_bias.empty()) return;
  json all = json::array();
  for (const auto& [token, bias] : defaults.sampling.logit_bias)
    all.push_back(json::array({token, std::isfinite(bias) ? json(bias) : json(false)}));
  if (const auto own = body.find("logit_bias"); own != body.end() && own->is_object()) {
    for (const auto& [token, bias] : own->items()) all.push_back(json::array({std::stoll(token), bias}));
  } else if (own != body.end() && own->is_array()) {
    for (const json& one : *own) all.push_back(one);
  }
  body["logit_bias"] = std::move(all);
}

}  // namespace

const char* RouteOf(Dialect dialect) {
  return dialect == Dialect::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::string RemoteBody(const BatchLine& line, const CompletionDefaults& defaults, uint64_t seed,
                       bool ignore_eos) {
  json body = json::parse(line.body);
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
  Default(body, {"max_tokens", "max_completion_tokens", "n_predict"}, defaults.max_tokens);
  AddBiases(body, defaults);
  if (ignore_eos) body["ignore_eos"] = true;
  return Dump(body);
}

}  // namespace larder::serving::batch
