// ChatTemplate: makes the prompt of a conversation, as the model's own Jinja template writes it.
// Parsed once, immutable, thread-safe.
//
// Templates differ in what they take: arguments of calls as objects or as JSON text, contents as
// text or as parts, a system message or none, several calls in a message or one, ids of any form or
// Mistral's. What this one takes is found by rendering small conversations when it is parsed, and
// Render gives it that form, so that each text, call and result of the conversation is in the
// prompt once and in its order. If it refuses a conversation, Render tries once more with strictly
// alternating turns of user and assistant, which some templates demand.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/jinja_template.h"
#include "model/tokenizer/text_piece.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline chat {

struct ChatInput {
  // OpenAI's form: role, content (string, parts or null), tool_calls, tool_call_id, name,
  // reasoning_content.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // OpenAI's form, an array; null: none
  // chat_template_kwargs: further variables (enable_thinking, reasoning_effort, documents...)
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();
  bool add_generation_prompt = true;
  bool continue_last = false;  // the last message is the assistant's and is not closed: the answer
                               // goes on
  int64_t now_s = 0;           // what strftime_now prints
};

class ChatTemplate {
 public:
  // `name` is for messages: "tokenizer.chat_template of FILE", "--chat-template X". `bos` and
  // `eos`: the texts of these tokens. `tool_use`: another template for chats with tools, or empty.
  // Throws Error: one line, with the line of the template.
  static std::shared_ptr<const ChatTemplate> Parse(std::string source, std::string name,
                                                   std::string bos, std::string eos,
                                                   std::string tool_use = {});
  // The template of the model's file; null: it has none.
  static std::shared_ptr<const ChatTemplate> OfModel(const Tokenizer& tokenizer,
                                                     const std::string& file);
  // A built-in one by its name, the template itself (a text with {{ or {%), or the text of a file.
  // Throws Error if there is neither.
  static std::shared_ptr<const ChatTemplate> Named(const std::string& name_or_file,
                                                   const Tokenizer& tokenizer);
  // The prompt, for Tokenizer::EncodePieces. Throws Error: the text of raise_exception, limits,
  // wrong types.
  std::vector<TextPiece> Render(const ChatInput&) const;

  const std::string& source() const { return main_->source(); }
  bool Mentions(const char* variable) const { return main_->Mentions(variable); }
  const std::string& name() const { return name_; }
  bool supports_tools() const { return caps_.tools; }
  bool supports_thinking() const {
    return caps_.thinking;
  }  // the template has a switch for thoughts, or writes earlier ones
  bool supports_system() const { return caps_.system; }
  // For the template of chats with tools, or without: whether earlier calls are in the prompt,
  // whether results are, and whether the template takes several calls in a message (otherwise
  // Render splits them).
  bool writes_calls(bool with_tools) const { return CapsFor(with_tools).calls; }
  bool writes_results(bool with_tools) const { return CapsFor(with_tools).results; }
  bool writes_parallel_calls(bool with_tools) const { return CapsFor(with_tools).parallel_calls; }

 private:
  struct Caps {
    bool tools = false, thinking = false, system = true;
    bool object_arguments = false;        // arguments of calls must be objects
    bool typed_content = false;           // contents must be parts
    bool text_content = true;             // contents may be text; otherwise Render makes parts of
                                          // it
    bool null_content = true;             // a message with calls may have no content
    bool calls = false, results = false;  // whether earlier calls and results appear in the prompt
    bool parallel_calls = false;          // whether several calls of one message appear
    bool text_and_calls = true;           // a message with calls may have text
    bool several_systems = true, late_systems = true;  // whether system messages other than the
                                                       // first appear
    bool lone_results = true;   // whether results without a preceding call appear
    bool short_ids = false;     // ids of calls must be nine letters or digits
    bool unset_tools = false;   // without tools the variable must not be there, rather than be none
    bool descriptions = false;  // functions and parameters must have a description
  };

  ChatTemplate() = default;
  const Caps& CapsFor(bool with_tools) const {
    return with_tools && tool_use_ != nullptr ? tool_use_caps_ : caps_;
  }
  Caps Probe(const JinjaTemplate&) const;
  void ProbeCalls(const JinjaTemplate&, Caps&) const;
  void ProbeSystems(const JinjaTemplate&, Caps&, const nlohmann::ordered_json& system,
                    const nlohmann::ordered_json& user) const;
  // "" where it fails
  std::string TryRender(const JinjaTemplate&, const Caps&, const ChatInput&) const;
  std::vector<TextPiece> RenderWith(const JinjaTemplate&, const Caps&, const ChatInput&,
                                    uint64_t most_steps = 0) const;
  std::vector<TextPiece> RenderAdapted(const JinjaTemplate&, const Caps&, const ChatInput&,
                                       bool in_turns) const;
  ChatInput Adapted(const ChatInput&, const Caps&, bool in_turns) const;

  std::string name_, bos_, eos_;
  std::shared_ptr<const JinjaTemplate> main_, tool_use_;
  Caps caps_, tool_use_caps_;
};

// The names that ChatTemplate::Named knows, and their texts (model/chat/builtin_templates.cc).
std::span<const std::string_view> BuiltInTemplateNames();
std::string_view BuiltInTemplate(std::string_view name);  // empty: none of that name
std::string BuiltInTemplateList();                        // "chatml, llama2, ...", for messages

}  // namespace larder::model::chat
