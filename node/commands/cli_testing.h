// Test support: runs the built program as a user would, on a tiny model of random weights. Included
// by tests only.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "model/synth/synth.h"

namespace larder::node::inline commands {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;    // exit code; -signal if a signal killed it
  std::string out;  // standard output
  std::string err;  // standard error
};

inline std::string Slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    // Random weights rarely end a text early. Three KV heads do not divide evenly between two
    // threads.
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
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string Path(const std::string& name) { return *folder_ / name; }
  static std::string Tiny() { return Path("tiny.gguf"); }
  static std::string Demo() { return LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf"; }

  // Starts the program with files for its input and output, so that neither process waits for the
  // other.
  static pid_t Start(std::vector<std::string> arguments, const std::string& input,
                     const std::string& tag) {
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

  // Expects exit code 1, one error line that contains `part`, and nothing on standard output.
  // Warnings may come before it: a machine may not say how large its caches are.
  static void ExpectError(const Outcome& got, const std::string& part) {
    EXPECT_EQ(got.code, 1);
    std::string_view error = got.err;
    while (error.starts_with("larder: warning: "))
      error.remove_prefix(std::min(error.find('\n'), error.size() - 1) + 1);
    EXPECT_TRUE(error.starts_with("larder: error: ")) << got.err;
    EXPECT_EQ(Lines(std::string(error)), 1u) << got.err;
    EXPECT_NE(error.find(part), std::string_view::npos) << got.err;
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
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

}  // namespace larder::node::commands
