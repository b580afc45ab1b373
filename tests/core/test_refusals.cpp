// SPDX-License-Identifier: Apache-2.0
// test_refusals.cpp -- core/plugin_loader.cpp, elf.cpp and backend.cpp: files that must be refused. The rule for all: the runtime
// is made, the file is listed with a status and a reason, nothing of it is used, and nw_load of it returns that error.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "fixture.h"

using namespace narrows::test;
namespace fs = std::filesystem;

namespace {

struct Fault {
  const char* name;  // plugins/narrows_fault_<name>.so
  int32_t status;
  std::vector<const char*> words;
};

const Fault kFaults[] = {
    {"null_create", NW_INVALID, {"create", "NULL"}},
    {"null_destroy", NW_INVALID, {"destroy", "NULL"}},
    {"null_device_count", NW_INVALID, {"device_count", "NULL"}},
    {"null_device_info", NW_INVALID, {"device_info", "NULL"}},
    {"null_alloc", NW_INVALID, {"alloc", "NULL"}},
    {"null_free", NW_INVALID, {"free", "NULL"}},
    {"null_copy", NW_INVALID, {"copy", "NULL"}},
    {"null_stream_create", NW_INVALID, {"stream_create", "NULL"}},
    {"null_stream_destroy", NW_INVALID, {"stream_destroy", "NULL"}},
    {"null_stream_sync", NW_INVALID, {"stream_sync", "NULL"}},
    {"null_stream_wait", NW_INVALID, {"stream_wait", "NULL"}},
    {"null_plan", NW_INVALID, {"plan", "NULL"}},
    {"null_plan_free", NW_INVALID, {"plan_free", "NULL"}},
    {"null_launch", NW_INVALID, {"launch", "NULL"}},
    {"null_name", NW_INVALID, {"name"}},
    {"empty_name", NW_INVALID, {"name"}},
    {"null_ops", NW_INVALID, {"ops", "NULL"}},
    {"no_symbol", NW_INVALID, {"narrows_plugin_query"}},
    {"refuses", NW_UNSUPPORTED, {"this plugin needs host 2"}},
    {"refuses_itself", NW_INVALID, {"its op is wrong"}},
    {"refuses_silently", NW_UNSUPPORTED, {"major 1", "no reason"}},
    {"returns_null", NW_UNSUPPORTED, {"major 1", "no reason"}},
    {"undefined_symbol", NW_UNAVAILABLE, {"narrows_ghost"}},
    {"missing_library", NW_UNAVAILABLE, {"libnarrows_ghost.so"}},
    {"throws_in_query", NW_INVALID, {"narrows_plugin_query", "threw", "the query throws"}},
    {"other_major", NW_UNSUPPORTED, {"major", "2", "1"}},
    {"zero_table", NW_INVALID, {"struct_size", "0"}},
    {"null_table", NW_INVALID, {"name"}},
    {"size_0", NW_INVALID, {"struct_size", "0", "168"}},
    {"size_short", NW_INVALID, {"struct_size", "167", "168"}},
    {"device_type_0", NW_INVALID, {"device_type", "0"}},
    {"null_op", NW_INVALID, {"ops", "NULL"}},
    {"op_size_short", NW_INVALID, {"struct_size", "15", "16"}},
    {"op_null_name", NW_INVALID, {"name"}},
    {"op_empty_name", NW_INVALID, {"name"}},
    {"op_inputs_null", NW_INVALID, {"faulty.op/1", "inputs"}},
    {"op_outputs_null", NW_INVALID, {"faulty.op/1", "outputs"}},
    {"op_few_names", NW_INVALID, {"faulty.op/1", "2", "1"}},
    {"op_min_above_max", NW_INVALID, {"faulty.op/1", "3", "2"}},
    {"op_many_tensors", NW_INVALID, {"faulty.op/1", "31", "32"}},
    {"op_aux", NW_INVALID, {"faulty.op/1", "2", "1"}},
    {"op_flags", NW_UNSUPPORTED, {"faulty.op/1", "0x80"}},
    {"op_field_outside", NW_INVALID, {"faulty.op/1", "'n'", "8", "4"}},
    {"op_rule_syntax", NW_INVALID, {"A,((B"}},
    {"op_rule_like", NW_INVALID, {"like 2"}},
    {"op_rule_outputs", NW_INVALID, {"2 outputs", "1"}},
    {"two_ops", NW_INVALID, {"faulty.op/1", "two"}},
    {"op_backward", NW_INVALID, {"faulty.op/1", "'faulty.bakc/1'", "neither", "did you mean 'faulty.back/1'?"}},
    {"op_no_vendor", NW_INVALID, {"'op/1'", "vendor.name/1", "no vendor"}},
    {"builtin_outputs", NW_INVALID, {"conv1d", "different"}},
    {"builtin_rule", NW_INVALID, {"conv1d", "different", "'broadcast' here"}},
    {"builtin_flags", NW_INVALID, {"conv1d", "different", "flags are 0x1 here and 0x4 there"}},
    {"builtin_backward", NW_INVALID, {"conv1d", "different", "'faulty.back/1' here and 'conv1d_backward' there"}},
    {"builtin_saved", NW_INVALID, {"conv1d", "different", "saved is 0x4 here and 0x3 there"}},
    {"builtin_names", NW_INVALID, {"conv1d", "different", "input 2 is 'offset?' here and 'bias?' there"}},
    {"builtin_field", NW_INVALID, {"conv1d", "different", "field 0 of params is 'n' here and 'stride' there"}},
    {"builtin_few_names", NW_INVALID, {"conv1d", "input"}},
    {"builtin_field_null", NW_INVALID, {"conv1d", "field"}},
};

// Their tables are right; it is create() that fails.
const Fault kUnopened[] = {
    {"create_unavailable", NW_UNAVAILABLE, {"install libfaulty1"}},
    {"create_odd_status", NW_FAILED, {"99"}},
    {"throws_in_create", NW_FAILED, {"create", "threw"}},
    {"throws_in_device_count", NW_FAILED, {"device_count", "threw", "nobody can count"}},
};

void expect_words(const std::string& text, const std::vector<const char*>& words) {
  INFO("text: " << text);
  for (const char* word : words) {
    INFO("expected word: " << word);
    CHECK(contains(text, word));
  }
}

void expect_listed(const nw_backend_info& info, int32_t status, const std::vector<const char*>& words) {
  CHECK(std::string(nw_status_name(info.status)) == nw_status_name(status));
  CHECK(info.flags == 0);
  expect_words(info.reason, words);
}

// A file that some function writes; it must not reach dlopen, or not get past it.
struct BadFile {
  const char* what;
  std::function<void(const std::string& path)> write;
  std::vector<const char*> words;
};

std::function<void(const std::string&)> patched(size_t offset, std::vector<unsigned char> bytes) {
  return [=](const std::string& path) {
    std::vector<unsigned char> file = read_file(plugin_file("fine"));
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(offset));
    write_file(path, file);
  };
}

