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

}  // namespace

Json SplitCalls(const Json& messages) {
  Json split = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json* calls = CallsOf(messages[i]);
    if (calls == nullptr || calls->size() < 2) {
      split.push_back(messages[i]);
      continue;
    }
    size_t end = i + 1;
    while (end < messages.size() && TextOf(messages[end], "role") == "tool") ++end;
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

bool MergeUsers(Json& messages) {
  Json merged = Json::array();
  for (Json& message : messages) {
    if (!merged.empty() && TextOf(message, "role") == "user" && message.contains("content")) {
      Json& last = merged.back();
      const std::string_view before = TextOf(last, "role");
      if ((before == "user" || before == "tool") && last.contains("content") &&
          Joins(last["content"]) && Joins(message["content"])) {
        Append(last["content"], message["content"]);
        continue;
      }
    }
    merged.push_back(std::move(message));
  }
  const bool changed = merged.size() != messages.size();
  messages = std::move(merged);
  return changed;
}

}  // namespace larder::model::chat
