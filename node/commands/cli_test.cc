// Runs the built program as a user would: exit codes, one-line errors, and what it prints.
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "kernels/formats/isa.h"
#include "model/gguf/gguf.h"
#include "node/commands/cli_testing.h"

namespace larder::node::inline commands {
namespace {

TEST_F(Cli, ErrorsAreOneLine) {
  for (const char* command : {"run", "bench", "inspect", "plan"}) {
    ExpectError(Run({command, "-m", Path("missing.gguf")}), "missing.gguf");
  }
  std::ofstream(Path("magic.gguf")) << "this is no model at all, whatever its name says";
  ExpectError(Run({"run", "-m", Path("magic.gguf"), "-p", "x"}), "magic");
  const std::string whole = Slurp(Tiny());
  std::ofstream(Path("short.gguf"), std::ios::binary) << whole.substr(0, whole.size() / 2);
  ExpectError(Run({"run", "-m", Path("short.gguf"), "-p", "x"}), "short.gguf");
  ExpectError(Run({"run", "-m", Tiny(), "-f", Path("no\nfile")}), "file");
  ExpectError(Run({"synth", "--shape", "llama-99t", "-o", Path("none.gguf")}), "bench-24m");
  ExpectError(Run({"run", "-m", Tiny(), "-i", "--chat-template", "chatlm"}), "chatml");
}

TEST_F(Cli, AModelWithoutATemplateChatsInPlainLinesAndSaysSo) {
  const Outcome got = Run({"run", "-m", Tiny(), "-i", "-n", "4", "-t", "1"}, "hello\n");
  EXPECT_EQ(got.code, 0) << got.err;
  const size_t at = got.err.find("has no chat template");
  ASSERT_NE(at, std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("has no chat template", at + 1), std::string::npos) << got.err;
}

// Changes the type of the first Q8_0 matrix to IQ2_XXS (256 weights in 66 bytes): the file is
// valid, but Larder does not support the type.
TEST_F(Cli, UnsupportedTypeIsNamed) {
  std::string bytes = Slurp(Tiny());
  const std::string name = "blk.0.ffn_down.weight";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  // The name is followed by the number of dimensions, the dimensions and the type.
  uint32_t dimensions = 0;
  std::memcpy(&dimensions, bytes.data() + at + name.size(), sizeof dimensions);
  const size_t type_at = at + name.size() + 4 + 8 * dimensions;
  uint32_t type = 0;
  std::memcpy(&type, bytes.data() + type_at, sizeof type);
  ASSERT_EQ(type, 8u);
  const uint64_t cols = 256;  // whole blocks of IQ2_XXS
  std::memcpy(bytes.data() + at + name.size() + 4, &cols, sizeof cols);
  type = 16;
  std::memcpy(bytes.data() + type_at, &type, sizeof type);
  std::ofstream(Path("iq2.gguf"), std::ios::binary) << bytes;
  ExpectError(Run({"run", "-m", Path("iq2.gguf"), "-p", "x"}), "ffn_down");
  const Outcome listed = Run({"inspect", "-m", Path("iq2.gguf")});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("IQ2_XXS"), std::string::npos);
}

TEST_F(Cli, LongPromptSaysTheNumbers) {
  const std::string prompt(100, 'q');
  const Outcome got = Run({"run", "-m", Tiny(), "-c", "32", "-p", prompt, "-t", "1"});
  EXPECT_EQ(got.code, 1);
  EXPECT_NE(got.err.find("context length is 32 tokens"), std::string::npos) << got.err;
  EXPECT_EQ(Lines(got.err), 1u) << got.err;
}

TEST_F(Cli, FullContextIsNoError) {
  const Outcome got = Run(
      {"run", "-m", Tiny(), "-c", "32", "-p", "Hello", "-t", "1", "--ignore-eos", "--seed", "1"});
  EXPECT_EQ(got.code, 0);
  EXPECT_NE(got.err.find("the context of 32 tokens is full"), std::string::npos) << got.err;
}

TEST_F(Cli, DemoModelTellsAStory) {
  if (!fs::exists(Demo())) GTEST_SKIP() << Demo() << " is not there";
  const Outcome got =
      Run({"run", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp", "0", "-t", "1"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out.rfind("Once upon a time", 0), 0u) << got.out;
  EXPECT_GT(got.out.size(), std::string("Once upon a time").size() + 24) << got.out;
  for (const char* part : {"TTFT", "TPOT", "tok/s", "stopped"})
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
  const Outcome bare = Run({"run", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp",
                            "0", "-t", "1", "--no-display-prompt"});
  EXPECT_EQ("Once upon a time" + bare.out, got.out);

  // The line end at the end of a prompt file is not part of the prompt.
  std::ofstream(Path("prompt.txt")) << "Once upon a time\n";
  EXPECT_EQ(
      Run({"run", "-m", Demo(), "-f", Path("prompt.txt"), "-n", "24", "--temp", "0", "-t", "1"})
          .out,
      got.out);

  // The same story ends before a stop string that occurs in it.
  const std::string word = got.out.substr(30, 6);
  const Outcome cut = Run({"run", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp", "0",
                           "-t", "1", "--stop", word});
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_EQ(cut.out, got.out.substr(0, got.out.find(word, 16)) + "\n");
}

TEST_F(Cli, SameTextForEveryThreadCountAndInstructionSet) {
  const std::vector<std::string> common = {"run", "-m", Tiny(),   "-p", "Some text to begin with",
                                           "-n",  "32", "--seed", "1",  "--ignore-eos"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = common;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome got = Run(all);
    EXPECT_EQ(got.code, 0) << got.err;
    return got.out;
  };
  const std::string expected = with({"-t", "1", "--isa", "scalar"});
  EXPECT_GT(expected.size(), 24u);
  for (const char* threads : {"2", "5"})
    EXPECT_EQ(with({"-t", threads}), expected) << threads << " threads";
  for (const auto& [name, isa] :
       {std::pair{"avx2", kernels::Isa::kAvx2}, {"avx512", kernels::Isa::kAvx512Vnni}}) {
    if (kernels::HostHas(isa)) {
      EXPECT_EQ(with({"-t", "1", "--isa", name}), expected) << name;
    } else {
      std::printf("this CPU has no %s: not compared\n", name);
    }
  }
  EXPECT_EQ(with({"-t", "2", "-ub", "64"}), expected);
  EXPECT_NE(with({"-t", "1", "--seed", "2"}), expected);  // the comparison can fail
}

TEST_F(Cli, ChatKeepsItsCacheAndClears) {
  const Outcome got = Run({"run", "-m", Tiny(), "-cnv", "--chat-template", "chatml", "-t", "1",
                           "-n", "8", "--temp", "0", "-sys", "Be brief."},
                          "Hello\n/clear\nHello\n/exit\nnot read\n");
  EXPECT_EQ(got.code, 0) << got.err;
  // The same question after /clear gets the same answer.
  const size_t half = got.out.size() / 2;
  ASSERT_GT(half, 0u);
  EXPECT_EQ(got.out.substr(0, half), got.out.substr(half));
}

TEST_F(Cli, PerplexityOfIdsWritesEveryLogit) {
  constexpr size_t kTokens = 37, kVocab = 300;
  std::ofstream ids(Path("ids.txt"));
  for (size_t i = 0; i < kTokens; ++i) ids << (i * 7 + 3) % kVocab << (i % 5 == 4 ? "\n" : " ");
  ids.close();
  const std::vector<std::string> arguments = {
      "perplexity",       "-m", Tiny(), "--ids", Path("ids.txt"), "--logits",
      Path("logits.f32"), "-t", "1"};
  const Outcome got = Run(arguments);
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("PPL = "), std::string::npos) << got.out;
  const std::string first = Slurp(Path("logits.f32"));
  EXPECT_EQ(first.size(), kTokens * kVocab * sizeof(float));
  std::vector<std::string> other = arguments;
  other.back() = "2";
  other.insert(other.end(), {"-ub", "33"});
  EXPECT_EQ(Run(other).out, got.out);
  EXPECT_EQ(Slurp(Path("logits.f32")), first);

  std::ofstream(Path("ids.txt")) << "1 2 three";
  ExpectError(Run(arguments), "after 2 token ids");
  std::ofstream(Path("ids.txt")) << "1 2 300";
  EXPECT_EQ(Run(arguments).code, 1);
}

TEST_F(Cli, PerplexityOfText) {
  std::ofstream(Path("text.txt")) << std::string(400, 'a');
  const Outcome got = Run(
      {"perplexity", "-m", Tiny(), "-f", Path("text.txt"), "-c", "64", "--chunks", "2", "-t", "1"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("[2]"), std::string::npos) << got.out;
  // 64 / 2 - 1 predictions in each of the two chunks.
  EXPECT_NE(got.out.find("over 62 tokens"), std::string::npos) << got.out;
  ExpectError(Run({"perplexity", "-m", Tiny(), "-f", Path("text.txt"), "-c", "4000", "-t", "1"}),
              "too few");
}

TEST_F(Cli, InterruptEndsARunWithItsStatistics) {
  const pid_t child = Start({"run", "-m", Tiny(), "-p", "Hello", "-t", "1", "--isa", "scalar", "-c",
                             "1048576", "--ignore-eos"},
                            "", "signal");
  // Text on standard output shows that it is generating.
  const int64_t start = NowNs();
  while (Slurp(Path("signal.out")).size() < 10 && SecondsSince(start) < 60) usleep(2000);
  kill(child, SIGINT);
  const Outcome got = Wait(child, "signal");
  EXPECT_EQ(got.code, 130) << got.err;
  EXPECT_NE(got.err.find("TPOT"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("interrupted"), std::string::npos) << got.err;
}

}  // namespace
}  // namespace larder::node::commands