// The program headers of a whole plugin, changed one by one.
std::function<void(const std::string&)> patched_segments(const std::function<void(Elf64_Phdr&)>& change) {
  return [=](const std::string& path) {
    std::vector<unsigned char> file = read_file(plugin_file("fine"));
    Elf64_Ehdr header;
    std::memcpy(&header, file.data(), sizeof header);
    for (size_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, &file[header.e_phoff + i * sizeof segment], sizeof segment);
      change(segment);
      std::memcpy(&file[header.e_phoff + i * sizeof segment], &segment, sizeof segment);
    }
    write_file(path, file);
  };
}

const BadFile kBadFiles[] = {
    {"an empty file", [](const std::string& path) { write_file(path, {}); }, {"empty"}},
    {"a text", [](const std::string& path) { write_file(path, std::vector<unsigned char>(5000, '#')); }, {"not an ELF file"}},
    {"a linker script",
     [](const std::string& path) {
       const std::string text = "INPUT ( /usr/lib/libc.so )";
       write_file(path, {text.begin(), text.end()});
     },
     {"not an ELF file"}},
    {"another machine", patched(offsetof(Elf64_Ehdr, e_machine), {EM_S390, 0}), {"another machine"}},
    {"a 32-bit file", patched(EI_CLASS, {ELFCLASS32}), {"64-bit"}},
    {"a big-endian file", patched(EI_DATA, {ELFDATA2MSB}), {"little-endian"}},
    {"a program", patched(offsetof(Elf64_Ehdr, e_type), {ET_EXEC, 0}), {"not a shared object"}},
    {"an object file", patched(offsetof(Elf64_Ehdr, e_type), {ET_REL, 0}), {"not a shared object"}},
    {"no program headers", patched(offsetof(Elf64_Ehdr, e_phnum), {0, 0}), {"program headers"}},
    {"program headers of another size", patched(offsetof(Elf64_Ehdr, e_phentsize), {32, 0}), {"program headers"}},
    {"segments that end past 64 bits",
     patched_segments([](Elf64_Phdr& segment) { segment.p_offset = UINT64_MAX; }),
     {"truncated", "a segment ends"}},
    {"no dynamic segment",
     patched_segments([](Elf64_Phdr& segment) { segment.p_type = segment.p_type == PT_DYNAMIC ? PT_NULL : segment.p_type; }),
     {"no dynamic segment"}},
    {"program headers outside", patched(offsetof(Elf64_Ehdr, e_phoff), {0, 0, 0, 0, 0, 0, 0, 0x40}), {"program headers"}},
    {"section headers outside", patched(offsetof(Elf64_Ehdr, e_shoff), {0, 0, 0, 0, 0, 0, 0, 0x40}), {"section headers"}},
    {"section headers that end past 64 bits",
     patched(offsetof(Elf64_Ehdr, e_shoff), {0xF0, 255, 255, 255, 255, 255, 255, 255}),
     {"section headers"}},
    {"a dangling link", [](const std::string& path) { fs::create_symlink("nowhere.so", path); }, {"No such file"}},
    {"a link to itself", [](const std::string& path) { fs::create_symlink(fs::path(path).filename(), path); }, {"symbolic links"}},
    {"a directory", [](const std::string& path) { fs::create_directory(path); }, {"directory"}},
    {"a pipe", [](const std::string& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }, {"not a regular file"}},
};

}  // namespace

