// OpenAI's Responses: a list of output items (messages, thoughts, calls); in a stream every item
// and every part of it is announced, sent in deltas, and repeated whole. All events are numbered.
#include "serving/reply/prepared_event.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;
using Kind = AnswerDelta::Kind;

json ResponseUsageJson(const std::vector<ChoiceResult>& results) {
  const Usage usage = UsageOf(results);
  return {{"input_tokens", usage.prompt},
          {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.generated},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
          {"total_tokens", usage.prompt + usage.generated}};
}

json PartJson(AnswerBlock::Kind kind, const std::string& text) {
  if (kind == AnswerBlock::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::array()},
          {"logprobs", json::array()}};
}

class ResponsesEncoder : public ReplyEncoder {
 public:
  ResponsesEncoder(ReplyFacts facts, EventSink& sink) : facts_(std::move(facts)), sink_(sink) {}

  bool keeps_text() const override { return true; }

  json Whole(const std::vector<ChoiceResult>& results) const override {
    const ChoiceResult& result = results[0];
    json response = Response(result.was_cut() ? "incomplete" : "completed");
    if (result.was_cut()) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    for (size_t i = 0; i < result.blocks.size(); ++i) {
      const bool cut = result.was_cut() && i + 1 == result.blocks.size();
      response["output"].push_back(Item(i, result.blocks[i], cut ? "incomplete" : "completed"));
    }
    response["usage"] = ResponseUsageJson(results);
    return response;
  }

  void Begin(size_t) override {
    Send("response.created", {{"response", Response("in_progress")}});
    Send("response.in_progress", {{"response", Response("in_progress")}});
  }

  void Delta(size_t, const AnswerDelta& delta, const std::vector<TokenLogprobs>*, size_t,
             const ChoiceResult& so_far) override {
    if (so_far.blocks.empty()) return;
    const size_t last = so_far.blocks.size() - 1;
    if (opened_ <= last) {
      Close(so_far, "completed");
      Open(last, so_far.blocks[last]);
    }
    if (delta.kind == Kind::kCallBegin || delta.kind == Kind::kCallEnd || delta.text.empty())
      return;
    std::string event = piece_(delta.text);
    event.pop_back();  // "}": the number comes last
    event += fmt::format(",\"sequence_number\":{}}}", number_++);
    sink_.OnEvent(piece_name_, std::move(event));
  }

  void End(size_t, const ChoiceResult& result) override {
    Close(result, result.was_cut() ? "incomplete" : "completed");
  }

  void Done(const std::vector<ChoiceResult>& results) override {
    Send(results[0].was_cut() ? "response.incomplete" : "response.completed",
         {{"response", Whole(results)}});
  }

  void Failed(int status, const std::string& message) override {
    json response = Response("failed");
    response["error"] = {{"code", status == 503 ? "server_overloaded" : "server_error"},
                         {"message", message}};
    Send("response.failed", {{"response", response}});
  }

 private:
  json Response(const char* status) const {
    json response = {{"id", "resp_" + facts_.id},
                     {"object", "response"},
                     {"created_at", facts_.created},
                     {"status", status},
                     {"background", false},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"instructions", nullptr},
                     {"max_output_tokens", nullptr},
                     {"metadata", json::object()},
                     {"model", facts_.model},
                     {"output", json::array()},
                     {"parallel_tool_calls", facts_.parallel_calls},
                     {"previous_response_id", nullptr},
                     {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                     {"store", facts_.stored},
                     {"temperature", nullptr},
                     {"text", {{"format", {{"type", "text"}}}}},
                     {"tool_choice", "auto"},
                     {"tools", json::array()},
                     {"top_p", nullptr},
                     {"truncation", "disabled"},
                     {"usage", nullptr}};
    for (const auto& [name, value] : facts_.echoed.items()) response[name] = json(value);
    return response;
  }

