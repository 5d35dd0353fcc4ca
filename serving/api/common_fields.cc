#include "serving/api/common_fields.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "serving/fields/constraints.h"
#include "serving/fields/sampler_fields.h"

namespace larder::serving::inline api {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostSaltBytes = 256;
constexpr size_t kMostStopBytes = 1024;  // each; every token searches the end of the text for all
                                         // of them
constexpr size_t kMostBiases = 4096;

std::vector<TokenId> ToTokens(const Json& array, const CompletionDefaults& defaults) {
  std::vector<TokenId> tokens;
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  for (const Json& token : array)
    tokens.push_back(static_cast<TokenId>(ToInteger(token, "prompt", 0, most)));
  return tokens;
}

// OpenAI's {"15043": -1.5}, llama-server's [[15043, -1.5], [15044, false]].
std::vector<std::pair<TokenId, float>> ReadLogitBias(const Json& field,
                                                     const CompletionDefaults& defaults) {
  std::vector<std::pair<TokenId, float>> biases;
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  const auto bias = [](const Json& value) {
    if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
    return ToNumber(value, "logit_bias");
  };
  if (!field.is_structured() || field.size() > kMostBiases)
    JsonFields::Fail("logit_bias", field,
                     fmt::format("an object of token ids with at most {} biases", kMostBiases));
  for (const auto& [key, value] : field.items()) {
    if (field.is_object()) {
      TokenId id = -1;
      const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
      if (end.ec != std::errc() || end.ptr != key.data() + key.size())
        JsonFields::Fail("logit_bias", key, "token ids as names");
      biases.emplace_back(static_cast<TokenId>(ToInteger(id, "logit_bias", 0, most)), bias(value));
    } else {
      if (!value.is_array() || value.size() != 2)
        JsonFields::Fail("logit_bias", value, "[token id, bias]");
      biases.emplace_back(static_cast<TokenId>(ToInteger(value[0], "logit_bias", 0, most)),
                          bias(value[1]));
    }
  }
  return biases;
}

void ReadParams(const JsonFields& fields, const CompletionDefaults& defaults, SamplingParams& p) {
  constexpr int64_t kMostInt = std::numeric_limits<int>::max();
  p.temperature = fields.Number("temperature", p.temperature);
  p.top_k = static_cast<int>(fields.Integer("top_k", p.top_k, -1, kMostInt));
  p.top_p = fields.Number("top_p", p.top_p);
  p.min_p = fields.Number("min_p", p.min_p);
  p.repeat_penalty = fields.Number("repetition_penalty", p.repeat_penalty);  // vLLM's name
  p.repeat_penalty = fields.Number("repeat_penalty", p.repeat_penalty);
  p.repeat_last_n =
      static_cast<int>(fields.Integer("repeat_last_n", p.repeat_last_n, -1, kMostInt));
  p.presence_penalty = fields.Number("presence_penalty", p.presence_penalty);
  p.frequency_penalty = fields.Number("frequency_penalty", p.frequency_penalty);
  ReadSamplers(fields, p);
  if (const Json* bias = fields.Find("logit_bias")) {
    const auto biases = ReadLogitBias(*bias, defaults);
    p.logit_bias.insert(p.logit_bias.end(), biases.begin(), biases.end());
  }
  try {
    Validate(p, defaults.vocab);
  } catch (const Error& error) {
    throw Refused(400, "{}", error.what());
  }
}

}  // namespace

std::string Quoted(const std::string& id) {
  std::string text = Excerpt(id);
  text.front() = '\'';
  if (text.back() == '"') text.back() = '\'';
  return text;
}

