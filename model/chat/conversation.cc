#include "model/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv.h"

namespace larder::model::inline chat {
namespace {

using Json = nlohmann::ordered_json;

std::string_view TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto it = object.find(name);
  if (it == object.end() || !it->is_string()) return {};
  return it->get_ref<const std::string&>();
}

const Json* CallsOf(const Json& message) {
  if (!message.is_object()) return nullptr;
  const auto it = message.find("tool_calls");
  return it == message.end() || !it->is_array() ? nullptr : &*it;
}

// For each call the index of its result: the one that names it, else the first that names no call.
std::vector<std::optional<size_t>> ResultsOf(const Json& calls, const Json& messages, size_t begin,
                                             size_t end) {
  std::vector<std::optional<size_t>> results(calls.size());
  std::vector<bool> taken(end - begin);
  for (const bool by_id : {true, false}) {
    for (size_t call = 0; call < calls.size(); ++call) {
      if (results[call]) continue;
      const std::string_view id = TextOf(calls[call], "id");
      if (by_id && id.empty()) continue;
      for (size_t i = begin; i < end && !results[call]; ++i) {
        if (taken[i - begin] || (by_id && TextOf(messages[i], "tool_call_id") != id)) continue;
        results[call] = i;
        taken[i - begin] = true;
      }
    }
  }
  return results;
}

// Behind the results that follow the message.
size_t EndOfResults(const Json& messages, size_t message) {
  size_t end = message + 1;
  while (end < messages.size() && TextOf(messages[end], "role") == "tool") ++end;
  return end;
}

bool IsShort(std::string_view id) {
  return id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
         });
}

std::string ShortId(std::string_view id) {
  if (IsShort(id)) return std::string(id);
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = Fnv1a(id);
  std::string digits;
  for (; digits.size() < 9; hash /= kDigits.size()) digits += kDigits[hash % kDigits.size()];
  return digits;
}

Json Parts(Json content) {
  if (content.is_array()) return content;
  return Json::array({{{"type", "text"}, {"text", std::move(content)}}});
}

bool Joins(const Json& content) { return content.is_string() || content.is_array(); }

void Append(Json& content, const Json& more) {
  if (content.is_string() && more.is_string()) {
    auto& text = content.get_ref<std::string&>();
    const auto& behind = more.get_ref<const std::string&>();
    if (!text.empty() && !behind.empty()) text += "\n\n";
    text += behind;
    return;
  }
  content = Parts(std::move(content));
  content.push_back({{"type", "text"}, {"text", "\n\n"}});
  for (Json& part : Parts(more)) content.push_back(std::move(part));
}

// A message's calls as a text.
std::string CallsText(const Json& message) {
  std::string text(TextOf(message, "content"));
  for (const Json& call : *CallsOf(message)) {
    const Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
    if (!text.empty()) text += '\n';
    text += function.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text;
}

}  // namespace

Json SplitCalls(const Json& messages) {
  Json split = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json* calls = CallsOf(messages[i]);
    if (calls == nullptr || calls->size() < 2) {
      split.push_back(messages[i]);
      continue;
    }
    const size_t end = EndOfResults(messages, i);
    const auto results = ResultsOf(*calls, messages, i + 1, end);
    for (size_t call = 0; call < calls->size(); ++call) {
      Json message = call == 0 ? messages[i] : Json{{"role", "assistant"}, {"content", nullptr}};
      message["tool_calls"] = Json::array({(*calls)[call]});
      split.push_back(std::move(message));
      if (results[call]) split.push_back(messages[*results[call]]);
    }
    for (size_t rest = i + 1; rest < end; ++rest) {
      if (std::find(results.begin(), results.end(), rest) == results.end())
        split.push_back(messages[rest]);
    }
    i = end - 1;
  }
  return split;
}

void OrderResults(Json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json* calls = CallsOf(messages[i]);
    if (calls == nullptr || calls->size() < 2) continue;
    const size_t begin = i + 1, end = EndOfResults(messages, i);
    std::vector<Json> ordered;
    std::vector<bool> taken(end - begin);
    for (const std::optional<size_t>& result : ResultsOf(*calls, messages, begin, end)) {
      if (!result) continue;
      taken[*result - begin] = true;
      ordered.push_back(messages[*result]);
    }
    for (size_t rest = begin; rest < end; ++rest) {
      if (!taken[rest - begin]) ordered.push_back(messages[rest]);
    }
    std::move(ordered.begin(), ordered.end(),
              messages.begin() + static_cast<std::ptrdiff_t>(begin));
    i = end - 1;
  }
}

