// An agent's load: what each turn sends, how a reply with calls becomes the next, and the report by
// turn.
#include "node/loadgen/agent_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "node/loadgen/loadgen_testing.h"
#include "node/loadgen/serve_load.h"
#include "node/loadgen/serve_report.h"

namespace larder::node::inline loadgen {
namespace {

using nlohmann::json;

AgentSpec Small() {
  return {.conversations = 3,
          .turns = 4,
          .system_words = 4000,
          .message_words = 6,
          .output_tokens = 8,
          .seed = 1};
}

std::string Delta(const json& delta, const json& finish = nullptr) {
  return Sse({{"choices", json::array({{{"delta", delta}, {"finish_reason", finish}}})}});
}
std::string CachedUsage(size_t prompt, size_t cached) {
  return Sse({{"choices", json::array()},
              {"usage",
               {{"prompt_tokens", prompt},
                {"completion_tokens", 3},
                {"prompt_tokens_details", {{"cached_tokens", cached}}}}}});
}

TEST(AgentLoadTest, ConversationsBeginAlikeAndAskForDifferentThings) {
  const auto tasks = AgentTasks(Small());
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[0].messages[0], tasks[1].messages[0]);
  EXPECT_EQ(tasks[0].tools, tasks[2].tools);
  EXPECT_NE(tasks[0].messages[1], tasks[1].messages[1]);
  EXPECT_EQ(AgentTasks(Small())[2].messages, tasks[2].messages);
  const std::string whole = tasks[0].messages.dump() + tasks[0].tools.dump();
  const auto words = static_cast<size_t>(std::count(whole.begin(), whole.end(), ' '));
  EXPECT_GT(words, 3000u);
  EXPECT_LT(words, 4500u);
  for (const json& tool : tasks[0].tools) {
    EXPECT_EQ(tool["type"], "function");
    EXPECT_EQ(tool["function"]["parameters"]["type"], "object");
  }
}

TEST(AgentLoadTest, CallsGetResultsAndTextGetsTheUser) {
  const AgentSpec spec = Small();
  LoadRequest first = AgentTasks(spec)[0];
  RequestResult result;
  result.message.content = "I read.";
  result.message.calls = {{"call_1", "read_file", R"({"target":"a"})"},
                          {"call_2", "read_file", R"({"targ)"}};
  auto second = AgentTurn(spec, first, result);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->turn, 1u);
  ASSERT_EQ(second->messages.size(), 5u);
  EXPECT_EQ(second->messages[2]["content"], "I read.");
  EXPECT_EQ(second->messages[2]["tool_calls"][0]["function"]["arguments"], R"({"target":"a"})");
  EXPECT_EQ(second->messages[2]["tool_calls"][1]["function"]["arguments"], "{}");  // was cut
  EXPECT_EQ(second->messages[3]["role"], "tool");
  EXPECT_EQ(second->messages[4]["tool_call_id"], "call_2");
  EXPECT_FALSE(second->tools.is_null());

  result.message = {.content = "Done."};
  auto third = AgentTurn(spec, *second, result);
  ASSERT_TRUE(third);
  ASSERT_EQ(third->messages.size(), 7u);
  EXPECT_FALSE(third->messages[5].contains("tool_calls"));
  EXPECT_EQ(third->messages[6]["role"], "user");
  auto fourth = AgentTurn(spec, *third, result);
  ASSERT_TRUE(fourth);
  EXPECT_FALSE(AgentTurn(spec, *fourth, result));
}

TEST(AgentLoadTest, RunsConversationsToTheirEnds) {
  std::mutex mutex;
  std::multiset<size_t> sizes;  // of the messages that came
  Server server([&](const std::string& request, const Server::Send& send) {
    const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4));
    const size_t size = body["messages"].size();
    {
      const std::lock_guard lock(mutex);
      sizes.insert(size);
    }
    EXPECT_EQ(body["tools"].size(), 16u);
    std::string stream =
        Delta({{"role", "assistant"}, {"content", ""}}) + Delta({{"reasoning_content", "hm"}});
    if (size == 2) {  // the first turn calls, in pieces
      const auto call = [](json piece) {
        return Delta({{"tool_calls", json::array({std::move(piece)})}});
      };
      stream += call({{"index", 0},
                      {"id", "c"},
                      {"function", {{"name", "run_tests"}, {"arguments", ""}}}}) +
                call({{"index", 0}, {"function", {{"arguments", R"({"target":)"}}}}) +
                call({{"index", 0}, {"function", {{"arguments", R"("all"})"}}}}) +
                Delta(json::object(), "tool_calls");
    } else {
      if (size > 2) {
        EXPECT_EQ(body["messages"][2]["tool_calls"][0]["function"]["arguments"],
                  R"({"target":"all"})");
        EXPECT_EQ(body["messages"][3]["tool_call_id"], "c");
      }
      if (size > 4) {
        EXPECT_EQ(body["messages"][4]["content"], "All is well.");
      }
      stream += Delta({{"content", "All"}}) + Delta({{"content", " is"}}) +
                Delta({{"content", " well."}}) + Delta(json::object(), "stop");
    }
    send(kHead + Chunk(stream + CachedUsage(100 * size, 100 * (size - 2))) +
         Chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    return true;
  });
  const AgentSpec agent = Small();
  LoadSpec spec;
  spec.target = {.port = server.port(),
                 .kind = EndpointKind::kChat,
                 .path = std::string("/v1/chat/completions")};
  spec.requests = AgentTasks(agent);
  spec.max_concurrency = 2;
  spec.timeout_s = 20;
  spec.next = [&](LoadRequest& ended, const RequestResult& result) {
    return AgentTurn(agent, ended, result);
  };
  const LoadRun run = RunLoad(spec, [](size_t) { return true; });
  ASSERT_EQ(run.results.size(), 12u);
  for (const RequestResult& result : run.results) EXPECT_TRUE(result.ok) << result.error;
  EXPECT_EQ(sizes, (std::multiset<size_t>{2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8}));
  EXPECT_EQ(run.most_in_flight, 2u);

