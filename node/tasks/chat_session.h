// A conversation at the terminal: reads a line, renders the whole conversation in the model's chat
// format, and runs what the KV cache does not hold yet. That is only the new turn, as long as the
// format keeps earlier turns unchanged.
#pragma once

#include <string>

#include "model/chat/chat_template.h"
#include "node/tasks/generate.h"

namespace larder::node::inline tasks {

struct ChatSessionOptions {
  std::shared_ptr<const model::ChatTemplate> chat_template;
  std::string system;
  std::string first_message;  // -p: sent before any input is read
  bool think = true;
  GenerateOptions generate;
};

// Runs until /exit, the end of input, or Ctrl-C twice, and returns the exit code. /clear starts a
// new conversation; Ctrl-C during an answer ends the answer.
int RunChat(Generator& generator, const model::Tokenizer& tokenizer,
            const ChatSessionOptions& options);

}  // namespace larder::node::tasks
