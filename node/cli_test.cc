// Runs the built program as a user would: exit codes, one-line errors, and what it prints.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/isa.h"
#include "model/gguf.h"
#include "model/synth.h"

namespace larder::node {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;    // exit code; -signal if a signal killed it
  std::string out;  // standard output
  std::string err;  // standard error
};

std::string Slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = fs::temp_directory_path() / ("larder-cli-" + std::to_string(getpid()));
    fs::create_directories(directory_);
    // Random weights never end a text early for long, and three KV heads divide among no number of threads.
    model::SynthOptions synth;
    synth.shape.layers = 2;
    synth.shape.dim = 96;
    synth.shape.ffn = 160;
    synth.shape.heads = 6;
    synth.shape.kv_heads = 3;
    synth.shape.head_size = 16;
    synth.shape.vocab = 300;
    synth.shape.context = 4096;
    model::WriteSynth(synth, Tiny());
  }
  static void TearDownTestSuite() { fs::remove_all(directory_); }

  static std::string Path(const std::string& name) { return (directory_ / name).string(); }
  static std::string Tiny() { return Path("tiny.gguf"); }
  static std::string Demo() { return LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf"; }
  static std::string Data(const std::string& name) {
    const char* root = std::getenv("LARDER_TEST_DATA");
    return (fs::path(root != nullptr ? root : LARDER_SOURCE_DIR "/../shared/data") / name).string();
  }

  // Starts the program; its output goes to files, so that neither side ever waits for the other.
  static pid_t Start(std::vector<std::string> arguments, const std::string& input, const std::string& tag) {
    const std::string in = Path(tag + ".in"), out = Path(tag + ".out"), err = Path(tag + ".err");
    std::ofstream(in, std::ios::binary) << input;
    arguments.insert(arguments.begin(), LARDER_PROGRAM);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (std::freopen(in.c_str(), "rb", stdin) == nullptr ||
          std::freopen(out.c_str(), "wb", stdout) == nullptr ||
          std::freopen(err.c_str(), "wb", stderr) == nullptr) {
        _exit(127);
      }
      execv(LARDER_PROGRAM, argv.data());
      _exit(127);
    }
    return child;
  }
  static Outcome Wait(pid_t child, const std::string& tag) {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), Slurp(Path(tag + ".out")),
            Slurp(Path(tag + ".err"))};
  }
  static Outcome Run(std::vector<std::string> arguments, const std::string& input = "") {
    return Wait(Start(std::move(arguments), input, "run"), "run");
  }

  // One line that begins as errors do and holds `part`; nothing on standard output.
  static void ExpectError(const Outcome& got, const std::string& part) {
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.err.rfind("larder: error: ", 0), 0u) << got.err;
    EXPECT_EQ(Lines(got.err), 1u) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
    EXPECT_EQ(got.out, "");
  }
  static void ExpectUsage(const Outcome& got, const std::string& part) {
    EXPECT_EQ(got.code, 2);
    EXPECT_EQ(got.err.rfind("larder: usage: ", 0), 0u) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
    EXPECT_NE(got.err.find("try: larder"), std::string::npos) << got.err;
    EXPECT_EQ(got.out, "");
  }

 private:
  static fs::path directory_;
};
fs::path Cli::directory_;

TEST_F(Cli, HelpAndVersion) {
  const Outcome help = Run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name : {"run", "plan", "bench", "perplexity", "tokenize", "inspect", "synth", "doctor"}) {
    EXPECT_NE(help.out.find(std::string("  ") + name + " "), std::string::npos) << name;
    const Outcome own = Run({name, "--help"});
    EXPECT_EQ(own.code, 0);
    EXPECT_NE(own.out.find(std::string("larder ") + name), std::string::npos) << own.out;
  }
  const Outcome version = Run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("larder ", 0), 0u);
}

TEST_F(Cli, WrongUsage) {
  EXPECT_EQ(Run({}).code, 2);
  ExpectUsage(Run({"fly"}), "'fly'");
  ExpectUsage(Run({"run"}), "--model");
  ExpectUsage(Run({"run", "--bogus"}), "--bogus");
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--bogus"}), "--bogus");
  ExpectUsage(Run({"run", "-m", Tiny(), "-t", "many"}), "many");
  ExpectUsage(Run({"run", "-m", Tiny(), "-t", "-1"}), "-1");
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--isa", "mmx"}), "mmx");
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--logit-bias", "7"}), "logit-bias");
  ExpectUsage(Run({"bench", "-m", Tiny(), "-b", "1,x"}), "'1,x'");
  ExpectUsage(Run({"bench", "-m", Tiny(), "-r", "0"}), "'0'");
  ExpectUsage(Run({"plan"}), "--shape");
  ExpectUsage(Run({"perplexity", "-m", Tiny()}), "--ids");
  ExpectUsage(Run({"synth", "-o", Path("none.gguf")}), "--shape");
}

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
  ExpectError(Run({"run", "-m", Tiny(), "-p", "x", "--temp", "nan"}), "temp");
  ExpectError(Run({"synth", "--shape", "llama-99t", "-o", Path("none.gguf")}), "bench-24m");
  ExpectError(Run({"run", "-m", Tiny(), "-i"}), "--chat-template");
}