  std::string ItemId(size_t at, AnswerBlock::Kind kind) const {
    const char* prefix = kind == AnswerBlock::Kind::kText        ? "msg"
                         : kind == AnswerBlock::Kind::kReasoning ? "rs"
                                                                 : "fc";
    return fmt::format("{}_{}-{}", prefix, facts_.id, at);
  }

  json Item(size_t at, const AnswerBlock& block, const char* status) const {
    json item = {{"id", ItemId(at, block.kind)}, {"status", status}};
    switch (block.kind) {
      case AnswerBlock::Kind::kText:
        item["type"] = "message";
        item["role"] = "assistant";
        item["content"] = json::array({PartJson(block.kind, block.text)});
        break;
      case AnswerBlock::Kind::kReasoning:
        item["type"] = "reasoning";
        item["summary"] = json::array();
        item["content"] = json::array({PartJson(block.kind, block.text)});
        break;
      case AnswerBlock::Kind::kCall:
        item["type"] = "function_call";
        item["call_id"] = block.id;
        item["name"] = block.name;
        if (const auto own = facts_.namespaced.find(block.name); own != facts_.namespaced.end())
          item.update(json(*own));
        item["arguments"] = block.text;
        break;
    }
    return item;
  }

  void Send(const char* name, json event) {
    event["type"] = name;
    event["sequence_number"] = number_++;
    sink_.OnEvent(name, Dump(event));
  }

  void Open(size_t at, const AnswerBlock& block) {
    opened_ = at + 1;
    json item = Item(at, {.kind = block.kind, .text = {}, .name = block.name, .id = block.id},
                     "in_progress");
    if (item.contains("content")) item["content"] = json::array();
    Send("response.output_item.added", {{"output_index", at}, {"item", item}});
    json place = {{"item_id", item["id"]}, {"output_index", at}};
    if (block.kind == AnswerBlock::Kind::kCall) {
      piece_name_ = "response.function_call_arguments.delta";
    } else {
      place["content_index"] = 0;
      json part = place;
      part["part"] = PartJson(block.kind, "");
      Send("response.content_part.added", part);
      const bool text = block.kind == AnswerBlock::Kind::kText;
      piece_name_ = text ? "response.output_text.delta" : "response.reasoning_text.delta";
      if (text) place["logprobs"] = json::array();
    }
    place["type"] = piece_name_;
    place["delta"] = PreparedEvent::kText;
    piece_ = PreparedEvent(place);
  }

  // Ends the item that is open.
  void Close(const ChoiceResult& result, const char* status) {
    if (opened_ == closed_) return;
    const size_t at = closed_++;
    const AnswerBlock& block = result.blocks[at];
    json done = {{"item_id", ItemId(at, block.kind)}, {"output_index", at}};
    if (block.kind == AnswerBlock::Kind::kCall) {
      done["arguments"] = block.text;
      done["name"] = Item(at, block, status)["name"];
      Send("response.function_call_arguments.done", done);
    } else {
      done["content_index"] = 0;
      json part = done;
      part["part"] = PartJson(block.kind, block.text);
      done["text"] = block.text;
      const bool text = block.kind == AnswerBlock::Kind::kText;
      if (text) done["logprobs"] = json::array();
      Send(text ? "response.output_text.done" : "response.reasoning_text.done", done);
      Send("response.content_part.done", part);
    }
    Send("response.output_item.done", {{"output_index", at}, {"item", Item(at, block, status)}});
  }

  ReplyFacts facts_;
  EventSink& sink_;
  size_t number_ = 0;               // number of the next event
  size_t opened_ = 0, closed_ = 0;  // items; at most one is open
  PreparedEvent piece_;             // a delta of the open item
  const char* piece_name_ = "";
};

}  // namespace

std::unique_ptr<ReplyEncoder> MakeResponsesEncoder(ReplyFacts facts, EventSink& sink) {
  return std::make_unique<ResponsesEncoder>(std::move(facts), sink);
}

}  // namespace larder::serving::reply