TEST_CASE("a plugin with a fault is listed with the reason and does not disturb the others") {
  Folder folder;
  for (const Fault& fault : kFaults) folder.add(std::string("fault_") + fault.name);
  const std::string fine = folder.add("fine", "narrows_zz_fine.so");
  Runtime rt(folder);
  for (const Fault& fault : kFaults) {
    INFO(fault.name);
    expect_listed(rt.backend_of_file(folder / ("narrows_fault_" + std::string(fault.name) + ".so")), fault.status, fault.words);
  }
  CHECK(rt.backend_of_file(fine).status == NW_OK);
  CHECK(rt.backend_of_file(fine).num_ops == 1);
}

TEST_CASE("nw_load of a plugin with a fault is an error") {
  Runtime rt;
  for (const Fault& fault : kFaults) {
    INFO(fault.name);
    const std::string path = plugin_file(std::string("fault_") + fault.name);
    Error error;
    const int32_t status = nw_load(rt, path.c_str(), &error);
    CHECK(std::string(nw_status_name(status)) == nw_status_name(fault.status));
    REQUIRE(status != NW_OK);
    CHECK(error.status == status);
    CHECK(error.argument == -1);
    expect_words(error.text(), fault.words);
    expect_words(error.text(), {path.c_str()});
    expect_listed(rt.backend_of_file(path), fault.status, fault.words);
    CHECK(nw_load(rt, path.c_str(), nullptr) != NW_OK);
  }
}

