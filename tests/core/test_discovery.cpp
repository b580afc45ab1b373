// SPDX-License-Identifier: Apache-2.0
// test_discovery.cpp -- core/plugin_loader.cpp and runtime.cpp: which files are plugins, in which order, and what the runtime says
// of them.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fixture.h"

using namespace narrows::test;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

// The names of the test plugins, in search order; what lies beside libnarrows is left out.
Names test_plugins(const Runtime& rt) {
  Names out = rt.names();
  std::erase_if(out, [](const std::string& name) { return name.rfind("fine", 0) != 0 && name.rfind("probe", 0) != 0; });
  return out;
}

// A runtime by options of its own; plugin_path NULL: the environment's.
Names plugins_by_environment() {
  auto options = sized<nw_options>();
  options.log = [](void*, int32_t, const char*) {};
  nw_runtime* rt = nullptr;
  REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
  Names out;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    auto info = sized<nw_backend_info>();
    REQUIRE(nw_backend(rt, i, &info, nullptr) == NW_OK);
    if (info.status == NW_OK && std::string(info.name).rfind("fine", 0) == 0) out.push_back(info.name);
  }
  nw_runtime_destroy(rt);
  return out;
}

}  // namespace

TEST_CASE("only narrows_*.so is a plugin") {
  Folder folder;
  for (const char* name : {"libnarrows_fine.so", "narrows_fine.so.1", "fine.so", "narrows_fine.dll", "narrows_fine",
                           "xnarrows_fine.so", "narrows-fine.so"})
    folder.add("fine", name);
  fs::create_directory(folder / "narrows");
  fs::copy_file(plugin_file("fine"), folder / "narrows/narrows_fine.so");
  Runtime rt(folder);
  CHECK(test_plugins(rt) == Names{});
  for (const nw_backend_info& info : rt.backends()) CHECK(!contains(info.path, folder.path()));
}

TEST_CASE("file names with spaces and letters of any script are fine links too") {
  Folder folder;
  const std::string a = folder.add("fine", "narrows_mit Leerzeichen ä.so");
  fs::create_symlink(plugin_file("fine_no_ops"), folder / "narrows_link.so");
  Runtime rt(folder);
  CHECK(rt.backend_of_file(a).status == NW_OK);
  CHECK(rt.backend_of_file(folder / "narrows_link.so").status == NW_OK);
}

TEST_CASE("search order: folders as given file names within loaded ones first") {
  Folder first, second;
  first.add("fine_long", "narrows_b.so");
  first.add("fine", "narrows_c.so");
  second.add("fine_short", "narrows_a.so");
  const std::string path = first.path() + ":" + second.path() + "/";
  Runtime rt(Options{.path = path});
  CHECK(test_plugins(rt) == Names{"fine_long", "fine", "fine_short"});
  REQUIRE(nw_load(rt, plugin_file("fine_no_ops").c_str(), nullptr) == NW_OK);
  CHECK(test_plugins(rt) == Names{"fine_no_ops", "fine_long", "fine", "fine_short"});
  REQUIRE(nw_load(rt, plugin_file("fine_builtin").c_str(), nullptr) == NW_OK);
  CHECK(test_plugins(rt) == Names{"fine_builtin", "fine_no_ops", "fine_long", "fine", "fine_short"});
}

TEST_CASE("what lies beside libnarrows comes last") {
  Loaded rt({"probecpu"});
  const std::vector<nw_backend_info> all = rt.runtime->backends();
  REQUIRE(!all.empty());
  CHECK(std::string(all[0].name) == "probecpu");
}