// The type of the first Q8_0 matrix becomes Q4_K (256 weights in 144 bytes): the file is sound, but not for
// us.
TEST_F(Cli, UnsupportedTypeIsNamed) {
  std::string bytes = Slurp(Tiny());
  const std::string name = "blk.0.ffn_down.weight";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  // after the name: number of dimensions, the dimensions, the type
  uint32_t dimensions = 0;
  std::memcpy(&dimensions, bytes.data() + at + name.size(), sizeof dimensions);
  const size_t type_at = at + name.size() + 4 + 8 * dimensions;
  uint32_t type = 0;
  std::memcpy(&type, bytes.data() + type_at, sizeof type);
  ASSERT_EQ(type, 8u);
  const uint64_t cols = 256;  // whole blocks of Q4_K
  std::memcpy(bytes.data() + at + name.size() + 4, &cols, sizeof cols);
  type = 12;
  std::memcpy(bytes.data() + type_at, &type, sizeof type);
  std::ofstream(Path("q4k.gguf"), std::ios::binary) << bytes;
  ExpectError(Run({"run", "-m", Path("q4k.gguf"), "-p", "x"}), "ffn_down");
  const Outcome listed = Run({"inspect", "-m", Path("q4k.gguf")});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("Q4_K"), std::string::npos);
}

TEST_F(Cli, LongPromptSaysTheNumbers) {
  const std::string prompt(100, 'q');
  const Outcome got = Run({"run", "-m", Tiny(), "-c", "32", "-p", prompt, "-t", "1"});
  EXPECT_EQ(got.code, 1);
  EXPECT_NE(got.err.find("context of 32 tokens"), std::string::npos) << got.err;
  EXPECT_EQ(Lines(got.err), 1u) << got.err;
}

