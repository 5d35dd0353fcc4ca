#include "serving/api/completion_request.h"

#include <algorithm>
#include <limits>
#include <random>

#include "base/work.h"
#include "serving/api/chat_fields.h"
#include "serving/api/chat_prompt.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"
#include "serving/api/shorten.h"

namespace larder::serving::inline api {
namespace {

int ReadLogprobs(const JsonFields& fields, Dialect dialect) {
  if (dialect == Dialect::kNative || dialect == Dialect::kInfill) {  // n_probs: 0 is none
    const auto n = static_cast<int>(fields.Integer("n_probs", 0, 0, kMostLogprobs));
    return n == 0 ? -1 : n;
  }
  if (dialect == Dialect::kCompletion)
    return static_cast<int>(fields.Integer("logprobs", -1, -1, kMostLogprobs));
  const auto top = static_cast<int>(fields.Integer("top_logprobs", 0, 0, kMostLogprobs));
  if (fields.Bool("logprobs", false)) return top;
  if (top > 0)
    throw Refused(400, "top_logprobs is {}: expected logprobs to be true with it", top)
        .On("top_logprobs");
  return -1;
}

// vLLM's prompt_logprobs, which its streams have not, and OpenAI's logprobs with echo.
void ReadPromptLogprobs(const JsonFields& fields, CompletionRequest& request) {
  if (request.dialect != Dialect::kCompletion && request.dialect != Dialect::kChat) return;
  if (const Json* field = fields.Find("prompt_logprobs")) {
    request.prompt_logprobs =
        static_cast<int>(ToInteger(*field, "prompt_logprobs", 0, kMostLogprobs));
    if (request.stream)
      throw Refused(400, "prompt_logprobs is {} with stream: expected only one of them",
                    request.prompt_logprobs)
          .On("prompt_logprobs");
  }
  request.spec.prompt_logprobs = request.prompt_logprobs;
  if (!request.echo || request.spec.logprobs < 0) return;
  request.spec.prompt_logprobs = std::max(request.prompt_logprobs, request.spec.logprobs);
  request.spec.every_logprob = true;
}

// Bounds what an answer's lists of them take, in memory, and, of a stream, whose events are made on
// the I/O thread, in its time.
void CheckPromptLogprobs(const CompletionRequest& request, size_t tokens) {
  const size_t most = request.stream ? size_t{1} << 13 : size_t{1} << 17;
  if (request.spec.prompt_logprobs < 0) return;
  const size_t copies = request.echo ? request.n : 1;  // each choice's text begins with them
  if (tokens * copies * (static_cast<size_t>(request.spec.prompt_logprobs) + 1) <= most) return;
  const char* field = request.prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs";
  throw Refused(400,
                "{} is {} for {} tokens of prompts: expected at most {} log-probabilities of "
                "prompts in one {}; ask for fewer of each token, or in several requests",
                field, request.spec.prompt_logprobs, tokens * copies, most,
                request.stream ? "stream" : "answer")
      .On(field);
}

std::vector<TokenId> PromptTokens(const Prompt& prompt, const std::string& name,
                                  const CompletionDefaults& defaults) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) return *tokens;
  CheckTextFits(std::get<std::string>(prompt).size(), name, defaults);
  return defaults.tokenizer->Encode(std::get<std::string>(prompt), defaults.tokenizer->wants_bos(),
                                    /*parse_special=*/true);
}

void BanEndOfGeneration(const CompletionDefaults& defaults, SamplingParams& params) {
  const size_t ids = std::min(defaults.tokenizer->size(), defaults.vocab);
  for (size_t id = 0; id < ids; ++id) {
    if (defaults.tokenizer->IsEndOfGeneration(static_cast<TokenId>(id)))
      params.logit_bias.emplace_back(static_cast<TokenId>(id),
                                     -std::numeric_limits<float>::infinity());
  }
}