TEST_CASE("the first plugin of a name shadows the others which are listed") {
  Folder folder;
  const std::string first = folder.add("probe", "narrows_1.so");
  const std::string second = folder.add("probe", "narrows_2.so");
  Runtime rt(folder);
  CHECK(rt.backend_of_file(first).flags == 0);
  const nw_backend_info shadowed = rt.backend_of_file(second);
  CHECK(shadowed.status == NW_OK);
  CHECK(shadowed.flags == NW_BACKEND_SHADOWED);
  CHECK(std::string(shadowed.name) == "probe");
  CHECK(contains(shadowed.reason, first));
  CHECK(test_plugins(rt) == Names{"probe"});
  // A loaded one goes ahead of both.
  Folder other;
  const std::string third = other.add("probe");
  REQUIRE(nw_load(rt, third.c_str(), nullptr) == NW_OK);
  CHECK(rt.backend_of_file(third).flags == 0);
  CHECK(rt.backend_of_file(first).flags == NW_BACKEND_SHADOWED);
  CHECK(contains(rt.backend_of_file(first).reason, third));
}

TEST_CASE("one that is loaded behind takes no call from those that are present") {
  Folder first, second;
  const std::string present = first.add("probe", "narrows_1.so");
  const std::string of_this_name = second.add("probe", "narrows_probe.so");
  const std::string fine = second.add("fine", "narrows_fine.so");
  Runtime rt(first);
  REQUIRE(nw_load_behind(rt, fine.c_str(), nullptr) == NW_OK);
  CHECK(test_plugins(rt) == Names{"probe", "fine"});
  CHECK(std::string(rt.backends().back().name) == "fine");  // behind what lies beside libnarrows
  REQUIRE(nw_load_behind(rt, of_this_name.c_str(), nullptr) == NW_OK);
  CHECK(rt.backend_of_file(present).flags == 0);
  CHECK(rt.backend_of_file(of_this_name).flags == NW_BACKEND_SHADOWED);
}

TEST_CASE("one that is loaded behind is told which of its ops others have") {
  Folder first, second;
  first.add("fault_null_launch", "narrows_0.so");  // refused, and listed
  first.add("probe", "narrows_1.so");
  first.add("probe", "narrows_2.so");  // shadowed
  const std::string present = first.add("fine", "narrows_3.so");
  const std::string behind = second.add("fine_long", "narrows_fine_long.so");
  Runtime rt(first);
  REQUIRE(nw_load_behind(rt, behind.c_str(), nullptr) == NW_OK);
  CHECK(contains(rt.log(), behind + ": not used for op 'faulty.op/1': " + present + " has it too"));
}

TEST_CASE("one that is loaded behind is named as its file") {
  Folder folder;
  const std::string path = folder.add("fine", "narrows_other.so");
  Runtime rt(Options{.path = ""});
  Error error;
  CHECK(nw_load_behind(rt, path.c_str(), &error) == NW_INVALID);
  CHECK(contains(error.text(), path + ": its plugin is named 'fine'; expected the file to be narrows_fine.so"));
  CHECK(rt.backend_of_file(path).status == NW_INVALID);
  CHECK(test_plugins(rt) == Names{});
  CHECK(nw_load_behind(rt, "narrows_fine.so", &error) == NW_INVALID);
  CHECK(contains(error.text(), "nw_load_behind: 'narrows_fine.so' is not an absolute path"));
  CHECK(nw_load_behind(rt, "", &error) == NW_INVALID);
  CHECK(contains(error.text(), "nw_load_behind: '' is not an absolute path"));
  CHECK(nw_load_behind(rt, nullptr, &error) == NW_INVALID);
  CHECK(contains(error.text(), "absolute_path is NULL"));
}

TEST_CASE("NARROWS_PLUGIN_PATH is asked when the options name no path") {
  Folder folder;
  folder.add("fine");
  {
    const Environment path("NARROWS_PLUGIN_PATH", folder.path().c_str());
    CHECK(plugins_by_environment() == Names{"fine"});
    Runtime rt;  // with the path ""
    CHECK(test_plugins(rt) == Names{});
  }
  const Environment none("NARROWS_PLUGIN_PATH", nullptr);
  CHECK(plugins_by_environment() == Names{});
}