  const ServeReport report = MakeServeReport(run, {});
  ASSERT_EQ(report.turns.size(), 4u);
  EXPECT_EQ(report.turns[0].cached_tokens, 0u);
  EXPECT_EQ(report.turns[3].prompt_tokens, 2400u);
  EXPECT_EQ(report.turns[3].cached_tokens, 1800u);
  EXPECT_EQ(report.turns[3].ttft.count, 3u);
  EXPECT_EQ(report.cached_tokens, 3u * (0 + 200 + 400 + 600));
  const json out = json::parse(ServeJson(spec, {}, report));
  EXPECT_EQ(out["turns"][3]["cached_tokens"], 1800);
  EXPECT_EQ(out["total_cached_tokens"], report.cached_tokens);
  EXPECT_NE(ServeText(spec, {}, report).find("75.0 %"), std::string::npos);
}

TEST(AgentLoadTest, AFailedTurnEndsItsConversationOnly) {
  Server server([&](const std::string& request, const Server::Send& send) {
    const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4));
    if (body["messages"][1]["content"] == AgentTasks(Small())[1].messages[1]["content"]) {
      send("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}");
    } else {
      send(kHead + Chunk(Delta({{"content", "a"}}, "stop")) + "0\r\n\r\n");
    }
    return true;
  });
  const AgentSpec agent = Small();
  LoadSpec spec;
  spec.target = {.port = server.port(),
                 .kind = EndpointKind::kChat,
                 .path = std::string("/v1/chat/completions")};
  spec.requests = AgentTasks(agent);
  spec.timeout_s = 20;
  spec.next = [&](LoadRequest& ended, const RequestResult& result) {
    return AgentTurn(agent, ended, result);
  };
  const ServeReport report = MakeServeReport(RunLoad(spec, [](size_t) { return true; }), {});
  EXPECT_EQ(report.completed, 8u);
  EXPECT_EQ(report.failed, 1u);
}

}  // namespace
}  // namespace larder::node::loadgen
