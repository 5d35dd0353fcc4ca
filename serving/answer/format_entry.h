// FormatEntry: all that one format is, how its text is recognised, read, constrained and written.
// serving/answer/formats/ defines one for each AnswerFormat; everything else works from these
// fields and knows no format by name. Made once, constant; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/answer/answer_format.h"
#include "serving/answer/answer_machine.h"
#include "serving/answer/grammar_text.h"
#include "serving/answer/markers.h"

namespace larder::serving::inline answer {

// How calls stand in a text: open call (separator call)* close.
struct CallShape {
  std::vector<std::string_view> open;
  std::vector<std::string_view> separator = {};
  std::vector<std::string_view> close = {};
  bool list = false;   // more than one call is possible
  bool marked = true;  // open's first text tells a call from other text: a constraint of free text
                       // begins behind it
  std::string_view before = {};  // in GBNF: stands before `open` where a call has to come
  std::string_view fence = {};   // a call that is not marked may stand behind it
};

// How a thought stands before what is constrained.
struct ThoughtShape {
  std::vector<std::string_view> open = {"<think>"};  // empty: nothing opens it, it always comes
  std::string_view end = "</think>";
  std::vector<std::string_view> behind = {};  // empty: up to two line ends
  // The model always thinks, in messages of their own: several may come before the answer.
  bool messages = false;
};

// Ids of calls.
struct CallIds {
  std::string_view prefix = "call_";
  size_t letters = 24;    // and digits, behind the prefix
  bool numbered = false;  // instead functions.NAME:N, counted through the conversation; an id that
                          // the model writes is kept
};

// Opening and end of thoughts in most formats. Text may well speak of <think>, so it opens a
// thought only where a thought can be.
std::vector<Marker> ThinkTags();
// The same and `more`.
std::vector<Marker> ThinkTagsAnd(const std::vector<Marker>& more);

struct FormatEntry {
  std::string_view name;  // AnswerFormatName
  // A chat template that has all texts of one of these lists asks for the format.
  std::vector<std::vector<std::string_view>> templates = {};

  // Reading (AnswerParser).
  std::vector<Marker> thoughts = ThinkTags();  // an end belongs to the opening before it
  std::vector<Marker> calls = {};
  std::vector<Marker> always = {};  // markers whether or not thoughts and calls are read
  // Texts that may be tokens: they stand between or behind the parts of an answer and are never
  // text; the reader must see them; it must see them where calls are read.
  std::vector<std::string_view> hidden = {}, shown = {}, shown_in_calls = {};
  bool trims = true;  // line ends that an answer begins with are no part of it
  // A reader of its own; null: the markers say all.
  std::unique_ptr<AnswerParser::Machine> (*reader)(const AnswerParserOptions&) = nullptr;
  CallIds ids = {};

  // Constraining (MakeToolGrammar, MakeAnswerGrammar).
  CallShape shape = {.open = {}};
  ThoughtShape thought = {};
  // One call in GBNF, without the shape around it. `rule`: what names of more rules begin with.
  std::string (*call)(GrammarText&, const Tool&, const std::string& rule) = nullptr;
  std::string_view tag_token = {};    // a token that stands inside of tags
  std::string_view answer_open = {};  // in GBNF: stands before an answer that must match a form

  // Writing (MakeToolInstructions, MakeCallText): a call; null: the generic format's.
  std::string (*written)(const std::string& name, const std::string& arguments) = nullptr;
  std::string_view written_as = "text";  // what a written call is, to the model

  // Values of reasoning_effort that the model was not trained with, and those that stand for them.
  std::vector<std::pair<std::string_view, std::string_view>> efforts = {};
};

#define LARDER_FORMAT(name) FormatEntry name##Format();
LARDER_ANSWER_FORMATS(LARDER_FORMAT)
#undef LARDER_FORMAT

const FormatEntry& EntryOf(AnswerFormat);

// {"name", "arguments"} of a call, as JSON text.
std::string CallAsJson(const std::string& name, const std::string& arguments);

}  // namespace larder::serving::answer
