// Commands of the built program on a model in several files, as llama.cpp's gguf-split writes them:
// they do what they do with the whole file.
#include <nlohmann/json.hpp>

#include "model/gguf/gguf_testing.h"
#include "node/commands/cli_testing.h"

namespace larder::node::inline commands {
namespace {

using model::testing::PartPath;

class CliGgufParts : public Cli {
 protected:
  // The demo model in three files of which the first has no tensors, as `gguf-split
  // --no-tensor-first-split` makes them. Returns the first one's path.
  static std::string Split() {
    const std::string path = PartPath(Path("story"), 0, 3);
    if (!fs::exists(path)) {
      const auto raw = model::testing::RawOf(*model::GgufFile::Open(Demo()));
      model::testing::WriteParts(Path("story"),
                                 model::testing::PartsOf(raw, {0, 20, raw.tensors.size() - 20}));
    }
    return path;
  }
};

TEST_F(CliGgufParts, PrintWhatTheWholeFileDoes) {
  std::ofstream(Path("text.txt"))
      << "Once upon a time there was a little fox. He had a friend, and they went to the meadow. "
         "They were happy. Then a fog came and they lost the way.\n";
  const std::vector<std::vector<std::string>> commands = {
      {"run", "-p", "Once upon a time", "-n", "48", "--temp", "0", "-t", "1"},
      {"tokenize", "--ids", "Once upon a time"},
      {"perplexity", "-f", Path("text.txt"), "-c", "16", "-t", "1"},
  };
  for (std::vector<std::string> command : commands) {
    SCOPED_TRACE(command[0]);
    command.insert(command.begin() + 1, {"-m", Demo()});
    const Outcome whole = Run(command);
    ASSERT_EQ(whole.code, 0) << whole.err;
    command[2] = Split();
    const Outcome split = Run(command);
    EXPECT_EQ(split.code, 0) << split.err;
    EXPECT_EQ(split.out, whole.out);
    EXPECT_GT(split.out.size(), 10u);
  }
}

TEST_F(CliGgufParts, HaveTheWholeFilesPlan) {
  const auto plan = [](const std::string& model) {
    return nlohmann::json::parse(Run({"plan", "-m", model, "-t", "1", "--json"}).out);
  };
  EXPECT_EQ(plan(Split()), plan(Demo()));
  const auto bench = [](const std::string& model) {
    const Outcome got = Run({"bench", "-m", model, "-p", "4", "-n", "2", "-b", "1", "-r", "1", "-t",
                             "1", "-o", "json", "--probe-seconds", "0.02"});
    EXPECT_EQ(got.code, 0) << got.err;
    return nlohmann::json::parse(got.out)[0];
  };
  const auto split = bench(Split()), whole = bench(Demo());
  for (const char* key : {"model_size", "model_n_params"}) {
    ASSERT_TRUE(whole.contains(key)) << whole;
    EXPECT_EQ(split[key], whole[key]);
  }
}

// The stages' files, and so their fingerprint, do not depend on how the model came.
TEST_F(CliGgufParts, SplitIntoTheSameStages) {
  for (const auto& [model, folder] :
       {std::pair{Demo(), "of-whole"}, std::pair{Split(), "of-parts"}}) {
    const Outcome got = Run({"split", "-m", model, "--stages", "2", "-o", Path(folder)});
    ASSERT_EQ(got.code, 0) << got.err;
  }
  for (const std::string file : {"/stage-0.gguf", "/stage-1.gguf", "/serving.gguf"})
    EXPECT_EQ(Slurp(Path("of-parts" + file)), Slurp(Path("of-whole" + file))) << file;
}

TEST_F(CliGgufParts, AreListed) {
  const Outcome text = Run({"inspect", "-m", Split()});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find(" in 3 files)\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1        " + Split() + ": "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("B, 20 tensors\n"), std::string::npos) << text.out;
  const auto json = nlohmann::json::parse(Run({"inspect", "-m", Split(), "--json"}).out);
  ASSERT_EQ(json["files"].size(), 3u);
  uint64_t bytes = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["files"][i]["file"], PartPath(Path("story"), i, 3));
    EXPECT_EQ(json["files"][i]["bytes"], fs::file_size(PartPath(Path("story"), i, 3)));
    bytes += json["files"][i]["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(json["bytes"], bytes);
  EXPECT_EQ(json["files"][1]["tensors"], 20);
  EXPECT_FALSE(
      nlohmann::json::parse(Run({"inspect", "-m", Demo(), "--json"}).out).contains("files"));
}

TEST_F(CliGgufParts, GivenWrongAreRefused) {
  const std::string second = PartPath(Path("story"), 1, 3);
  for (const char* command : {"inspect", "plan", "run"}) {
    std::vector<std::string> arguments = {command, "-m", Split()};
    arguments[2] = second;
    if (arguments[0] == "run") arguments.insert(arguments.end(), {"-p", "x"});
    ExpectError(Run(arguments), "is part 2 of 3 of a model, expected the first: give " + Split());
  }
  const std::string alone = PartPath(Path("alone"), 0, 3);
  fs::copy_file(Split(), alone);
  ExpectError(Run({"run", "-m", alone, "-p", "x"}),
              PartPath(Path("alone"), 1, 3) +
                  ": can't open: No such file or directory; the model is in 3 files");
}

}  // namespace
}  // namespace larder::node::commands
