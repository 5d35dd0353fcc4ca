// The built program's options: help, wrong usage, and the effect of their values.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf/gguf.h"
#include "node/commands/cli_testing.h"
#include "node/options/peer_flags.h"

namespace larder::node::inline commands {
namespace {

TEST_F(Cli, HelpAndVersion) {
  const Outcome help = Run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name :
       {"run", "plan", "bench", "perplexity", "tokenize", "inspect", "synth", "split", "doctor"}) {
    EXPECT_NE(help.out.find(std::string("  ") + name + " "), std::string::npos) << name;
    const Outcome own = Run({name, "--help"});
    EXPECT_EQ(own.code, 0);
    EXPECT_NE(own.out.find(std::string("larder ") + name), std::string::npos) << own.out;
    EXPECT_EQ(own.out.find('{'), std::string::npos) << "CLI11's marks: " << own.out;
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
  ExpectUsage(Run({"synth", "--dim", "64", "--type", "q4_k_x", "-o", Path("none.gguf")}), "q4_k_x");
}

// What the table of other servers' flags leads to is there.
TEST_F(Cli, FlagsOfOtherServersLeadToOptions) {
  const std::string help = Run({"serve", "--help"}).out;
  for (const PeerFlag& flag : PeerFlags()) {
    if (flag.fate != PeerFlag::Fate::kTaken) continue;
    const std::string name(flag.text.substr(0, flag.text.find('=')));
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
  ExpectUsage(Run({"serve", "-m", Tiny(), "--lora", "a"}), "--lora (llama-server's)");
  ExpectUsage(Run({"serve", "-m", Tiny(), "-hf", "a/b"}), "-hf (llama-server's)");
  ExpectUsage(Run({"serve", "-m", Tiny(), "-ngl", "99", "-np", "0"}), "whole number");
  ExpectUsage(Run({"serve", "-m", Tiny(), "--max-body", "1T"}), "--max-body");
}

// `inspect` shows what `synth --type` wrote; ffn rows are not whole super-blocks.
TEST_F(Cli, SynthWritesTheTypeThatIsAsked) {
  const std::string help = Run({"synth", "--help"}).out;
  for (const model::NamedMatrixTypes& named : model::AllMatrixTypes()) {
    const std::string name(named.name), path = Path("of_a_type.gguf");
    // Lines of the help are broken at blanks only.
    EXPECT_NE(help.find(name), std::string::npos) << help;
    const Outcome made = Run({"synth", "--layers", "1", "--dim", "256", "--heads", "4", "--ffn",
                              "96", "--vocab", "300", "--type", name, "-o", path});
    EXPECT_EQ(made.code, 0) << made.err;
    const auto file = model::GgufFile::Open(path);
    EXPECT_EQ(file->Tensor("blk.0.attn_q.weight").type, named.types.most) << name;
    EXPECT_EQ(file->Tensor("output.weight").type, named.types.finer) << name;
    EXPECT_EQ(file->Tensor("blk.0.ffn_down.weight").type,
              model::FallbackType(named.types.finer, 96))
        << name;
    const Outcome shown = Run({"inspect", "-m", path});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_NE(shown.out.find(model::GgufTypeName(static_cast<uint32_t>(named.types.most))),
              std::string::npos)
        << shown.out;
  }
}

// An empty key would admit everybody, and a short one can be guessed.
TEST_F(Cli, KeysThatAreNoneAreWrongUsage) {
  const auto serve = [](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"serve", "-m",          Tiny(), "--port",
                                          "0",     "--text-port", "-1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return Run(arguments);
  };
  ExpectUsage(serve({"--api-key", ""}), "--api-key: the key is empty");
  ExpectUsage(serve({"--api-key", "1234567"}), "has 7 bytes: expected at least 8");
  ExpectUsage(serve({"--api-key", "12345678", "--api-key", ""}), "empty");
  const std::string path = Path("keys");
  std::ofstream(path) << "# ours\n\n12345678\n secret \n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const Outcome got = serve({"--api-key-file", path});
  ExpectUsage(got, path + ":4: the key has 6 bytes");
  EXPECT_EQ(got.err.find("secret"), std::string::npos) << got.err;
  std::filesystem::remove(path);
  std::ofstream(path) << "# none\n";
  ExpectError(serve({"--api-key-file", path}), "has no key");
  std::filesystem::permissions(path, std::filesystem::perms(0620));
  ExpectError(serve({"--api-key-file", path}), "others may write it (mode 0620)");
}

// Wrong values: the message has the option's name, the value and the range; the exit code is 2.
TEST_F(Cli, WrongValuesNameTheOption) {
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
           {"--temp", "nan"},
           {"--temp", "warm"},
           {"--top-k", "1e3"},
           {"--top-k", "99999999999"},
           {"--top-p", "1.5"},
           {"--min-p", "-0.1"},
           {"--repeat-penalty", "0"},
           {"--repeat-last-n", "-2"},
           {"--presence-penalty", "inf"},
           {"--frequency-penalty", "1e9"},
           {"--typical", "1.5"},
           {"--xtc-probability", "-1"},
           {"--dry-base", "0.5"},
           {"--mirostat", "3"},
           {"--samplers", "top_q"},
           {"--seed", "18446744073709551616"},
           {"--seed", "-2"},
           {"--seed", "1.0"},
           {"-n", "many"},
           {"--l3-fraction", "soon"},
       }) {
    const Outcome got = Run({"run", "-m", Tiny(), "-p", "x", option, value});
    ExpectUsage(got, value);
    EXPECT_NE(got.err.find(option == "-n" ? "--predict" : option), std::string::npos) << got.err;
    EXPECT_EQ(got.err.find("Could not convert"), std::string::npos) << got.err;
  }
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--logit-bias", "300+1"}),
              "--logit-bias: there is no token 300");
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--logit-bias", "3+1e9"}),
              "--logit-bias: '3+1e9'");
}

