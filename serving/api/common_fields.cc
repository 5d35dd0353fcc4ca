#include "serving/api/common_fields.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "serving/api/chat_prompt.h"
#include "serving/fields/constraints.h"
#include "serving/fields/sampler_fields.h"

namespace larder::serving::inline api {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostSaltBytes = 256;
constexpr size_t kMostStopBytes = 1024;  // each; every token searches the end of the text for all
                                         // of them
constexpr size_t kMostBiases = 4096, kMostBiasBytes = 1024;  // tokens; of a text
constexpr int64_t kMostMs = int64_t{1} << 40;

using Biases = std::vector<std::pair<TokenId, float>>;

void AddBias(TokenId id, float bias, Biases& biases) {
  if (biases.size() == kMostBiases)
    throw Refused(400, "logit_bias has more than {} tokens", kMostBiases).On("logit_bias");
  biases.emplace_back(id, bias);
}

// Every token of the text, as it is written inside another one.
void AddBiases(const Json& text, float bias, const CompletionDefaults& defaults, Biases& biases) {
  const auto& bytes = text.get_ref<const std::string&>();
  if (bytes.empty() || bytes.size() > kMostBiasBytes)
    JsonFields::Fail("logit_bias", text,
                     fmt::format("token ids or texts of 1 to {} bytes", kMostBiasBytes));
  if (defaults.tokenizer == nullptr) return;
  for (const TokenId id : defaults.tokenizer->Encode(bytes, /*add_bos=*/false,
                                                     /*parse_special=*/false))
    AddBias(id, bias, biases);
}

// OpenAI's {"15043": -1.5}, llama-server's [[15043, -1.5], [15044, false], [" text", -1]].
Biases ReadLogitBias(const Json& field, const CompletionDefaults& defaults) {
  Biases biases;
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  const auto to_bias = [](const Json& value) {
    if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
    return ToNumber(value, "logit_bias");
  };
  if (!field.is_structured() || field.size() > kMostBiases)
    JsonFields::Fail(
        "logit_bias", field,
        fmt::format("an object of token ids or texts with at most {} biases", kMostBiases));
  for (const auto& [key, value] : field.items()) {
    if (field.is_object()) {
      TokenId id = -1;
      const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
      if (end.ec != std::errc() || end.ptr != key.data() + key.size()) {
        AddBiases(key, to_bias(value), defaults, biases);
      } else {
        AddBias(static_cast<TokenId>(ToInteger(id, "logit_bias", 0, most)), to_bias(value), biases);
      }
    } else {
      if (!value.is_array() || value.size() != 2)
        JsonFields::Fail("logit_bias", value, "[token id or text, bias]");
      if (value[0].is_string()) {
        AddBiases(value[0], to_bias(value[1]), defaults, biases);
      } else {
        AddBias(static_cast<TokenId>(ToInteger(value[0], "logit_bias", 0, most)), to_bias(value[1]),
                biases);
      }
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
  request.spec.special = !fields.Bool("skip_special_tokens", !defaults.special);  // vLLM's name
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

namespace {

void SetTextForm(TextForm form, CompletionRequest& request) {
  request.spec.grammar = std::move(form.grammar);
  request.schema = std::move(form.schema);
  request.form_gbnf = std::move(form.gbnf);
}

}  // namespace

void ReadForm(const JsonFields& fields, CompletionRequest& request) {
  SetTextForm(ReadConstraint(fields), request);
}

void SetForm(const Json& format, const char* name, CompletionRequest& request) {
  SetTextForm(ReadFormat(format, name), request);
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

void ReadNative(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request) {
  constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();
  GenerationSpec& spec = request.spec;
  const int64_t slot = fields.Integer("id_slot", -1, -1, kMostInt);
  if (slot >= 0) spec.slot = SlotId(static_cast<int32_t>(slot));
  spec.reports_prompt = fields.Bool("return_progress", false);
  request.form.timings = fields.Bool("timings_per_token", false);
  request.form.verbose = fields.Bool("verbose", defaults.verbose);
  if (!IsNative(request.dialect)) return;
  spec.most_predict_ms = fields.Integer("t_max_predict_ms", -1, -1, kMostMs);
  if (spec.most_predict_ms == 0) spec.most_predict_ms = -1;
  spec.least_indent = static_cast<size_t>(fields.Integer("n_indent", 0, 0, kMostInt));
  spec.drawn_probs = fields.Bool("post_sampling_probs", false);
  request.form.tokens = fields.Bool("return_tokens", false);
  const Json* shown = fields.Find("response_fields");
  if (shown == nullptr) return;
  const std::string expected = fmt::format("an array of at most {} names, each of up to {} bytes",
                                           kMostShownFields, kMostShownFieldBytes);
  if (!shown->is_array() || shown->size() > kMostShownFields)
    JsonFields::Fail("response_fields", *shown, expected);
  for (const Json& name : *shown) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kMostShownFieldBytes)
      JsonFields::Fail("response_fields", name, expected);
    request.form.fields.push_back(name.get<std::string>());
  }
}

namespace {

// {"content": [{"type": "text", "text": ...}]}: the texts as one.
std::string TextOfParts(const Json& content, const std::string& name) {
  if (!content.is_array() || content.empty())
    JsonFields::Fail(name + ".content", content, "an array of parts {\"type\": \"text\"}");
  std::string text;
  for (const Json& part : content) {
    const JsonFields fields(part, name + ".content");
    if (const std::string type = fields.String("type", ""); type != "text")
      JsonFields::Fail(name + ".content.type", Json(type),
                       "\"text\": this model reads nothing else");
    text += fields.String("text", "");
  }
  return text;
}

}  // namespace

bool IsListOfPrompts(const Json& field) {
  return field.is_array() &&
         std::ranges::none_of(field, [](const Json& part) { return part.is_number(); });
}

Prompt ReadPrompt(const Json& field, const std::string& name, const PromptForm& form,
                  const CompletionDefaults& defaults) {
  if (field.is_object() && field.contains("prompt_string")) {
    if (field.contains("multimodal_data"))
      JsonFields::Fail(name + ".multimodal_data", field["multimodal_data"],
                       "none: this model reads only text");
    const Json& inner = field["prompt_string"];
    if (!inner.is_object()) return ReadPrompt(inner, name, form, defaults);
  }
  if (form.parts && field.is_object() && field.contains("content"))
    return ReadPrompt(TextOfParts(field["content"], name), name, form, defaults);
  const bool is_text = field.is_string();
  if (!is_text && (!field.is_array() || field.empty() || IsListOfPrompts(field)))
    JsonFields::Fail(name, field,
                     "a string, an array of token ids and strings, or {\"prompt_string\": ...}");
  const model::Tokenizer* tokenizer = defaults.tokenizer.get();
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  std::vector<TokenId> tokens;
  size_t bytes = 0;
  std::string texts;
  const auto add_text = [&](const Json& part, bool first, bool last) {
    const auto& text = part.get_ref<const std::string&>();
    bytes += text.size();
    CheckTextFits(bytes, name, defaults);
    if (tokenizer == nullptr) {
      texts += text;
      return;
    }
    const std::vector<TokenId> more =
        tokenizer->Encode(text, first && tokenizer->wants_bos(), form.parse_special);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (last && form.adds_eos && tokenizer->wants_eos() && tokenizer->eos() >= 0 &&
        (tokens.empty() || tokens.back() != tokenizer->eos()))
      tokens.push_back(tokenizer->eos());
  };
  if (is_text) {
    add_text(field, true, true);
  } else {
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i].is_string()) {
        add_text(field[i], i == 0, i + 1 == field.size());
      } else {
        tokens.push_back(static_cast<TokenId>(ToInteger(field[i], name, 0, most)));
      }
    }
  }
  if (tokenizer == nullptr && bytes > 0) return texts;
  return tokens;
}

std::vector<Prompt> ReadPrompts(const Json& field, const CompletionDefaults& defaults) {
  const auto one = [&](const Json& prompt, const std::string& name) -> Prompt {
    if (prompt.is_string()) return prompt.get<std::string>();  // it is shown as it came
    return ReadPrompt(prompt, name, {}, defaults);
  };
  if (!IsListOfPrompts(field)) return {one(field, "prompt")};
  if (field.empty())
    JsonFields::Fail("prompt", field, "a string, an array of token ids, or an array of these");
  if (field.size() > kMostChoices)
    throw Refused(400, "prompt has {} prompts: expected at most {}", field.size(), kMostChoices)
        .On("prompt");
  std::vector<Prompt> prompts;
  for (const Json& prompt : field) prompts.push_back(one(prompt, "prompt"));
  return prompts;
}

}  // namespace larder::serving::api
