// A CUDA card that is a program: as much of CUDA's runtime and driver as TVM's runtime asks for, on the processor.
//
// It plays what can go wrong on a real card: memory of the card is closed to the host (a touch ends the process), and
// what is launched runs when it is waited for, not before. Its times say nothing. Kernels come from `nvcc` beside it.
// The file PLAYED_LOG, a name that it is compiled with, gets the name of each kernel that ran; the environment's
// PLAYED_CUDA_CARDS is how many cards there are (1).

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

struct Three {
  unsigned x, y, z;
};

extern "C" {
Three played_thread, played_block, played_block_size, played_grid_size;
}

namespace {

constexpr size_t kStack = 1 << 16, kLanes = 32, kSlot = 16;
enum State { kReady, kAtBlock, kAtWarp, kDone };

std::map<char*, size_t>& Memory() {
  static auto* found = new std::map<char*, size_t>();
  return *found;
}

// The memory of the card, for as long as the card works.
struct Opened {
  Opened() { Protect(PROT_READ | PROT_WRITE); }
  ~Opened() { Protect(PROT_NONE); }
  static void Protect(int how) {
    for (auto& [start, size] : Memory()) mprotect(start, size, how);
  }
};

std::vector<std::function<void()>>& Waiting() {
  static auto* found = new std::vector<std::function<void()>>();
  return *found;
}

void Work() {
  Opened opened;
  auto waiting = std::move(Waiting());
  Waiting().clear();
  for (auto& one : waiting) one();
}

// The threads of a block take turns.
ucontext_t scheduler;
std::vector<ucontext_t> threads;
std::vector<State> states;
std::vector<char> slots;
char* stacks = nullptr;
size_t current = 0;
const std::function<void()>* body = nullptr;

void Enter() {
  (*body)();
  states[current] = kDone;
  swapcontext(&threads[current], &scheduler);
}

void Wait(State state) {
  size_t mine = current;
  states[mine] = state;
  swapcontext(&threads[mine], &scheduler);
}

void RunBlock(Three size, const std::function<void()>& call) {
  size_t count = size_t(size.x) * size.y * size.z;
  if (!stacks) {
    stacks = static_cast<char*>(
        mmap(nullptr, kStack * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  threads.assign(count, {});
  states.assign(count, kReady);
  slots.assign(count * kSlot, 0);
  body = &call;
  for (size_t one = 0; one < count; ++one) {
    getcontext(&threads[one]);
    threads[one].uc_stack.ss_sp = stacks + one * kStack;
    threads[one].uc_stack.ss_size = kStack;
    threads[one].uc_link = &scheduler;
    makecontext(&threads[one], Enter, 0);
  }
  while (true) {
    for (current = 0; current < count; ++current) {
      if (states[current] != kReady) continue;
      played_thread = {unsigned(current % size.x), unsigned(current / size.x % size.y),
                       unsigned(current / (size_t(size.x) * size.y))};
      swapcontext(&scheduler, &threads[current]);
    }
    bool warp = false, block = false;
    for (State& state : states) warp = warp || state == kAtWarp;
    for (State& state : states) {
      if (state == (warp ? kAtWarp : kAtBlock)) state = kReady, block = true;
    }
    if (!block) return;
  }
}

struct Function {
  void* call;
  int count;
  std::string name;
};

struct Event {
  int64_t at_ns;
};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using Word = uint64_t;
using Call = void (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
constexpr int kMostWords = 16;

void Launch(const Function& function, Three grid, Three block, std::vector<Word> a) {
  played_grid_size = grid;
  played_block_size = block;
  a.resize(kMostWords);
  std::function<void()> call = [&] {
    reinterpret_cast<Call>(function.call)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                                          a[12], a[13], a[14], a[15]);
  };
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        played_block = {x, y, z};
        RunBlock(block, call);
      }
    }
  }
  if (FILE* file = fopen(PLAYED_LOG, "a")) {
    fprintf(file, "%s\n", function.name.c_str());
    fclose(file);
  }
}

int Cards() {
  const char* told = getenv("PLAYED_CUDA_CARDS");
  return told ? atoi(told) : 1;
}

}  // namespace

extern "C" {

void played_sync() { Wait(kAtBlock); }

void played_exchange(const void* mine, void* found, size_t size, unsigned lane) {
  size_t warp = current / kLanes * kLanes, last = states.size() - 1;
  size_t from = warp + lane > last ? current : warp + lane;
  memcpy(&slots[current * kSlot], mine, size);
  Wait(kAtWarp);
  memcpy(found, &slots[from * kSlot], size);
  Wait(kAtWarp);
}

unsigned played_lane() { return current % kLanes; }

// The driver.

struct Config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void* stream;
  void* attributes;
  unsigned count;
};

