#include "serving/reply/reply.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace larder::serving::inline reply {

using nlohmann::json;

std::string ChoiceResult::Text(AnswerBlock::Kind kind) const {
  std::string text;
  for (const AnswerBlock& block : blocks) {
    if (block.kind == kind) text += block.text;
  }
  return text;
}

void ChoiceResult::Add(const AnswerDelta& delta) {
  const auto append = [&](AnswerBlock::Kind kind) {
    if (delta.text.empty()) return;
    if (blocks.empty() || blocks.back().kind != kind) blocks.push_back({.kind = kind});
    blocks.back().text += delta.text;
  };
  switch (delta.kind) {
    case AnswerDelta::Kind::kContent:
      append(AnswerBlock::Kind::kText);
      break;
    case AnswerDelta::Kind::kReasoning:
      append(AnswerBlock::Kind::kReasoning);
      break;
    case AnswerDelta::Kind::kCallBegin:
      blocks.push_back(
          {.kind = AnswerBlock::Kind::kCall, .text = {}, .name = delta.text, .id = delta.id});
      break;
    case AnswerDelta::Kind::kArguments:
      append(AnswerBlock::Kind::kCall);  // calls don't overlap
      break;
    case AnswerDelta::Kind::kCallEnd:
      break;
  }
}

std::unique_ptr<ReplyEncoder> MakeEncoder(ReplyFacts facts, EventSink& sink) {
  switch (facts.dialect) {
    case Dialect::kCompletion:
    case Dialect::kChat:
      break;
    case Dialect::kNative:
    case Dialect::kInfill:
      return MakeNativeEncoder(std::move(facts), sink);
    case Dialect::kResponses:
      return MakeResponsesEncoder(std::move(facts), sink);
    case Dialect::kMessages:
      return MakeMessagesEncoder(std::move(facts), sink);
    case Dialect::kOllamaChat:
    case Dialect::kOllamaGenerate:
      return MakeOllamaEncoder(std::move(facts), sink);
    case Dialect::kEmbeddings:
    case Dialect::kNativeEmbedding:
    case Dialect::kOllamaEmbed:
    case Dialect::kOllamaEmbedding:
    case Dialect::kRerank:
      return MakeEmbeddingEncoder(std::move(facts));
  }
  return MakeOpenAiEncoder(std::move(facts), sink);
}

std::string Rfc3339(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

Usage UsageOf(const std::vector<ChoiceResult>& choices) {
  Usage usage;
  for (size_t i = 0; i < choices.size(); ++i) {
    const GenerationStats& stats = choices[i].end.stats;
    if (i == 0 || choices[i].prompt != choices[i - 1].prompt) {
      usage.prompt += stats.prompt_tokens;
      usage.cached += stats.reused_tokens;
    }
    usage.generated += stats.generated_tokens;
    usage.reasoning += choices[i].reasoning_tokens;
  }
  return usage;
}

json TimingsJson(const GenerationStats& stats) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const auto rate = [](size_t n, double of_ms) {
    return of_ms > 0 ? 1e3 * static_cast<double>(n) / of_ms : 0.0;
  };
  const size_t run = stats.prompt_tokens - stats.reused_tokens;
  const size_t steps = stats.generated_tokens > 0 ? stats.generated_tokens - 1 : 0;
  const bool any = stats.generated_tokens > 0;
  const double prompt_ms = ms(stats.prompt_ns);
  const double decode_ms = any ? ms(stats.total_ns - stats.first_token_ns) : 0;
  return {{"cache_n", stats.reused_tokens},
          {"prompt_n", run},
          {"prompt_ms", prompt_ms},
          {"prompt_per_token_ms", run > 0 ? prompt_ms / static_cast<double>(run) : 0.0},
          {"prompt_per_second", rate(run, prompt_ms)},
          {"predicted_n", stats.generated_tokens},
          {"predicted_ms", decode_ms},
          {"predicted_per_token_ms", steps > 0 ? decode_ms / static_cast<double>(steps) : 0.0},
          {"predicted_per_second", rate(steps, decode_ms)},
          {"queue_ms", ms(stats.queue_ns)},
          {"ttft_ms", ms(stats.first_token_ns)}};
}

json TimingsJson(const PromptProgress& progress) {
  GenerationStats stats = progress.stats;
  stats.prompt_tokens = progress.processed;
  return TimingsJson(stats);
}

json ProgressJson(const PromptProgress& progress) {
  return {{"total", progress.total},
          {"cache", progress.cached},
          {"processed", progress.processed},
          {"time_ms", progress.stats.prompt_ns / 1'000'000}};
}

namespace {

json TokenJson(const model::Tokenizer& tokenizer, TokenId token, float logprob,
               TokenListForm form) {
  const std::string piece = tokenizer.Piece(token, true);
  json bytes = json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  json entry = {{"token", piece}, {"bytes", bytes}};
  if (form == TokenListForm::kNativeDrawn) {
    entry["prob"] = std::min(1.0, std::exp(double{logprob}));
  } else {
    entry["logprob"] = logprob;
  }
  if (form != TokenListForm::kOpenAi) entry["id"] = token;
  return entry;
}

}  // namespace

json TokenList(const model::Tokenizer& tokenizer, const std::vector<TokenLogprobs>& logprobs,
               TokenListForm form) {
  json list = json::array();
  for (const TokenLogprobs& one : logprobs) {
    json top = json::array();
    for (const auto& [token, logprob] : one.top)
      top.push_back(TokenJson(tokenizer, token, logprob, form));
    json entry = TokenJson(tokenizer, one.token, one.logprob, form);
    entry[form == TokenListForm::kNativeDrawn ? "top_probs" : "top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

std::optional<Json> ArgumentsObject(const std::string& text) {
  try {
    Json object = ParseJson(text);
    if (object.is_object()) return object;
  } catch (const Refused&) {
  }
  return std::nullopt;
}

std::string BrokenCallText(const AnswerBlock& call) { return call.name + " " + call.text; }

}  // namespace larder::serving::reply
