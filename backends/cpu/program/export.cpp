// SPDX-License-Identifier: Apache-2.0
// export.cpp -- see export.h. The compiler makes objects of the plugin's frame (exported.c) and of each kernel, and links
// them.
#include "program/export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "common/program_files.h"
#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "program/c_prelude.h"
#include "program/export_text.h"
#include "program/exported_parts.h"  // made of exported.c and the ABI's headers by CMakeLists.txt
#include "program/program.h"
#include "program/toolchain.h"

namespace narrows::cpu {
namespace {

constexpr size_t kMostOptional = 8, kMostKernels = 64;

// ---- names ----

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// The plugin's name, from that of its file.
std::string plugin_name(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1), begin = "narrows_", end = ".so";
  const bool fits = file.size() > begin.size() + end.size() && file.starts_with(begin) && file.ends_with(end);
  const std::string name = fits ? file.substr(begin.size(), file.size() - begin.size() - end.size()) : "";
  if (!is_word(name))
    refuse(NW_INVALID, -1, "path is '%s'; expected a file narrows_<name>.so, as plugins are found by, <name> of A-Z a-z 0-9 and _",
           path.c_str());
  return name;
}

// "vendor.name/1": words with dots between, a number.
bool is_op(const std::string& op) {
  const size_t slash = op.find('/');
  const std::string version = slash == std::string::npos ? "" : op.substr(slash + 1);
  std::string stem = op.substr(0, slash);
  bool good = !version.empty() && version.size() < 9 && version[0] != '0' && stem.find('.') != std::string::npos &&
              !stem.starts_with("program.") && stem.size() <= 256;
  for (const char c : version) good = good && std::isdigit(static_cast<unsigned char>(c)) != 0;
  for (size_t begin = 0; good && begin <= stem.size();) {
    const size_t end = std::min(stem.find('.', begin), stem.size());
    good = is_word(stem.substr(begin, end - begin));
    begin = end + 1;
  }
  return good;
}

// The op that is asked for, or that the plugin and its program make.
std::string op_name(const std::string& op, const std::string& path, const std::string& made) {
  if (op.empty() && !is_op(made))
    refuse(NW_INVALID, -1, "path is '%s', which makes the op '%s'; expected another file's name, or an op, not in 'program.'",
           path.c_str(), made.c_str());
  if (!op.empty() && !is_op(op))
    refuse(NW_INVALID, -1, "op is '%s'; expected one like 'vendor.name/1', not in 'program.'", op.c_str());
  return op.empty() ? made : op;
}

std::string backward_of(const std::string& op) {
  const size_t slash = op.find('/');
  return op.substr(0, slash) + "_backward" + op.substr(slash);
}

// ---- kernels ----

// Gives the entry a name of its own that nobody else sees.
std::string with_entry(const std::string& text, const std::string& entry) {
  const std::string before = std::string("__attribute__((visibility(\"default\"))) void ") + kCEntry + "(";
  const size_t at = text.find(before);
  if (at == std::string::npos) refuse(NW_FAILED, -1, "the program's C defines no %s", kCEntry);
  return text.substr(0, at) + "void " + entry + "(" + text.substr(at + before.size());
}

// The program for each set of its optional tensors, dense and strided; equal texts once.
void print_kernels(const CTarget& target, const std::string& prefix, ExportedProgram* program) {
  const std::vector<const ir::Buffer*> optional = optional_tensors(program->lowered.program);
  if (optional.size() > kMostOptional)
    refuse(NW_UNSUPPORTED, -1, "program '%s' has %zu tensors that may be absent; one that is exported has at most %zu",
           program->lowered.program.name.c_str(), optional.size(), kMostOptional);
  std::map<std::string, size_t> known;
  for (size_t mask = 0; mask < size_t{1} << optional.size(); ++mask) {
    for (const bool is_strided : {false, true}) {
      CSource source = print_c(any_call(program->lowered, optional, mask, is_strided), target);
      std::string key = source.text;
      for (const std::string& buffer : source.buffers) key += " " + buffer;
      const auto [entry, is_new] = known.emplace(key, program->kernels.size());
      if (is_new) {
        const std::string name = prefix + std::to_string(program->kernels.size());
        source.text = with_entry(source.text, name);
        program->kernels.push_back({name, std::move(source)});
      }
      program->variants.push_back(entry->second);
    }
  }
  if (program->kernels.size() > kMostKernels)
    refuse(NW_UNSUPPORTED, -1, "program '%s' has %zu different kernels for the tensors that may be absent; expected at most %zu",
           program->lowered.program.name.c_str(), program->kernels.size(), kMostKernels);
}

std::vector<ExportedProgram> print_programs(const Instance& instance, const std::vector<std::string>& texts,
                                            const std::string& op) {
  std::vector<ExportedProgram> out(texts.size());
  std::string name = op;
  bool contracts = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    out[i].op = name;
    out[i].lowered = lowered_text(texts[i]);
    name = backward_of(name);
    contracts = contracts || print_c(any_call(out[i].lowered, {}, 0, false), c_target(instance)).contracts;
  }
  CTarget target = c_target(instance);
  target.contracts = contracts;  // all kernels are compiled with the same flags
  for (size_t i = 0; i < out.size(); ++i) print_kernels(target, "narrows_kernel_" + std::to_string(i) + "_", &out[i]);
  return out;
}

