// Stored responses over HTTP, without a network: what follows one, what clients ask of it, whose it
// is, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

// With room for a conversation.
struct LargeState : TestState {
  LargeState() {
    constexpr size_t kTokens = 4096;
    state.defaults.context = kTokens;
    service = std::make_unique<GenerationService>(
        GenerationServiceOptions{.tokenizer = state.defaults.tokenizer,
                                 .vocab = state.defaults.vocab,
                                 .context = kTokens,
                                 .slots = 2,
                                 .queue_limit = 4,
                                 .outage = {}},
        metrics);
    state.service = service.get();
  }
};

class Responses : public testing::Test {
 protected:
  Responses() { test_.state.responses = &store_; }

  struct Answer {
    int status;
    json body;
    std::string text;
    std::string Error() const { return body["error"]["message"]; }
  };
  Answer Ask(const std::string& method, const std::string& path, const std::string& body = "",
             const std::string& key = "") {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    session.OnBytes(fmt::format(
        "{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
        key.empty() ? "" : "Authorization: Bearer " + key + "\r\n", body.size(), body));
    TestModelThread::DispatchAll(*test_.service);
    const std::string text = wire.written.substr(wire.written.find("\r\n\r\n") + 4);
    return {std::stoi(wire.written.substr(9, 3)), json::parse(text, nullptr, false), text};
  }
  Answer Get(const std::string& path, const std::string& key = "") {
    return Ask("GET", path, "", key);
  }
  Answer Create(json fields, const std::string& key = "") {
    fields["max_output_tokens"] = 2;
    return Ask("POST", "/v1/responses", fields.dump(), key);
  }
  static std::string PathOf(const Answer& answer) {
    return "/v1/responses/" + answer.body["id"].get<std::string>();
  }
  size_t Prompt(const json& fields) {
    const Answer counted = Ask("POST", "/v1/responses/input_tokens", fields.dump());
    EXPECT_EQ(counted.status, 200) << counted.text;
    return counted.body["input_tokens"];
  }

  LargeState test_;
  ResponseStore store_{{}};
  TestModelThread model_{*test_.service, test_.state.defaults.vocab};
};

TEST_F(Responses, AreThereUntilTheyAreDeleted) {
  const Answer made = Create({{"input", "hell"}, {"metadata", {{"a", "b"}}}});
  ASSERT_EQ(made.status, 200) << made.text;
  EXPECT_EQ(made.body["store"], true);
  EXPECT_EQ(made.body["previous_response_id"], nullptr);
  EXPECT_EQ(Get(PathOf(made)).body, made.body);
  EXPECT_EQ(Get("/responses/" + made.body["id"].get<std::string>()).body, made.body);
  EXPECT_EQ(Ask("HEAD", PathOf(made)).text, "");
  const Answer deleted = Ask("DELETE", PathOf(made));
  EXPECT_EQ(deleted.body,
            (json{{"id", made.body["id"]}, {"object", "response"}, {"deleted", true}}));
  for (const Answer& gone :
       {Get(PathOf(made)), Ask("DELETE", PathOf(made)), Get(PathOf(made) + "/input_items"),
        Ask("POST", PathOf(made) + "/cancel")}) {
    EXPECT_EQ(gone.status, 404);
    EXPECT_EQ(gone.Error(),
              "Response with id '" + made.body["id"].get<std::string>() + "' not found.");
  }
}