TEST_CASE("empty entries of the path are nothing") {
  Folder folder;
  folder.add("fine");
  for (const std::string& path : {":" + folder.path(), folder.path() + ":", "::" + folder.path() + "::"}) {
    INFO(path);
    Runtime rt(Options{.path = path});
    CHECK(test_plugins(rt) == Names{"fine"});
    CHECK(!contains(rt.log(), "absolute"));
  }
}

TEST_CASE("nothing is loaded from a relative folder nor from the working directory") {
  Folder folder;
  folder.add("fine");
  fs::create_directory(folder / "sub");
  fs::copy_file(plugin_file("fine"), folder / "sub/narrows_fine.so");
  const std::string before = fs::current_path();
  REQUIRE(chdir(folder.path().c_str()) == 0);
  for (const char* path : {".", "sub", "./sub", "../", "~", ""}) {
    INFO("path '" << path << "'");
    Runtime rt(Options{.path = path});
    CHECK(test_plugins(rt) == Names{});
    if (*path != '\0') {
      CHECK(contains(rt.log(), std::string(path)));
      CHECK(contains(rt.log(), "absolute"));
      CHECK(contains(rt.log(), std::to_string(NW_LOG_WARNING) + " "));
    }
  }
  const Environment variable("NARROWS_PLUGIN_PATH", "sub:.");
  CHECK(plugins_by_environment() == Names{});
  REQUIRE(chdir(before.c_str()) == 0);
}