void FoldSystems(Json& messages, bool several, bool late) {
  Json folded = Json::array();
  bool begins = true;
  for (Json& message : messages) {
    if (TextOf(message, "role") != "system") {
      begins = false;
    } else if (!begins && !late) {
      message["role"] = "user";
    } else if (begins && !several && !folded.empty() && message.contains("content") &&
               folded.back().contains("content") && Joins(message["content"]) &&
               Joins(folded.back()["content"])) {
      Append(folded.back()["content"], message["content"]);
      continue;
    }
    folded.push_back(std::move(message));
  }
  messages = std::move(folded);
}

Json SplitTexts(const Json& messages) {
  Json split = Json::array();
  for (const Json& message : messages) {
    const Json* calls = CallsOf(message);
    const bool has_parts = message.is_object() && message.contains("content") &&
                           message["content"].is_array() && !message["content"].empty();
    const bool has_text = has_parts || !TextOf(message, "content").empty();
    if (calls == nullptr || calls->empty() || !has_text) {
      split.push_back(message);
      continue;
    }
    Json said = message, called = message;
    said.erase("tool_calls");
    called["content"] = nullptr;
    called.erase("reasoning_content");
    split.push_back(std::move(said));
    split.push_back(std::move(called));
  }
  return split;
}

Json WithShortIds(const Json& messages) {
  Json out = messages;
  std::deque<std::string> open;  // calls whose result is yet to come
  size_t unnamed = 0;
  for (Json& message : out) {
    if (CallsOf(message) != nullptr) {
      open.clear();
      for (Json& call : message["tool_calls"]) {
        if (!call.is_object()) continue;
        const std::string_view id = TextOf(call, "id");
        open.push_back(id.empty() ? ShortId(fmt::format("call {}", unnamed++)) : ShortId(id));
        call["id"] = open.back();
      }
    }
    if (TextOf(message, "role") != "tool") continue;
    const std::string_view named = TextOf(message, "tool_call_id");
    std::string id = named.empty() && !open.empty() ? open.front() : ShortId(named);
    std::erase(open, id);
    message["tool_call_id"] = std::move(id);
  }
  return out;
}

void TellLoneResults(Json& messages) {
  bool called = false;  // calls, and nothing but results since
  for (Json& message : messages) {
    const Json* calls = CallsOf(message);
    if (calls != nullptr && !calls->empty()) {
      called = true;
    } else if (TextOf(message, "role") != "tool") {
      called = false;
    } else if (!called) {
      const std::string about(TextOf(message, "name"));
      std::string text =
          about.empty() ? "The result:\n" : fmt::format("The result of {}:\n", about);
      Json content = message.contains("content") ? message["content"] : Json();
      if (content.is_array()) {
        content.insert(content.begin(), Json{{"type", "text"}, {"text", std::move(text)}});
      } else {
        content = text + (content.is_string() ? content.get<std::string>() : "");
      }
      message = {{"role", "user"}, {"content", std::move(content)}};
    }
  }
}

bool MakeTurns(Json& messages) {
  Json turns = Json::array();
  size_t last = 0;  // behind the last message that is a turn of the user's or the assistant's
  std::string_view turn = "assistant";
  for (const Json& message : messages) {
    const std::string_view role = TextOf(message, "role");
    const Json* calls = CallsOf(message);
    const bool counts =
        role == "user" || (role == "assistant" && (calls == nullptr || calls->empty()));
    if (!counts) {
      turns.push_back(message);
      continue;
    }
    Json& before = turns.empty() ? turns : turns.back();
    const bool after_same = !turns.empty() && role == turn && last == turns.size();
    const bool after_result = role == "user" && TextOf(before, "role") == "tool";
    if ((after_same || after_result) && before.contains("content") && message.contains("content") &&
        Joins(before["content"]) && Joins(message["content"])) {
      Append(before["content"], message["content"]);
      continue;
    }
    if (role == turn && role == "user") {  // calls without results are between them
      for (size_t i = last; i < turns.size(); ++i) {
        if (CallsOf(turns[i]) == nullptr) continue;
        turns[i] = {{"role", "assistant"}, {"content", CallsText(turns[i])}};
        break;
      }
    } else if (role == turn) {
      turns.insert(turns.begin() + static_cast<std::ptrdiff_t>(last),
                   Json{{"role", "user"}, {"content", ""}});
    }
    turns.push_back(message);
    turn = role;
    last = turns.size();
  }
  const bool changed = turns != messages;
  messages = std::move(turns);
  return changed;
}

}  // namespace larder::model::chat
