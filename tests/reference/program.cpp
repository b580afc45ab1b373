// SPDX-License-Identifier: Apache-2.0
// program.cpp -- see program.h. The machine that runs statements; expressions are in program_values.cpp.
#include "program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "program_values.h"

namespace narrows::reference {
namespace {

using program::Axis;
using program::Block;
using program::Buffer;
using program::Expr;
using program::For;
using program::Program;
using program::Stmt;
using Point = std::vector<int64_t>;

// ---- what a statement touches, by its text alone ----

void visit_blocks(const std::vector<Stmt>& body, const std::function<void(const Block&)>& visit) {
  for (const Stmt& stmt : body) {
    if (const auto* loop = std::get_if<std::shared_ptr<const For>>(&stmt))
      visit_blocks((*loop)->body, visit);
    else
      visit(*std::get<std::shared_ptr<const Block>>(stmt));
  }
}

void visit_expressions(const Expr& e, const std::function<void(const Expr&)>& visit) {
  visit(e);
  for (const program::ExprPtr& operand : e.operands) visit_expressions(*operand, visit);
}

std::map<std::string, int> count_accesses(const std::vector<Stmt>& body) {
  std::map<std::string, int> counts;
  const auto count = [&](const Expr& e) { counts[e.name] += e.kind == Expr::Kind::load; };
  const auto count_store = [&](const program::Store& store) {
    ++counts[store.buffer];
    for (const program::ExprPtr& index : store.indices) visit_expressions(*index, count);
    visit_expressions(*store.value, count);
  };
  visit_blocks(body, [&](const Block& block) {
    std::for_each(block.init.begin(), block.init.end(), count_store);
    std::for_each(block.body.begin(), block.body.end(), count_store);
  });
  return counts;
}

bool has_name(const Expr& e, const std::string& name) {
  bool found = false;
  visit_expressions(e, [&](const Expr& part) { found = found || (part.kind == Expr::Kind::name && part.name == name); });
  return found;
}

bool feeds(const For& loop, const Block& block, bool spatial) {
  return std::any_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) {
    return (axis.kind == Axis::Kind::spatial) == spatial && has_name(*axis.binding, loop.name);
  });
}

// ---- conflicts between the iterations of one loop ----

// One execution of a loop whose iterations may run in any order, or at the same time.
struct Concurrent {
  const For& loop;
  std::set<std::string> own;  // allocations that nothing outside of the loop uses: each iteration may have its own copy
  int64_t iteration = 0;
  struct Accesses {
    int64_t writer = -1, reader = -1;
    bool has_readers = false;  // more than one iteration
  };
  std::map<std::pair<std::string, int64_t>, Accesses> elements = {};

  // Whether this iteration may not do that beside another one.
  bool conflicts_at_read(const std::string& buffer, int64_t element) {
    Accesses& a = elements[{buffer, element}];
    a.has_readers = a.has_readers || (a.reader != -1 && a.reader != iteration);
    a.reader = iteration;
    return a.writer != -1 && a.writer != iteration;
  }
  bool conflicts_at_write(const std::string& buffer, int64_t element) {
    Accesses& a = elements[{buffer, element}];
    const bool is_alone = (a.writer == -1 || a.writer == iteration) && !a.has_readers && (a.reader == -1 || a.reader == iteration);
    a.writer = iteration;
    return !is_alone && own.count(buffer) == 0;
  }
};

// ---- what a loop promises a backend ----

// How many statements in front of a pipelined loop only copy into allocations, of which none reads what another one has copied.
size_t count_copies(const For& loop, const std::set<std::string>& allocations, std::set<std::string>& copied) {
  for (size_t i = 0; i < loop.body.size(); ++i) {
    std::vector<const Block*> blocks;
    visit_blocks({loop.body[i]}, [&](const Block& block) { blocks.push_back(&block); });
    const Block& block = *blocks[0];
    const bool is_spatial =
        std::all_of(block.axes.begin(), block.axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::spatial; });
    if (blocks.size() != 1 || !is_spatial || !block.init.empty() || block.body.size() != 1) return i;
    const program::Store& store = block.body[0];
    if (store.value->kind != Expr::Kind::load || allocations.count(store.buffer) == 0) return i;
    for (const auto& [name, count] : count_accesses({loop.body[i]}))
      if (name != store.buffer && copied.count(name) != 0) return i;
    copied.insert(store.buffer);
  }
  return loop.body.size();
}

