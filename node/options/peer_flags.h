// Flags of llama-server (v0.5.0) and of `vllm serve`, as people have them in their scripts: each is
// taken under the peer's name, changes nothing here, or is refused in a line that says why. One
// table, from which docs/from-llama-server.md and docs/from-vllm.md are made, too. For the main
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace larder::node::inline options {

enum class Peer { kLlamaServer, kVllm };

struct PeerFlag {
  enum class Value {
    kNone,
    kOne,
    kMaybe
  };  // kMaybe: what follows is its value unless it begins
      // with a dash
  enum class Fate {
    kTaken,    // as Larder's option
    kNothing,  // accepted: Larder does it anyway, or it makes no difference
    kRefused
  };
  Peer peer;
  std::string_view names;  // "-np, --parallel"
  Value value;
  Fate fate;
  // kTaken: Larder's option, with a value where it has a fixed one ("--log-format=json"). Else:
  // why, as the end of a sentence that begins with the flag.
  std::string_view text;
};
std::span<const PeerFlag> PeerFlags();

struct TranslatedArguments {
  std::vector<std::string> arguments;
  std::vector<std::string> notes;  // about flags that change nothing: a line each
};
// The arguments of `command` (without its name) as Larder takes them. An option that the command
// has under the same name is left as it is. Throws Error: a flag that is refused.
TranslatedArguments WithoutPeerFlags(const CLI::App& command,
                                     const std::vector<std::string>& arguments);

// The table of a peer's flags in Markdown, for the docs.
std::string PeerFlagTable(Peer);

}  // namespace larder::node::options