TEST_CASE("an instance that cannot be made is listed with the reason") {
  Folder folder;
  for (const Fault& fault : kUnopened) folder.add(std::string("fault_") + fault.name);
  Runtime rt(folder);
  for (const Fault& fault : kUnopened) {
    INFO(fault.name);
    const std::string path = folder / ("narrows_fault_" + std::string(fault.name) + ".so");
    expect_listed(rt.backend_of_file(path), fault.status, fault.words);
    expect_listed(rt.backend_of_file(path), fault.status, fault.words);  // asked again: the same
  }
}

TEST_CASE("a call for an instance that cannot be made says why") {
  Loaded rt({"fault_create_unavailable"});
  Array a({2}), out({2});
  Call call("faulty.op/1", {&a}, {&out});
  call.refused(rt, NW_UNAVAILABLE, -1, {"unavailable", "install libfaulty1"});
  void* data = nullptr;
  Error error;
  expect_refused(nw_alloc(rt, kProbe, 64, nullptr, &data, &error), error, NW_UNAVAILABLE, -1, {"install libfaulty1"});
}

TEST_CASE("an instance that fails otherwise than by being unavailable fails the call though another plugin could serve it") {
  Loaded rt({"fine"});
  REQUIRE(nw_load(rt, plugin_file("fault_create_odd_status").c_str(), nullptr) == NW_OK);
  Array a({2}), out({2});
  Call("faulty.op/1", {&a}, {&out}).refused(rt, NW_FAILED, -1, {"odd_status", "99"});
  void* data = nullptr;
  Error error;
  expect_refused(nw_alloc(rt, kProbe, 64, nullptr, &data, &error), error, NW_FAILED, -1, {"odd_status", "99"});
}

TEST_CASE("every faulty plugin that is built stands in a table") {
  std::set<std::string> known;
  for (const Fault& fault : kFaults) known.insert(std::string("narrows_fault_") + fault.name + ".so");
  for (const Fault& fault : kUnopened) known.insert(std::string("narrows_fault_") + fault.name + ".so");
  std::set<std::string> built;
  for (const fs::directory_entry& entry : fs::directory_iterator(NARROWS_TEST_PLUGINS))
    if (const std::string name = entry.path().filename(); name.rfind("narrows_fault_", 0) == 0) built.insert(name);
  CHECK(built == known);
}

TEST_CASE("plugins at the edge of what is allowed are accepted") {
  for (const char* name :
       {"fine", "fine_short", "fine_long", "fine_builtin", "fine_no_ops", "fine_no_version", "fine_more_params"}) {
    INFO(name);
    Folder folder;
    const std::string path = folder.add(name);
    Runtime rt(folder);
    const nw_backend_info info = rt.backend_of_file(path);
    CHECK(std::string(info.reason).empty());
    CHECK(info.status == NW_OK);
    CHECK(std::string(info.name) == name);
    CHECK(info.version != nullptr);
    CHECK(info.device_count == 1);
    CHECK(nw_extension(rt, name, "anything/1") == nullptr);
  }
}

TEST_CASE("a built-in op that this host does not know yet is left out") {
  Folder folder;
  const std::string path = folder.add("fine_newer");
  Runtime rt(folder);
  const nw_backend_info info = rt.backend_of_file(path);
  CHECK(info.status == NW_OK);
  REQUIRE(info.num_ops == 1);
  CHECK(std::string(info.ops[0]->name) == "faulty.op/1");
  CHECK(std::string(info.reason) == "built-in ops of a newer host are left out: gemm");
  CHECK(contains(rt.log(), "gemm"));
  const nw_op* op = nullptr;
  CHECK(nw_find_op(rt, "gemm", &op, nullptr) == NW_INVALID);
}