// What the stores in a tensorized loop read and write, each element by its buffer and number.
struct Products {
  using Element = std::pair<std::string, int64_t>;
  struct Update {
    Element target;
    std::vector<Element> reads;
  };
  std::vector<Element> reads;  // of the store that is under way
  std::vector<Update> updates;

  // Are they C[m, n] += A[m, k] * B[k, n] at each point once?
  bool are(int64_t m, int64_t n, int64_t k) const {
    std::array<std::map<Element, int64_t>, 3> times;
    std::set<std::array<Element, 3>> points;
    for (const Update& update : updates) {
      if (update.reads.size() != 3 || std::count(update.reads.begin(), update.reads.end(), update.target) != 1) return false;
      std::array<Element, 3> point = {update.target};
      std::copy_if(update.reads.begin(), update.reads.end(), point.begin() + 1,
                   [&](const Element& e) { return e != update.target; });
      for (size_t i = 0; i < point.size(); ++i) ++times[i][point[i]];
      points.insert(point);
    }
    const auto has = [&](size_t of, int64_t elements, int64_t each) {
      return static_cast<int64_t>(times[of].size()) == elements &&
             std::all_of(times[of].begin(), times[of].end(), [&](const auto& element) { return element.second == each; });
    };
    const bool fits = (has(1, m * k, n) && has(2, k * n, m)) || (has(2, m * k, n) && has(1, k * n, m));
    return static_cast<int64_t>(points.size()) == m * n * k && has(0, m * n, k) && fits;
  }
};

// ---- the machine ----

class Machine final : public Surroundings {
 public:
  Machine(const Program& program, const Arguments& arguments, Rounding how)
      : program_(program), all_(count_accesses(program.body)) {
    rounding = how;
    for (const auto& [name, size] : arguments.sizes) names[name] = size;
    for (const program::Param& param : program.params) {
      const auto given = arguments.params.find(param.name);
      names[param.name] = given == arguments.params.end() ? value_of(*param.value, *this) : given->second;
    }
    for (const Buffer& tensor : program.tensors) add_array(tensor, arguments);
    for (const Buffer& allocation : program.allocations) add_array(allocation, arguments);
    visit_blocks(program.body, [&](const Block& block) { has_empty_reduction_ = has_empty_reduction_ || reduces_nothing(block); });
  }

  Evaluation run() {
    run_body(program_.body);
    for (const Buffer& tensor : program_.tensors)
      if (tensor.role == Buffer::Role::output && is_present(tensor.name))
        check_written(tensor.name, result_.arrays.at(tensor.name));
    return std::move(result_);
  }

  Exact read(const std::string& buffer, const std::vector<int64_t>& indices) override {
    const int64_t element = place(buffer, indices, "reads");
    if (element < 0) return 0;
    if (products_ != nullptr) products_->reads.emplace_back(buffer, element);
    const Array& array = result_.arrays.at(buffer);
    if (!array.is_written[element]) fault("reads", buffer, indices, "which nothing has written");
    if (scopes_.at(buffer) != Buffer::Scope::global && array.is_written[element] && is_elsewhere(buffer, element))
      fault("reads", buffer, indices, "which another thread has written into memory of its own");
    for (Concurrent& c : concurrent_)
      if (c.conflicts_at_read(buffer, element))
        fault("reads", buffer, indices, "which another iteration of " + c.loop.name + " writes");
    return array.values[element];
  }

  bool is_present(const std::string& buffer) const override { return result_.arrays.count(buffer) != 0; }

 private:
  void add_array(const Buffer& buffer, const Arguments& arguments) {
    const auto given = arguments.tensors.find(buffer.name);
    const bool is_given = buffer.role == Buffer::Role::input || buffer.role == Buffer::Role::inout;
    if (is_given && given == arguments.tensors.end()) {
      if (buffer.optional) return;
      throw std::invalid_argument("the reference got no tensor " + buffer.name);
    }
    Array array{element_dtype(buffer.dtype), {}, {}, {}, {}};
    for (const program::ExprPtr& extent : buffer.shape) array.shape.push_back(index_of(*extent, *this));
    const size_t size = count(array.shape);
    const Exact unwritten = test::is_float(array.dtype) ? std::numeric_limits<Exact>::quiet_NaN() : 0;
    array.values = is_given ? given->second : std::vector<Exact>(size, unwritten);
    if (array.values.size() != size) throw std::invalid_argument("the reference got a tensor of another size for " + buffer.name);
    array.writes.assign(size, 0);
    array.is_written.assign(size, is_given);
    result_.arrays.emplace(buffer.name, std::move(array));
    scopes_[buffer.name] = buffer.scope;
  }

