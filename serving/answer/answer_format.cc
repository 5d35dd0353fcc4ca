#include "serving/answer/answer_format.h"

#include <algorithm>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {
namespace {

const std::vector<FormatEntry>& Formats() {
#define LARDER_FORMAT(name) name##Format(),
  static const std::vector<FormatEntry> formats = {LARDER_ANSWER_FORMATS(LARDER_FORMAT)};
#undef LARDER_FORMAT
  return formats;
}

AnswerFormat FormatOf(const FormatEntry& entry) {
  return static_cast<AnswerFormat>(&entry - Formats().data());
}

}  // namespace

const FormatEntry& EntryOf(AnswerFormat format) { return Formats()[static_cast<size_t>(format)]; }

AnswerFormat DetectAnswerFormat(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  for (const FormatEntry& entry : Formats()) {
    for (const auto& texts : entry.templates) {
      if (std::ranges::all_of(texts, has)) return FormatOf(entry);
    }
  }
  return AnswerFormat::kGeneric;
}

std::string_view AnswerFormatName(AnswerFormat format) { return EntryOf(format).name; }

std::optional<AnswerFormat> AnswerFormatByName(std::string_view name) {
  const auto entry = std::ranges::find(Formats(), name, &FormatEntry::name);
  if (entry == Formats().end()) return std::nullopt;
  return FormatOf(*entry);
}

std::vector<std::string_view> AnswerFormatNames() {
  std::vector<std::string_view> names;
  for (const FormatEntry& entry : Formats()) names.push_back(entry.name);
  return names;
}

std::vector<Marker> ThinkTags() { return ThinkTagsAnd({}); }

std::vector<Marker> ThinkTagsAnd(const std::vector<Marker>& more) {
  using enum Marker::Action;
  using enum Marker::Where;
  std::vector<Marker> all = {{"<think>", kThink, kFresh}, {"</think>", kThinkEnd, kFresh}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Marker> MarkersOf(AnswerFormat format, bool parse_tools, bool parse_reasoning) {
  const FormatEntry& entry = EntryOf(format);
  std::vector<Marker> all;
  const auto add = [&all](const std::vector<Marker>& markers) {
    all.insert(all.end(), markers.begin(), markers.end());
  };
  if (parse_reasoning) add(entry.thoughts);
  if (parse_tools) add(entry.calls);
  add(entry.always);
  return all;
}

FormatTokens TokensOf(AnswerFormat format, bool parse_tools) {
  const FormatEntry& entry = EntryOf(format);
  FormatTokens tokens{.shown = {}, .hidden = entry.hidden};
  const auto show = [&tokens](const std::vector<std::string_view>& texts) {
    tokens.shown.insert(tokens.shown.end(), texts.begin(), texts.end());
  };
  for (const Marker& marker : MarkersOf(format, parse_tools, true))
    tokens.shown.push_back(marker.text);
  show(entry.shown);
  if (parse_tools) show(entry.shown_in_calls);
  return tokens;
}

ThoughtForm ThoughtFormOf(AnswerFormat format, std::string_view chat_template) {
  ThoughtForm form;
  bool chosen = true;  // the first pair, unless the template has the texts of another
  for (const Marker& marker : EntryOf(format).thoughts) {
    if (marker.action == Marker::Action::kThink) {
      const std::string_view word = marker.text.substr(0, marker.text.find('\n'));
      chosen = form.begins.empty() || chat_template.find(word) != std::string_view::npos;
      if (chosen) form.begin = marker.text;
      form.begins.push_back(marker.text);
    } else if (marker.action == Marker::Action::kThinkEnd) {
      if (chosen) form.end = marker.text;
      form.ends.push_back(marker.text);
    }
  }
  return form;
}

bool StartsInReasoning(AnswerFormat format, std::string_view prompt) {
  const auto strip = [](std::string_view text) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  };
  prompt = strip(prompt);
  return std::ranges::any_of(EntryOf(format).thoughts, [&](const Marker& marker) {
    return marker.action == Marker::Action::kThink && prompt.ends_with(strip(marker.text));
  });
}

bool AlwaysThinks(AnswerFormat format) { return EntryOf(format).thought.messages; }

std::string_view TrainedEffort(AnswerFormat format, std::string_view effort) {
  for (const auto& [asked, trained] : EntryOf(format).efforts) {
    if (asked == effort) return trained;
  }
  return effort;
}

}  // namespace larder::serving::answer
