// Ollama's /api/chat and /api/generate: one object a line. Calls are sent whole.
#include "serving/reply/prepared_event.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;
using Kind = AnswerDelta::Kind;

// A message with the call; a broken one is text.
json CallMessage(const AnswerBlock& call) {
  const std::optional<Json> arguments = ArgumentsObject(call.text);
  if (!arguments) return {{"content", BrokenCallText(call)}};
  const json one = {{"id", call.id},
                    {"function", {{"name", call.name}, {"arguments", json(*arguments)}}}};
  return {{"content", ""}, {"tool_calls", json::array({one})}};
}

class OllamaEncoder : public ReplyEncoder {
 public:
  OllamaEncoder(ReplyFacts facts, EventSink& sink) : facts_(std::move(facts)), sink_(sink) {}

  json Whole(const std::vector<ChoiceResult>& results) const override {
    const ChoiceResult& result = results[0];
    const std::string thoughts = result.Text(AnswerBlock::Kind::kReasoning);
    json said = {{is_chat() ? "content" : "response", result.Text()}};
    if (!thoughts.empty()) said["thinking"] = thoughts;
    for (const AnswerBlock& block : result.blocks) {
      if (block.kind != AnswerBlock::Kind::kCall) continue;
      const json call = CallMessage(block);
      if (call.contains("tool_calls")) {
        said["tool_calls"].push_back(call["tool_calls"][0]);
      } else {
        said["content"] = said.value("content", "") + call.value("content", "");
      }
    }
    return Last(std::move(said), result);
  }

  void Begin(size_t) override {
    text_ = PreparedEvent(Line({{is_chat() ? "content" : "response", PreparedEvent::kText}}));
    thought_ = PreparedEvent(
        Line({{is_chat() ? "content" : "response", ""}, {"thinking", PreparedEvent::kText}}));
  }

  void Delta(size_t, const AnswerDelta& delta, const std::vector<TokenLogprobs>*, size_t,
             const ChoiceResult&) override {
    switch (delta.kind) {
      case Kind::kContent:
        sink_.OnEvent(nullptr, text_(delta.text));
        break;
      case Kind::kReasoning:
        sink_.OnEvent(nullptr, thought_(delta.text));
        break;
      case Kind::kCallBegin:
        call_ = {.kind = AnswerBlock::Kind::kCall, .text = {}, .name = delta.text, .id = delta.id};
        break;
      case Kind::kArguments:
        call_.text += delta.text;
        break;
      case Kind::kCallEnd:
        sink_.OnEvent(nullptr, Dump(Line(CallMessage(call_))));
        break;
    }
  }

  void End(size_t, const ChoiceResult& result) override {
    sink_.OnEvent(nullptr, Dump(Last({{is_chat() ? "content" : "response", ""}}, result)));
  }

  void Failed(int status, const std::string& message) override {
    sink_.OnEvent(nullptr, Dump(ErrorJson(status, message, {}, ErrorShape::kOllama)));
  }

 private:
  bool is_chat() const { return facts_.dialect == Dialect::kOllamaChat; }

  json Line(json said) const {
    json line = {{"model", facts_.model}, {"created_at", Rfc3339(facts_.created)}, {"done", false}};
    if (is_chat()) {
      said["role"] = "assistant";
      line["message"] = std::move(said);
    } else {
      line.update(said);
    }
    return line;
  }

  json Last(json said, const ChoiceResult& result) const {
    const GenerationStats& stats = result.end.stats;
    const bool any = stats.generated_tokens > 0;
    json line = Line(std::move(said));
    line["done"] = true;
    line["done_reason"] = result.was_cut() ? "length" : "stop";
    line["total_duration"] = stats.total_ns;
    line["load_duration"] = 0;
    line["prompt_eval_count"] = stats.prompt_tokens;
    line["prompt_eval_duration"] = any ? stats.first_token_ns - stats.queue_ns : 0;
    line["eval_count"] = stats.generated_tokens;
    line["eval_duration"] = any ? stats.total_ns - stats.first_token_ns : 0;
    return line;
  }

  ReplyFacts facts_;
  EventSink& sink_;
  PreparedEvent text_, thought_;
  AnswerBlock call_;  // the one that has begun
};

}  // namespace

json AnswerAtOnce(const ReplyFacts& facts, const CompletionRequest& request) {
  if (request.at_once == AtOnce::kNoVectors) {
    if (facts.dialect == Dialect::kOllamaEmbedding) return {{"embedding", json::array()}};
    return {{"model", facts.model}, {"embeddings", json::array()}};
  }
  json answer = {{"model", facts.model},
                 {"created_at", Rfc3339(facts.created)},
                 {"done", true},
                 {"done_reason", request.at_once == AtOnce::kUnload ? "unload" : "load"}};
  if (facts.dialect == Dialect::kOllamaChat) {
    answer["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    answer["response"] = "";
  }
  return answer;
}

std::unique_ptr<ReplyEncoder> MakeOllamaEncoder(ReplyFacts facts, EventSink& sink) {
  return std::make_unique<OllamaEncoder>(std::move(facts), sink);
}

}  // namespace larder::serving::reply
