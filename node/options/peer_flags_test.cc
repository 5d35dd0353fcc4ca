#include "node/options/peer_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"

namespace larder::node::inline options {
namespace {

class PeerFlagsTest : public testing::Test {
 protected:
  PeerFlagsTest() {
    command_.add_option("--parallel,--slots", text_);
    command_.add_option("-c,--ctx-size", text_);
    command_.add_option("-p,--prompt", text_);
    command_.add_option("--alias", text_);
    command_.add_option("--chat-template", text_);
    command_.add_flag("--slots-endpoint,!--no-slots-endpoint", flag_);
    command_.add_option("--log-format", text_);
  }
  using Words = std::vector<std::string>;
  Words Of(const Words& arguments) { return WithoutPeerFlags(command_, arguments).arguments; }
  std::string ErrorOf(const Words& arguments) {
    try {
      Of(arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  CLI::App command_{"a server", "serve"};
  std::string text_;
  bool flag_ = false;
};

TEST_F(PeerFlagsTest, AreTakenUnderTheirNames) {
  EXPECT_EQ(Of({"-np", "2", "--chat-template-file", "t.jinja"}),
            (Words{"--parallel", "2", "--chat-template", "t.jinja"}));
  EXPECT_EQ(Of({"--log-jsonl", "-c", "9"}), (Words{"--log-format=json", "-c", "9"}));
  EXPECT_EQ(Of({"--max-model-len=77", "--served-model-name", "m"}),
            (Words{"--ctx-size", "77", "--alias", "m"}));
  EXPECT_EQ(Of({"--max_model_len=7", "--ctx_size", "8", "--chat_template=a_b"}),
            (Words{"--ctx-size", "7", "--ctx-size", "8", "--chat-template=a_b"}));
}

TEST_F(PeerFlagsTest, WhatChangesNothingIsSaid) {
  const TranslatedArguments got = WithoutPeerFlags(
      command_, {"-fa", "on", "-ngl", "99", "--mlock", "-fa", "--flash-attn=off", "-c", "9"});
  EXPECT_EQ(got.arguments, (Words{"-c", "9"}));
  ASSERT_EQ(got.notes.size(), 5u);
  EXPECT_EQ(got.notes[1],
            "-ngl (llama-server's) changes nothing: there is no GPU: layers lie in the caches of "
            "CPUs");
}

TEST_F(PeerFlagsTest, OthersAreRefusedByName) {
  EXPECT_EQ(ErrorOf({"-c", "9", "--lora", "a.gguf"}),
            "--lora (llama-server's): there are no adapters: merge it into the model");
  EXPECT_EQ(ErrorOf({"--tensor-parallel-size=2"}),
            "--tensor-parallel-size (vLLM's): a cluster's sockets are in its manifest: --manifest");
}

TEST_F(PeerFlagsTest, SlotsAreANumberOrTheEndpoint) {
  EXPECT_EQ(Of({"--slots", "3"}), (Words{"--slots", "3"}));
  EXPECT_EQ(Of({"--slots=3"}), (Words{"--slots=3"}));
  EXPECT_EQ(Of({"--slots", "-c", "9"}), (Words{"--slots-endpoint", "-c", "9"}));
  EXPECT_EQ(Of({"--no-slots", "--slots"}), (Words{"--no-slots-endpoint", "--slots-endpoint"}));
}

// A value may look like a flag; what the command does not have, its parser refuses.
TEST_F(PeerFlagsTest, ValuesAndUnknownOptionsStay) {
  EXPECT_EQ(Of({"-p", "--lora", "--prompt=-hf"}), (Words{"-p", "--lora", "--prompt=-hf"}));
  EXPECT_EQ(Of({"--bogus", "1", "--", "--lora"}), (Words{"--bogus", "1", "--", "--lora"}));
  EXPECT_EQ(Of({"--top-k", "3"}), (Words{"--top-k", "3"})) << "this command has no --top-k";
  EXPECT_EQ(Of({"-ub"}), Words{"-ub"});
}

TEST(PeerFlags, EachNameIsThereOnce) {
  std::set<std::pair<Peer, std::string>> names;
  for (const PeerFlag& flag : PeerFlags()) {
    std::istringstream words{std::string(flag.names)};
    for (std::string name; words >> name;) {
      if (name.ends_with(',')) name.pop_back();
      EXPECT_TRUE(name.starts_with('-')) << name;
      EXPECT_TRUE(names.emplace(flag.peer, name).second) << name;
    }
    if (flag.fate != PeerFlag::Fate::kTaken) continue;
    EXPECT_TRUE(flag.text.starts_with("--") && flag.text.find(' ') == flag.text.npos) << flag.names;
  }
}

// The tables in the docs are those of the parser. LARDER_WRITE_DOCS=1 in the environment writes
// them.
TEST(PeerFlags, TheDocsHaveTheTables) {
  for (const auto& [peer, file] : {std::pair{Peer::kLlamaServer, "from-llama-server.md"},
                                   std::pair{Peer::kVllm, "from-vllm.md"}}) {
    const std::string path = std::string(LARDER_SOURCE_DIR "/docs/") + file;
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::string is = text.str();
    const size_t begin = is.find("| flag | here |");
    ASSERT_NE(begin, std::string::npos) << path;
    const size_t end = std::min(is.find("\n\n", begin) + 1, is.size());
    if (std::getenv("LARDER_WRITE_DOCS") != nullptr) {
      is.replace(begin, end - begin, PeerFlagTable(peer));
      std::ofstream(path) << is;
      continue;
    }
    EXPECT_EQ(is.substr(begin, end - begin), PeerFlagTable(peer)) << path;
  }
}

}  // namespace
}  // namespace larder::node::options
