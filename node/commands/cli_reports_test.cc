// Reports of the built program: bench, inspect, plan and doctor, as text and as JSON.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/formats/isa.h"
#include "model/gguf/gguf.h"
#include "model/reference/tiny_model_testing.h"
#include "model/synth/synth.h"
#include "node/commands/cli_testing.h"
#include "topology/this_machine_testing.h"
#include "weight_node/mixed_model_testing.h"

namespace larder::node::inline commands {
namespace {

// The parts of a step add up to it where one repetition gives both, and are within it where each
// part is the fastest of several; those that every step has took time.
TEST_F(Cli, BenchBreakdown) {
  const std::vector<std::string> tests = {"bench", "-m", Tiny(), "--breakdown", "-p", "16",
                                          "-n",    "4",  "-b",   "1,3",         "-t", "1,2"};
  for (const char* repetitions : {"1", "2"}) {
    std::vector<std::string> json = tests;
    json.insert(json.end(), {"-r", repetitions, "-o", "json"});
    const Outcome got = Run(json);
    ASSERT_EQ(got.code, 0) << got.err;
    const auto rows = nlohmann::json::parse(got.out);
    ASSERT_EQ(rows.size(), 6u);  // two thread counts x (pp16, tg4, tg4 b3)
    for (const auto& row : rows) {
      EXPECT_EQ(row["n_steps"], row["test"] == "pp16" ? 1 : 4) << row;
      double sum = 0;
      for (const auto& [part, us] : row["parts_us"].items()) {
        sum += us.get<double>();
        EXPECT_GE(us.get<double>(), 0) << part;
      }
      const double step = row["step_us"].get<double>();
      EXPECT_LE(sum, step + 1e-3 * sum) << row;
      if (*repetitions == '1') {
        EXPECT_NEAR(sum, step, 1e-3 * sum) << row;
      }
      for (const char* part :
           {"norm", "product q, k, v", "rope and append", "scores", "softmax", "values",
            "product gate, up", "activation, quantise", "product down", "product lm_head"}) {
        EXPECT_GT(row["parts_us"][part].get<double>(), 0) << part << row;
      }
      // The lm_head's 300 x 96 weights, read once a step of a few rows or more as 19 panels of 16
      // rows of 3 blocks, and multiplied with one row or more: whichever takes longer.
      const double reading_us =
          19 * (2 * (32 + 512) + 2 * 32 + 512) / (row["reread_gbps"].get<double>() * 1e3);
      const double row_us = 2 * 300 * 96 / (row["peak_gops"].get<double>() * 1e3);
      EXPECT_EQ(row["limits_us"].size(), 5u) << row;
      const double limit_us = row["limits_us"]["product lm_head"].get<double>();
      const double least_us = std::max(reading_us, row_us);
      if (row["test"] == "tg4") {
        EXPECT_NEAR(limit_us, least_us, 1e-4 * least_us) << row;
      }
      EXPECT_GE(limit_us * 1.0001, least_us) << row;
    }
  }
  const Outcome table = Run(tests);
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* text :
       {"2 thread(s)", "| part of a step ", "tg4 b3", "| waiting: barriers, flags ", "| a step "})
    EXPECT_NE(table.out.find(text), std::string::npos) << text;
}

// What tune finds is read by the others, changes no token, and is refused if it is not for this
// machine.
TEST_F(Cli, TuneKeepsItsSchedules) {
  LARDER_NEEDS_THIS_MACHINE();
  const std::string file = Path("schedules.json");
  const Outcome tuned = Run({"tune", "-m", Tiny(), "--seconds", "0.5", "-o", file});
  if (kernels::BestIsa() == kernels::Isa::kScalar) {
    EXPECT_EQ(tuned.code, 1);
    return;
  }
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  for (const char* text :
       {"96 inputs, ", "160 inputs, ", "attention, ", "family", "schedules.json: written"})
    EXPECT_NE(tuned.out.find(text), std::string::npos) << text << tuned.out;
  EXPECT_EQ(nlohmann::json::parse(Slurp(file))["products"].size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(Slurp(file))["attention"].size(), 1u);

  const std::vector<std::string> run = {"run", "-m", Tiny(),   "-p", "abc abc abc abc",
                                        "-n",  "8",  "--temp", "0"};
  std::vector<std::string> with = run;
  with.insert(with.end(), {"--schedules", file});
  const Outcome plain = Run(run), scheduled = Run(with);
  ASSERT_EQ(scheduled.code, 0) << scheduled.err;
  EXPECT_EQ(scheduled.out, plain.out);
  const std::string doctor = Run({"doctor", "--seconds", "0.01", "--schedules", file}).out;
  for (const char* text : {"tuned for 96 inputs of ", "; attention for "})
    EXPECT_NE(doctor.find(text), std::string::npos) << text << doctor;

  std::ofstream(file) << "{}";
  const Outcome bad = Run(with);
  EXPECT_EQ(bad.code, 1);
  EXPECT_EQ(Lines(bad.err), 1u);
  EXPECT_NE(bad.err.find("schedules.json: not a file of `larder tune`"), std::string::npos)
      << bad.err;
}

TEST_F(Cli, BenchJson) {
  const Outcome got = Run({"bench", "-m", Tiny(), "-p", "16", "-n", "4", "-b", "1,3", "-t", "1,2",
                           "-r", "2", "-o", "json", "--probe-seconds", "0.02"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto rows = nlohmann::json::parse(got.out);
  ASSERT_EQ(rows.size(), 6u);  // two thread counts x (pp16, tg4, tg4 b3)
  for (const auto& row : rows) {
    EXPECT_EQ(row["samples_ts"].size(), 2u);
    // llama-bench's field: the same measurements, in nanoseconds per repetition.
    ASSERT_EQ(row["samples_ns"].size(), 2u);
    const double tokens = std::max(row["n_prompt"].get<double>(), row["n_gen"].get<double>()) *
                          row["n_batch_sequences"].get<double>();
    for (size_t i = 0; i < 2; ++i) {
      const double ns = row["samples_ns"][i];
      EXPECT_NEAR(row["samples_ts"][i].get<double>() * ns, tokens * 1e9, tokens * 1e9 / ns);
    }
    EXPECT_NEAR(row["avg_ns"].get<double>(),
                (row["samples_ns"][0].get<double>() + row["samples_ns"][1].get<double>()) / 2, 1);
    EXPECT_GE(row["stddev_ns"].get<double>(), 0);
    EXPECT_GT(row["median_ts"].get<double>(), 0);
    if (row["n_gen"] == 4) {
      EXPECT_GT(row["bytes_per_step"].get<double>(), 96 * 160 * 3 * 2) << "the FFN's weights alone";
      EXPECT_GT(row["gbps"].get<double>(), 0);
    }
  }
  EXPECT_EQ(rows[2]["test"], "tg4 b3");
  EXPECT_EQ(rows[5]["n_threads"], 2);

  const Outcome table = Run({"bench", "-m", Tiny(), "-p", "16", "-n", "4", "-t", "1", "-r", "1",
                             "--probe-seconds", "0.02"});
  EXPECT_EQ(table.code, 0) << table.err;
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('|')) {
      EXPECT_LE(line.size(), 112u) << line;
    }  // in bytes: "±" is two
  }
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
  EXPECT_EQ(inspected["vocabulary_only"], false);
  EXPECT_EQ(inspected["tensors"][0]["type"], "Q8_0");
}

TEST_F(Cli, InspectShowsEachKindOfLayer) {
  model::ModelShape shape;
  shape.architecture = "gpt-oss";
  shape.window = 32;
  model::WriteSynth({.shape = shape}, Path("kinds.gguf"));
  const Outcome json = Run({"inspect", "-m", Path("kinds.gguf"), "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto kinds = nlohmann::json::parse(json.out)["config"]["kinds"];
  ASSERT_EQ(kinds.size(), 2u) << kinds;
  EXPECT_EQ(kinds[0]["window"], 32);
  EXPECT_EQ(kinds[1]["window"], 0);
  EXPECT_EQ(kinds[0]["experts"], 8);
  EXPECT_EQ(kinds[0]["experts_used"], 4);
  EXPECT_NE(kinds[0]["details"].get<std::string>().find("attention sinks"), std::string::npos);
}

// The layer's own line says how experts are chosen, which decides what is computed.
TEST_F(Cli, InspectShowsRouters) {
  const model::TinyModel file({.architecture = "bailingmoe2",
                               .dim = 12,
                               .ffn = 20,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_size = 8,
                               .rotary_dim = 4,
                               .rope_base = 1e4f,
                               .tied = false,
                               .keys = {{"expert_weights_scale", 2.5f}},
                               .experts = {.count = 8,
                                           .used = 3,
                                           .ffn = 10,
                                           .shared_ffn = 10,
                                           .dense = 1,
                                           .groups = 4,
                                           .groups_used = 2}});
  const Outcome text = Run({"inspect", "-m", file.path()});
  EXPECT_NE(text.out.find(", sigmoid router: biases for the choice, 2 of 4 groups, weights "
                          "normalised times 2.5"),
            std::string::npos)
      << text.out;
  const Outcome json = Run({"inspect", "-m", file.path(), "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto kinds = nlohmann::json::parse(json.out)["config"]["kinds"];
  ASSERT_EQ(kinds.size(), 2u) << kinds;
  EXPECT_TRUE(kinds[0]["router"].is_null()) << "the first layer has no experts";
  EXPECT_EQ(kinds[1]["router"], nlohmann::json({{"gating", "sigmoid"},
                                                {"bias", true},
                                                {"normalised", true},
                                                {"scale", 2.5},
                                                {"groups", 4},
                                                {"groups_used", 2}}));
}

TEST_F(Cli, InspectSaysTheFfnBesideAStateOnce) {
  model::WriteSynth({.shape = {.architecture = "falcon-h1"}}, Path("beside.gguf"));
  const Outcome got = Run({"inspect", "-m", Path("beside.gguf")});
  EXPECT_NE(got.out.find(", ffn 704, 8 heads / 4 KV heads of 32, beside "), std::string::npos)
      << got.out;
}

TEST_F(Cli, StatusOfNothingSaysWhatDoesNotRun) {
  const Outcome got = Run({"status"});
  EXPECT_TRUE(got.out.starts_with("CLUSTER") ||  // sockets of somebody else run
              got.out.find("no socket of a cluster and no `larder serve`") != std::string::npos)
      << got.out;
}

// What becomes of each type, and of gate and up, which share panels.
TEST_F(Cli, InspectSaysWhatIsRounded) {
  const auto ends_with_note = [&](const weight_node::MixedModel& model) {
    const Outcome got = Run({"inspect", "-m", model.file()->path()});
    EXPECT_EQ(got.code, 0) << got.err;
    EXPECT_NE(got.out.find("(as it is)"), std::string::npos) << got.out;
    return got.out.find("In 1 layer gate and up, or query, key and value, have several types") !=
           std::string::npos;
  };
  EXPECT_TRUE(ends_with_note({weight_node::MixedShape(), weight_node::MixedType}));
  EXPECT_FALSE(ends_with_note(
      {weight_node::MixedShape(), [](const std::string&) { return model::TensorType::kQ6_K; }}));
}

TEST_F(Cli, InspectsAVocabularyFile) {
  const std::string vocabulary = Path("words.gguf");
  model::GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
  writer.Add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.Write(vocabulary);
  const Outcome got = Run({"inspect", "-m", vocabulary});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("tensors (0)"), std::string::npos) << got.out;
  EXPECT_NE(got.out.find("vocabulary only: 3 tokens"), std::string::npos) << got.out;
  EXPECT_EQ(
      nlohmann::json::parse(Run({"inspect", "-m", vocabulary, "--json"}).out)["vocabulary_only"],
      true);
  ExpectError(Run({"run", "-m", vocabulary, "-p", "x"}), "words.gguf");
}

TEST_F(Cli, SaysAtOnceThatAPreTokenizerIsNotSupported) {
  const std::string vocabulary = Path("words.gguf");
  model::GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.pre", "gpt-17");
  writer.Add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  writer.Write(vocabulary);
  const std::string expected = vocabulary + ": key 'tokenizer.ggml.pre' is 'gpt-17', ";
  EXPECT_NE(Run({"inspect", "-m", vocabulary}).out.find("tokenizer  not supported: " + expected),
            std::string::npos);
  const Outcome json = Run({"inspect", "-m", vocabulary, "--json"});
  const std::string error = nlohmann::json::parse(json.out)["tokenizer_error"];
  EXPECT_EQ(error.rfind(expected, 0), 0u) << error;
  for (const char* command : {"plan", "bench"})
    EXPECT_NE(Run({command, "-m", vocabulary}).err.find(expected), std::string::npos) << command;
}

// A job's manifest, and the sockets of it by their numbers.
TEST_F(Cli, ManifestOfAListOfHosts) {
  const std::string path = Path("template.toml");
  std::ofstream(path)
      << "name = \"job\"\n[[server]]\nname = \"{host}\"\naddress = \"{host}\"\n"
         "[[server.socket]]\nname = \"s{rank}\"\nrole = \"colocated\"\ncores = \"all\"\n";
  const Outcome got = Run({"manifest", "expand", "--template", path, "--hosts", "n[1-2]"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("name = \"n1\"\naddress = \"n1\"\n[[server.socket]]\nname = \"s0\""),
            std::string::npos)
      << got.out;
  EXPECT_NE(got.out.find("name = \"s1\""), std::string::npos) << got.out;
  const std::string manifest = Path("job.toml");
  std::ofstream(manifest) << got.out;
  const Outcome rank = Run({"node", "--manifest", manifest, "--rank", "2", "-m", Tiny()});
  EXPECT_EQ(rank.code, 1);
  EXPECT_NE(rank.err.find("it has 2 sockets and none of rank 2; expected 0 to 1, one process for "
                          "each"),
            std::string::npos)
      << rank.err;
  ExpectUsage(Run({"node", "--manifest", manifest, "--rank", "0", "--socket", "s0"}),
              "give either --socket NAME or --rank N");
  ExpectUsage(Run({"node", "--manifest", manifest}), "give either --socket NAME or --rank N");
  const Outcome bad = Run({"manifest", "expand", "--template", path, "--hosts", "n[2-1]"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("not numbers or ascending ranges"), std::string::npos) << bad.err;
}

TEST_F(Cli, PlanOfANamedShape) {
  const Outcome got = Run({"plan", "--shape", "llama-3.2-3b", "-t", "2", "-c", "512", "--json"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto plan = nlohmann::json::parse(got.out);
  EXPECT_EQ(plan["model"]["layers"], 28);
  EXPECT_EQ(plan["stages"][0]["threads"].size(), 2u);
  const Outcome four = Run(
      {"plan", "--shape", "llama-3.2-3b", "--type", "q4_k_m", "-t", "2", "-c", "512", "--json"});
  ASSERT_EQ(four.code, 0) << four.err;
  const auto bytes = [](const nlohmann::json& json) { return json["weight_bytes"].get<double>(); };
  // 5.0 bits for 8.5
  EXPECT_NEAR(bytes(nlohmann::json::parse(four.out)) / bytes(plan), 0.59, 0.01);
  ExpectUsage(Run({"plan", "-m", Tiny(), "--type", "q4_k"}), "--type is for --shape");
  const std::string machine = LARDER_SOURCE_DIR "/pipeline/manifest/testdata/two-packages.xml";
  const Outcome other = Run({"plan", "--shape", "bench-24m", "--topology", machine});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.out.find(machine), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("prediction context 4096, from (assumed)"), std::string::npos)
      << other.out;
  EXPECT_NE(other.out.find("\nuse        "), std::string::npos) << "it has two packages";
}

TEST_F(Cli, PlanOfOneMachinePredictsItsSpeed) {
  const std::string machine = LARDER_SOURCE_DIR "/pipeline/manifest/testdata/two-packages.xml";
  const auto of = [&](const char* option, const char* value) {
    return Run({"plan", "--shape", "bench-24m", "--topology", machine, option, value}).out;
  };
  const std::string given = of("--l3-gbps", "40");
  EXPECT_NE(given.find("prediction context 4096, from (given, the rest assumed)\n"
                       "  given      l3-gbps 40\n  assumed    dram-gbps 380, "),
            std::string::npos)
      << given;
  EXPECT_NE(given.find("\n  batch       TPOT ms         its band   tokens/s\n      1 "),
            std::string::npos)
      << given;
  EXPECT_EQ(given.find("links"), std::string::npos) << given;
  EXPECT_NE(of("--l3-gbps", "80").find("l3-gbps 80\n"), std::string::npos);
}

TEST_F(Cli, PlanOfSocketsThatNobodyHasYet) {
  const Outcome got = Run({"plan", "--shape", "Llama-3.2-3B", "--socket-cores", "96", "--socket-l3",
                           "1152M", "--json"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto plan = nlohmann::json::parse(got.out);
  EXPECT_EQ(plan["sockets"], 4);
  EXPECT_EQ(plan["stages"][3]["layers"], 7);
  const auto tpot_ms = [&](const char* option, const char* value) {
    const Outcome other = Run({"plan", "--shape", "llama-3.2-3b", "--socket-cores", "96",
                               "--socket-l3", "1152M", "--json", option, value});
    return nlohmann::json::parse(other.out)["prediction"]["points"][0]["tpot_alone_ms"]
        .get<double>();
  };
  const double base = tpot_ms("--link-us", "10");
  EXPECT_NEAR(tpot_ms("--link-us", "110"), base + 0.5, 1e-6) << "five links";
  EXPECT_LT(tpot_ms("--l3-gbps", "60"), base);
  ExpectUsage(Run({"plan", "--shape", "llama-3.2-3b", "--socket-l3", "1152X"}), "'1152X'");
  ExpectUsage(Run({"plan", "--shape", "llama-3.2-3b", "--socket-l3", "99999999999G"}),
              "99999999999G");
  ExpectUsage(Run({"plan", "--shape", "llama-3.2-3b", "--link-us", "nan"}), "nan");
  ExpectError(Run({"plan", "--shape", "llama-9"}), "llama-3.2-3b");
}

// Without a name processes would not find each other: a stage computed attention itself, and the
// attention socket waited for ever.
TEST_F(Cli, NodesOfAClusterNeedItsName) {
  const std::string example =
      Slurp(std::string(LARDER_SOURCE_DIR) + "/deploy/examples/two-core-separated.toml");
  const std::string name = "name = \"two-core-separated\"\n";
  ASSERT_NE(example.find(name), example.npos);
  std::ofstream(Path("nameless.toml"))
      << std::string(example).erase(example.find(name), name.size());
  for (const char* socket : {"weights", "attention"}) {
    const Outcome got = Run({"node", "-m", Tiny(), "--manifest", Path("nameless.toml"), "--server",
                             "here", "--socket", socket, "--once"});
    if (got.err.find("this process may use") != std::string::npos)
      GTEST_SKIP() << "needs two cores: " << got.err;
    ExpectError(got, "name is missing: sockets that are processes of their own find each other");
  }
}

TEST_F(Cli, BenchOfAChain) {
  const std::string manifest = std::string(LARDER_SOURCE_DIR) + "/deploy/examples/two-stage.toml";
  const auto bench = [&](const char* batches) {
    return Run({"bench", "-m", Tiny(), "--manifest", manifest, "-p", "8", "-n", "4", "-b", batches,
                "-r", "1", "-o", "json", "--probe-seconds", "0.02"});
  };
  const Outcome got = bench("1,3");
  if (got.err.find("this process may use") != std::string::npos)
    GTEST_SKIP() << "needs two cores: " << got.err;
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(nlohmann::json::parse(got.out).size(), 3u);
  ExpectError(bench("4"), "has only 3 slots");
  ExpectError(
      Run({"bench", "-m", Tiny(), "--manifest", manifest, "-p", "8", "-n", "4", "--breakdown"}),
      "expected one socket that does everything");
}

TEST_F(Cli, SplitsAModelForACluster) {
  const std::string manifest = std::string(LARDER_SOURCE_DIR) + "/deploy/examples/two-stage.toml";
  const Outcome planned = Run({"plan", "-m", Tiny(), "--manifest", manifest, "--json"});
  if (planned.err.find("this process may use") != std::string::npos)
    GTEST_SKIP() << "needs two cores: " << planned.err;
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto plan = nlohmann::json::parse(planned.out);
  EXPECT_EQ(plan["stages"].size(), 2u);
  const Outcome got = Run({"split", "-m", Tiny(), "--manifest", manifest, "-o", Path("parts")});
  ASSERT_EQ(got.code, 0) << got.err;
  for (const char* line :
       {"first.gguf: stage 0 of 2: layers 0-0", "second.gguf: stage 1 of 2: layers 1-1",
        "serving.gguf: serving, of 2 stages"})
    EXPECT_NE(got.out.find(line), std::string::npos) << got.out;
  const Outcome inspected = Run({"inspect", "-m", Path("parts/second.gguf")});
  EXPECT_NE(inspected.out.find("part       stage 1 of 2: layers 1-1"), std::string::npos)
      << inspected.out;
  EXPECT_EQ(inspected.out.find("blk.0."), std::string::npos);
  ExpectError(Run({"run", "-m", Path("parts/second.gguf"), "-p", "x"}),
              "the file is a part of a model");
  // A folder of parts works as the model: any part has the model's shape, so the plan is the same.
  const Outcome again = Run({"plan", "-m", Path("parts"), "--manifest", manifest, "--json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)["hash"], plan["hash"]);
  EXPECT_EQ(Run({"split", "-m", Tiny(), "--stages", "1", "-o", Path("one")}).code, 0);
  ExpectError(Run({"split", "-m", Path("one/stage-0.gguf"), "--stages", "1", "-o", Path("two")}),
              "already");
  ExpectError(Run({"split", "-m", Tiny(), "--stages", "3", "-o", Path("two")}),
              "2 layers for 3 sockets");
  ExpectUsage(Run({"split", "-m", Tiny(), "-o", Path("two")}), "--stages");
}

TEST_F(Cli, DoctorSaysWhatItFound) {
  LARDER_NEEDS_THIS_MACHINE();
  const Outcome got = Run({"doctor", "--json", "--seconds", "0.02", "-m", Tiny(), "-t", "1"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto found = nlohmann::json::parse(got.out)["findings"];
  bool l3 = false, residency = false;
  for (const auto& finding : found) {
    const std::string what = finding["what"];
    if (what.starts_with("kernels")) {
      const bool here = finding["value"] != "this CPU does not have them";
      EXPECT_EQ(finding["health"], here ? "ok" : "note") << finding;
    }
    if (what == "bandwidth probe") {
      EXPECT_EQ(finding["health"], "note") << finding;
    }
    // Figures are numbers, with their units in the keys.
    if (what == "L3 read") {
      l3 = true;
      EXPECT_GT(finding["all_threads_gbps"].get<double>(), 0) << finding;
      EXPECT_GT(finding["thread_bytes"].get<double>(), 0) << finding;
    }
    if (what.starts_with("residency")) {
      residency = true;
      EXPECT_GT(finding["reread_gbps"].get<double>(), 0) << finding;
      EXPECT_GT(finding["weight_bytes"].get<double>(), 96 * 160 * 3 * 2) << finding;
    }
  }
  EXPECT_TRUE(l3 && residency) << got.out;
}

TEST_F(Cli, BenchAddsUpRepeatedLists) {
  const Outcome got = Run({"bench", "-m", Tiny(), "-p", "16", "-p", "8,4", "-n", "0", "-t", "1",
                           "-r", "1", "-o", "json", "--probe-seconds", "0.02"});
  ASSERT_EQ(got.code, 0) << got.err;
  const auto rows = nlohmann::json::parse(got.out);
  ASSERT_EQ(rows.size(), 3u) << got.out;
  EXPECT_EQ(rows[0]["n_prompt"], 16);
  EXPECT_EQ(rows[1]["n_prompt"], 8);
  EXPECT_EQ(rows[2]["n_prompt"], 4);
}

// With a fixed number of prompt rows a step, which sequences have rows in which micro-batch does
// not depend on time: the simulated engine and the real one get the same.
TEST_F(Cli, SimulateSchedulesAsTheEngine) {
  const std::vector<std::string> machines[] = {
      {"-t", "1", "--slots", "5", "--kv-tokens", "768"},
      {"--manifest", std::string(LARDER_SOURCE_DIR) + "/deploy/examples/two-stage.toml"}};
  for (const std::vector<std::string>& machine : machines) {
    std::vector<std::string> same = {"simulate", "-m",
                                     Tiny(),     "--num-prompts",
                                     "24",       "--input-len",
                                     "60",       "--output-len",
                                     "12",       "-c",
                                     "256",      "-ub",
                                     "32",       "--seed",
                                     "7",        "--range-ratio",
                                     "0.9",      "--max-stall-ms",
                                     "0",        "--prefill-budget",
                                     "10",       "--json"};
    same.insert(same.end(), machine.begin(), machine.end());
    std::vector<std::string> traces;
    std::vector<nlohmann::json> reports;
    for (const bool real : {false, true}) {
      std::vector<std::string> arguments = same;
      arguments.insert(arguments.end(), {"--trace", Path("trace.txt")});
      if (real) arguments.emplace_back("--real");
      const Outcome got = Run(arguments);
      ASSERT_EQ(got.code, 0) << got.err;
      reports.push_back(nlohmann::json::parse(got.out));
      traces.push_back(Slurp(Path("trace.txt")));
      EXPECT_EQ(reports.back()["steps"], Lines(traces.back()));
      EXPECT_EQ(reports.back()["simulated"], !real);
      EXPECT_EQ(reports.back()["completed"], 24);
    }
    EXPECT_EQ(traces[0], traces[1]);
    for (const char* key : {"total_input_tokens", "total_output_tokens", "prompt_rows",
                            "answer_rows", "repeated_rows", "preempted", "max_in_flight"})
      EXPECT_EQ(reports[0][key], reports[1][key]) << key;
    EXPECT_GT(reports[0]["stations"][0]["busy"].get<double>(), 0);
  }
}

TEST_F(Cli, SimulateIsTheSameForASeed) {
  const auto of = [](const std::string& seed, const std::string& rate) {
    const Outcome got =
        Run({"simulate", "--shape",        "llama-3.2-3b", "--type", "q4_0", "--socket-cores",
             "96",       "--socket-l3",    "1152M",        "-c",     "512",  "--num-prompts",
             "200",      "--request-rate", rate,           "--seed", seed,   "--slots",
             "12",       "--goodput",      "ttft:50"});
    EXPECT_EQ(got.code, 0) << got.err;
    EXPECT_NE(got.out.find("200 completed, 0 failed"), std::string::npos) << got.out;
    EXPECT_NE(got.out.find("\nserving "), std::string::npos) << got.out;
    return got.out;
  };
  const std::string one = of("1", "9");
  EXPECT_EQ(one, of("1", "9"));
  EXPECT_NE(one, of("2", "9"));
  EXPECT_NE(one, of("1", "10"));
}

TEST_F(Cli, SimulateErrors) {
  const std::string requests = Path("requests.txt");
  std::ofstream(requests) << "0 10 2\n0.5 300 2\n";
  const std::vector<std::string> tiny = {"simulate", "-m",       Tiny(),  "-c",
                                         "256",      "--replay", requests};
  ExpectError(Run(tiny), "exceeds the context of 256");
  std::ofstream(requests) << "0 10 2\n0.5 20 2\n";
  const Outcome good = Run(tiny);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("30 of prompts, 4 generated"), std::string::npos) << good.out;
  std::ofstream(requests) << "0 ten 2\n";
  ExpectError(Run(tiny), "requests.txt, line 1: '0 ten 2' is not a request");
  EXPECT_EQ(Run({"simulate", "--shape", "bench-24m", "--real"}).code, 2);
  EXPECT_EQ(Run({"simulate"}).code, 2);
  EXPECT_EQ(Run({"simulate", "--shape", "bench-24m", "--request-rate", "0"}).code, 2);
  EXPECT_EQ(Run({"simulate", "--shape", "bench-24m", "--range-ratio", "2"}).code, 2);
}

}  // namespace
}  // namespace larder::node::commands
