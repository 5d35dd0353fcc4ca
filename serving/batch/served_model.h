// What answers depend on besides requests. A server tells it (GET /v1/larder/plan, "served") to
// clients that want the same bytes from several servers; `larder batch` has it of its own engine.
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
  std::string pooling = "none";  // pooling of embeddings, as model::PoolingName
  bool biased = false;  // it has biases that a request can't undo: --logit-bias, --ignore-eos

  nlohmann::json ToJson() const;
  // Throws Error if a server's plan has none: it is not Larder, or too old.
  static ServedModel OfPlan(const nlohmann::json& plan);
  // Why answers of `other` could differ; empty: they can't. The number of slots changes no answer,
  // and dim belongs to the model.
  std::string Differs(const ServedModel& other) const;
};

}  // namespace larder::serving::batch
