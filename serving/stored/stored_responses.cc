#include "serving/stored/stored_responses.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work.h"
#include "serving/api/common_fields.h"
#include "serving/stored/list_query.h"

namespace larder::serving::inline stored {
namespace {

using nlohmann::json;

constexpr std::string_view kPath = "/responses/", kVersion = "/v1";

void WantMethod(const HttpRequest& request, std::string_view methods) {
  throw Refused(405, "{} takes {}, not {}", Excerpt(request.path), methods, Excerpt(request.method))
      .Allowing(std::string(methods));
}

Refused NotFound(const std::string& id) {
  return Refused(404, "Response with id {} not found.", Quoted(id));
}

StoredResponse ResponseOf(const std::string& id, ResponseStore* store, Tenant tenant) {
  auto found = store == nullptr ? std::nullopt : store->Find(id, tenant);
  if (!found) throw NotFound(id);
  return *std::move(found);
}

// An item in the form that clients get: with an id and a status, and a text as a part.
json Shown(const Json& raw, const std::string& response, size_t at) {
  json item = raw;
  const std::string type = item.value("type", "message");
  item["type"] = type;
  if (const auto id = item.find("id"); id == item.end() || !id->is_string()) {
    const char* prefix = type == "message"                ? "msg"
                         : type == "function_call"        ? "fc"
                         : type == "function_call_output" ? "fco"
                         : type == "reasoning"            ? "rs"
                                                          : "item";
    const size_t number = response.find('_') + 1;
    item["id"] = fmt::format("{}_{}-in{}", prefix, response.substr(number), at);
  }
  if (!item.contains("status")) item["status"] = "completed";
  const auto content = item.find("content");
  if (type == "message" && content != item.end() && content->is_string()) {
    const bool written = item.value("role", "") == "assistant";
    json part = {{"type", written ? "output_text" : "input_text"}, {"text", *content}};
    if (written) part["annotations"] = json::array();
    *content = json::array({std::move(part)});
  }
  return item;
}

// All items that the response was made from: those of the turns before it, and its own.
std::vector<json> InputItems(const StoredTurn& of) {
  std::vector<const StoredTurn*> turns;
  for (const StoredTurn* turn = &of; turn != nullptr; turn = turn->previous.get())
    turns.push_back(turn);
  std::vector<json> items;
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    size_t at = 0;
    for (const Json& item : ParseJson((*turn)->input)) {
      if (item.is_object()) items.push_back(Shown(item, (*turn)->id, at++));
    }
    if (*turn == &of) break;
    for (const Json& item : ParseJson((*turn)->output)) items.emplace_back(item);
  }
  return items;
}

std::string ListInput(const HttpRequest& request, const StoredTurn& of) {
  const size_t limit = LimitOf(request.target, 20, 100);
  const bool newest_first = WantsNewestFirst(request.target);
  std::vector<json> all = InputItems(of);
  if (newest_first) std::ranges::reverse(all);
  const auto id_of = [](const json& item) { return item.value("id", ""); };
  auto begin = all.begin();
  if (const std::string after = QueryOf(request.target, "after"); !after.empty()) {
    begin = std::ranges::find(all, after, id_of);
    if (begin == all.end())
      throw Refused(400, "after is {}: expected the id of an entry of this list", Excerpt(after))
          .On("after");
    ++begin;
  }
  const auto end =
      begin + static_cast<std::ptrdiff_t>(std::min(limit, static_cast<size_t>(all.end() - begin)));
  json list = {
      {"object", "list"},
      {"first_id", begin == end ? json(nullptr) : json(id_of(*begin))},
      {"last_id", begin == end ? json(nullptr) : json(id_of(*std::prev(end)))},
      {"has_more", end != all.end()},
      {"data", json(std::vector<json>(std::move_iterator(begin), std::move_iterator(end)))}};
  return Dump(list);
}

}  // namespace

FindTurn TurnsOf(ResponseStore* store, Tenant tenant) {
  if (store == nullptr) return {};
  return [store, tenant](std::string_view id) -> std::shared_ptr<const StoredTurn> {
    const auto found = store->Find(id, tenant);
    return found ? found->turn : nullptr;
  };
}

ResponseToStore BeginToStore(const ResponseStore& store, const ReplyFacts& facts,
                             CompletionRequest& request) {
  if (!store.Fits(request.previous.get(), request.input_items.size()))
    throw Refused(413,
                  "the conversation is larger than the {} bytes of responses that are kept here; "
                  "send the whole input, with store false",
                  store.quota().most_bytes())
        .On("input");
  return {.id = "resp_" + facts.id,
          .previous = std::move(request.previous),
          .input = std::move(request.input_items)};
}

void Store(ResponseStore& store, Tenant tenant, ResponseToStore&& what, const json& whole) {
  json body = json::object();
  for (const auto& [name, value] : whole.items()) {
    if (name != "output") body[name] = value;
  }
  store.Add(std::move(what.id), tenant, std::move(what.previous), std::move(what.input),
            Dump(whole.at("output")), Dump(body));
}

std::string AnswerStoredResponse(const HttpRequest& request, ResponseStore* store, Tenant tenant) {
  std::string_view rest = request.path;
  if (rest.starts_with(kVersion)) rest.remove_prefix(kVersion.size());
  rest.remove_prefix(kPath.size());
  const size_t slash = rest.find('/');
  const std::string id(rest.substr(0, slash));
  const std::string_view what = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (slash == std::string_view::npos) {
    if (request.method == "DELETE") {
      if (store == nullptr || !store->Remove(id, tenant)) throw NotFound(id);
      return Dump(json{{"id", id}, {"object", "response"}, {"deleted", true}});
    }
    if (!get) WantMethod(request, "GET, DELETE");
    const StoredResponse found = ResponseOf(id, store, tenant);
    if (const std::string stream = QueryOf(request.target, "stream");
        stream == "true" || stream == "1")
      throw Refused(400, "stream is true: expected false; a stored response comes whole")
          .On("stream");
    return found.Text();
  }
  if (what == "input_items") {
    if (!get) WantMethod(request, "GET");
    return ListInput(request, *ResponseOf(id, store, tenant).turn);
  }
  if (what == "cancel") {
    if (request.method != "POST") WantMethod(request, "POST");
    ResponseOf(id, store, tenant);
    throw Refused(400, "Cannot cancel a synchronous response.");
  }
  throw Refused(404, "there is no {}", Excerpt(request.path));
}

}  // namespace larder::serving::stored
