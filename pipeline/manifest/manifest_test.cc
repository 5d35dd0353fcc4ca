#include "pipeline/manifest/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>

#include "pipeline/manifest/cores.h"
#include "pipeline/manifest/manifest_testing.h"
#include "pipeline/manifest/roles.h"

namespace larder::pipeline::inline manifest {
namespace {

// A good manifest, of which each case replaces a part. Line numbers in expectations count from its
// first line.
constexpr const char* kGood =
    "name = \"test\"\n"            // 1
    "[model]\n"                    // 2
    "context = 512\n"              // 3
    "[[server]]\n"                 // 4
    "name = \"a\"\n"               // 5
    "[[server.socket]]\n"          // 6
    "name = \"w\"\n"               // 7
    "role = \"weight\"\n"          // 8
    "cores = \"package:0\"\n"      // 9
    "[[server.socket]]\n"          // 10
    "name = \"kv\"\n"              // 11
    "role = \"attention\"\n"       // 12
    "cores = \"cores:4-5, 7\"\n";  // 13

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << "the good manifest has no '" << from << "'";
  return text.replace(at, from.size(), to);
}

TEST(ManifestTest, ReadsEveryKey) {
  const Manifest m = Manifest::Parse(
      "name = \"all keys\"\n"
      "[model]\npath = \"m.gguf\"\ncontext = 2048\nslots = 12\nisa = \"scalar\"\nl3_fraction = "
      "0.5\n"
      "require_resident = true\n"
      "[[server]]\nname = \"a\"\naddress = \"10.0.0.1:7070\"\ntopology = \"a.xml\"\n"
      "[[server.socket]]\nname = \"w\"\nrole = \"weight\"\ncores = \"l3:0-1\"\nnuma_node = 1\n"
      "isolated = true\n"
      "l3_fraction = 1\nsmt = true\n"
      "[[server.socket]]\nname = \"kv\"\nrole = \"attention\"\ncores = \"numa:1\"\nslots = 12\n"
      "isolated = false\n"
      "[[server]]\nname = \"b\"\naddress = \"[fe80::1]:80\"\n"
      "[[server.socket]]\nname = \"s\"\nrole = \"serving\"\ncores = \"all\"\n"
      "options = \"--host 0.0.0.0  --port 80\"\n",
      "/etc/larder/all.toml");
  EXPECT_EQ(m.servers.at(1).sockets.at(0).options,
            (std::vector<std::string>{"--host", "0.0.0.0", "--port", "80"}));
  EXPECT_EQ(m.name, "all keys");
  EXPECT_EQ(m.model, "m.gguf");
  EXPECT_EQ(m.ResolvePath(*m.model), "/etc/larder/m.gguf");
  EXPECT_EQ(m.ResolvePath("/m.gguf"), "/m.gguf");
  EXPECT_EQ(m.context, 2048u);
  EXPECT_EQ(m.slots, 12u);
  EXPECT_EQ(m.isa, kernels::Isa::kScalar);
  EXPECT_EQ(m.l3_fraction, 0.5);
  EXPECT_TRUE(m.require_resident);
  ASSERT_EQ(m.servers.size(), 2u);
  EXPECT_EQ(m.servers[0].sockets.size() + m.servers[1].sockets.size(), 3u);
  EXPECT_EQ(m.servers[0].address, "10.0.0.1:7070");
  EXPECT_EQ(m.servers[0].topology, "a.xml");
  EXPECT_EQ(m.servers[0].line, 9);
  const SocketSpec& w = m.servers[0].sockets[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.role, Role::kWeight);
  EXPECT_EQ(w.cores, "l3:0-1");
  EXPECT_EQ(w.numa_node, 1);
  EXPECT_EQ(w.isolated, true);
  EXPECT_EQ(w.l3_fraction, 1.0);
  EXPECT_TRUE(w.smt);
  EXPECT_EQ(w.line, 13);
  EXPECT_EQ(m.servers[0].sockets[1].slots, 12u);
  EXPECT_EQ(m.servers[0].sockets[1].isolated, false);
  EXPECT_FALSE(m.servers[0].sockets[1].smt);
  EXPECT_EQ(m.server("b").sockets[0].role, Role::kServing);
  EXPECT_EQ(m.server_of_socket("kv").name, "a");
  EXPECT_NE(ErrorOf([&] { m.server("c"); }).find("no server \"c\"; expected one of a, b"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { m.server_of_socket("x"); }).find("expected one of w, kv, s"),
            std::string::npos);
}

TEST(ManifestTest, DefaultsLeaveChoicesOpen) {
  const Manifest m = Manifest::Parse(kGood, "good.toml");
  EXPECT_FALSE(m.model);
  EXPECT_FALSE(m.isa);
  EXPECT_EQ(m.slots, 0u);
  EXPECT_EQ(m.l3_fraction, 0.75);
  EXPECT_FALSE(m.require_resident);
  const SocketSpec& w = m.servers[0].sockets[0];
  EXPECT_FALSE(w.numa_node || w.isolated || w.l3_fraction || w.slots || w.smt);
}

const std::string kDeep(330, '[');

struct Bad {
  const char* name;
  const char* from;  // the part of kGood to replace; "": the whole text is `to`
  const char* to;
  std::vector<const char*> parts;  // substrings of the message
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

class BadManifest : public testing::TestWithParam<Bad> {};

TEST_P(BadManifest, IsRefusedInOneClearLine) {
  const Bad& bad = GetParam();
  const std::string text = bad.from[0] == '\0' ? bad.to : Replaced(kGood, bad.from, bad.to);
  const std::string message = ErrorOf([&] { Manifest::Parse(text, "bad.toml"); });
  EXPECT_EQ(message.rfind("bad.toml", 0), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 500u) << message;
  for (const char* part : bad.parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

constexpr const char* kServerA = "[[server]]\nname = \"a\"\n";

INSTANTIATE_TEST_SUITE_P(
    All, BadManifest,
    testing::Values(
        Bad{"empty", "", "", {"no servers; expected at least one [[server]]"}},
        Bad{"not_toml", "", "name = ", {"bad.toml:1", "not TOML"}},
        Bad{"not_toml_line",
            "cores = \"package:0\"",
            "cores = package:0",
            {"bad.toml:9", "not TOML"}},
        Bad{"key_twice", "name = \"w\"", "name = \"w\"\nname = \"v\"", {"bad.toml:8", "not TOML"}},
        Bad{"invalid_utf8", "\"test\"", "\"\xff\"", {"bad.toml:1", "not TOML"}},
        Bad{"deep", "\"test\"", kDeep.c_str(), {"not TOML"}},
        Bad{"unknown_key",
            "name = \"test\"",
            "title = \"test\"",
            {"bad.toml:1", "unknown key 'title'", "expected name"}},
        Bad{"unknown_model_key",
            "context",
            "contxt",
            {"bad.toml:3: [model]: unknown key 'contxt' (did you mean 'context'?); expected path"}},
        Bad{"unknown_server_key",
            "name = \"a\"",
            "name = \"a\"\nadress = \"h\"",
            {"bad.toml:6: server \"a\": unknown key 'adress' (did you mean 'address'?)"}},
        Bad{"unknown_socket_key",
            "cores = \"package:0\"",
            "cores = \"package:0\"\nhue = 1",
            {"bad.toml:10: server \"a\", socket \"w\": unknown key 'hue'; expected name, role, "
             "cores"}},
        Bad{"name_type", "\"test\"", "7", {"bad.toml:1: name = 7: is an integer; expected a name"}},
        Bad{"model_type",
            "[model]\ncontext = 512",
            "model = 3",
            {"bad.toml:2: model = 3", "expected a table, [model]"}},
        Bad{"server_one_bracket",
            "",
            "[server]\nname = \"a\"\n",
            {"bad.toml:1", "expected [[server]], with two brackets"}},
        Bad{"server_of_numbers",
            "",
            "server = [1, 2]\n",
            {"bad.toml:1", "holds an integer; expected [[server]]"}},
        Bad{"server_empty", "", "server = []\n", {"no servers"}},
        Bad{"no_sockets",
            "",
            kServerA,
            {"bad.toml:1: server \"a\": no sockets", "[[server.socket]]"}},
        Bad{"socket_one_bracket",
            "",
            "[[server]]\nname = \"a\"\n[server.socket]\nname = \"w\"\n",
            {"bad.toml:3", "server \"a\": socket = a table",
             "[[server.socket]], with two brackets"}},
        Bad{"context_zero",
            "512",
            "0",
            {"bad.toml:3: [model]: context = 0: out of range", "1 to 1048576"}},
        Bad{"context_huge",
            "512",
            "9223372036854775807",
            {"bad.toml:3", "context = 9223372036854775807", "out of range"}},
        Bad{"context_float",
            "512",
            "512.0",
            {"bad.toml:3", "is a float; expected tokens of a slot"}},
        Bad{"context_date", "512", "2024-01-01", {"bad.toml:3", "is a date or time"}},
        Bad{"model_slots",
            "context = 512",
            "slots = -1",
            {"bad.toml:3: [model]: slots = -1: out of range", "1 to 65536"}},
        Bad{"isa",
            "context = 512",
            "isa = \"sse2\"",
            {"bad.toml:3: [model]: isa = \"sse2\"", "\"avx512-vnni\""}},
        Bad{"model_fraction",
            "context = 512",
            "l3_fraction = 1.5",
            {"l3_fraction = 1.5: out of range", "up to 1"}},
        Bad{"model_fraction_nan",
            "context = 512",
            "l3_fraction = nan",
            {"l3_fraction = nan: out of range"}},
        Bad{"resident_type",
            "context = 512",
            "require_resident = 1",
            {"is an integer; expected true or false"}},
        Bad{"model_path_empty",
            "context = 512",
            "path = \"\"",
            {"bad.toml:3: [model]: path = \"\": is empty; expected"}},
        Bad{"model_path_control",
            "context = 512",
            "path = \"a\\u0007b\"",
            {"path = \"a?b\": contains a control character"}},
        Bad{"server_no_name", "name = \"a\"\n", "", {"bad.toml:4: a server: no name"}},
        Bad{"server_bad_name",
            "\"a\"",
            "\"a/b\"",
            {"bad.toml:5: a server: name = \"a/b\": not a name"}},
        Bad{"socket_no_name",
            "name = \"w\"\n",
            "",
            {"bad.toml:6: server \"a\", a socket: no name"}},
        Bad{"socket_long_name",
            "\"w\"",
            "\"a23456789012345678901234567890123\"",
            {"bad.toml:7", "1 to 32 letters"}},
        Bad{"socket_twice",
            "\"kv\"",
            "\"w\"",
            {"bad.toml:10: socket \"w\" is defined twice, first at line 6"}},
        Bad{"no_role",
            "role = \"weight\"\n",
            "",
            {"bad.toml:6: server \"a\", socket \"w\": no role", "\"colocated\""}},
        Bad{"bad_role",
            "\"weight\"",
            "\"weights\"",
            {"bad.toml:8", "role = \"weights\": no such role; expected \"weight\""}},
        Bad{"role_type", "\"weight\"", "true", {"bad.toml:8", "role = true: is a boolean"}},
        Bad{"no_cores",
            "cores = \"package:0\"\n",
            "",
            {"bad.toml:6", "no cores; expected cores = with \"all\""}},
        Bad{"cores_type",
            "\"package:0\"",
            "[0, 1]",
            {"bad.toml:9", "cores = an array: is an array; expected \"all\""}},
        Bad{"cores_kind",
            "\"package:0\"",
            "\"packages:0\"",
            {"bad.toml:9", "cores = \"packages:0\": not a set of cores"}},
        Bad{"cores_plain",
            "\"package:0\"",
            "\"0-3\"",
            {"bad.toml:9", "not a set of cores; expected \"all\", \"package:0\""}},
        Bad{"cores_empty_set",
            "\"package:0\"",
            "\"cores:\"",
            {"bad.toml:9", "a number is missing"}},
        Bad{"cores_comma", "\"package:0\"", "\"cores:1,,2\"", {"bad.toml:9", "a comma too many"}},
        Bad{"cores_negative",
            "\"package:0\"",
            "\"cores:-1\"",
            {"bad.toml:9", "'-1' is neither a number"}},
        Bad{"cores_backwards",
            "\"package:0\"",
            "\"cores:5-2\"",
            {"bad.toml:9", "the range 5-2 runs backwards"}},
        Bad{"cores_huge", "\"package:0\"", "\"cores:0-4294967295\"", {"bad.toml:9", "up to 65535"}},
        Bad{"cores_twice", "\"package:0\"", "\"cores:0-3,2\"", {"bad.toml:9", "2 is in it twice"}},
        Bad{"numa_node",
            "cores = \"package:0\"",
            "cores = \"all\"\nnuma_node = -2",
            {"bad.toml:10", "numa_node = -2: out of range"}},
        Bad{"isolated_type",
            "cores = \"package:0\"",
            "cores = \"all\"\nisolated = \"yes\"",
            {"isolated = \"yes\": is a string; expected true or false"}},
        Bad{"slots_type",
            "cores = \"cores:4",
            "slots = \"2\"\ncores = \"cores:4",
            {"bad.toml:13", "is a string; expected a number"}},
        Bad{"slots_of_weight",
            "cores = \"package:0\"",
            "cores = \"all\"\nslots = 2",
            {"bad.toml:10", "a weight socket has no KV cache"}},
        Bad{"fraction_of_attention",
            "cores = \"cores:4",
            "l3_fraction = 0.5\ncores = \"cores:4",
            {"bad.toml:13",
             "socket \"kv\": l3_fraction = 0.5: it is for weights, and a socket of role attention "
             "holds none"}},
        Bad{"attention_alone",
            "role = \"weight\"",
            "role = \"attention\"",
            {"bad.toml:6", "no socket has the weights"}},
        Bad{"weight_alone",
            "role = \"attention\"",
            "role = \"weight\"",
            {"bad.toml:6", "no socket has the KV cache"}},
        Bad{"weight_beside_colocated",
            "role = \"attention\"",
            "role = \"colocated\"",
            {"bad.toml:6", "role = \"weight\"", "socket \"kv\" of this server is colocated"}},
        Bad{"auto_beside_colocated",
            "role = \"weight\"",
            "role = \"colocated\"",
            {"bad.toml:10", "role = \"attention\"", "socket \"w\" of this server is colocated"}},
        Bad{"serving_alone",
            "",
            "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"s\"\nrole = \"serving\"\ncores "
            "= \"all\"\n",
            {"bad.toml:3", "role = \"serving\": no socket has the layers"}},
        Bad{"serving_twice",
            "",
            "[[server]]\nname = \"a\"\n[[server.socket]]\nname = \"s\"\nrole = \"serving\"\ncores "
            "= \"all\"\n"
            "[[server.socket]]\nname = \"t\"\nrole = \"serving\"\ncores = \"all\"\n",
            {"bad.toml:7", "line 3 already has one"}},
        Bad{"address",
            "name = \"a\"",
            "name = \"a\"\naddress = \"host:0\"",
            {"bad.toml:6", "address = \"host:0\": not an address"}},
        Bad{"address_space",
            "name = \"a\"",
            "name = \"a\"\naddress = \"a b\"",
            {"bad.toml:6", "not an address"}},
        Bad{"address_missing",
            kServerA,
            "[[server]]\nname = \"z\"\n[[server.socket]]\nname = \"y\"\nrole = \"auto\"\n"
            "cores = \"all\"\n[[server]]\nname = \"a\"\n",
            {"bad.toml:4: server \"z\": no address"}},
        Bad{"server_twice",
            kServerA,
            "[[server]]\nname = \"a\"\naddress = \"x\"\n[[server.socket]]\nname = \"y\"\n"
            "role = \"auto\"\ncores = \"all\"\n[[server]]\nname = \"a\"\naddress = \"y\"\n",
            {"bad.toml:11: server \"a\" is defined twice, first at line 4"}},
        Bad{"address_twice",
            kServerA,
            "[[server]]\nname = \"b\"\naddress = \"x\"\n[[server.socket]]\nname = \"y\"\n"
            "role = \"auto\"\ncores = \"all\"\n[[server]]\nname = \"a\"\naddress = \"x\"\n",
            {"bad.toml:11: address \"x\" is defined twice, first at line 4"}},
        Bad{"ssh",
            "name = \"a\"",
            "name = \"a\"\nssh = \"-oProxyCommand=x\"",
            {"bad.toml:6: server \"a\": ssh = \"-oProxyCommand=x\": not a target; expected a "
             "target of ssh"}},
        Bad{"ssh_port",
            "name = \"a\"",
            "name = \"a\"\nssh = \"root@a:65536\"",
            {"bad.toml:6", "expected a target of ssh: HOST or USER@HOST, with :PORT"}},
        Bad{"ssh_space",
            "name = \"a\"",
            "name = \"a\"\nssh = \"root@a b\"",
            {"bad.toml:6", "not a target"}},
        Bad{"port",
            "cores = \"package:0\"",
            "cores = \"all\"\nport = 65536",
            {"bad.toml:10", "port = 65536: out of range; expected a TCP port, 1 to 65535"}},
        Bad{"port_beyond",
            "cores = \"cores:4",
            "port = 7171\ncores = \"cores:4",
            {"bad.toml:10: server \"a\", socket \"kv\": it would listen on port 7171, which socket "
             "\"w\" has"}},
        Bad{"port_too_many",
            "[model]",
            "[link]\nport = 65535\n[model]",
            {"bad.toml:12: server \"a\", socket \"kv\": its port would be 65536"}},
        Bad{"link_key",
            "[model]",
            "[link]\ndevices = \"x\"\n[model]",
            {"bad.toml:3: [link]: unknown key 'devices'"}},
        Bad{"transport",
            "[model]",
            "[link]\ntransport = \"rdma\"\n[model]",
            {"bad.toml:3: [link]: transport = \"rdma\": no such transport; expected \"auto\", "
             "\"shm\""}},
        Bad{"device",
            "[model]",
            "[link]\ndevice = \"/dev/x\"\n[model]",
            {"bad.toml:3", "not a device's name"}},
        Bad{"mtu",
            "[model]",
            "[link]\nmtu = 1500\n[model]",
            {"bad.toml:3: [link]: mtu = 1500: no MTU of RDMA"}},
        Bad{"gid_index",
            "[model]",
            "[link]\ngid_index = -1\n[model]",
            {"bad.toml:3", "out of range"}},
        Bad{"layers_form",
            "cores = \"package:0\"",
            "cores = \"all\"\nlayers = \"0..3\"",
            {"bad.toml:10", "layers = \"0..3\": not a range of layers up to 1023"}},
        Bad{"layers_backwards",
            "cores = \"package:0\"",
            "cores = \"all\"\nlayers = \"3-0\"",
            {"bad.toml:10", "not a range"}},
        Bad{"layers_not_from_0",
            "cores = \"package:0\"",
            "cores = \"all\"\nlayers = \"1-3\"",
            {"bad.toml:6: server \"a\", socket \"w\": layers = \"1-3\": expected it to begin with "
             "layer 0"}},
        Bad{"layers_of_attention",
            "cores = \"cores:4",
            "layers = \"0-3\"\ncores = \"cores:4",
            {"bad.toml:13", "a socket of role attention holds no layers"}},
        Bad{"for_of_weight",
            "cores = \"package:0\"",
            "cores = \"all\"\nfor = \"kv\"",
            {"bad.toml:6", "for = \"kv\": a weight socket has no KV cache of another"}},
        Bad{"for_nobody",
            "cores = \"cores:4",
            "for = \"x\"\ncores = \"cores:4",
            {"bad.toml:10", "for = \"x\": no weight socket; expected \"w\""}},
        Bad{"for_missing",
            "[[server.socket]]\nname = \"kv\"",
            "[[server.socket]]\nname = \"w2\"\nrole = \"weight\"\ncores = \"all\"\n"
            "[[server.socket]]\nname = \"kv\"",
            {"bad.toml:14",
             "several weight sockets share this server; expected for = with one of \"w\", \"w2\""}},
        Bad{"for_one_only",
            "[[server.socket]]\nname = \"kv\"",
            "[[server.socket]]\nname = \"w2\"\nrole = \"weight\"\ncores = \"all\"\n"
            "[[server.socket]]\nname = \"kv\"\nfor = \"w2\"",
            {"bad.toml:6: server \"a\", socket \"w\": role = \"weight\": no socket has the KV "
             "cache"}},
        Bad{"layers_of_one_only",
            "[[server.socket]]\nname = \"kv\"",
            "layers = \"0-3\"\n[[server.socket]]\nname = \"w2\"\nrole = \"weight\"\ncores = "
            "\"all\"\n"
            "[[server.socket]]\nname = \"k2\"\nrole = \"attention\"\ncores = \"all\"\nfor = "
            "\"w2\"\n"
            "[[server.socket]]\nfor = \"w\"\nname = \"kv\"",
            {"bad.toml:11", "no layers, but socket \"w\" sets its own"}},
        Bad{"shm_far",
            "",
            "[link]\ntransport = \"shm\"\n[[server]]\nname = \"a\"\naddress = \"a\"\n"
            "[[server.socket]]\nname = \"x\"\nrole = \"colocated\"\ncores = \"all\"\n[[server]]\n"
            "name = \"b\"\naddress = \"b\"\n"
            "[[server.socket]]\nname = \"y\"\nrole = \"colocated\"\ncores = \"all\"\n",
            {"bad.toml:6: server \"a\", socket \"x\": transport: link to socket \"y\": transport "
             "\"shm\" is for"}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(ManifestTest, RefusesFilesThatAreNone) {
  EXPECT_NE(
      ErrorOf([] { Manifest::Load("/nowhere/m.toml"); }).find("/nowhere/m.toml: cannot be read"),
      std::string::npos);
  EXPECT_NE(ErrorOf([] { Manifest::Load("/tmp"); }).find("is a folder"), std::string::npos);
  const std::string big((size_t{1} << 20) + 1, '#');
  EXPECT_NE(ErrorOf([&] { Manifest::Parse(big, "big"); }).find("larger than 1048576 bytes"),
            std::string::npos);
}

TEST(ManifestTest, BoundsServersAndSockets) {
  std::string sockets = "[[server]]\nname = \"a\"\n", servers;
  for (int i = 0; i < 65; ++i)
    sockets +=
        fmt::format("[[server.socket]]\nname = \"s{}\"\nrole = \"auto\"\ncores = \"all\"\n", i);
  EXPECT_NE(ErrorOf([&] { Manifest::Parse(sockets, "x"); }).find("65 sockets; expected at most 64"),
            std::string::npos);
  for (int i = 0; i < 1025; ++i) servers += fmt::format("[[server]]\nname = \"a{}\"\n", i);
  EXPECT_NE(
      ErrorOf([&] { Manifest::Parse(servers, "x"); }).find("1025 servers; expected at most 1024"),
      std::string::npos);
}

// An attention socket of another server than its weights says whose it is.
TEST(ManifestTest, AttentionOnOtherServers) {
  const std::string two = Replaced(kGood, "name = \"a\"", "name = \"a\"\naddress = \"a\"") +
                          "[[server]]\nname = \"b\"\naddress = \"b\"\n"
                          "[[server.socket]]\nname = \"kv2\"\nrole = \"attention\"\n"
                          "cores = \"all\"\nslots = 2\n";
  EXPECT_NE(
      ErrorOf([&] { Manifest::Parse(two, "s.toml"); })
          .find("s.toml:18: server \"b\", socket \"kv2\": role attention: no weight socket on "
                "its server; expected for = with one of \"w\""),
      std::string::npos)
      << ErrorOf([&] { Manifest::Parse(two, "s.toml"); });
  const Manifest m = Manifest::Parse(two + "for = \"w\"\n", "s.toml");
  const std::vector<StageSpec> stages = StagesOf(m);
  ASSERT_EQ(stages.size(), 1u);
  ASSERT_EQ(stages[0].attention.size(), 2u);
  EXPECT_EQ(stages[0].attention[1]->name, "kv2");
  EXPECT_EQ(DecideSlots(m, m.servers[1]), std::vector<size_t>{2});
  EXPECT_EQ(EndpointOf(m, m.servers[1], *stages[0].attention[1]).port, 7171);
  const Endpoint back = BackEndpointOf(m, stages[0], 1);
  EXPECT_EQ(back.host, "a");
  EXPECT_EQ(back.port, 7171 + 2 * 64);
  EXPECT_NE(ErrorOf([&] { Manifest::Parse(two + "for = \"w\"\ntransport = \"shm\"\n", "s.toml"); })
                .find("socket \"kv2\": transport: link to socket \"w\": transport \"shm\" is for "
                      "sockets of one server"),
            std::string::npos);
}

TEST(ManifestTest, StagesOfTheText) {
  const Manifest m = Manifest::Parse(
      "[link]\ntransport = \"auto\"\ndevice = \"mlx5_0\"\nport = 9000\nmtu = 4096\n"
      "[[server]]\nname = \"a\"\naddress = \"10.0.0.1\"\nssh = \"root@a-1.rack\"\n"
      "[[server.socket]]\nname = \"w2\"\nrole = \"weight\"\ncores = \"cores:0\"\nlayers = \"3-5\"\n"
      "[[server.socket]]\nname = \"k1\"\nrole = \"attention\"\ncores = \"cores:2\"\nfor = \"w1\"\n"
      "[[server.socket]]\nname = \"w1\"\nrole = \"weight\"\ncores = \"cores:1\"\nlayers = \"0-2\"\n"
      "[[server.socket]]\nname = \"k2\"\nrole = \"attention\"\ncores = \"cores:3\"\nfor = \"w2\"\n"
      "[[server]]\nname = \"b\"\naddress = \"10.0.0.2:7000\"\n"
      "[[server.socket]]\nname = \"c\"\nrole = \"colocated\"\ncores = \"cores:0\"\nlayers = \"6\"\n"
      "gid_index = 3\ndevice_port = 2\ndevice = \"rxe0\"\n"
      "[[server.socket]]\nname = \"s\"\nrole = \"serving\"\ncores = \"cores:1\"\ntransport = "
      "\"tcp\"\nport = 80\n",
      "m.toml");
  const std::vector<StageSpec> stages = StagesOf(m);
  ASSERT_EQ(stages.size(), 3u);
  const char* names[] = {"w1", "w2", "c"};
  const size_t attention[] = {1, 1, 0};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stages[i].socket->name, names[i]);
    EXPECT_EQ(stages[i].attention.size(), attention[i]);
  }
  EXPECT_EQ(stages[0].attention[0]->name, "k1");
  EXPECT_EQ(stages[2].server->name, "b");
  EXPECT_EQ(stages[2].socket->layers->begin, 6u);
  EXPECT_EQ(stages[2].socket->layers->end, 7u);
  EXPECT_EQ(ServingOf(m).socket->name, "s");
  EXPECT_EQ(m.servers[0].ssh, "root@a-1.rack");
  const auto at = [&](size_t server, size_t socket) {
    const Endpoint endpoint = EndpointOf(m, m.servers[server], m.servers[server].sockets[socket]);
    return fmt::format("{}:{}", endpoint.host, endpoint.port);
  };
  EXPECT_EQ(at(0, 0), "10.0.0.1:9000");
  EXPECT_EQ(at(0, 3), "10.0.0.1:9003");
  EXPECT_EQ(at(1, 0), "10.0.0.2:7000") << "the address's own port";
  EXPECT_EQ(at(1, 1), "10.0.0.2:80") << "the socket's own port";
  const LinkSpec link = LinkOf(m, *stages[2].socket);
  EXPECT_EQ(link.device, "rxe0");
  EXPECT_EQ(link.device_port, 2);
  EXPECT_EQ(link.gid_index, 3);
  EXPECT_EQ(link.mtu, 4096);
}

TEST(ManifestTest, TransportsOfLinks) {
  LinkSpec none, device, tcp, verbs, shm;
  device.device = "mlx5_0";
  tcp.transport = TransportChoice::kTcp;
  verbs.transport = TransportChoice::kVerbs;
  shm.transport = TransportChoice::kShm;
  EXPECT_EQ(ChooseTransport(none, none, true), rdma::Transport::kSharedMemory);
  EXPECT_EQ(ChooseTransport(device, device, true), rdma::Transport::kSharedMemory);
  EXPECT_EQ(ChooseTransport(device, device, false), rdma::Transport::kVerbs);
  EXPECT_EQ(ChooseTransport(device, none, false), rdma::Transport::kTcp);
  EXPECT_EQ(ChooseTransport(tcp, none, true), rdma::Transport::kTcp);
  EXPECT_EQ(ChooseTransport(none, verbs, false), rdma::Transport::kVerbs);
  EXPECT_NE(
      ErrorOf([&] { ChooseTransport(tcp, verbs, false); }).find("\"tcp\", the other \"verbs\""),
      std::string::npos);
  EXPECT_NE(ErrorOf([&] { ChooseTransport(none, shm, false); }).find("sockets of one server"),
            std::string::npos);
}

}  // namespace
}  // namespace larder::pipeline::manifest