TEST_CASE("libnarrows that was loaded by a relative name looks beside itself wherever the working directory is") {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<const void*>(&nw_version), &info) != 0);
  Folder own, other;
  for (const Folder* folder : {&own, &other}) {
    fs::create_directories(*folder / "lib/narrows/backends");
    fs::copy_file(fs::canonical(info.dli_fname), *folder / "lib/libnarrows.so.1");
    fs::copy_file(plugin_file("fine"), *folder / "lib/narrows/backends/narrows_fine.so");
  }
  const pid_t child = fork();  // in which a second libnarrows disturbs nobody
  if (child == 0) {
    if (chdir(own.path().c_str()) != 0) _exit(1);
    void* library = dlopen("lib/libnarrows.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || chdir(other.path().c_str()) != 0) _exit(2);
    auto* const create = reinterpret_cast<decltype(&nw_runtime_create)>(dlsym(library, "nw_runtime_create"));
    auto* const backend = reinterpret_cast<decltype(&nw_backend)>(dlsym(library, "nw_backend"));
    auto options = sized<nw_options>();
    options.plugin_path = "";
    nw_runtime* rt = nullptr;
    auto found = sized<nw_backend_info>();
    if (create(&options, &rt, nullptr) != NW_OK || backend(rt, 0, &found, nullptr) != NW_OK) _exit(3);
    _exit(found.path == own / "lib/narrows/backends/narrows_fine.so" ? 0 : 4);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("libnarrows whose file is gone or stands alone finds no plugin and says so when one is named") {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<const void*>(&nw_version), &info) != 0);
  for (const bool gone : {false, true}) {
    INFO((gone ? "gone" : "alone"));
    Folder folder;
    const std::string file = folder / "libnarrows.so.1";
    fs::copy_file(fs::canonical(info.dli_fname), file);
    const pid_t child = fork();  // in which a second libnarrows disturbs nobody
    if (child == 0) {
      void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr || (gone && unlink(file.c_str()) != 0)) _exit(1);
      auto* const create = reinterpret_cast<decltype(&nw_runtime_create)>(dlsym(library, "nw_runtime_create"));
      auto* const count = reinterpret_cast<decltype(&nw_backend_count)>(dlsym(library, "nw_backend_count"));
      auto* const run = reinterpret_cast<decltype(&nw_run)>(dlsym(library, "nw_run"));
      auto options = sized<nw_options>();
      options.plugin_path = "";
      nw_runtime* rt = nullptr;
      if (create(&options, &rt, nullptr) != NW_OK || count(rt) != 0) _exit(2);
      Array a({4}, kCpu), out({4}, kCpu);
      Call call("elementwise", {&a}, {&out});
      nw_elementwise_params params{};
      params.function = NW_EW_NEG;
      call.params(params);
      call.raw.backend = "nobody";
      if (run(rt, &call.raw, &call.error) != NW_INVALID) _exit(3);
      _exit(contains(call.error.text(), "unknown backend 'nobody'; loaded: none") ? 0 : 4);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("a folder that is missing or is a file is a warning") {
  Folder folder;
  const std::string file = folder.add("fine");
  for (const std::string& path : {folder / "missing", file}) {
    INFO(path);
    Runtime rt(Options{.path = path + ":" + folder.path()});
    CHECK(test_plugins(rt) == Names{"fine"});  // the next folder is searched
    CHECK(contains(rt.log(), path));
  }
}

TEST_CASE("what is wrong with a folder of NARROWS_PLUGIN_PATH is logged and listed and the next one is searched") {
  Folder folder;
  folder.add("fine");
  const std::string missing = folder / "missing", relative = "sub/folder";
  const Environment path("NARROWS_PLUGIN_PATH", (relative + ":" + missing + ":" + folder.path()).c_str());
  std::string log;
  auto options = sized<nw_options>();
  options.log_ctx = &log;
  options.log = [](void* ctx, int32_t level, const char* message) {
    *static_cast<std::string*>(ctx) += std::to_string(level) + " " + message + "\n";
  };
  nw_runtime* rt = nullptr;
  Error error;
  REQUIRE(nw_runtime_create(&options, &rt, &error) == NW_OK);
  CHECK(error.untouched());
  const std::string warning = std::to_string(NW_LOG_WARNING) + " ";
  CHECK(contains(log, warning + relative + ": 'sub/folder' is not an absolute folder"));
  CHECK(contains(log, warning + missing + ": cannot be searched for plugins: No such file"));
  int seen = 0;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    auto info = sized<nw_backend_info>();
    REQUIRE(nw_backend(rt, i, &info, nullptr) == NW_OK);
    const std::string at = info.path;
    if (at != relative && at != missing) continue;
    ++seen;
    CHECK(info.status == NW_INVALID);
    CHECK(std::string(info.name).empty());
    CHECK(contains(info.reason, at == missing ? "No such file" : "absolute"));
  }
  CHECK(seen == 2);
  nw_runtime_destroy(rt);
  CHECK(plugins_by_environment() == Names{"fine"});
}

TEST_CASE("one missing folder is no failure of a default runtime") {
  nw_runtime* rt = nullptr;
  const Environment path("NARROWS_PLUGIN_PATH", nullptr);
  REQUIRE(nw_runtime_create(nullptr, &rt, nullptr) == NW_OK);
  nw_runtime_destroy(rt);
  nw_runtime_destroy(nullptr);
}

TEST_CASE("bad arguments of nw_runtime_create") {
  Error error;
  expect_refused(nw_runtime_create(nullptr, nullptr, &error), error, NW_INVALID, -1, {"out", "NULL"});
  auto options = sized<nw_options>();
  options.flags = 4;
  nw_runtime* rt = nullptr;
  expect_refused(nw_runtime_create(&options, &rt, &error), error, NW_UNSUPPORTED, -1, {"flags", "0x4"});
  CHECK(rt == nullptr);
  CHECK(nw_runtime_create(&options, &rt, nullptr) == NW_UNSUPPORTED);
}

TEST_CASE("nw_backend") {
  Loaded rt({"probe"});
  const nw_backend_info info = rt.runtime->backends()[0];
  CHECK(std::string(info.name) == "probe");
  CHECK(std::string(info.version) == "1.2.3");
  CHECK(std::string(info.reason).empty());
  CHECK(info.device_type == kDLExtDev);
  CHECK(info.device_count == 3);
  REQUIRE(info.num_ops == 8);
  Names ops;
  for (uint32_t i = 0; i < info.num_ops; ++i) ops.push_back(info.ops[i]->name);
  CHECK(ops[0] == "probe.noop/1");
  CHECK(ops[7] == "elementwise");
  CHECK(std::string(info.ops[7]->kernels[1]) == "slow");  // its own, of a declaration that is otherwise the host's
  CHECK(info.ops[7]->max_inputs == 3);
  CHECK(std::string(info.ops[7]->shape_rule) == "broadcast");
  CHECK(info.ops[1]->kernels == nullptr);

  Error error;
  auto out = sized<nw_backend_info>();
  expect_refused(nw_backend(rt, nw_backend_count(rt), &out, &error), error, NW_INVALID, -1, {"index"});
  expect_refused(nw_backend(rt, UINT32_MAX, &out, &error), error, NW_INVALID, -1, {"index", "4294967295"});
  expect_refused(nw_backend(rt, 0, nullptr, &error), error, NW_INVALID, -1, {"out", "NULL"});
  expect_refused(nw_backend(nullptr, 0, &out, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
  CHECK(nw_backend_count(nullptr) == 0);
}

TEST_CASE("nw_device") {
  Loaded rt({"probe"});
  auto info = sized<nw_device_info>();
  REQUIRE(nw_device(rt, probe_device(2), &info, nullptr) == NW_OK);
  CHECK(std::string(info.name) == "probe device");
  CHECK(std::string(info.arch) == "host memory");
  CHECK(info.uuid[0] == 3);
  CHECK(info.total_memory == uint64_t{1} << 32);
  Error error;
  expect_refused(nw_device(rt, probe_device(3), &info, &error), error, NW_INVALID, -1, {"probe", "3 devices"});
  expect_refused(nw_device(rt, probe_device(-1), &info, &error), error, NW_INVALID, -1, {"probe", "-1"});
  expect_refused(
      nw_device(rt, {kDLMetal, 0}, &info, &error), error, NW_UNAVAILABLE, -1,
      {"no plugin serves Metal:0", "narrows info", "the command", "narrows_*.so", "NARROWS_PLUGIN_PATH", "/narrows/backends"});
  expect_refused(nw_device(rt, {static_cast<DLDeviceType>(99), 0}, &info, &error), error, NW_UNAVAILABLE, -1, {"99"});
  expect_refused(nw_device(rt, kProbe, nullptr, &error), error, NW_INVALID, -1, {"out", "NULL"});
  expect_refused(nw_device(nullptr, kProbe, &info, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
}

// Search order 0 to 2: a guest with an op of its own, a backend with a built-in one, another such.
TEST_CASE("a device is what the last plugin with built-in ops says, whatever stands ahead") {
  Folder folder;
  folder.add("fine", "narrows_0.so");
  folder.add("probe", "narrows_1.so");
  const auto name = [](nw_runtime* rt, DLDevice device) {
    auto info = sized<nw_device_info>();
    REQUIRE(nw_device(rt, device, &info, nullptr) == NW_OK);
    return std::string(info.name);
  };
  Runtime rt(folder);
  CHECK(name(rt, kProbe) == "probe device");
  folder.add("probe2", "narrows_2.so");
  Runtime both(folder);
  CHECK(name(both, kProbe) == "probe2 device");
  CHECK(name(both, probe_device(2)) == "probe device");  // which probe2 has not
  Loaded guest({"fine"});
  CHECK(name(guest, kProbe) == "fine");
}

TEST_CASE("nw_find_op of a name that is none gives the nearest") {
  Loaded rt({"probe"});
  const nw_op* op = nullptr;
  Error error;
  for (const auto& [name, near] :
       {std::pair("conv2d", "'conv1d'"), std::pair("Conv1D", "'conv1d'"), std::pair("probe.nop/1", "'probe.noop/1'"),
        std::pair("probe.noop", "'probe.noop/1'"), std::pair("mul", "'elementwise' with function = 'mul'")})
    expect_refused(nw_find_op(rt, name, &op, &error), error, NW_INVALID, -1, {"unknown op", name, "did you mean", near});
  Array a({2});
  Call("conv2d", {&a}, {&a}).refused(rt, NW_INVALID, -1, {"unknown op 'conv2d'; did you mean 'conv1d'?", "built in: conv1d, "});
  for (const std::string name : {"nothing.near/1", "", "x"}) {
    REQUIRE(nw_find_op(rt, name.c_str(), &op, &error) == NW_INVALID);
    CHECK(!contains(error.text(), "did you mean"));
  }
  REQUIRE(nw_find_op(rt, std::string(100'000, 'x').c_str(), &op, &error) == NW_INVALID);
}

TEST_CASE("nw_find_op") {
  Loaded rt({"probe"});
  const nw_op* op = nullptr;
  for (const char* name : {"conv1d", "conv1d_backward", "elementwise", "elementwise_backward", "lltm", "lltm_backward"}) {
    INFO(name);
    REQUIRE(nw_find_op(rt, name, &op, nullptr) == NW_OK);
    CHECK(std::string(op->name) == name);
    CHECK(op->struct_size == sizeof(nw_op));
    CHECK(op->kernels == nullptr);
    CHECK(op->shape_rule != nullptr);
    CHECK(op->inputs[op->max_inputs] == nullptr);
    CHECK(op->outputs[op->num_outputs] == nullptr);
    const std::string text = name;
    if (text.find("_backward") == std::string::npos) CHECK(std::string(op->backward) == text + "_backward");
  }
  REQUIRE(nw_find_op(rt, "probe.aux/1", &op, nullptr) == NW_OK);
  CHECK(op->num_aux == 1);
  CHECK(std::string(op->backward) == "probe.aux_backward/1");
  CHECK(op->saved == (1 | uint64_t{1} << 33));
  CHECK(std::string(op->params[1]->name) == "m");
  Error error;
  expect_refused(nw_find_op(rt, "probe.noop/2", &op, &error), error, NW_INVALID, -1, {"probe.noop/2"});
  expect_refused(nw_find_op(rt, "", &op, &error), error, NW_INVALID, -1, {"op"});
  expect_refused(nw_find_op(rt, nullptr, &op, &error), error, NW_INVALID, -1, {"name", "NULL"});
  expect_refused(nw_find_op(rt, "conv1d", nullptr, &error), error, NW_INVALID, -1, {"out", "NULL"});
  expect_refused(nw_find_op(nullptr, "conv1d", &op, &error), error, NW_INVALID, -1, {"runtime", "NULL"});
}

TEST_CASE("nw_op_at gives each op that nw_find_op finds, and opens no plugin") {
  Folder folder;
  folder.add("probe", "narrows_a.so");
  folder.add("probe", "narrows_b.so");  // shadowed by the first
  auto options = sized<nw_options>();
  options.plugin_path = folder.path().c_str();
  std::string log;
  options.log = [](void* to, int32_t, const char* message) { *static_cast<std::string*>(to) += message; };
  options.log_ctx = &log;
  nw_runtime* rt = nullptr;
  REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
  Names names;
  for (uint32_t i = 0; const nw_op* op = nw_op_at(rt, i); ++i) {
    INFO(op->name);
    const nw_op* found = nullptr;
    REQUIRE(nw_find_op(rt, op->name, &found, nullptr) == NW_OK);
    CHECK(found == op);
    CHECK(std::count(names.begin(), names.end(), op->name) == 0);
    names.emplace_back(op->name);
  }
  for (const char* name : {"conv1d", "elementwise_backward", "lltm", "probe.aux/1", "probe.aux_backward/1"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  CHECK(nw_op_at(rt, static_cast<uint32_t>(names.size())) == nullptr);
  CHECK(nw_op_at(rt, UINT32_MAX) == nullptr);
  CHECK(nw_op_at(nullptr, 0) == nullptr);
  CHECK(!contains(log.c_str(), "is created"));
  auto info = sized<nw_backend_info>();
  REQUIRE(nw_backend(rt, 0, &info, nullptr) == NW_OK);
  CHECK(contains(log.c_str(), "is created"));  // it would have been seen
  nw_runtime_destroy(rt);
}

TEST_CASE("nw_extension") {
  Loaded rt({"probe"});
  CHECK(nw_extension(rt, "probe", "probe/1") != nullptr);
  CHECK(nw_extension(rt, "probe", "probe/2") == nullptr);
  CHECK(nw_extension(rt, "nobody", "probe/1") == nullptr);
  CHECK(nw_extension(rt, nullptr, "probe/1") == nullptr);
  CHECK(nw_extension(rt, "probe", nullptr) == nullptr);
  CHECK(nw_extension(nullptr, "probe", "probe/1") == nullptr);
}

TEST_CASE("a plugin asks for another one's extension, and gets none of its own while it is opened") {
  Loaded rt({"probe", "probe2", "fine_asks"});
  const nw_host& host = *rt.probe().host;
  CHECK(host.extension(host.ctx, "probe2", "probe/1") == nw_extension(rt, "probe2", "probe/1"));
  CHECK(host.extension(host.ctx, "probe2", "probe/1") != nullptr);
  CHECK(host.extension(host.ctx, "probe", "probe/1") == &rt.probe());
  CHECK(host.extension(host.ctx, "nobody", "probe/1") == nullptr);
  CHECK(host.extension(host.ctx, nullptr, nullptr) == nullptr);
  auto info = sized<nw_backend_info>();  // asks in create(): it would wait for itself
  bool found = false;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i)
    if (nw_backend(rt, i, &info, nullptr) == NW_OK && std::string(info.name) == "fine_asks") found = info.status == NW_OK;
  CHECK(found);
}

TEST_CASE("what a plugin logs reaches the callback") {
  Loaded rt({"probe"});
  const nw_host& host = *rt.probe().host;
  host.log(host.ctx, NW_LOG_INFO, "from the plugin");
  CHECK(contains(rt.runtime->log(), "1 from the plugin"));
}

TEST_CASE("a log callback may ask the runtime that logs") {
  struct Seen {
    nw_runtime* rt = nullptr;
    int lines = 0;
    uint32_t backends = 0;
  } seen;
  auto options = sized<nw_options>();
  options.plugin_path = "";
  options.log_ctx = &seen;
  options.log = [](void* ctx, int32_t, const char*) {
    auto& to = *static_cast<Seen*>(ctx);
    if (to.rt == nullptr) return;
    ++to.lines;
    to.backends = nw_backend_count(to.rt);
  };
  nw_runtime* rt = nullptr;
  REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
  seen.rt = rt;
  REQUIRE(nw_load(rt, plugin_file("fine_newer").c_str(), nullptr) == NW_OK);
  CHECK(seen.lines == 1);
  CHECK(seen.backends == nw_backend_count(rt));
  seen.rt = nullptr;
  nw_runtime_destroy(rt);
}

TEST_CASE("an op that no plugin declares is named with the folders that were searched") {
  Folder folder;
  const std::string broken = folder / "narrows_broken.so", other = folder / "other";
  std::ofstream(broken) << "no library";
  auto options = sized<nw_options>();
  const std::string path = folder.path() + ":" + other;
  options.plugin_path = path.c_str();
  options.log = [](void*, int32_t, const char*) {};
  nw_runtime* rt = nullptr;
  REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
  const nw_op* op = nullptr;
  Error error;
  expect_refused(nw_find_op(rt, "absent.op/1", &op, &error), error, NW_INVALID, -1,
                 {"unknown op 'absent.op/1'", folder.path().c_str(), other.c_str(), "refused", broken.c_str()});
  nw_runtime_destroy(rt);
}