int cuDeviceGetName(char* name, int size, int) {
  snprintf(name, size, "A CUDA card that is a program");
  return 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuGetErrorName(int, const char** told) {
  *told = "PLAYED_ERROR";
  return 0;
}
int cuGetErrorString(int, const char** told) { return cuGetErrorName(0, told); }

int cuModuleLoadData(void** module, const void* image) {
  auto* head = static_cast<const Elf64_Ehdr*>(image);
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return 200;
  char path[] = "/tmp/played-cuda-XXXXXX";
  int file = mkstemp(path);
  size_t size = head->e_shoff + size_t(head->e_shnum) * head->e_shentsize;
  bool whole = file >= 0 && write(file, image, size) == ssize_t(size);
  close(file);
  *module = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!*module) fprintf(stderr, "played CUDA: %s\n", dlerror());
  return *module ? 0 : 200;
}
int cuModuleUnload(void*) { return 0; }

int cuModuleGetFunction(void** function, void* module, const char* name) {
  void* call = dlsym(module, name);
  int* count = static_cast<int*>(dlsym(module, (std::string("played_count_") + name).c_str()));
  if (!call || !count || *count > kMostWords) return 500;
  *function = new Function{call, *count, name};
  return 0;
}

int cuLaunchKernelEx(const Config* config, void* function, void** arguments, void**) {
  auto* meant = static_cast<Function*>(function);
  Three grid{config->grid_x, config->grid_y, config->grid_z};
  Three block{config->block_x, config->block_y, config->block_z};
  if (size_t(block.x) * block.y * block.z > 1024 || config->shared_bytes) return 1;
  std::vector<Word> words;
  for (int one = 0; one < meant->count; ++one) words.push_back(*static_cast<Word*>(arguments[one]));
  Waiting().push_back([=] { Launch(*meant, grid, block, words); });
  return 0;
}
int cuTensorMapEncodeTiled() { return 801; }

// The runtime.

int cudaGetDeviceCount(int* count) {
  *count = Cards();
  return *count ? 0 : 100;
}
int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cudaSetDevice(int device) { return device < Cards() ? 0 : 101; }

int cudaDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, int> told = {{1, 1024},     {2, 1024}, {3, 1024}, {4, 64}, {8, 49152}, {10, 32},
                                          {12, 65536},   {16, 4},   {38, 4194304},      {75, 8},    {76, 6},
                                          {97, 101376}};
  auto found = told.find(attribute);
  *value = found == told.end() ? 0 : found->second;
  return 0;
}
int cudaGetDeviceProperties(char* properties, int) {
  memset(properties, 0, 296);
  size_t total = size_t(2) << 30;
  memcpy(properties + 288, &total, sizeof total);
  return 0;
}
int cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = size_t(2) << 30;
  return 0;
}

int cudaMalloc(void** found, size_t size) {
  size = (size + 4095) / 4096 * 4096 + (size ? 0 : 4096);
  void* made = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return 2;
  Memory()[static_cast<char*>(made)] = size;
  *found = made;
  return 0;
}
int cudaFree(void* what) {
  Work();
  auto found = Memory().find(static_cast<char*>(what));
  if (found == Memory().end()) return what ? 1 : 0;
  munmap(found->first, found->second);
  Memory().erase(found);
  return 0;
}
int cudaMallocHost(void** found, size_t size) {
  *found = aligned_alloc(256, (size + 255) / 256 * 256);
  return *found ? 0 : 2;
}
int cudaFreeHost(void* what) {
  free(what);
  return 0;
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void*) {
  if (kind == 3) {  // from the card to itself
    Waiting().push_back([=] { memcpy(to, from, size); });
    return 0;
  }
  Work();
  Opened opened;
  memcpy(to, from, size);
  return 0;
}
int cudaMemcpyPeerAsync() { return 801; }

int cudaStreamCreate(void** stream) {
  *stream = nullptr;
  return 0;
}
int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(void*) { return 0; }
int cudaStreamSynchronize(void*) {
  Work();
  return 0;
}
int cudaStreamWaitEvent(void*, void*, unsigned) { return 0; }

int cudaEventCreate(void** event) {
  *event = new Event{0};
  return 0;
}
int cudaEventDestroy(void* event) {
  Work();
  delete static_cast<Event*>(event);
  return 0;
}
int cudaEventRecord(void* event, void*) {
  Waiting().push_back([=] { static_cast<Event*>(event)->at_ns = Now(); });
  return 0;
}
int cudaEventSynchronize(void*) {
  Work();
  return 0;
}
int cudaEventElapsedTime(float* found, void* first, void* second) {
  *found = float(static_cast<Event*>(second)->at_ns - static_cast<Event*>(first)->at_ns) / 1e6f;
  return 0;
}

const char* cudaGetErrorName(int) { return "PLAYED_ERROR"; }
const char* cudaGetErrorString(int) { return "the program that plays a card refused it"; }
int cudaGetLastError() { return 0; }
int cudaPeekAtLastError() { return 0; }

int cudaGraphDestroy() { return 801; }
int cudaGraphExecDestroy() { return 801; }
int cudaGraphInstantiate() { return 801; }
int cudaGraphLaunch() { return 801; }
int cudaStreamBeginCapture() { return 801; }
int cudaStreamEndCapture() { return 801; }

}  // extern "C"