TEST_F(Cli, SamplersChangeTheText) {
  const auto text = [](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"run", "-m", Tiny(), "-p",     "Hello", "-t",
                                    "1",   "-n", "24",   "--seed", "5"};
    all.insert(all.end(), options.begin(), options.end());
    const Outcome got = Run(all);
    EXPECT_EQ(got.code, 0) << got.err;
    return got.out;
  };
  const std::string usual = text({});
  EXPECT_EQ(
      text({"--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"}),
      usual);
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--samplers", "temperature"},
                                             {"--typical", "0.3"},
                                             {"--top-nsigma", "0.5"},
                                             {"--xtc-probability", "1", "--xtc-threshold", "0.01"},
                                             {"--mirostat", "2", "--mirostat-ent", "1"},
                                             {"--dynatemp-range", "0.8"}}) {
    EXPECT_NE(text(options), usual) << options[0];
    EXPECT_EQ(text(options), text(options)) << options[0];
  }
}

TEST_F(Cli, ADrawnSeedIsPrintedAndRepeatsTheText) {
  const std::vector<std::string> common = {"run", "-m", Tiny(), "-p", "Hello",
                                           "-t",  "1",  "-n",   "24"};
  auto with = [&](const std::string& seed) {
    std::vector<std::string> all = common;
    all.insert(all.end(), {"--seed", seed});
    const Outcome got = Run(all);
    EXPECT_EQ(got.code, 0) << got.err;
    return got;
  };
  const Outcome drawn = with("-1");
  const size_t at = drawn.err.find("seed       ");
  ASSERT_NE(at, std::string::npos) << drawn.err;
  const std::string seed = drawn.err.substr(at + 11, drawn.err.find('\n', at) - at - 11);
  const Outcome again = with(seed);
  EXPECT_EQ(again.out, drawn.out);
  EXPECT_EQ(again.err.find("seed "), std::string::npos) << again.err;
  // All 64 bits of the seed count.
  const std::string largest = with("18446744073709551615").out;
  EXPECT_NE(largest, with("9223372036854775807").out);
  EXPECT_EQ(largest, with("18446744073709551615").out);
}

// A variable of the environment, which children inherit.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

TEST_F(Cli, OptionsMayBeVariables) {
  const std::vector<std::string> command = {"run", "-p", "Hello", "-t", "1"};
  const Variable model("LARDER_MODEL", Tiny()), count("LARDER_PREDICT", "0");
  const Outcome got = Run(command);
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out, "Hello\n");
  {  // the command line beats it
    std::vector<std::string> more = command;
    more.insert(more.end(), {"-n", "1", "--seed", "1"});
    EXPECT_NE(Run(more).err.find("generated       1 token"), std::string::npos);
  }
  {  // an empty variable is none, and Kubernetes' is not ours
    const Variable empty("LARDER_TEMP", ""), port("LARDER_PORT", "tcp://10.0.0.1:80");
    EXPECT_EQ(Run(command).code, 0);
  }
  {
    const Variable wrong("LARDER_TEMP", "warm");
    const Outcome refused = Run(command);
    ExpectUsage(refused, "LARDER_TEMP: 'warm' is not a number");
    EXPECT_EQ(refused.err.find("--temp"), std::string::npos) << refused.err;
    EXPECT_EQ(Run({"run", "--help"}).code, 0);
  }
  {
    const Variable flag("LARDER_IGNORE_EOS", "perhaps");
    ExpectUsage(Run(command), "LARDER_IGNORE_EOS is 'perhaps': expected true or false");
  }
  {  // found wrong only when the command runs
    const Variable bias("LARDER_LOGIT_BIAS", "7+1\n300+1");
    ExpectUsage(Run(command), "LARDER_LOGIT_BIAS: there is no token 300");
  }
  for (const char* flag : {"true", "1", "off"}) {
    const Variable on("LARDER_IGNORE_EOS", flag);
    EXPECT_EQ(Run(command).code, 0) << flag;
  }
}