TEST_CASE("a plugin that is refused for one of its ops is listed by its name") {
  Folder folder;
  for (const char* fault : {"two_ops", "builtin_outputs", "op_flags", "null_op", "null_launch"})
    folder.add(std::string("fault_") + fault);
  Runtime rt(folder);
  for (const nw_backend_info& info : rt.backends())
    if (contains(info.path, folder.path())) CHECK(std::string(info.name) == "faulty");
}

TEST_CASE("a file that is no plugin is listed and an error of nw_load") {
  for (const BadFile& bad : kBadFiles) {
    INFO(bad.what);
    Folder folder;
    const std::string path = folder / "narrows_bad.so";
    bad.write(path);
    Runtime rt(folder);
    expect_listed(rt.backend_of_file(path), NW_INVALID, bad.words);
    Runtime other;
    Error error;
    const int32_t status = nw_load(other, path.c_str(), &error);
    CHECK(status == NW_INVALID);
    if (status != NW_OK) expect_words(error.text(), bad.words);
    CHECK(std::string(rt.backend_of_file(path).name).empty());
  }
}

TEST_CASE("a file that gives fewer bytes than its size says is refused") {
  const char* const path = "/sys/devices/system/cpu/online";  // 4096 of them, it says
  if (!fs::exists(path) || fs::file_size(path) < sizeof(Elf64_Ehdr)) SKIP("no such file: /sys is not mounted");
  Runtime rt;
  Error error;
  expect_refused(nw_load(rt, path, &error), error, NW_INVALID, -1, {"not an ELF file: shorter than an ELF header"});
}

TEST_CASE("a plugin without section headers is accepted") {
  Folder folder;
  const std::string path = folder / "narrows_stripped.so";
  static_assert(offsetof(Elf64_Ehdr, e_shoff) == 40 && offsetof(Elf64_Ehdr, e_shnum) == 60);
  std::vector<unsigned char> file = read_file(plugin_file("fine"));
  std::fill_n(file.begin() + 40, 8, 0);
  std::fill_n(file.begin() + 60, 4, 0);
  write_file(path, file);
  Runtime rt(folder);
  CHECK(rt.backend_of_file(path).status == NW_OK);
}

TEST_CASE("a refused file leaves no descriptor open") {
  const auto descriptors = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(fs::begin(all), fs::end(all));
  };
  Folder folder;
  for (const BadFile& bad : kBadFiles) bad.write(folder / ("narrows_" + std::to_string(&bad - kBadFiles) + ".so"));
  const auto before = descriptors();
  for (int i = 0; i < 3; ++i) Runtime rt(folder);
  CHECK(descriptors() == before);
}

