/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file program.h
 * @brief Tensor programs: reads them, changes how they run, prints them. Exported by
 * libnarrows_program.so.1.
 *
 * docs/programs.md describes the text of a program, docs/program_schedules.md the steps that change
 * how it runs. Each step is one line, and is refused if it could change what is computed.
 *
 * @code{.c}
 * nw_program* program = NULL;
 * const nw_op* op = NULL;
 * if (nw_program_parse(text, &program, &error) != NW_OK ||
 *     nw_program_step(program, "split(loop=\"i\", factors=[None, 8])", NULL, &error) != NW_OK ||
 *     nw_program_load(rt, program, NULL, "cpu", &op, &error) != NW_OK)
 *   fprintf(stderr, "%s\n", error.message);
 * nw_program_free(program);
 * call.op = op->name; // nw_run() as for every op
 * @endcode
 *
 * The rules of narrows.h hold, but for one: one thread at a time uses a program. Different programs
 * may be used at once.
 *
 * Strings and lists that a function returns belong to the program. They live until the next call
 * with that program, nw_program_free() included.
 */
#ifndef NARROWS_PROGRAM_H
#define NARROWS_PROGRAM_H

#include <narrows/narrows.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @addtogroup programs
 * @{
 */

/** A program as it was read, and the steps that were taken since. */
typedef struct nw_program nw_program;

/**
 * Reads a program, and verifies that it has a meaning: every access is in bounds, and nothing is
 * read before it is written.
 *
 * @param text   The program. UTF-8, NUL-terminated.
 * @param out    The program. The caller frees it with nw_program_free().
 * @param error  May be NULL. Its message has line and column of a mistake in the text.
 */
NW_API int32_t nw_program_parse(const char* text, nw_program** out, nw_error* error);

/** Copies a program and its steps. The caller frees the copy with nw_program_free(). */
NW_API int32_t nw_program_clone(const nw_program* program, nw_program** out, nw_error* error);

/** Frees a program. `program` may be NULL: nothing happens then. */
NW_API void nw_program_free(nw_program* program);

/**
 * Takes one step, such as `parallel(loop="i")`. If it is refused, nothing has changed.
 *
 * @param program  The program.
 * @param step     The step: one line, as nw_program_trace() has them.
 * @param names    The names of the loops or blocks that the step made, NULL-terminated. May be
 *                 NULL.
 * @param error    May be NULL. Its message says which rule the step breaks, and where.
 */
NW_API int32_t nw_program_step(nw_program* program, const char* step, const char* const** names,
                               nw_error* error);

/**
 * Takes the steps of the default schedule, as far as they are possible. nw_program_trace() shows
 * them.
 *
 * Contractions are tiled and vectorised, element-wise chains become one block, reductions of a row
 * share a loop, and the outermost loop is parallel. For GPUs, products are tiled through shared
 * memory, and a block of threads reduces a row.
 *
 * @param program  The program. It may have steps already; those here come behind them.
 * @param backend  For whose plugins: "cpu", with the vectors of this machine, "cuda", "hip" or
 * "vulkan". Others have no default schedule yet: #NW_UNSUPPORTED.
 * @param error    May be NULL.
 */
NW_API int32_t nw_program_auto(nw_program* program, const char* backend, nw_error* error);

/** Gives the text of the program as it runs now, after all steps. */
NW_API int32_t nw_program_print(nw_program* program, const char** text, nw_error* error);

/** Gives the steps that were taken, a line each. Taken again they give the same program. */
NW_API int32_t nw_program_trace(nw_program* program, const char** trace, nw_error* error);

/** Gives the program's name, as its text has it. */
NW_API int32_t nw_program_name(nw_program* program, const char** name, nw_error* error);

/** Gives 32 hexadecimal digits that stand for what the program computes. Steps change none. */
NW_API int32_t nw_program_digest(nw_program* program, const char** digest, nw_error* error);

/** Gives the names of the blocks, NULL-terminated, in the order of the text. */
NW_API int32_t nw_program_blocks(nw_program* program, const char* const** names, nw_error* error);

/** Gives the names of the loops around a block, NULL-terminated, the outermost first. */
NW_API int32_t nw_program_loops(nw_program* program, const char* block, const char* const** names,
                                nw_error* error);

/**
 * Makes the adjoint: the program of the gradients, from which nw_program_load() makes the
 * `backward` of the program's op. docs/programs.md, "Gradients", has its tensors, and what has
 * none: then the status is NW_UNSUPPORTED, and the message names the block or buffer. Steps do not
 * count.
 *
 * @param program  The program.
 * @param out      The caller frees it by nw_program_free().
 * @param error    May be NULL.
 */
NW_API int32_t nw_program_vjp(const nw_program* program, nw_program** out, nw_error* error);

/**
 * Makes the program an op of a runtime by nw_load_program(), and sets its schedule by
 * nw_schedule_program().
 *
 * @param rt        The runtime.
 * @param program   The program. It may be freed afterwards.
 * @param backward  As in nw_load_program(). May be NULL.
 * @param backend   Name of the plugins that run it as the steps say: "cpu". Others that were
 *                  found keep the schedule that they had; of a new op it is their default one.
 * NULL: all plugins that were found run it by their default schedules. None is opened.
 * @param out       The declaration. It lives as long as the runtime.
 * @param error     May be NULL.
 */
NW_API int32_t nw_program_load(nw_runtime* rt, const nw_program* program, const char* backward,
                               const char* backend, const nw_op** out, nw_error* error);

/**
 * Makes the program that a saved model carries an op of a runtime, with its gradients and
 * schedules. docs/programs.md, "In saved models", has the text.
 *
 * All of it is verified, as by nw_program_parse() and nw_program_step(). A schedule for a plugin
 * that is not there is left out; one that is there and has none runs it by its default schedule.
 * A program that the runtime has already keeps its schedules.
 *
 * @param rt     The runtime.
 * @param saved  The text. UTF-8, NUL-terminated.
 * @param out    The declaration of the program. It lives as long as the runtime.
 * @param error  May be NULL. Its message has the line of what is wrong.
 */
NW_API int32_t nw_program_load_saved(nw_runtime* rt, const char* saved, const nw_op** out,
                                     nw_error* error);

/**
 * The extension "program_source/1" of a plugin that makes source of programs: nw_extension(). Its
 * functions may be called by any thread.
 */
typedef struct nw_program_source {
  /** sizeof(nw_program_source) on the plugin's side. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** What the functions take. */
  void* self;
  /**
   * Gives the source of a program for dense tensors that are all there. It is for a reader: its
   * first line is a comment that says which kernel variant runs.
   *
   * @param self    The field of that name.
   * @param text    The program as it runs, after all steps. UTF-8, NUL-terminated.
   * @param out     Takes at most `size` bytes of the source, a NUL last. May be NULL if `size` is
   * 0.
   * @param size    Bytes at `out`.
   * @param needed  Bytes that the whole source takes, its NUL included.
   * @param error   May be NULL.
   */
  int32_t (*source)(void* self, const char* text, char* out, uint64_t size, uint64_t* needed,
                    nw_error* error);
  /**
   * Says in a line which compiler makes programs run: its name, its version, its file. It opens
   * the compiler. NW_UNAVAILABLE: there is none, and the message says how to install one.
   *
   * @param self    The field of that name.
   * @param out     Takes at most `size` bytes of the line, a NUL last. May be NULL if `size` is 0.
   * @param size    Bytes at `out`.
   * @param needed  Bytes that the whole line takes, its NUL included.
   * @param error   May be NULL.
   */
  int32_t (*compiler)(void* self, char* out, uint64_t size, uint64_t* needed, nw_error* error);
} nw_program_source;

/**
 * Writes a plugin that has the program compiled, and needs neither a compiler nor this library
 * where it runs. nw_load() and #NW_PLUGIN_QUERY find it as any plugin. Its manifest is written
 * beside it.
 *
 * The plugin is for the instruction set that the backend uses here, or NARROWS_CPU_TARGET names. On
 * a machine without it the plugin is unavailable, with the reason.
 *
 * @param rt            The runtime whose plugin compiles.
 * @param programs      The program, with its steps. Behind it, for gradients, its adjoint by
 *                      nw_program_vjp(), and so on: each is the backward of the one before.
 * @param num_programs  Length of `programs`. 1 to 8.
 * @param backend       Name of the plugin that compiles: "cpu".
 * @param op            Name of the op: "vendor.name/1". NULL: `<plugin>.<program>/1`. Gradients
 *                      have `_backward` before the slash.
 * @param path          The file, `narrows_<plugin>.so`. There must be none yet.
 * @param error         May be NULL. Where this fails, nothing is written.
 */
NW_API int32_t nw_program_export(nw_runtime* rt, const nw_program* const* programs,
                                 uint32_t num_programs, const char* backend, const char* op,
                                 const char* path, nw_error* error);

/** The extension "program_export/1" of a plugin that can do what nw_program_export() asks for. */
typedef struct nw_program_exporter {
  /** sizeof(nw_program_exporter) on the plugin's side. */
  uint32_t struct_size;
  /** 0: no flag is defined. */
  uint32_t flags;
  /** First argument of the slot. */
  void* self;
  /**
   * Writes the plugin and its manifest. The programs are `num_texts` texts as they are to run, each
   * the backward of the one before; `op` and `path` are those of nw_program_export().
   */
  int32_t (*write)(void* self, const char* const* texts, uint32_t num_texts, const char* op,
                   const char* path, nw_error* error);
} nw_program_exporter;

/** @} */

#ifdef __cplusplus
}
#endif
#endif
