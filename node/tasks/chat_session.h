// A conversation at the terminal: reads a line, renders the whole conversation with the model's chat format,
// and runs what the KV cache does not hold yet: the new turn only, as long as the format keeps what was
// said.
#pragma once

#include <string>

#include "model/chat/chat.h"
#include "node/tasks/generate.h"

namespace larder::node {

struct ChatSessionOptions {
  model::ChatFormat format = model::ChatFormat::kChatMl;
  std::string system;
  std::string first_message;  // -p: said before anything is read
  bool think = true;
  GenerateOptions generate;
};

// Until /exit, the end of input, or Ctrl-C twice. Returns the exit code. /clear starts anew; Ctrl-C during an
// answer ends the answer.
int RunChat(Generator& generator, const model::Tokenizer& tokenizer, const ChatSessionOptions& options);

}  // namespace larder::node
