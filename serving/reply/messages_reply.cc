// Anthropic's Messages: a list of content blocks; in a stream each block has a start, deltas and a
// stop.
#include "serving/reply/prepared_event.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;
using Kind = AnswerDelta::Kind;

const char* StopReason(const ChoiceResult& result, bool has_call) {
  if (result.was_cut())
    return result.end.reason == FinishReason::kContextFull ? "model_context_window_exceeded"
                                                           : "max_tokens";
  if (result.end.reason == FinishReason::kStopString) return "stop_sequence";
  return has_call ? "tool_use" : "end_turn";
}

json StopSequence(const ChoiceResult& result) {
  return result.end.reason == FinishReason::kStopString ? json(result.end.stop_string) : json();
}

// Anthropic counts the tokens of a prompt that were in the cache apart.
json UsageJson(const GenerationStats& stats) {
  return {{"input_tokens", stats.prompt_tokens - stats.reused_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", stats.reused_tokens},
          {"output_tokens", stats.generated_tokens}};
}

json BlockJson(const AnswerBlock& block, bool was_cut) {
  switch (block.kind) {
    case AnswerBlock::Kind::kText:
      return {{"type", "text"}, {"text", block.text}};
    case AnswerBlock::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case AnswerBlock::Kind::kCall:
      break;
  }
  const std::optional<Json> arguments = ArgumentsObject(block.text);
  if (!arguments && !was_cut) return {{"type", "text"}, {"text", BrokenCallText(block)}};
  return {{"type", "tool_use"},
          {"id", block.id},
          {"name", block.name},
          {"input", arguments ? json(*arguments) : json::object()}};
}

class MessagesEncoder : public ReplyEncoder {
 public:
  MessagesEncoder(ReplyFacts facts, EventSink& sink) : facts_(std::move(facts)), sink_(sink) {}

  json Whole(const std::vector<ChoiceResult>& results) const override {
    const ChoiceResult& result = results[0];
    json message = Message();
    bool has_call = false;  // that is not shown as text
    for (const AnswerBlock& block : result.blocks) {
      json shown = BlockJson(block, result.was_cut());
      has_call |= shown["type"] == "tool_use";
      message["content"].push_back(std::move(shown));
    }
    message["stop_reason"] = StopReason(result, has_call);
    message["stop_sequence"] = StopSequence(result);
    message["usage"] = UsageJson(result.end.stats);
    return message;
  }

  void Begin(size_t) override {
    json message = Message();
    message["usage"] = UsageJson({.prompt_tokens = facts_.prompt_tokens});
    Send("message_start", {{"message", message}});
  }

  void Delta(size_t, const AnswerDelta& delta, const std::vector<TokenLogprobs>*, size_t,
             const ChoiceResult&) override {
    switch (delta.kind) {
      case Kind::kContent:
        if (delta.text.empty()) return;
        Open(AnswerBlock::Kind::kText, {{"type", "text"}, {"text", ""}}, "text_delta", "text");
        break;
      case Kind::kReasoning:
        if (delta.text.empty()) return;
        Open(AnswerBlock::Kind::kReasoning,
             {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, "thinking_delta",
             "thinking");
        break;
      case Kind::kCallBegin:
        Close();
        Open(AnswerBlock::Kind::kCall,
             {{"type", "tool_use"},
              {"id", delta.id},
              {"name", delta.text},
              {"input", json::object()}},
             "input_json_delta", "partial_json");
        return;
      case Kind::kArguments:
        break;
      case Kind::kCallEnd:
        Close();
        return;
    }
    sink_.OnEvent("content_block_delta", piece_(delta.text));
  }

  void End(size_t, const ChoiceResult& result) override {
    Close();
    Send("message_delta", {{"delta",
                            {{"stop_reason", StopReason(result, result.called)},
                             {"stop_sequence", StopSequence(result)}}},
                           {"usage", UsageJson(result.end.stats)}});
    Send("message_stop", json::object());
  }

  void Failed(int status, const std::string& message) override {
    sink_.OnEvent("error", Dump(ErrorJson(status, message, {}, ErrorShape::kAnthropic)));
  }

 private:
  json Message() const {
    return {{"id", "msg_" + facts_.id}, {"type", "message"},        {"role", "assistant"},
            {"model", facts_.model},    {"content", json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  void Send(const char* name, json event) {
    event["type"] = name;
    sink_.OnEvent(name, Dump(event));
  }

  void Open(AnswerBlock::Kind kind, json block, const char* type, const char* field) {
    if (open_ && kind_ == kind) return;
    Close();
    open_ = true;
    kind_ = kind;
    Send("content_block_start", {{"index", index_}, {"content_block", std::move(block)}});
    piece_ = PreparedEvent({{"type", "content_block_delta"},
                            {"index", index_},
                            {"delta", {{"type", type}, {field, PreparedEvent::kText}}}});
  }

  void Close() {
    if (!open_) return;
    open_ = false;
    if (kind_ == AnswerBlock::Kind::kReasoning)
      Send("content_block_delta",
           {{"index", index_}, {"delta", {{"type", "signature_delta"}, {"signature", ""}}}});
    Send("content_block_stop", {{"index", index_}});
    ++index_;
  }

  ReplyFacts facts_;
  EventSink& sink_;
  bool open_ = false;
  AnswerBlock::Kind kind_ = AnswerBlock::Kind::kText;  // kind of the open block
  size_t index_ = 0;                                   // index of the open block, or of the next
  PreparedEvent piece_;                                // a delta of the open block
};

}  // namespace

std::unique_ptr<ReplyEncoder> MakeMessagesEncoder(ReplyFacts facts, EventSink& sink) {
  return std::make_unique<MessagesEncoder>(std::move(facts), sink);
}

}  // namespace larder::serving::reply