TEST_F(Responses, AreNotStoredWhereTheClientDoesNotWantIt) {
  const Answer made = Create({{"input", "hell"}, {"store", false}});
  EXPECT_EQ(made.body["store"], false);
  EXPECT_EQ(Get(PathOf(made)).status, 404);
  EXPECT_EQ(Create({{"input", "hell"}, {"previous_response_id", made.body["id"]}}).status, 400);
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(Responses, AServerThatKeepsNoneSaysSo) {
  test_.state.responses = nullptr;
  const Answer made = Create({{"input", "hell"}});
  EXPECT_EQ(made.body["store"], false);
  EXPECT_EQ(Get(PathOf(made)).status, 404);
  EXPECT_EQ(
      Create({{"input", "hell"}, {"previous_response_id", made.body["id"]}}).body["error"]["code"],
      "previous_response_not_found");
}

// A request that names a previous response has the same prompt, and so the same cached KV, as one
// that sends the whole conversation.
TEST_F(Responses, AConversationGoesOnAsIfAllOfItHadBeenSent) {
  const Answer first = Create({{"input", "hell"}, {"instructions", "be"}});
  json all = json::array({{{"role", "user"}, {"content", "hell"}}});
  for (const json& item : first.body["output"]) all.push_back(item);
  const json second_input = json::array({{{"role", "user"}, {"content", "a"}}});
  all.push_back(second_input[0]);
  const json goes_on = {{"input", second_input}, {"previous_response_id", first.body["id"]}};
  EXPECT_EQ(Prompt(goes_on), Prompt({{"input", all}})) << "and without the instructions";
  EXPECT_GT(Prompt(goes_on), Prompt({{"input", second_input}}));
  const Answer second = Create(goes_on);
  ASSERT_EQ(second.status, 200) << second.text;
  EXPECT_EQ(second.body["previous_response_id"], first.body["id"]);
  const Answer whole = Create({{"input", all}});
  EXPECT_EQ(second.body["output"][0]["content"], whole.body["output"][0]["content"]);
  EXPECT_EQ(second.body["usage"]["input_tokens"], whole.body["usage"]["input_tokens"]);
  Ask("DELETE", PathOf(first));
  EXPECT_EQ(Create({{"input", "b"}, {"previous_response_id", first.body["id"]}}).status, 400);
  for (const json& item : second.body["output"]) all.push_back(item);
  all.push_back({{"role", "user"}, {"content", "b"}});
  EXPECT_EQ(Prompt({{"input", "b"}, {"previous_response_id", second.body["id"]}}),
            Prompt({{"input", all}}))
      << "what followed a deleted one has its items";
}

TEST_F(Responses, AStreamStoresTheObjectOfItsLastEvent) {
  const Answer stream = Create({{"input", "hell"}, {"stream", true}});
  const size_t event = stream.text.find("event: response.incomplete");
  ASSERT_NE(event, std::string::npos) << stream.text;
  const size_t data = stream.text.find("data: ", event) + 6;
  const json last = json::parse(stream.text.substr(data, stream.text.find('\n', data) - data));
  const std::string id = last["response"]["id"];
  EXPECT_EQ(last["response"]["store"], true);
  EXPECT_EQ(Get("/v1/responses/" + id).body, last["response"]);
}

TEST_F(Responses, InputItemsArePagesInBothOrders) {
  const Answer first = Create({{"input", "hell"}});
  const Answer second =
      Create({{"previous_response_id", first.body["id"]},
              {"input",
               {{{"role", "user"}, {"content", "a"}},
                {{"type", "function_call"}, {"name", "f"}, {"call_id", "c"}, {"arguments", "{}"}},
                {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "x"}}}}});
  ASSERT_EQ(second.status, 200) << second.text;
  const std::string path = PathOf(second) + "/input_items";
  const json all = Get(path + "?order=asc").body;
  EXPECT_EQ(all["object"], "list");
  EXPECT_EQ(all["has_more"], false);
  ASSERT_EQ(all["data"].size(), 5u);
  EXPECT_EQ(all["data"][0]["content"][0], (json{{"type", "input_text"}, {"text", "hell"}}));
  EXPECT_EQ(all["data"][1], first.body["output"][0]);
  EXPECT_EQ(all["data"][3]["type"], "function_call");
  EXPECT_EQ(all["first_id"], all["data"][0]["id"]);
  EXPECT_EQ(all["last_id"], all["data"][4]["id"]);
  json newest = Get(path).body["data"];
  std::reverse(newest.begin(), newest.end());
  EXPECT_EQ(newest, all["data"]);
  json pages = json::array();
  std::string after;
  for (size_t page = 0; page < 3; ++page) {
    const json one = Get(path + "?limit=2&order=asc" + after).body;
    for (const json& item : one["data"]) pages.push_back(item);
    EXPECT_EQ(one["has_more"], page < 2);
    after = "&after=" + one["last_id"].get<std::string>();
  }
  EXPECT_EQ(pages, all["data"]);
  EXPECT_EQ(Get(path + "?after=nobody").status, 400);
  EXPECT_EQ(Get(path + "?limit=0").status, 400);
  EXPECT_EQ(Get(path + "?order=up").status, 400);
}