// OpenAI's chat completions and completions, and llama-server's completion.
void ReadOpenAi(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request) {
  const Dialect dialect = request.dialect;
  fields.Refuse("suffix", "none: use /infill");
  const Json* prompt = fields.Find("prompt");
  const bool chat =
      dialect == Dialect::kChat || (dialect == Dialect::kNative && fields.Has("messages"));
  if (dialect == Dialect::kCompletion && prompt == nullptr)
    throw Refused(400, "prompt is missing: expected a string").On("prompt");
  if (dialect == Dialect::kNative && (prompt == nullptr) == !chat)
    throw Refused(400, "expected either prompt or messages").On("prompt");
  if (chat) {
    ReadChat(fields, request);
  } else {
    request.prompts = ReadPrompts(*prompt, defaults);
    request.prompts_listed = request.prompts.size() > 1;
  }
  ReadSampling(fields, defaults, request);
  ReadLimit(fields, {"n_predict", "max_tokens", "max_completion_tokens"}, defaults, request);
  if (const Json* stop = fields.Find("stop")) request.spec.stops = ReadStops("stop", *stop);
  request.spec.logprobs = ReadLogprobs(fields, dialect);
  ReadForm(fields, request);
  request.stream = fields.Bool("stream", false);
  if (const Json* options = fields.Find("stream_options"))
    request.include_usage = JsonFields(*options, "stream_options").Bool("include_usage", false);
  request.echo = dialect == Dialect::kCompletion && fields.Bool("echo", false);
  ReadPromptLogprobs(fields, request);
  ReadNative(fields, defaults, request);
  request.n = static_cast<size_t>(fields.Integer("n", 1, 1, kMostChoices));
  if (IsNative(dialect))
    request.n = static_cast<size_t>(
        fields.Integer("n_cmpl", static_cast<int64_t>(request.n), 1, kMostChoices));
  if (request.choices() > kMostChoices)
    throw Refused(400, "n is {} for {} prompts: expected at most {} choices in all", request.n,
                  request.prompts.size(), kMostChoices)
        .On("n");
  if (fields.Integer("best_of", static_cast<int64_t>(request.n), 1, kMostChoices) !=
      static_cast<int64_t>(request.n))
    throw Refused(400, "best_of differs from n: expected the same number").On("best_of");
  if (const Json* modalities = fields.Find("modalities");
      modalities != nullptr && *modalities != Json{"text"})
    JsonFields::Fail("modalities", *modalities, "[\"text\"]: this model writes nothing else");
  fields.Ignore({"service_tier", "store", "metadata", "user", "prediction", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "verbosity", "cache_prompt",
                 "return_tokens", "id", "api_key", "parse_tool_calls", "backend_sampling"});
}

// For clients that want to know: nothing that they sent is left out.
void CheckNothingIsLeftOut(const JsonFields& fields, const CompletionRequest& request) {
  std::string said, first;
  for (const std::string& name : fields.LeftOut(kMostLeftOut)) {
    if (first.empty()) first = name;
    said += (said.empty() ? "" : ", ") + Excerpt(name);
  }
  if (!said.empty())
    throw Refused(400, "strict is true, and these fields change nothing here: {}", said).On(first);
  if (request.ignored_fields > 0)
    throw Refused(400, "strict is true, and a tool or an item is of a type that is skipped here")
        .On("tools");
}

}  // namespace

// A tree of small values is about 16 times larger than its text.
size_t CompletionRequest::held_bytes() const {
  return 16 * tool_bytes * (choices() + 1) + input_items.size();
}

std::string CompletionRequest::NameOf(size_t prompt) const {
  if (is_chat()) return conversation_field();
  return prompts_listed ? fmt::format("{}[{}]", prompts_field, prompt) : prompts_field;
}

nlohmann::json ChatCapsJson(const model::ChatTemplate& chat) {
  return {{"supports_tools", chat.supports_tools()},
          {"supports_tool_calls", chat.writes_calls(true)},
          {"supports_parallel_tool_calls", chat.writes_parallel_calls(true)},
          {"supports_thinking", chat.supports_thinking()},
          {"supports_system_role", chat.supports_system()}};
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
  request.spec.special = defaults.special;
  request.seed = defaults.seed;
  request.stream = true;
  return request;
}