TEST_F(Cli, OptionsMayBeInAFile) {
  const std::string file = WriteFile(Path("larder.toml"),
                                     "predict = 3\n"
                                     "max-connections = 7\n"  // serve's
                                     "[run]\n"
                                     "model = \"" +
                                         Tiny() +
                                         "\"\n"
                                         "predict = 0\n"
                                         "top_p = 0.5\n"
                                         "seed = 7\n"
                                         "ignore-eos = true\n"
                                         "logit-bias = [\"7+1\", \"8-inf\"]\n"
                                         "[bench]\n"
                                         "threads = [1, 2]\n");
  const std::vector<std::string> command = {"run", "-p", "Hello", "-t", "1", "--config", file};
  const Outcome got = Run(command);
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out, "Hello\n");
  {  // the environment beats the file
    const Variable count("LARDER_PREDICT", "1");
    EXPECT_NE(Run(command).err.find("generated       1 token"), std::string::npos);
  }
  {
    const Variable config("LARDER_CONFIG", file);
    EXPECT_EQ(Run({"run", "-p", "Hello", "-t", "1"}).out, "Hello\n");
  }
  const auto refused = [&](const std::string& text, const std::string& message) {
    const std::string wrong = WriteFile(Path("wrong.toml"), text);
    ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "-n", "0", "-t", "1", "--config", wrong}),
                wrong + ":" + message);
  };
  refused("\n\ntemp = \"warm\"\n", "3: temp: 'warm' is not a number");
  refused("[run]\ntemperature = 1\n", "2: temperature: `larder run` has no option --temperature");
  refused("[serve]\nprot = 1\n", "2: prot: `larder serve` has no option --prot");
  refused("hots = 1\n", "1: hots: no command has an option --hots");
  refused("[runs]\n", "1: [runs]: there is no such command; expected run, ");
  refused("[run]\nignore-eos = 1\n", "2: ignore-eos: expected true or false");
  refused("[run]\ntemp = [1, 2]\n", "2: temp: expected one value, not an array");
  refused("[run]\ntemp = true\n", "2: temp: expected a text or a number");
  refused("[run\n", "1: not TOML: ");
  ExpectUsage(Run({"run", "-m", Tiny(), "-p", "x", "--config", Path("none.toml")}),
              "none.toml: can't read it");
}

// A serving socket's process takes serve's options from the manifest and from the command line of
// `larder node`, each from one of them.
TEST_F(Cli, AServingSocketsOptionsComeFromOnePlaceEach) {
  const std::string manifest =
      WriteFile(Path("serving.toml"),
                "name = \"one\"\n[[server]]\nname = \"here\"\naddress = \"127.0.0.1\"\n"
                "[[server.socket]]\nname = \"c\"\nrole = \"colocated\"\n"
                "cores = \"all\"\n[[server.socket]]\nname = \"s\"\nrole = \"serving\"\n"
                "cores = \"all\"\n"
                "options = \"--cache-dir /nowhere\"\n");
  const std::vector<std::string> node = {"node", "--manifest", manifest, "-m",
                                         Demo(), "--socket",   "s"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = node;
    all.insert(all.end(), more.begin(), more.end());
    return Run(all);
  };
  ExpectUsage(with({"--cache-dir", "/elsewhere"}),
              "--cache-dir is among the manifest's options of socket s");
  ExpectUsage(with({"--nonsense"}), "--nonsense");
}

TEST_F(Cli, LogsMayBeJson) {
  const Outcome got = Run({"run", "-m", Path("none.gguf"), "-p", "x", "--log-format", "json"});
  EXPECT_EQ(got.code, 1);
  const auto line = nlohmann::json::parse(got.err);
  EXPECT_EQ(line["level"], "error");
  EXPECT_NE(line["message"].get<std::string>().find("none.gguf"), std::string::npos);
  EXPECT_EQ(line["time"].get<std::string>().size(),
            std::string("2026-11-24T21:00:00.000000Z").size());
  ExpectUsage(Run({"run", "-m", Tiny(), "--log-format", "xml"}), "'xml' is not text or json");
  ExpectUsage(Run({"run", "-m", Tiny(), "--log-level", "loud"}),
              "'loud' is not error, warn, info or debug");
}

TEST_F(Cli, NoTokensAskedForHaveNoSpeed) {
  const Outcome got = Run({"run", "-m", Tiny(), "-p", "Hello", "-t", "1", "-n", "0"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out, "Hello\n");
  EXPECT_NE(got.err.find("generated       0 tokens\n"), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("TPOT"), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("TTFT"), std::string::npos) << got.err;
}

TEST_F(Cli, AChatOnAPipeHasItsStatistics) {
  const Outcome got = Run({"run", "-m", Tiny(), "-cnv", "--chat-template", "chatml", "-t", "1",
                           "-n", "4", "--temp", "0"},
                          "Hello\n");
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.err.find("TTFT"), std::string::npos) << got.err;
}

TEST_F(Cli, TheL3FractionCountsWhereAModelIsLoaded) {
  // This model fits a hundredth of any L3; the test only checks that the option exists and refuses
  // nonsense.
  EXPECT_EQ(
      Run({"run", "-m", Tiny(), "-p", "x", "-n", "1", "-t", "1", "--l3-fraction", "0.5"}).code, 0);
  ExpectUsage(Run({"bench", "-m", Tiny(), "--l3-fraction", "2"}), "--l3-fraction");
}

}  // namespace
}  // namespace larder::node::commands