  // The first fault of a kind at a place is told with the loops' values; others like it are not.
  void fault(const std::string& verb, const std::string& buffer, const Point& indices, const std::string& what) {
    if (!told_.insert({block_, verb + what, buffer}).second) return;
    std::string where;
    for (const For* loop : loops_) where += " " + loop->name + "=" + std::to_string(static_cast<int64_t>(names.at(loop->name)));
    result_.faults.push_back("block " + block_ + " " + verb + " " + buffer + shown(indices) + ", " + what + "; at" + where);
  }

  // The element's number; -1, and a fault: it is not in the array.
  int64_t place(const std::string& buffer, const Point& indices, const char* verb) {
    const auto found = result_.arrays.find(buffer);
    if (found == result_.arrays.end()) {
      fault(verb, buffer, indices, "which is absent");
      return -1;
    }
    const Shape& shape = found->second.shape;
    if (indices.size() != shape.size()) throw std::invalid_argument("the reference got a wrong number of subscripts of " + buffer);
    int64_t element = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= shape[i]) {
        fault(verb, buffer, indices, "out of bounds");
        return -1;
      }
      element = element * shape[i] + indices[i];
    }
    return element;
  }

  // Were the element and this iteration at different values of a loop that is bound to the same axis? What is bound to none is
  // nowhere.
  bool is_elsewhere(const std::string& buffer, int64_t element) const {
    const std::map<std::string, int64_t> here = place_of(buffer);
    const std::map<std::string, int64_t>& there = places_.at({buffer, element});
    return std::any_of(here.begin(), here.end(), [&](const auto& axis) {
      const auto found = there.find(axis.first);
      return found != there.end() && found->second != axis.second;
    });
  }

  // Where a GPU keeps the copy of a `shared` or `local` buffer that the iteration has: the values of the loops that are bound to
  // blocks, of a `local` one those to threads, too.
  std::map<std::string, int64_t> place_of(const std::string& buffer) const {
    std::map<std::string, int64_t> place;
    const bool is_local = scopes_.at(buffer) == Buffer::Scope::local;
    for (const For* loop : loops_)
      if (loop->kind == For::Kind::bind && (is_local || loop->thread.rfind("block", 0) == 0))
        place[loop->thread] = static_cast<int64_t>(names.at(loop->name));
    return place;
  }

  void write(const program::Store& store, const Point& spatial) {
    Point indices;
    for (const program::ExprPtr& index : store.indices) indices.push_back(index_of(*index, *this));
    const Exact value = stored(store.value->dtype, value_of(*store.value, *this), rounding);
    const int64_t element = place(store.buffer, indices, "writes");
    if (element < 0) return;
    if (products_ != nullptr) products_->updates.push_back({{store.buffer, element}, std::exchange(products_->reads, {})});
    Array& array = result_.arrays.at(store.buffer);
    array.values[element] = value;
    array.is_written[element] = true;
    ++array.writes[element];
    if (scopes_.at(store.buffer) != Buffer::Scope::global) places_[{store.buffer, element}] = place_of(store.buffer);
    const auto [first, is_new] = written_at_.try_emplace({block_, store.buffer, element}, spatial);
    if (!is_new && first->second != spatial)
      fault("writes", store.buffer, indices, "which it writes at another spatial point, too");
    for (Concurrent& c : concurrent_)
      if (c.conflicts_at_write(store.buffer, element))
        fault("writes", store.buffer, indices, "which another iteration of " + c.loop.name + " uses");
  }

  void check_written(const std::string& name, const Array& array) {
    const auto first = std::find(array.is_written.begin(), array.is_written.end(), false);
    if (first == array.is_written.end()) return;
    result_.faults.push_back("element " + std::to_string(first - array.is_written.begin()) + " of output " + name +
                             " is never written");
  }

  void run_body(const std::vector<Stmt>& body) {
    for (const Stmt& stmt : body) {
      if (const auto* loop = std::get_if<std::shared_ptr<const For>>(&stmt))
        run_loop(**loop);
      else
        run_block(*std::get<std::shared_ptr<const Block>>(stmt));
    }
  }

  void run_loop(const For& loop) {
    if (has_empty_reduction_) init_where_nothing_is_reduced(loop);
    if (loop.kind == For::Kind::pipeline) return run_pipelined(loop);
    if (loop.kind == For::Kind::tensorize) return run_products(loop);
    run_in_order(loop);
  }

  // The copies in front run stages - 1 iterations before the rest, each into one of as many buffers as there are stages.
  void run_pipelined(const For& loop) {
    std::set<std::string> allocations, copied;
    for (const Buffer& allocation : program_.allocations) allocations.insert(allocation.name);
    const auto copies = static_cast<std::ptrdiff_t>(count_copies(loop, allocations, copied));
    const int64_t extent = index_of(*loop.extent, *this);
    const std::vector<Stmt> front(loop.body.begin(), loop.body.begin() + copies), rest(loop.body.begin() + copies, loop.body.end());
    std::map<std::string, Array> unwritten;
    for (const std::string& name : copied) {
      Array& array = unwritten[name] = result_.arrays.at(name);
      array.is_written.assign(array.is_written.size(), false);
    }
    std::vector<std::map<std::string, Array>> versions(static_cast<size_t>(loop.stages), unwritten);
    const auto run_stage = [&](const std::vector<Stmt>& body, int64_t iteration) {
      std::map<std::string, Array>& version = versions[static_cast<size_t>(iteration % loop.stages)];
      for (auto& [name, array] : version) std::swap(array, result_.arrays.at(name));
      names[loop.name] = iteration;
      run_body(body);
      for (auto& [name, array] : version) std::swap(array, result_.arrays.at(name));
    };
    loops_.push_back(&loop);
    for (int64_t i = 0; i < extent + loop.stages - 1; ++i) {
      if (i < extent) versions[static_cast<size_t>(i % loop.stages)] = unwritten;
      if (i < extent) run_stage(front, i);
      if (i >= loop.stages - 1) run_stage(rest, i - loop.stages + 1);
    }
    names.erase(loop.name);
    loops_.pop_back();
  }

  void run_products(const For& loop) {
    Products products;
    Products* const outer = std::exchange(products_, &products);
    run_in_order(loop);
    products_ = outer;
    static const std::map<std::string, std::array<int64_t, 3>> kShapes = {
        {"mma.f16.f32", {16, 8, 16}}, {"mma.bf16.f32", {16, 8, 16}}, {"dot.i8.i32", {1, 1, 4}}};
    const std::array<int64_t, 3>& shape = kShapes.at(loop.intrinsic);
    if (!products.are(shape[0], shape[1], shape[2]) && told_.insert({block_, loop.intrinsic, loop.name}).second)
      result_.faults.push_back("loop " + loop.name + " is not the product " + loop.intrinsic);
  }

  void run_in_order(const For& loop) {
    const int64_t extent = index_of(*loop.extent, *this);
    const bool is_concurrent =
        loop.kind == For::Kind::parallel || loop.kind == For::Kind::vectorize || loop.kind == For::Kind::bind;
    if (is_concurrent) concurrent_.push_back({loop, own_allocations(loop)});
    loops_.push_back(&loop);
    for (int64_t i = 0; i < extent; ++i) {
      names[loop.name] = i;
      if (is_concurrent) concurrent_.back().iteration = i;
      run_body(loop.body);
    }
    names.erase(loop.name);
    loops_.pop_back();
    if (is_concurrent) concurrent_.pop_back();
  }

  std::set<std::string> own_allocations(const For& loop) const {
    std::set<std::string> own;
    const std::map<std::string, int> inside = count_accesses(loop.body);
    for (const Buffer& allocation : program_.allocations) {
      const auto found = inside.find(allocation.name);
      if (found != inside.end() && found->second == all_.at(allocation.name)) own.insert(allocation.name);
    }
    return own;
  }

  // Names the axes and runs the block, if its predicate holds.
  void run_block(const Block& block) {
    block_ = block.name;
    for (const Axis& axis : block.axes) names[axis.name] = index_of(*axis.binding, *this);
    if (block.predicate == nullptr || value_of(*block.predicate, *this) != 0) run_point(block);
    for (const Axis& axis : block.axes) names.erase(axis.name);
  }

  void run_point(const Block& block) {
    BlockRuns& runs = runs_of(block);
    Point point, spatial;
    int64_t updates = 1;
    for (size_t i = 0; i < block.axes.size(); ++i) {
      const Axis& axis = block.axes[i];
      const auto value = static_cast<int64_t>(names.at(axis.name));
      if (value < 0 || value >= runs.extents[i]) return fault("runs at", axis.name, {value}, "out of its extent");
      point.push_back(value);
      if (axis.kind == Axis::Kind::spatial)
        spatial.push_back(value);
      else
        updates *= runs.extents[i];
    }
    ++runs.points[point];
    // A reduction may be repeated as a whole: after the last update of a spatial point its next one is a first one again.
    if (!block.init.empty() && updates_[{block.name, spatial}]++ % updates == 0)
      for (const program::Store& store : block.init) write(store, spatial);
    for (const program::Store& store : block.body) write(store, spatial);
  }

  BlockRuns& runs_of(const Block& block) {
    const auto [found, is_new] = result_.blocks.try_emplace(block.name);
    if (!is_new) return found->second;
    for (const program::Store& store : block.body)
      for (const Buffer& tensor : program_.tensors)
        found->second.writes_tensors = found->second.writes_tensors || tensor.name == store.buffer;
    for (const Axis& axis : block.axes) {
      found->second.axes.push_back(axis.name);
      found->second.kinds.push_back(axis.kind);
      found->second.extents.push_back(index_of(*axis.extent, *this));
    }
    return found->second;
  }

  // ---- a reduction over nothing: its init still happens, where the outermost loop of its reduction axes begins ----

  void init_where_nothing_is_reduced(const For& loop) {
    visit_blocks(loop.body, [&](const Block& block) {
      if (!feeds(loop, block, false) || !reduces_nothing(block)) return;
      for (const For* outer : loops_)
        if (feeds(*outer, block, false)) return;
      init_below(loop, block);
    });
  }

  bool reduces_nothing(const Block& block) {
    return !block.init.empty() && std::any_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) {
      return axis.kind != Axis::Kind::spatial && index_of(*axis.extent, *this) == 0;
    });
  }

  // Runs the loops from this one down to the block, those of reduction axes once.
  void init_below(const For& loop, const Block& block) {
    const bool reduces = feeds(loop, block, false);
    if (reduces && feeds(loop, block, true))
      throw std::invalid_argument("the reference cannot tell the spatial points of " + block.name + ": loop " + loop.name +
                                  " feeds both kinds of axes, and nothing is reduced");
    const int64_t extent = reduces ? 1 : index_of(*loop.extent, *this);
    loops_.push_back(&loop);
    for (int64_t i = 0; i < extent; ++i) {
      names[loop.name] = i;
      for (const Stmt& stmt : loop.body) init_in(stmt, block);
    }
    names.erase(loop.name);
    loops_.pop_back();
  }

  void init_in(const Stmt& stmt, const Block& block) {
    if (const auto* inner = std::get_if<std::shared_ptr<const For>>(&stmt)) {
      bool holds = false;
      visit_blocks((*inner)->body, [&](const Block& other) { holds = holds || &other == &block; });
      if (holds) init_below(**inner, block);
    } else if (std::get<std::shared_ptr<const Block>>(stmt).get() == &block) {
      init_point(block);
    }
  }

  void init_point(const Block& block) {
    block_ = block.name;
    Point spatial;
    bool is_inside = true;
    for (const Axis& axis : block.axes) {
      const int64_t value = index_of(*axis.binding, *this);
      names[axis.name] = value;
      if (axis.kind != Axis::Kind::spatial) continue;
      spatial.push_back(value);
      is_inside = is_inside && value >= 0 && value < index_of(*axis.extent, *this);
    }
    if (is_inside)
      for (const program::Store& store : block.init) write(store, spatial);
    for (const Axis& axis : block.axes) names.erase(axis.name);
  }

  const Program& program_;
  const std::map<std::string, int> all_;  // accesses of each buffer in the whole program
  Evaluation result_;
  std::map<std::string, Buffer::Scope> scopes_;
  std::map<std::pair<std::string, int64_t>, std::map<std::string, int64_t>>
      places_;  // of shared and local elements: who wrote them
  bool has_empty_reduction_ = false;
  std::string block_;             // the one that runs
  Products* products_ = nullptr;  // of the tensorized loop that runs
  std::vector<const For*> loops_;
  std::vector<Concurrent> concurrent_;
  std::map<std::pair<std::string, Point>, int64_t> updates_;                   // of a block's spatial point
  std::map<std::tuple<std::string, std::string, int64_t>, Point> written_at_;  // block, buffer, element
  std::set<std::tuple<std::string, std::string, std::string>> told_;
};

}  // namespace

Evaluation evaluate(const Program& program, const Arguments& arguments, Rounding rounding) {
  return Machine(program, arguments, rounding).run();
}

}  // namespace narrows::reference