CompletionRequest ReadCompletionRequest(const Json& body, Dialect dialect,
                                        const CompletionDefaults& defaults, const FindTurn& find,
                                        FieldNames* names) {
  const JsonFields fields(body);
  const bool strict = fields.Bool("strict", defaults.strict_fields);
  CheckModel(fields.String("model", ""), dialect, defaults);
  CompletionRequest request;
  request.dialect = dialect;
  request.spec.sampling = defaults.sampling;
  request.spec.max_tokens = defaults.max_tokens;
  request.seed = defaults.seed;
  request.split_reasoning = defaults.split_reasoning;
  request.kwargs = defaults.kwargs;
  SetEffort(request, "reasoning_effort", defaults.effort);
  switch (dialect) {
    case Dialect::kCompletion:
    case Dialect::kChat:
    case Dialect::kNative:
      ReadOpenAi(fields, defaults, request);
      break;
    case Dialect::kInfill:
      ReadInfill(fields, defaults, request);
      break;
    case Dialect::kResponses:
      ReadResponses(fields, defaults, find, request);
      break;
    case Dialect::kMessages:
      ReadMessages(fields, defaults, request);
      break;
    case Dialect::kOllamaChat:
    case Dialect::kOllamaGenerate:
      ReadOllama(fields, defaults, request);
      break;
    case Dialect::kEmbeddings:
    case Dialect::kNativeEmbedding:
    case Dialect::kOllamaEmbed:
    case Dialect::kOllamaEmbedding:
      ReadEmbeddings(fields, defaults, request);
      break;
    case Dialect::kRerank:
      ReadRerank(fields, defaults, request);
      break;
  }
  request.ignored_fields += fields.ignored();
  if (names != nullptr) fields.AddNames(*names);
  if (strict) CheckNothingIsLeftOut(fields, request);
  return request;
}

size_t CountPromptTokens(CompletionRequest& request, const CompletionDefaults& defaults) {
  CompletionDefaults unbounded = defaults;
  unbounded.context = SIZE_MAX;  // what a text is checked against before it is tokenized
  if (request.is_chat()) return ChatTokens(request, unbounded).size();
  return request.prompts.empty()
             ? 0
             : PromptTokens(request.prompts[0], request.NameOf(0), unbounded).size();
}

std::vector<GenerationSpec> MakeSpecs(CompletionRequest& request,
                                      const CompletionDefaults& defaults) {
  if (request.at_once != AtOnce::kNo) return {};
  std::vector<std::vector<TokenId>> prompts;
  const bool chat = request.is_chat();
  if (chat) {
    if (request.shorten) ShortenConversation(request, defaults);
    prompts.push_back(ChatTokens(request, defaults));
  } else {
    for (size_t i = 0; i < request.prompts.size(); ++i)
      prompts.push_back(PromptTokens(request.prompts[i], request.NameOf(i), defaults));
  }
  GenerationSpec spec = request.spec;  // with what ChatTokens set
  if (request.ignore_eos) BanEndOfGeneration(defaults, spec.sampling);
  spec.continues = !chat || request.continue_last || request.continue_thought;
  std::vector<GenerationSpec> specs;
  std::random_device random;
  size_t tokens = 0;
  for (const std::vector<TokenId>& prompt : prompts) tokens += prompt.size();
  CheckPromptLogprobs(request, tokens);
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<TokenId>& prompt = prompts[i];
    CheckPrompt(prompt.size(), defaults.context, defaults.model_context, request.NameOf(i));
    spec.prompt = std::move(prompt);
    spec.slot = request.spec.slot;
    for (size_t k = 0; k < request.n; ++k) {
      if (k > 0) spec.slot.reset();  // the others need not wait for it
      // The choices of one request differ from each other; with a seed they are the same each time.
      spec.sampling.seed = request.seed ? *request.seed + k : (uint64_t{random()} << 32 | random());
      // Those of one prompt are the same; in a stream each choice comes when it comes.
      spec.prompt_logprobs = k == 0 || request.stream ? request.spec.prompt_logprobs : -1;
      specs.push_back(spec);
    }
  }
  return specs;
}

void PreparedRequest::Run(const CompletionDefaults& defaults) {
  const OwnWork work;  // for lines of files; a session has a Work already
  try {
    request = ReadCompletionRequest(ParseJson(text), dialect, defaults, find);
    specs = MakeSpecs(request, defaults);
  } catch (const Refused& why) {
    refused = why;
  } catch (const Error& error) {
    refused = Refused(400, "{}", error.what());
  }
  text = {};
}

}  // namespace larder::serving::api
