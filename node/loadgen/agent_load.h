// What agents send: conversations of many turns that all begin with one long system prompt and its
// tools. Each turn repeats the conversation so far, what the model said included, and adds a tool's
// result. A server that keeps the KV of prompts reads little but that result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "node/loadgen/serve_wire.h"

namespace larder::node::inline loadgen {

struct AgentSpec {
  size_t conversations = 4;
  size_t turns = 10;
  size_t system_words = 16'000;  // words of the system prompt and its tools, about a token each
  size_t message_words = 128;    // words of each task and of each tool's result
  size_t output_tokens = 128;
  uint64_t seed = 0;
};

// The first request of each conversation. The same seed gives the same.
std::vector<LoadRequest> AgentTasks(const AgentSpec&);

// The request that follows: the model's calls get results; if it made none, the user gives the
// result and asks to go on. nullopt after the last turn. Takes `ended`'s messages and tools.
std::optional<LoadRequest> AgentTurn(const AgentSpec&, LoadRequest& ended, const RequestResult&);

}  // namespace larder::node::loadgen