bool IsModel(std::string_view name, const CompletionDefaults& defaults) {
  const auto& aliases = defaults.aliases;
  return name == defaults.model || std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

void CheckModel(const std::string& name, Dialect dialect, const CompletionDefaults& defaults) {
  if (!defaults.strict_model || name.empty() || IsModel(name, defaults)) return;
  constexpr std::string_view kLatest = ":latest";  // the tag that Ollama's clients add to a name
                                                   // without one
  if (IsOllama(dialect) && name.ends_with(kLatest) &&
      IsModel(std::string_view(name).substr(0, name.size() - kLatest.size()), defaults))
    return;
  throw Refused(404, "the model {} does not exist here; this server has {}", Excerpt(name),
                Excerpt(defaults.model))
      .On("model");
}

// No two salts that a client can find are equal.
static uint64_t SaltOf(const std::string& text) {
  std::array<unsigned char, crypto_generichash_BYTES> hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  uint64_t salt;
  std::memcpy(&salt, hash.data(), sizeof salt);
  return std::max<uint64_t>(salt, 1);  // 0: none
}

void ReadSampling(const JsonFields& fields, const CompletionDefaults& defaults,
                  CompletionRequest& request) {
  ReadParams(fields, defaults, request.spec.sampling);
  request.ignore_eos = fields.Bool("ignore_eos", false);
  const int64_t seed = fields.Integer("seed", -1, std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int64_t>::max());
  if (seed >= 0) request.seed = static_cast<uint64_t>(seed);
  if (const Json* salt = fields.Find("cache_salt")) {
    const std::string text = fields.String("cache_salt", "");
    if (text.empty() || text.size() > kMostSaltBytes)
      JsonFields::Fail("cache_salt", *salt, fmt::format("1 to {} bytes", kMostSaltBytes));
    request.spec.salt = SaltOf(text);
  }
}

void ReadForm(const JsonFields& fields, CompletionRequest& request) {
  TextForm form = ReadConstraint(fields);
  request.spec.grammar = std::move(form.grammar);
  request.schema = std::move(form.schema);
}

void SetForm(const Json& format, const char* name, CompletionRequest& request) {
  TextForm form = ReadFormat(format, name);
  request.spec.grammar = std::move(form.grammar);
  request.schema = std::move(form.schema);
}

void ReadLimit(const JsonFields& fields, std::initializer_list<const char*> names,
               const CompletionDefaults& defaults, CompletionRequest& request) {
  int64_t limit = defaults.max_tokens;
  const int64_t least = IsOllama(request.dialect) ? std::numeric_limits<int64_t>::min() : -1;
  for (const char* name : names)
    limit = fields.Integer(name, limit, least, std::numeric_limits<int64_t>::max());
  request.spec.max_tokens = std::max(limit, int64_t{-1});
}

std::vector<std::string> ReadStops(const char* name, const Json& field) {
  const std::string expected = fmt::format("a string or at most {} strings, each of 1 to {} bytes",
                                           kMostStops, kMostStopBytes);
  std::vector<std::string> stops;
  const Json list = field.is_array() ? field : Json::array({field});
  if (list.size() > kMostStops) JsonFields::Fail(name, field, expected);
  for (const Json& stop : list) {
    if (!stop.is_string()) JsonFields::Fail(name, stop, expected);
    stops.push_back(stop.get<std::string>());
    if (stops.back().empty() || stops.back().size() > kMostStopBytes)
      JsonFields::Fail(name, stop, expected);
  }
  return stops;
}

std::vector<Prompt> ReadPrompts(const Json& field, const CompletionDefaults& defaults) {
  constexpr const char* kExpected = "a string, an array of token ids, or an array of these";
  std::vector<Prompt> prompts;
  if (field.is_string()) {
    prompts.emplace_back(field.get<std::string>());
    return prompts;
  }
  if (!field.is_array() || field.empty()) JsonFields::Fail("prompt", field, kExpected);
  if (field[0].is_number()) {
    prompts.emplace_back(ToTokens(field, defaults));
    return prompts;
  }
  if (field.size() > kMostChoices)
    throw Refused(400, "prompt has {} prompts: expected at most {}", field.size(), kMostChoices)
        .On("prompt");
  for (const Json& one : field) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      prompts.emplace_back(ToTokens(one, defaults));
    } else {
      JsonFields::Fail("prompt", one, kExpected);
    }
  }
  return prompts;
}

}  // namespace larder::serving::api
