// OpenAI's completions and chat completions.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "serving/reply/prepared_event.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;
using Kind = AnswerDelta::Kind;

const char* FinishName(const ChoiceResult& result) {
  if (result.was_cut()) return "length";
  // A stop string that ended the text in a call has cut it.
  return result.called && result.end.reason != FinishReason::kStopString ? "tool_calls" : "stop";
}

json UsageJson(const std::vector<ChoiceResult>& choices) {
  const Usage usage = UsageOf(choices);
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.generated},
          {"total_tokens", usage.prompt + usage.generated},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

json CallJsonOf(const AnswerBlock& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.text}}}};
}

// The text of a token in lists of them: OpenAI's form of bytes that are no characters.
std::string NameOf(const model::Tokenizer& tokenizer, TokenId token) {
  std::string piece = tokenizer.Piece(token, true);
  if (IsUtf8(piece)) return piece;
  std::string name = "bytes:";
  for (const char c : piece) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

// The legacy form. `text`: of these tokens; the first is at so many characters of a longer one.
json TokenLists(const model::Tokenizer& tokenizer, const std::vector<TokenLogprobs>& logprobs,
                std::string_view text, size_t offset) {
  json tokens = json::array(), values = json::array(), tops = json::array(),
       offsets = json::array();
  for (const TokenLogprobs& one : logprobs) {
    const std::string name = NameOf(tokenizer, one.token);
    const bool known = !std::isnan(one.logprob);  // not of the first token
    json top = known ? json::object() : json();
    for (const auto& [token, logprob] : one.top) top.emplace(NameOf(tokenizer, token), logprob);
    if (known) top.emplace(name, one.logprob);  // beside the likeliest, if it is none of them
    tokens.push_back(name);
    values.push_back(known ? json(one.logprob) : json());
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    // Control tokens may be no part of the text, and its first token may lose its space.
    const std::string whole = tokenizer.Piece(one.token, true);
    std::string_view piece = whole;
    if (piece.starts_with(' ') && !text.starts_with(piece)) piece.remove_prefix(1);
    if (tokenizer.IsControl(one.token) && !text.starts_with(piece)) continue;
    offset += CountCharacters(piece);
    text.remove_prefix(std::min(piece.size(), text.size()));
  }
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

// vLLM's list of the tokens of a prompt, each with `top` of the likeliest.
json PromptList(const model::Tokenizer& tokenizer, const std::vector<TokenLogprobs>& prompt,
                size_t top) {
  const auto entry = [&](TokenId token, float logprob, size_t rank) {
    return json{
        {"logprob", logprob}, {"rank", rank}, {"decoded_token", tokenizer.Piece(token, true)}};
  };
  json list = json::array();
  for (const TokenLogprobs& one : prompt) {
    json& tokens = list.emplace_back();
    if (std::isnan(one.logprob)) continue;
    tokens[fmt::to_string(one.token)] = entry(one.token, one.logprob, one.rank);
    for (size_t i = 0; i < std::min(top, one.top.size()); ++i) {
      const auto& [token, logprob] = one.top[i];
      tokens.emplace(fmt::to_string(token), entry(token, logprob, i + 1));
    }
  }
  return list;
}

class OpenAiEncoder : public ReplyEncoder {
 public:
  OpenAiEncoder(ReplyFacts facts, EventSink& sink) : facts_(std::move(facts)), sink_(sink) {
    facts_.id = (is_chat() ? "chatcmpl-" : "cmpl-") + facts_.id;
  }

  json Whole(const std::vector<ChoiceResult>& results) const override {
    json reply = Head(is_chat() ? "chat.completion" : "text_completion");
    json& choices = reply["choices"] = json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      const ChoiceResult& result = results[i];
      json choice = {{"index", i}, {"finish_reason", FinishName(result)}};
      choice["logprobs"] =
          Logprobs(result.with_logprobs ? &result.logprobs : nullptr, result.Text(), 0);
      if (result.prompt_logprobs != nullptr && facts_.prompt_logprobs >= 0)
        (is_chat() ? reply : choice)["prompt_logprobs"] =
            PromptList(*facts_.tokenizer, *result.prompt_logprobs,
                       static_cast<size_t>(facts_.prompt_logprobs));
      if (is_chat()) {
        choice["message"] = Message(result);
      } else {
        choice["text"] = result.Text();
      }
      choices.push_back(std::move(choice));
    }
    reply["usage"] = UsageJson(results);
    if (results.size() == 1) reply["timings"] = TimingsJson(results[0].end.stats);
    if (facts_.form.verbose && results.size() == 1)
      reply["__verbose"] = NativeJson(facts_, 0, results[0].Text(), results[0]);
    return reply;
  }

  void Begin(size_t choices) override {
    texts_.resize(choices);
    thoughts_.resize(choices);
    if (!is_chat()) return;
    for (size_t i = 0; i < choices; ++i)
      Send(Chunk({{"index", i},
                  {"delta", {{"role", "assistant"}, {"content", nullptr}}},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}}));
  }

  void Delta(size_t at, const AnswerDelta& delta, const std::vector<TokenLogprobs>* logprobs,
             size_t offset, const ChoiceResult& so_far) override {
    if (facts_.form.timings) return SendTimed(at, delta, logprobs, offset, so_far);
    if (logprobs == nullptr && delta.kind == Kind::kContent) {
      auto& prepared = texts_[at];
      if (!prepared) prepared.emplace(Piece(at, {{"content", PreparedEvent::kText}}, nullptr, 0));
      sink_.OnEvent(nullptr, (*prepared)(delta.text));
      return;
    }
    if (logprobs == nullptr && delta.kind == Kind::kReasoning) {
      auto& prepared = thoughts_[at];
      if (!prepared)
        prepared.emplace(Piece(
            at, {{"reasoning_content", PreparedEvent::kText}, {"reasoning", PreparedEvent::kText}},
            nullptr, 0));
      sink_.OnEvent(nullptr, (*prepared)(delta.text));
      return;
    }
    if (std::optional<json> said = Said(delta, logprobs != nullptr))
      Send(Piece(at, *std::move(said), logprobs, offset));
  }

  void Progress(size_t at, const PromptProgress& progress) override {
    json chunk = Piece(at, json::object(), nullptr, 0);
    chunk["prompt_progress"] = ProgressJson(progress);
    if (facts_.form.timings) chunk["timings"] = TimingsJson(progress);
    Send(chunk);
  }

  void End(size_t at, const ChoiceResult& result) override {
    json choice = {{"index", at}, {"logprobs", nullptr}, {"finish_reason", FinishName(result)}};
    if (is_chat()) {
      choice["delta"] = json::object();
    } else {
      choice["text"] = "";
    }
    json chunk = Chunk(std::move(choice));
    chunk["timings"] = TimingsJson(result.end.stats);
    if (facts_.form.verbose) chunk["__verbose"] = NativeJson(facts_, at, "", result);
    Send(chunk);
  }

  void Done(const std::vector<ChoiceResult>& results) override {
    if (!facts_.include_usage) return;
    json chunk = Head(is_chat() ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = json::array();
    chunk["usage"] = UsageJson(results);
    if (results.size() == 1) chunk["timings"] = TimingsJson(results[0].end.stats);
    Send(chunk);
  }

  void Failed(int status, const std::string& message) override { Send(ErrorJson(status, message)); }

 private:
  bool is_chat() const { return facts_.dialect == Dialect::kChat; }
  void Send(const json& event) { sink_.OnEvent(nullptr, Dump(event)); }

  void SendTimed(size_t at, const AnswerDelta& delta, const std::vector<TokenLogprobs>* logprobs,
                 size_t offset, const ChoiceResult& so_far) {
    std::optional<json> said = Said(delta, logprobs != nullptr);
    if (!said) return;
    json chunk = Piece(at, *std::move(said), logprobs, offset);
    chunk["timings"] = TimingsJson(so_far.end.stats);
    Send(chunk);
  }

  // nullopt: nothing, unless there are logprobs.
  static std::optional<json> Said(const AnswerDelta& delta, bool with_logprobs) {
    json said;
    switch (delta.kind) {
      case Kind::kContent:
        said = {{"content", delta.text}};
        break;
      case Kind::kReasoning:
        said = {{"reasoning_content", delta.text}, {"reasoning", delta.text}};
        break;
      case Kind::kCallBegin:
        said["tool_calls"] =
            json::array({{{"index", delta.call},
                          {"id", delta.id},
                          {"type", "function"},
                          {"function", {{"name", delta.text}, {"arguments", ""}}}}});
        break;
      case Kind::kArguments:
        said["tool_calls"] =
            json::array({{{"index", delta.call}, {"function", {{"arguments", delta.text}}}}});
        break;
      case Kind::kCallEnd:
        if (!with_logprobs) return std::nullopt;
        said = json::object();
        break;
    }
    return said;
  }

  json Head(const char* object) const {
    return {{"id", facts_.id},
            {"object", object},
            {"created", facts_.created},
            {"model", facts_.model},
            {"system_fingerprint", fmt::format("b{:016x}", facts_.fingerprint)}};
  }

  json Message(const ChoiceResult& result) const {
    const std::string text = result.Text(), thoughts = result.Text(AnswerBlock::Kind::kReasoning);
    json message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    if (!thoughts.empty()) message["reasoning_content"] = message["reasoning"] = thoughts;
    for (const AnswerBlock& block : result.blocks) {
      if (block.kind == AnswerBlock::Kind::kCall)
        message["tool_calls"].push_back(CallJsonOf(block));
    }
    if (text.empty() && message.contains("tool_calls")) message["content"] = nullptr;
    return message;
  }

  json Chunk(json choice) const {
    json chunk = Head(is_chat() ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = json::array({std::move(choice)});
    if (facts_.include_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  json Piece(size_t at, json said, const std::vector<TokenLogprobs>* logprobs,
             size_t offset) const {
    json choice = {{"index", at}, {"finish_reason", nullptr}};
    if (is_chat()) {
      choice["logprobs"] = Logprobs(logprobs, "", offset);
      choice["delta"] = std::move(said);
    } else {
      std::string text = said.value("content", "");
      choice["logprobs"] = Logprobs(logprobs, text, offset);
      choice["text"] = std::move(text);
    }
    return Chunk(std::move(choice));
  }

  json Logprobs(const std::vector<TokenLogprobs>* logprobs, std::string_view text,
                size_t offset) const {
    if (logprobs == nullptr) return nullptr;
    if (is_chat())
      return {{"content", TokenList(*facts_.tokenizer, *logprobs)}, {"refusal", nullptr}};
    return TokenLists(*facts_.tokenizer, *logprobs, text, offset);
  }

  ReplyFacts facts_;
  EventSink& sink_;
  std::vector<std::optional<PreparedEvent>> texts_, thoughts_;  // [choice]
};

}  // namespace

std::unique_ptr<ReplyEncoder> MakeOpenAiEncoder(ReplyFacts facts, EventSink& sink) {
  return std::make_unique<OpenAiEncoder>(std::move(facts), sink);
}

}  // namespace larder::serving::reply
