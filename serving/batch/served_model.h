// What answers depend on besides requests: said by a server (GET /v1/larder/plan, "served") to
// those who want the same bytes from several of them, and by `larder batch` of its own engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace larder::serving::inline batch {

struct ServedModel {
  std::string name;           // for clients
  uint64_t fingerprint = 0;   // the computation's identity (pipeline/plan/identity.h)
  std::string engine;         // the program's version and its arithmetic's
  std::string chat_template;  // as --chat-template names it; "auto": the model's
  std::string tool_parser;    // AnswerFormatName: how answers of chats are read
  size_t context = 0, vocab = 0, dim = 0, slots = 0;
  std::string pooling = "none";  // of embeddings, as model::PoolingName
  bool biased = false;  // it has biases that a request can't undo: --logit-bias, --ignore-eos

  nlohmann::json ToJson() const;
  // Throws Error if there is none in a server's plan: it isn't Larder, or an older one.
  static ServedModel OfPlan(const nlohmann::json& plan);
  // Why answers of `other` could be others; empty: they can't. The number of slots changes none,
  // and dim is the model's.
  std::string Differs(const ServedModel& other) const;
};

}  // namespace larder::serving::batch