TEST_CASE("a truncated plugin is refused at every length") {
  const std::vector<unsigned char> whole = read_file(plugin_file("fine"));
  Folder folder;
  Runtime rt;
  std::vector<size_t> lengths;
  for (size_t length = 1; length < 256; length += 5) lengths.push_back(length);
  for (size_t length = 256; length < whole.size(); length += 509) lengths.push_back(length);
  for (size_t cut = 1; cut < 200; cut += 33) lengths.push_back(whole.size() - cut);
  for (const size_t length : lengths) {
    INFO("length " << length << " of " << whole.size());
    const std::string path = folder / ("narrows_" + std::to_string(length) + ".so");
    write_file(path, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    Error error;
    const int32_t status = nw_load(rt, path.c_str(), &error);
    CHECK(status == NW_INVALID);
    if (status != NW_OK) CHECK((contains(error.text(), "truncated") || contains(error.text(), "not an ELF")));
  }
}

TEST_CASE("a plugin compiled for arm64 is refused") {
  if (!fs::exists(plugin_file("aarch64"))) SKIP("no aarch64-linux-gnu-gcc, or this is no x86-64 machine");
  Runtime rt;
  Error error;
  expect_refused(nw_load(rt, plugin_file("aarch64").c_str(), &error), error, NW_INVALID, -1, {"another machine"});
}

TEST_CASE("a file that may not be read is refused") {
  Folder folder;
  const std::string path = folder.add("fine");
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(chmod(path.c_str(), 0) == 0);
  const bool root = geteuid() == 0;  // who may read every file
  constexpr uid_t kNobody = 65534;
  if (root && seteuid(kNobody) != 0) SKIP("root may read every file, and cannot be anyone else here");
  {
    Runtime rt(folder);
    expect_listed(rt.backend_of_file(path), NW_INVALID, {"Permission denied"});
  }
  if (root) REQUIRE(seteuid(0) == 0);
}

TEST_CASE("nw_load wants the absolute path of a file") {
  Runtime rt;
  Error error;
  const uint32_t before = nw_backend_count(rt);
  expect_refused(nw_load(rt, nullptr, &error), error, NW_INVALID, -1, {"NULL"});
  expect_refused(nw_load(rt, "", &error), error, NW_INVALID, -1, {"absolute"});
  expect_refused(nw_load(rt, "plugins/narrows_fine.so", &error), error, NW_INVALID, -1, {"plugins/narrows_fine.so", "absolute"});
  expect_refused(nw_load(rt, "./narrows_fine.so", &error), error, NW_INVALID, -1, {"absolute"});
  CHECK(nw_backend_count(rt) == before);
  Folder folder;
  const std::string missing = folder / "narrows_missing.so";
  expect_refused(nw_load(rt, missing.c_str(), &error), error, NW_INVALID, -1, {missing.c_str(), "No such file"});
  expect_refused(nw_load(nullptr, missing.c_str(), &error), error, NW_INVALID, -1, {"runtime", "NULL"});
}

TEST_CASE("the second plugin that declares an op otherwise is refused") {
  const std::pair<const char*, const char*> others[] = {
      {"other_arity", "2"},     {"other_rule", "broadcast"}, {"other_flags", "flags"},
      {"other_names", "bias?"}, {"other_saved", "saved"},    {"other_backward", "faulty.back/1"},
      {"other_field", "'n'"},   {"other_initial", "'n'"},    {"other_values", "'n'"},
  };
  for (const auto& [name, word] : others) {
    INFO(name);
    Folder folder;
    folder.add("fine", "narrows_1.so");
    const std::string second = folder.add(name, "narrows_2.so");
    Runtime rt(folder);
    expect_listed(rt.backend_of_file(second), NW_INVALID, {"faulty.op/1", word});
    CHECK(std::string(rt.backend_of_file(second).name) == name);  // it was known when the file was refused
    Folder alone;
    const std::string path = alone.add(name);
    Runtime other(alone);
    CHECK(other.backend_of_file(path).status == NW_OK);
    Error error;
    expect_refused(nw_load(other, plugin_file("fine").c_str(), &error), error, NW_INVALID, -1, {"faulty.op/1", word});
  }
}

TEST_CASE("a backward op may be one of a plugin that was loaded before, or a built-in one") {
  Folder folder;
  folder.add("fine", "narrows_1.so");
  const std::string second = folder.add("backward_of_another", "narrows_2.so"), third = folder.add("backward_built_in");
  Runtime rt(folder);
  CHECK(rt.backend_of_file(second).status == NW_OK);
  CHECK(rt.backend_of_file(third).status == NW_OK);
  Folder alone;
  const std::string path = alone.add("backward_of_another");
  Runtime other(alone);
  expect_listed(other.backend_of_file(path), NW_INVALID, {"faulty.other/1", "'faulty.op/1'", "neither"});
}

TEST_CASE("two plugins may declare an op that differs at the end of its params") {
  Folder folder;
  folder.add("fine", "narrows_1.so");
  const std::string second = folder.add("fine_more_params", "narrows_2.so");
  Runtime rt(folder);
  CHECK(rt.backend_of_file(second).status == NW_OK);
}