TEST_F(Responses, AnItemMayBeReferredTo) {
  const Answer first = Create({{"input", "hell"}});
  const json item = first.body["output"][0];
  const auto with = [&](const json& one) {
    return json{
        {"input",
         {{{"role", "user"}, {"content", "hell"}}, one, {{"role", "user"}, {"content", "a"}}}}};
  };
  const json referred = with({{"type", "item_reference"}, {"id", item["id"]}});
  EXPECT_EQ(Prompt(referred), Prompt(with(item)));
  const Answer made = Create(referred);
  EXPECT_EQ(Get(PathOf(made) + "/input_items?order=asc").body["data"][1], item);
  for (const char* id : {"msg_1", "msg_1-0", "", "-", "_-", "msg_a-0-9"}) {
    const Answer refused = Create(with({{"type", "item_reference"}, {"id", id}}));
    EXPECT_EQ(refused.status, *id == '\0' ? 400 : 404) << id;
    EXPECT_EQ(refused.body["error"]["param"], "input");
  }
}

TEST_F(Responses, AKeysResponsesAreNobodyElses) {
  test_.state.api_keys = std::vector<std::string>{"key-number-1", "key-number-2"};
  const Answer made = Create({{"input", "hell"}}, "key-number-1");
  const std::string id = made.body["id"], path = PathOf(made);
  EXPECT_EQ(Get(path).status, 401);
  EXPECT_EQ(Get(path, "key-number-2").status, 404);
  EXPECT_EQ(Get(path + "/input_items", "key-number-2").status, 404);
  EXPECT_EQ(Ask("DELETE", path, "", "key-number-2").status, 404);
  EXPECT_EQ(Ask("POST", path + "/cancel", "", "key-number-2").status, 404);
  const json goes_on = {{"input", "a"}, {"previous_response_id", id}};
  EXPECT_EQ(Create(goes_on, "key-number-2").body["error"]["code"], "previous_response_not_found");
  const json refers = {
      {"input", {{{"type", "item_reference"}, {"id", made.body["output"][0]["id"]}}}}};
  EXPECT_EQ(Create(refers, "key-number-2").status, 404);
  EXPECT_EQ(Ask("POST", "/v1/responses/input_tokens", goes_on.dump(), "key-number-2").status, 400);
  EXPECT_EQ(Get(path, "key-number-1").body, made.body);
  EXPECT_EQ(Create(goes_on, "key-number-1").status, 200);
}

TEST_F(Responses, WhatIsRefused) {
  const Answer unknown = Create({{"input", "a"}, {"previous_response_id", "resp_1"}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.body["error"],
            (json{{"message", "Previous response with id 'resp_1' not found."},
                  {"type", "invalid_request_error"},
                  {"param", "previous_response_id"},
                  {"code", "previous_response_not_found"}}));
  EXPECT_EQ(Create({{"input", "a"}, {"previous_response_id", 1}}).body["error"]["code"], 400);
  EXPECT_EQ(Create({{"input", "a"}, {"background", true}}).Error(),
            "background is true: expected false; answers are made while clients wait");
  const Answer made = Create({{"input", "hell"}});
  EXPECT_EQ(Get(PathOf(made) + "?stream=true").status, 400);
  EXPECT_EQ(Get(PathOf(made) + "?stream=false").body, made.body);
  const Answer cancelled = Ask("POST", PathOf(made) + "/cancel");
  EXPECT_EQ(cancelled.status, 400);
  EXPECT_EQ(cancelled.Error(), "Cannot cancel a synchronous response.");
  EXPECT_EQ(Ask("POST", PathOf(made)).status, 405);
  EXPECT_EQ(Get(PathOf(made) + "/cancel").status, 405);
  EXPECT_EQ(Ask("DELETE", PathOf(made) + "/input_items").status, 405);
  EXPECT_EQ(Get(PathOf(made) + "/output_items").status, 404);
  EXPECT_EQ(Get("/v1/responses/").status, 404);
}

TEST_F(Responses, AConversationThatIsTooLargeToKeepIsRefused) {
  ResponseStore small{{.bytes = 4000}};
  test_.state.responses = &small;
  const json user = {{"role", "user"}, {"content", "a"}};
  const json large = {{"type", "compaction"}, {"encrypted_content", std::string(2000, 'x')}};
  const Answer first = Create({{"input", {user, large}}});
  ASSERT_EQ(first.status, 200) << first.text;
  json goes_on = {{"input", {user, large}}, {"previous_response_id", first.body["id"]}};
  const Answer refused = Create(goes_on);
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.Error(),
            "the conversation is larger than the 4000 bytes of responses that are kept here; send "
            "the whole input, with store false");
  goes_on["store"] = false;
  EXPECT_EQ(Create(goes_on).status, 200);
  EXPECT_EQ(Get(PathOf(first)).status, 200);
}

}  // namespace
}  // namespace larder::serving::net
