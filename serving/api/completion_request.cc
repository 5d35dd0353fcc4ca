#include "serving/api/completion_request.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/fnv.h"
#include "serving/api/constraints.h"
#include "serving/api/json_fields.h"

namespace larder::serving::inline api {
namespace {

using nlohmann::json;

constexpr size_t kMostDepth = 32;  // nesting of a request's JSON; valid requests need 5
constexpr size_t kMostStops = 16;
constexpr size_t kMostSaltBytes = 256;
constexpr size_t kMostStopBytes = 1024;  // each; every token searches the end of the text for all of them
constexpr size_t kMostBiases = 4096;
constexpr size_t kMostMessages = 4096;

// The parser's tree of many small arrays is many times larger than the text, so depth is checked first.
void CheckDepth(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth)
        throw Refused(400, "the request's JSON is nested more than {} deep", kMostDepth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

void CheckModel(const JsonFields& fields, const CompletionDefaults& defaults) {
  const std::string name = fields.String("model", "");
  if (name.empty() || name == defaults.model) return;
  const auto& aliases = defaults.aliases;
  if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return;
  throw Refused(404, "the model {} does not exist here; this server has {}", Excerpt(name),
                Excerpt(defaults.model))
      .On("model");
}

std::vector<TokenId> ToTokens(const json& array, const CompletionDefaults& defaults) {
  std::vector<TokenId> tokens;
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  for (const json& token : array) tokens.push_back(static_cast<TokenId>(ToInteger(token, "prompt", 0, most)));
  return tokens;
}

// A string, an array of token ids, or an array of these.
std::vector<Prompt> ReadPrompts(const json& field, const CompletionDefaults& defaults) {
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
    throw Refused(400, "prompt has {} prompts: expected at most {}", field.size(), kMostChoices).On("prompt");
  for (const json& one : field) {
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

// A string, or parts of which each is {"type":"text","text":"..."}.
std::string ReadContent(const JsonFields& message) {
  const json* content = message.Find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) JsonFields::Fail("messages.content", *content, "a string or an array of parts");
  std::string text;
  for (const json& part : *content) {
    const JsonFields fields(part);
    if (fields.String("type", "") != "text")
      JsonFields::Fail("messages.content.type", part.value("type", json()),
                       "\"text\": this model reads nothing else");
    text += fields.String("text", "");
  }
  return text;
}

std::vector<model::ChatMessage> ReadMessages(const json& field) {
  if (!field.is_array() || field.empty() || field.size() > kMostMessages)
    JsonFields::Fail("messages", field, fmt::format("an array of 1 to {} messages", kMostMessages));
  std::vector<model::ChatMessage> messages;
  for (const json& one : field) {
    const JsonFields fields(one);
    std::string role = fields.String("role", "");
    if (role == "developer") role = "system";  // OpenAI's newer name
    messages.push_back({role, ReadContent(fields)});
  }
  return messages;
}

// OpenAI's {"15043": -1.5}, llama-server's [[15043, -1.5], [15044, false]].
std::vector<std::pair<TokenId, float>> ReadLogitBias(const json& field, const CompletionDefaults& defaults) {
  std::vector<std::pair<TokenId, float>> biases;
  const auto most = static_cast<int64_t>(defaults.vocab) - 1;
  const auto bias = [](const json& value) {
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
      if (!value.is_array() || value.size() != 2) JsonFields::Fail("logit_bias", value, "[token id, bias]");
      biases.emplace_back(static_cast<TokenId>(ToInteger(value[0], "logit_bias", 0, most)), bias(value[1]));
    }
  }
  return biases;
}

void ReadSampling(const JsonFields& fields, const CompletionDefaults& defaults, SamplingParams& p) {
  constexpr int64_t kMostInt = std::numeric_limits<int>::max();
  p.temperature = fields.Number("temperature", p.temperature);
  p.top_k = static_cast<int>(fields.Integer("top_k", p.top_k, -1, kMostInt));
  p.top_p = fields.Number("top_p", p.top_p);
  p.min_p = fields.Number("min_p", p.min_p);
  p.repeat_penalty = fields.Number("repetition_penalty", p.repeat_penalty);  // vLLM's name
  p.repeat_penalty = fields.Number("repeat_penalty", p.repeat_penalty);
  p.repeat_last_n = static_cast<int>(fields.Integer("repeat_last_n", p.repeat_last_n, -1, kMostInt));
  p.presence_penalty = fields.Number("presence_penalty", p.presence_penalty);
  p.frequency_penalty = fields.Number("frequency_penalty", p.frequency_penalty);
  if (const json* bias = fields.Find("logit_bias")) {
    const auto biases = ReadLogitBias(*bias, defaults);
    p.logit_bias.insert(p.logit_bias.end(), biases.begin(), biases.end());
  }
  try {
    Validate(p, defaults.vocab);
  } catch (const Error& error) {
    throw Refused(400, "{}", error.what());
  }
}

std::vector<std::string> ReadStops(const json& field) {
  const std::string expected =
      fmt::format("a string or at most {} strings, each of 1 to {} bytes", kMostStops, kMostStopBytes);
  std::vector<std::string> stops;
  const json list = field.is_array() ? field : json::array({field});
  if (list.size() > kMostStops) JsonFields::Fail("stop", field, expected);
  for (const json& stop : list) {
    if (!stop.is_string()) JsonFields::Fail("stop", stop, expected);
    stops.push_back(stop.get<std::string>());
    if (stops.back().empty() || stops.back().size() > kMostStopBytes)
      JsonFields::Fail("stop", stop, expected);
  }
  return stops;
}

int ReadLogprobs(const JsonFields& fields, Dialect dialect) {
  if (dialect == Dialect::kNative) {  // n_probs: 0 is none
    const auto n = static_cast<int>(fields.Integer("n_probs", 0, 0, kMostLogprobs));
    return n == 0 ? -1 : n;
  }
  if (dialect == Dialect::kCompletion)
    return static_cast<int>(fields.Integer("logprobs", -1, -1, kMostLogprobs));
  const auto top = static_cast<int>(fields.Integer("top_logprobs", 0, 0, kMostLogprobs));
  if (fields.Bool("logprobs", false)) return top;
  if (top > 0)
    throw Refused(400, "top_logprobs is {}: expected logprobs to be true with it", top).On("top_logprobs");
  return -1;
}

// Refuses fields that would change the answer and that Larder does not support; ignoring them would be wrong.
void RefuseUnknown(const JsonFields& fields) {
  for (const char* name : {"tools", "functions"}) {
    const json* field = fields.Find(name);
    if (field != nullptr && !field->empty())
      JsonFields::Fail(name, *field, "none: Larder does not support tools");
  }
  const json* suffix = fields.Find("suffix");
  if (suffix != nullptr && *suffix != "")
    JsonFields::Fail("suffix", *suffix, "none: Larder does not support it");
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%d %b %Y", &local)};
}

// Refuses a text that cannot fit by its bytes alone, so that megabytes are not tokenized only to be counted.
void CheckTextFits(const std::string& text, const char* field, const CompletionDefaults& defaults) {
  if (text.size() / defaults.longest_token_bytes <= defaults.context) return;
  throw Refused(400,
                "{}: its {} bytes do not fit the context of {} tokens, of which none has more than {} bytes",
                field, text.size(), defaults.context, defaults.longest_token_bytes)
      .On(field);
}

std::vector<TokenId> ChatTokens(const CompletionRequest& request, const CompletionDefaults& defaults) {
  if (!defaults.chat_format) {
    throw Refused(400,
                  "{} has no chat template that Larder knows; use a prompt, or start the server with "
                  "--chat-template NAME",
                  defaults.model)
        .On("messages");
  }
  model::ChatOptions options;
  options.date = Today();
  options.enable_thinking = request.think;
  std::string text;
  try {
    text = model::RenderChat(*defaults.chat_format, request.messages, options);
  } catch (const Error& error) {
    throw Refused(400, "messages: {}", error.what()).On("messages");
  }
  CheckTextFits(text, "messages", defaults);
  return defaults.tokenizer->Encode(text, defaults.tokenizer->wants_bos(), /*parse_special=*/true);
}

std::vector<TokenId> PromptTokens(const Prompt& prompt, const CompletionDefaults& defaults) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) return *tokens;
  CheckTextFits(std::get<std::string>(prompt), "prompt", defaults);
  return defaults.tokenizer->Encode(std::get<std::string>(prompt), defaults.tokenizer->wants_bos(),
                                    /*parse_special=*/true);
}

void BanEndOfGeneration(const CompletionDefaults& defaults, SamplingParams& params) {
  const size_t ids = std::min(defaults.tokenizer->size(), defaults.vocab);
  for (size_t id = 0; id < ids; ++id) {
    if (defaults.tokenizer->IsEndOfGeneration(static_cast<TokenId>(id)))
      params.logit_bias.emplace_back(static_cast<TokenId>(id), -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

json ParseJson(std::string_view text) {
  CheckDepth(text);
  json::parser_callback_t none = nullptr;
  try {
    return json::parse(text, none);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string what = error.what();
    const size_t end = what.find("] ");
    throw Refused(400, "the request is not JSON: {}",
                  what.substr(end == std::string::npos ? 0 : end + 2, 200));
  }
}

size_t LongestTokenBytes(const model::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (size_t id = 0; id < tokenizer.size(); ++id)
    longest = std::max(longest, tokenizer.Piece(static_cast<TokenId>(id), true).size());
  return longest;
}

CompletionRequest PlainRequest(std::string prompt, const CompletionDefaults& defaults) {
  CompletionRequest request;
  request.dialect = Dialect::kNative;
  request.prompts.emplace_back(std::move(prompt));
  request.spec.sampling = defaults.sampling;
  request.spec.max_tokens = defaults.max_tokens;
  request.seed = defaults.seed;
  request.stream = true;
  return request;
}

CompletionRequest ReadCompletionRequest(const json& body, Dialect dialect,
                                        const CompletionDefaults& defaults) {
  const JsonFields fields(body);
  CheckModel(fields, defaults);
  RefuseUnknown(fields);
  CompletionRequest request;
  request.dialect = dialect;
  const json* prompt = fields.Find("prompt");
  const json* messages = fields.Find("messages");
  if (dialect == Dialect::kChat && messages == nullptr)
    throw Refused(400, "messages is missing: expected an array of messages").On("messages");
  if (dialect == Dialect::kCompletion && prompt == nullptr)
    throw Refused(400, "prompt is missing: expected a string").On("prompt");
  if (dialect == Dialect::kNative && (prompt == nullptr) == (messages == nullptr))
    throw Refused(400, "expected either prompt or messages").On("prompt");
  if (messages != nullptr && dialect != Dialect::kCompletion) {
    request.messages = ReadMessages(*messages);
  } else {
    request.prompts = ReadPrompts(*prompt, defaults);
  }
  if (const json* kwargs = fields.Find("chat_template_kwargs"))
    request.think = JsonFields(*kwargs).Bool("enable_thinking", true);

  request.spec.sampling = defaults.sampling;
  ReadSampling(fields, defaults, request.spec.sampling);
  int64_t limit = defaults.max_tokens;
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"})
    limit = fields.Integer(name, limit, -1, std::numeric_limits<int64_t>::max());
  request.spec.max_tokens = limit;
  if (const json* stop = fields.Find("stop")) request.spec.stops = ReadStops(*stop);
  request.spec.logprobs = ReadLogprobs(fields, dialect);
  request.spec.grammar = ReadConstraint(fields);
  request.ignore_eos = fields.Bool("ignore_eos", false);
  const int64_t seed =
      fields.Integer("seed", -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  request.seed = seed >= 0 ? std::optional<uint64_t>(static_cast<uint64_t>(seed)) : defaults.seed;
  if (const json* salt = fields.Find("cache_salt")) {
    const std::string text = fields.String("cache_salt", "");
    if (text.empty() || text.size() > kMostSaltBytes)
      JsonFields::Fail("cache_salt", *salt, fmt::format("1 to {} bytes", kMostSaltBytes));
    request.spec.salt = Fnv1a(text);
  }
  request.stream = fields.Bool("stream", false);
  if (const json* options = fields.Find("stream_options"))
    request.include_usage = JsonFields(*options).Bool("include_usage", false);
  request.echo = dialect == Dialect::kCompletion && fields.Bool("echo", false);
  if (request.echo && request.spec.logprobs >= 0)
    throw Refused(400, "echo is true with logprobs: expected only one; Larder has no logprobs of prompts")
        .On("echo");
  request.n = static_cast<size_t>(fields.Integer("n", 1, 1, kMostChoices));
  if (request.choices() > kMostChoices)
    throw Refused(400, "n is {} for {} prompts: expected at most {} choices in all", request.n,
                  request.prompts.size(), kMostChoices)
        .On("n");
  if (fields.Integer("best_of", static_cast<int64_t>(request.n), 1, kMostChoices) !=
      static_cast<int64_t>(request.n))
    throw Refused(400, "best_of differs from n: expected the same number").On("best_of");
  return request;
}

std::vector<GenerationSpec> MakeSpecs(const CompletionRequest& request, const CompletionDefaults& defaults) {
  std::vector<GenerationSpec> specs;
  std::random_device random;
  GenerationSpec spec = request.spec;
  if (request.ignore_eos) BanEndOfGeneration(defaults, spec.sampling);
  spec.continues = request.messages.empty();
  const size_t prompts = request.messages.empty() ? request.prompts.size() : 1;
  for (size_t i = 0; i < prompts; ++i) {
    spec.prompt =
        request.messages.empty() ? PromptTokens(request.prompts[i], defaults) : ChatTokens(request, defaults);
    const std::string problem = pipeline::PromptProblem(spec.prompt.size(), defaults.context);
    if (!problem.empty())
      throw Refused(400, "{}", problem).On(request.messages.empty() ? "prompt" : "messages");
    for (size_t k = 0; k < request.n; ++k) {
      // The choices of one request differ from each other; with a seed they are the same each time.
      spec.sampling.seed = request.seed ? *request.seed + k : (uint64_t{random()} << 32 | random());
      specs.push_back(spec);
    }
  }
  return specs;
}

void PreparedRequest::Run(const CompletionDefaults& defaults) {
  try {
    request = ReadCompletionRequest(ParseJson(text), dialect, defaults);
    specs = MakeSpecs(request, defaults);
  } catch (const Refused& why) {
    refused = why;
  } catch (const Error& error) {
    refused = Refused(400, "{}", error.what());
  }
  text = {};
}

}  // namespace larder::serving::api