TEST_F(Cli, FullContextIsNoError) {
  const Outcome got =
      Run({"run", "-m", Tiny(), "-c", "32", "-p", "Hello", "-t", "1", "--ignore-eos", "--seed", "1"});
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
  const Outcome bare = Run({"run", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp", "0", "-t",
                            "1", "--no-display-prompt"});
  EXPECT_EQ("Once upon a time" + bare.out, got.out);

  // the prompt in a file: the editor's line end is not part of it
  std::ofstream(Path("prompt.txt")) << "Once upon a time\n";
  EXPECT_EQ(Run({"run", "-m", Demo(), "-f", Path("prompt.txt"), "-n", "24", "--temp", "0", "-t", "1"}).out,
            got.out);

  // the story again, cut before a word that is in it
  const std::string word = got.out.substr(30, 6);
  const Outcome cut = Run(
      {"run", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp", "0", "-t", "1", "--stop", word});
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
  for (const char* threads : {"2", "5"}) EXPECT_EQ(with({"-t", threads}), expected) << threads << " threads";
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
  const Outcome got = Run({"run", "-m", Tiny(), "-cnv", "--chat-template", "chatml", "-t", "1", "-n", "8",
                           "--temp", "0", "-sys", "Be brief."},
                          "Hello\n/clear\nHello\n/exit\nnot read\n");
  EXPECT_EQ(got.code, 0) << got.err;
  // the same question after /clear gets the same answer
  const size_t half = got.out.size() / 2;
  ASSERT_GT(half, 0u);
  EXPECT_EQ(got.out.substr(0, half), got.out.substr(half));
}

TEST_F(Cli, BenchJson) {
  const Outcome got = Run({"bench", "-m", Tiny(), "-p", "16", "-n", "4", "-b", "1,3", "-t", "1,2", "-r", "2",
                           "-o", "json", "--probe-seconds", "0.02"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto rows = nlohmann::json::parse(got.out);
  ASSERT_EQ(rows.size(), 6u);  // two thread counts x (pp16, tg4, tg4 b3)
  for (const auto& row : rows) {
    EXPECT_EQ(row["samples_ts"].size(), 2u);
    EXPECT_GT(row["median_ts"].get<double>(), 0);
    if (row["n_gen"] == 4) {
      EXPECT_GT(row["bytes_per_step"].get<double>(), 96 * 160 * 3 * 2) << "the FFN's weights alone";
      EXPECT_GT(row["gbps"].get<double>(), 0);
    }
  }
  EXPECT_EQ(rows[2]["test"], "tg4 b3");
  EXPECT_EQ(rows[5]["n_threads"], 2);

  const Outcome table =
      Run({"bench", "-m", Tiny(), "-p", "16", "-n", "4", "-t", "1", "-r", "1", "--probe-seconds", "0.02"});
  EXPECT_EQ(table.code, 0) << table.err;
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('|')) {
      EXPECT_LE(line.size(), 112u) << line;
    }  // bytes: "±" is two
  }
}

TEST_F(Cli, PerplexityOfIdsWritesEveryLogit) {
  constexpr size_t kTokens = 37, kVocab = 300;
  std::ofstream ids(Path("ids.txt"));
  for (size_t i = 0; i < kTokens; ++i) ids << (i * 7 + 3) % kVocab << (i % 5 == 4 ? "\n" : " ");
  ids.close();
  const std::vector<std::string> arguments = {
      "perplexity", "-m", Tiny(), "--ids", Path("ids.txt"), "--logits", Path("logits.f32"), "-t", "1"};
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
  const Outcome got =
      Run({"perplexity", "-m", Tiny(), "-f", Path("text.txt"), "-c", "64", "--chunks", "2", "-t", "1"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("[2]"), std::string::npos) << got.out;
  // 64 / 2 - 1 predictions of each of the two chunks
  EXPECT_NE(got.out.find("over 62 tokens"), std::string::npos) << got.out;
  ExpectError(Run({"perplexity", "-m", Tiny(), "-f", Path("text.txt"), "-c", "4000", "-t", "1"}), "too few");
}

TEST_F(Cli, InterruptEndsARunWithItsStatistics) {
  const pid_t child = Start(
      {"run", "-m", Tiny(), "-p", "Hello", "-t", "1", "--isa", "scalar", "-c", "1048576", "--ignore-eos"}, "",
      "signal");
  // text on standard output means that it generates
  const int64_t start = NowNs();
  while (Slurp(Path("signal.out")).size() < 10 && SecondsSince(start) < 60) usleep(2000);
  kill(child, SIGINT);
  const Outcome got = Wait(child, "signal");
  EXPECT_EQ(got.code, 130) << got.err;
  EXPECT_NE(got.err.find("TPOT"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("interrupted"), std::string::npos) << got.err;
}

TEST_F(Cli, TokenizeAndInspect) {
  const Outcome ids = Run({"tokenize", "-m", Tiny(), "--ids", "--no-bos", "ab"});
  EXPECT_EQ(ids.code, 0) << ids.err;
  const auto parsed = nlohmann::json::parse(ids.out);
  EXPECT_GE(parsed.size(), 2u);
  EXPECT_EQ(Run({"tokenize", "-m", Tiny(), "--ids", "--no-bos"}, "ab").out, ids.out);
  const Outcome pieces = Run({"tokenize", "-m", Tiny(), "--no-bos", "ab"});
  EXPECT_EQ(Lines(pieces.out), parsed.size());

  const Outcome json = Run({"inspect", "-m", Tiny(), "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto inspected = nlohmann::json::parse(json.out);
  EXPECT_EQ(inspected["config"]["dim"], 96);
  EXPECT_EQ(inspected["tensors"][0]["type"], "Q8_0");
}

TEST_F(Cli, InspectsAVocabularyFile) {
  const std::string vocabulary = Data("tokenizers/vocab-llama3.gguf");
  if (!fs::exists(vocabulary)) GTEST_SKIP() << vocabulary << " is not there (LARDER_TEST_DATA)";
  const Outcome got = Run({"inspect", "-m", vocabulary});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("tensors (0)"), std::string::npos) << got.out;
  ExpectError(Run({"run", "-m", vocabulary, "-p", "x"}), "vocab-llama3.gguf");
}

TEST_F(Cli, PlanOfANamedShape) {
  const Outcome got = Run({"plan", "--shape", "llama-3.2-3b", "-t", "2", "-c", "512", "--json"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto plan = nlohmann::json::parse(got.out);
  EXPECT_EQ(plan["model"]["layers"], 28);
  EXPECT_EQ(plan["threads"].size(), 2u);
  const std::string machine = Data("topologies/amd-genoax-2xEPYC-9V33X-azure-hbv4.xml");
  if (!fs::exists(machine)) GTEST_SKIP() << machine << " is not there (LARDER_TEST_DATA)";
  const Outcome other = Run({"plan", "--shape", "bench-24m", "--topology", machine});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.out.find(machine), std::string::npos) << other.out;
}

TEST_F(Cli, DoctorSaysWhatItFound) {
  const Outcome got = Run({"doctor", "--json", "--seconds", "0.02", "-m", Tiny(), "-t", "1"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto found = nlohmann::json::parse(got.out)["findings"];
  bool l3 = false, residency = false;
  for (const auto& finding : found) {
    const std::string what = finding["what"];
    if (what.starts_with("kernels")) {
      EXPECT_EQ(finding["health"], "ok") << finding;
    }
    l3 = l3 || what == "L3 read";
    residency = residency || what.starts_with("residency");
  }
  EXPECT_TRUE(l3 && residency) << got.out;
}

}  // namespace
}  // namespace larder::node