// ---- the frame ----

// What __builtin_cpu_supports() knows of the instruction sets that the kernels are compiled for.
std::vector<std::string> features(const std::string& machine_flag) {
  std::vector<std::string> out;
  if (machine_flag.empty()) return out;
  out = {"ssse3", "sse4.1", "sse4.2", "popcnt"};
  if (machine_flag >= "-march=x86-64-v3") out.insert(out.end(), {"avx", "avx2", "bmi", "bmi2", "fma"});
  if (machine_flag >= "-march=x86-64-v4") out.insert(out.end(), {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  return out;
}

std::string frame_text(const Instance& instance, const char* label, const std::string& plugin,
                       const std::vector<ExportedProgram>& programs) {
  const std::vector<std::string> machine = c_machine_flags(instance);
  std::string tables = "#define PLUGIN \"" + plugin + "\"\n#define TARGET \"" + instance.target + "\"\n";
  tables.append("#define TARGET_LABEL \"").append(label).append("\"\n");
  tables += "static const char* missing_feature(void) {\n";
  for (const std::string& feature : features(machine.empty() ? "" : machine[0]))
    tables.append("  if (!__builtin_cpu_supports(\"").append(feature).append("\")) return \"").append(feature).append("\";\n");
  tables += "  return NULL;\n}\n" + export_tables(programs);
  const std::string fixed = kExportedFrame, mark = "/* TABLES */";
  const size_t at = fixed.find(mark);
  const std::string halves = c_prelude({}, {}, {{"nw_from_f16", 1}, {"nw_to_f16", 1}, {"nw_from_bf16", 1}, {"nw_to_bf16", 1}});
  return kExportedDlpack + std::string(kExportedAbi) + kExportedPlugin + halves + kExportedFunctions + fixed.substr(0, at) +
         tables + fixed.substr(at + mark.size());
}

// What `narrows conform` has to know: docs/conformance.md. The cpu backend, which is loaded beside the plugin, has to say the same
// target.
std::string manifest_text(const Instance& instance, const char* label) {
  const std::vector<std::string> machine = c_machine_flags(instance);
  const std::string_view target = instance.target;
  std::vector<std::string> needed = features(machine.empty() ? "" : machine[0]);
  if (target == "avx512_bf16") needed.emplace_back("avx512_bf16");
  if (target == "amx") needed.insert(needed.end(), {"amx_tile", "amx_bf16"});
  std::string cpu;
  for (std::string feature : needed) {
    std::replace(feature.begin(), feature.end(), '.', '_');  // as /proc/cpuinfo has them
    cpu += (cpu.empty() ? "\"" : ", \"") + (feature == "bmi" ? "bmi1" : feature) + "\"";
  }
#if defined(__x86_64__)
  const char* name = "x86_64";
#else
  const char* name = "aarch64";
#endif
  return std::string("{\n  \"environments\": [\n    {\"name\": \"") + instance.target + "\", \"machine\": \"" + name +
         "\", \"variables\": {\"NARROWS_CPU_TARGET\": \"" + instance.target + "\"}, \"arch\": \"" + label + "\",\n     \"cpu\": [" +
         cpu + "]}\n  ],\n  \"exclusions\": []\n}\n";
}

// ---- files ----

void check_place(const std::string& path, const std::string& manifest) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    refuse(NW_INVALID, -1, "path is '%s'; there is no folder '%s'", path.c_str(), folder.c_str());
  if (lstat(path.c_str(), &info) == 0)
    refuse(NW_INVALID, -1, "path is '%s', which is there already; expected one without a file", path.c_str());
  if (lstat(manifest.c_str(), &info) == 0)
    refuse(NW_INVALID, -1, "path is '%s', and its manifest '%s' is there already; expected none", path.c_str(), manifest.c_str());
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(NW_INVALID, -1, "path is '%s', and folder '%s' cannot be written into: %s", path.c_str(), folder.c_str(),
           std::strerror(errno));
}

// Files that go away with this, and their folder.
class Scratch {
 public:
  Scratch() : place_("") {}
  ~Scratch() {
    for (const std::string& file : files_) unlink(file.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) {
    files_.push_back(place_.folder() + "/" + name);
    return files_.back();
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string out = path(name);
    if (!write_file(out, text)) refuse(NW_FAILED, -1, "%s cannot be written: %s", out.c_str(), std::strerror(errno));
    return out;
  }
  // What the compiler failed for stays, under a name that the next such failure has, too, or where it is.
  std::string keep(const std::string& file, const std::string& text) {
    files_.erase(std::remove(files_.begin(), files_.end(), file), files_.end());
    return keep_source(file, place_, hex_digest(text));
  }

 private:
  Workplace place_;
  std::vector<std::string> files_;
};

// Runs the C compiler in a folder of its own; where it fails, the error names the source that it failed for.
class Compilation {
 public:
  // Gives the object's path.
  std::string object(const std::string& name, const std::string& text, std::vector<std::string> arguments) {
    const std::string out = scratch_.path(name + ".o"), source = scratch_.write(name + ".c", text);
    arguments.insert(arguments.end(), {"-c", "-o", out, source});
    run(arguments, source, text);
    return out;
  }

  // The bytes of the plugin of these objects; `frame` is what is kept where they do not fit together.
  std::string linked(const std::vector<std::string>& objects, const std::string& frame) {
    const std::string out = scratch_.path("plugin.so"), source = scratch_.write("linked.c", frame);
    std::vector<std::string> arguments = c_flags(false);
    arguments.insert(arguments.end(), {"-shared", "-Wl,-z,nodelete", "-Wl,-z,defs", "-s", "-o", out});
    arguments.insert(arguments.end(), objects.begin(), objects.end());
    arguments.emplace_back("-lm");
    run(arguments, source, frame);
    std::string bytes;
    if (!read_file(out, &bytes)) refuse(NW_FAILED, -1, "what the C compiler %s made cannot be read", compiler_[0].c_str());
    return bytes;
  }

 private:
  void run(const std::vector<std::string>& arguments, const std::string& source, const std::string& text) {
    std::vector<std::string> command = compiler_;
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_process(command, compile_seconds());
    if (outcome.kind == Outcome::Kind::exited && outcome.number == 0) return;
    refuse_outcome(outcome, command[0], scratch_.keep(source, text));
  }

  Scratch scratch_;
  const std::vector<std::string> compiler_ = required_compiler();
};

// The plugin's bytes. Its frame has to run on any CPU, so that it can say what is missing.
std::string compile_plugin(const Instance& instance, const std::string& frame, const std::vector<ExportedProgram>& programs) {
  bool contracts = false;
  for (const ExportedProgram& program : programs)
    for (const ExportedKernel& kernel : program.kernels) contracts = contracts || kernel.source.contracts;
  std::vector<std::string> flags = c_flags(contracts);
  for (const std::string& flag : c_machine_flags(instance)) flags.push_back(flag);
  Compilation compilation;
  std::vector<std::string> objects = {compilation.object("frame", frame, c_flags(false))};
  for (const ExportedProgram& program : programs)
    for (const ExportedKernel& kernel : program.kernels)
      objects.push_back(compilation.object(kernel.entry, kernel.source.text, flags));
  return compilation.linked(objects, frame);
}

// Makes a file that only its owner can read, beside `path`; gives its name.
std::string write_half(const std::string& path, const std::string& bytes, mode_t mode) {
  std::string half = path + ".XXXXXX";
  const int file = mkostemp(half.data(), O_CLOEXEC);
  if (file < 0) refuse(NW_FAILED, -1, "path: cannot make a file beside '%s': %s", path.c_str(), std::strerror(errno));
  const bool written = write_all(file, bytes) && fchmod(file, mode) == 0;
  const int reason = errno;
  if (const bool closed = close(file) == 0; written && closed) return half;
  const int last = written ? errno : reason;
  unlink(half.c_str());
  refuse(NW_FAILED, -1, "path: cannot write '%s': %s", path.c_str(), std::strerror(last));
}

// Whole or not at all, and never over a file that is there. Some file systems have no hard links, others no such renaming.
void place_file(const std::string& path, const std::string& bytes, mode_t mode) {
  const std::string half = write_half(path, bytes, mode);
  if (renameat2(AT_FDCWD, half.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return;
  int reason = errno;
  if (reason != EEXIST) reason = link(half.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(half.c_str());
  if (reason == EEXIST)
    refuse(NW_INVALID, -1, "path: '%s' was made by another process meanwhile; expected no file there", path.c_str());
  if (reason != 0)
    refuse(NW_FAILED, -1, "path: cannot rename the file that was written to '%s': %s", path.c_str(), std::strerror(reason));
}

}  // namespace

void export_programs(const Instance& instance, const char* label, const std::vector<std::string>& texts, const std::string& op,
                     const std::string& path) {
  try {
    const std::string plugin = plugin_name(path), manifest = path.substr(0, path.size() - 3) + ".manifest.json";
    check_place(path, manifest);
    const std::string name = op_name(op, path, plugin + "." + ir::parse(texts[0]).name + "/1");
    (void)required_compiler();
    const std::vector<ExportedProgram> programs = print_programs(instance, texts, name);
    const std::string bytes = compile_plugin(instance, frame_text(instance, label, plugin, programs), programs);
    place_file(manifest, manifest_text(instance, label), 0644);
    try {
      place_file(path, bytes, 0755);
    } catch (...) {
      unlink(manifest.c_str());
      throw;
    }
  } catch (const Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
