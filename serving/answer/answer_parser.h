// AnswerParser: turns a model's text, while it is generated, into what APIs know: content, thoughts
// and tool calls. One per choice, owned by the thread that serves it. The result does not depend on
// how the text is cut into pieces (merge neighbouring deltas of one kind to compare). Text that
// cannot be the start of a marker passes at once; newlines in front of a possible call wait for the
// next byte.
//
// What a model writes is never lost. A call that breaks before its name and the first byte of its
// arguments are known comes out as content, marker included. One that breaks later ends with the
// arguments so far, which are not valid JSON then (closing them would make a truncated command look
// complete); what follows is content. Only markers, and white space beside them, vanish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/answer/answer_format.h"

namespace larder::serving::inline answer {

struct AnswerDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kArguments, kCallEnd };
  Kind kind = Kind::kContent;
  size_t call = 0;   // for the last three kinds: the call's number in this answer, from 0; calls do
                     // not overlap
  std::string text;  // kCallBegin: the function's name; kArguments: a piece of the JSON text;
                     // kCallEnd: none
  std::string id;    // kCallBegin

  bool operator==(const AnswerDelta&) const = default;
};

struct AnswerParserOptions {
  AnswerFormat format = AnswerFormat::kGeneric;
  bool parse_tools = true;      // false: calls stay in the content, as they are
  bool parse_reasoning = true;  // false: thoughts stay in the content, with their markers
  bool starts_in_reasoning = false;
  nlohmann::ordered_json tools;  // OpenAI's form, or null: types of parameters, names that count as
                                 // calls
  // Ids are derived from it, so that a repeated job has the same bytes. It must differ between the
  // turns of a conversation, or ids would repeat: AnswerIdSeed.
  uint64_t id_seed = 0;
  size_t calls_before = 0;  // calls in the conversation so far: Kimi numbers them on
};

class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  std::vector<AnswerDelta> Add(std::string_view text);
  std::vector<AnswerDelta> Finish();  // call it at the end of the text; nothing may be added after
                                      // it
  bool called() const;                // a call has begun: finish_reason is "tool_calls"

  class Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

// A seed for ids, from the prompt, the sampling seed and the choice's number.
uint64_t AnswerIdSeed(std::string_view prompt, uint64_t seed, size_t choice);

// The id of a call: nine letters and digits for Mistral, functions.NAME:N for Kimi, call_ and 24
// otherwise.
std::string ToolCallId(AnswerFormat, uint64_t id_seed, size_t call, size_t calls_before,
                       std::string_view name);

}  // namespace larder::serving::answer
