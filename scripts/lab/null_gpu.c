// A Vulkan layer that makes a usable device of RADV without hardware: the driver compiles for a GPU that is not there, and
// this layer answers what the GPU would. Memory is pages of the host, command buffers and submissions do nothing, all that is
// waited for has happened. For each compute pipeline it writes what the compiler made of it into the file HOLDFAST_LAB_OUT.
// Not an emulator: every value that a shader computes stays what it was. One instance and one device at a time.

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static VkInstance instance;
static VkDevice device;
static PFN_vkGetInstanceProcAddr next_of_instance;
static PFN_vkGetDeviceProcAddr next_of_device;

#define NEXT_I(name) ((PFN_##name)next_of_instance(instance, #name))
#define NEXT_D(name) ((PFN_##name)next_of_device(device, #name))

// ---- What the compiler made ------------------------------------------------------------------------------------

static void write_number(FILE *out, const VkPipelineExecutableStatisticKHR *statistic) {
  switch (statistic->format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR: fprintf(out, "%g", statistic->value.f64); break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: fprintf(out, "%lld", (long long)statistic->value.i64); break;
    default: fprintf(out, "%llu", (unsigned long long)statistic->value.u64);
  }
}

// Lines `wave N`, `statistic NAME = VALUE`, then `code`, the text of the machine code, `end`.
static void describe(FILE *out, VkPipeline pipeline) {
  VkPipelineInfoKHR of = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
  uint32_t count = 1; // a compute pipeline is one executable
  VkPipelineExecutablePropertiesKHR properties = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
  NEXT_D(vkGetPipelineExecutablePropertiesKHR)(device, &of, &count, &properties);
  fprintf(out, "wave %u\n", properties.subgroupSize);

  VkPipelineExecutableInfoKHR executable = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
  count = 0;
  NEXT_D(vkGetPipelineExecutableStatisticsKHR)(device, &executable, &count, NULL);
  VkPipelineExecutableStatisticKHR *statistics = calloc(count, sizeof *statistics);
  for (uint32_t i = 0; i < count; i++) statistics[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  NEXT_D(vkGetPipelineExecutableStatisticsKHR)(device, &executable, &count, statistics);
  for (uint32_t i = 0; i < count; i++) {
    fprintf(out, "statistic %s = ", statistics[i].name);
    write_number(out, &statistics[i]);
    fputc('\n', out);
  }
  free(statistics);

  count = 0;
  NEXT_D(vkGetPipelineExecutableInternalRepresentationsKHR)(device, &executable, &count, NULL);
  VkPipelineExecutableInternalRepresentationKHR *texts = calloc(count, sizeof *texts);
  for (uint32_t i = 0; i < count; i++) texts[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
  NEXT_D(vkGetPipelineExecutableInternalRepresentationsKHR)(device, &executable, &count, texts);
  for (uint32_t i = 0; i < count; i++) texts[i].pData = calloc(texts[i].dataSize + 1, 1);
  NEXT_D(vkGetPipelineExecutableInternalRepresentationsKHR)(device, &executable, &count, texts);
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(texts[i].name, "Assembly") == 0) fprintf(out, "code\n%s\nend\n", (const char *)texts[i].pData);
    free(texts[i].pData);
  }
  free(texts);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_compute_pipelines(VkDevice d, VkPipelineCache cache, uint32_t count,
    const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *allocator, VkPipeline *pipelines) {
  VkComputePipelineCreateInfo *captured = malloc(count * sizeof *captured);
  memcpy(captured, infos, count * sizeof *captured);
  for (uint32_t i = 0; i < count; i++) {
    captured[i].flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  }
  VkResult result = NEXT_D(vkCreateComputePipelines)(d, cache, count, captured, allocator, pipelines);
  free(captured);
  const char *path = getenv("HOLDFAST_LAB_OUT");
  if (result != VK_SUCCESS || !path) return result;
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one_at_a_time);
  FILE *out = fopen(path, "a");
  for (uint32_t i = 0; out && i < count; i++) describe(out, pipelines[i]);
  if (out) fclose(out);
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}

// ---- What the GPU would do -------------------------------------------------------------------------------------

static VKAPI_ATTR VkResult VKAPI_CALL done(void) { return VK_SUCCESS; }

typedef struct { void *pages; size_t bytes; } Memory;

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice d, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *a, VkDeviceMemory *memory) {
  Memory *made = malloc(sizeof *made);
  made->bytes = info->allocationSize;
  made->pages = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made->pages == MAP_FAILED) { free(made); return VK_ERROR_OUT_OF_DEVICE_MEMORY; }
  *memory = (VkDeviceMemory)made;
  return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice d, VkDeviceMemory memory, const VkAllocationCallbacks *a) {
  Memory *freed = (Memory *)memory;
  if (freed) munmap(freed->pages, freed->bytes);
  free(freed);
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice d, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize bytes, VkMemoryMapFlags flags, void **at) {
  *at = (char *)((Memory *)memory)->pages + offset;
  return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_handle(VkDevice d, const void *info, const VkAllocationCallbacks *a, void **handle) {
  *handle = malloc(1);
  return *handle ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy_handle(VkDevice d, void *handle, const VkAllocationCallbacks *a) { free(handle); }

typedef struct { const char *name; void *does; } Answer;
static const Answer ANSWERS[] = {
  {"vkCreateComputePipelines", create_compute_pipelines},
  {"vkAllocateMemory", allocate_memory}, {"vkFreeMemory", free_memory},
  {"vkMapMemory", map_memory}, {"vkUnmapMemory", done},
  {"vkFlushMappedMemoryRanges", done}, {"vkInvalidateMappedMemoryRanges", done},
  {"vkBindBufferMemory", done}, {"vkBindBufferMemory2", done}, {"vkBindBufferMemory2KHR", done},
  {"vkUpdateDescriptorSets", done},
  {"vkCreateFence", create_handle}, {"vkDestroyFence", destroy_handle}, {"vkResetFences", done},
  {"vkGetFenceStatus", done}, {"vkWaitForFences", done},
  {"vkCreateSemaphore", create_handle}, {"vkDestroySemaphore", destroy_handle},
  {"vkBeginCommandBuffer", done}, {"vkEndCommandBuffer", done}, {"vkResetCommandBuffer", done}, {"vkResetCommandPool", done},
  {"vkQueueSubmit", done}, {"vkQueueSubmit2", done}, {"vkQueueSubmit2KHR", done},
  {"vkQueueWaitIdle", done}, {"vkDeviceWaitIdle", done},
};

static void *answer_to(const char *name) {
  for (size_t i = 0; i < sizeof ANSWERS / sizeof *ANSWERS; i++) {
    if (strcmp(ANSWERS[i].name, name) == 0) return ANSWERS[i].does;
  }
  return strncmp(name, "vkCmd", 5) == 0 ? done : NULL;
}

// ---- The layer -------------------------------------------------------------------------------------------------

// What the loader hands down the chain of layers, so that each finds the next.
#define LINK(info, type)                                                                                                  \
  type *link = (type *)(info)->pNext;                                                                                      \
  while (link && !(link->sType == LINK_TYPE && link->function == VK_LAYER_LINK_INFO)) link = (type *)link->pNext;          \
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator, VkInstance *made) {
#define LINK_TYPE VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO
  LINK(info, VkLayerInstanceCreateInfo)
#undef LINK_TYPE
  next_of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  VkResult result = ((PFN_vkCreateInstance)next_of_instance(NULL, "vkCreateInstance"))(info, allocator, made);
  if (result == VK_SUCCESS) instance = *made;
  return result;
}

// With the extension that tells what was compiled.
static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *allocator, VkDevice *made) {
#define LINK_TYPE VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO
  LINK(info, VkLayerDeviceCreateInfo)
#undef LINK_TYPE
  PFN_vkGetInstanceProcAddr above = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  next_of_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;

  uint32_t count = info->enabledExtensionCount;
  const char **names = malloc((count + 1) * sizeof *names);
  memcpy(names, info->ppEnabledExtensionNames, count * sizeof *names);
  names[count] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR features = {
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
    .pNext = (void *)info->pNext,
    .pipelineExecutableInfo = VK_TRUE,
  };
  VkDeviceCreateInfo changed = *info;
  changed.pNext = &features;
  changed.enabledExtensionCount = count + 1;
  changed.ppEnabledExtensionNames = names;
  VkResult result = ((PFN_vkCreateDevice)above(instance, "vkCreateDevice"))(physical, &changed, allocator, made);
  free(names);
  if (result == VK_SUCCESS) device = *made;
  return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_device(VkDevice d, const char *name) {
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)of_device;
  PFN_vkVoidFunction drivers = next_of_device(d, name);
  return drivers && answer_to(name) ? (PFN_vkVoidFunction)answer_to(name) : drivers;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL of_instance(VkInstance i, const char *name) {
  if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
  if (strcmp(name, "vkCreateDevice") == 0) return (PFN_vkVoidFunction)create_device;
  if (strcmp(name, "vkGetInstanceProcAddr") == 0) return (PFN_vkVoidFunction)of_instance;
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)of_device;
  if (answer_to(name)) return (PFN_vkVoidFunction)answer_to(name);
  return next_of_instance ? next_of_instance(i, name) : NULL;
}

VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface) {
  interface->loaderLayerInterfaceVersion = 2;
  interface->pfnGetInstanceProcAddr = of_instance;
  interface->pfnGetDeviceProcAddr = of_device;
  interface->pfnGetPhysicalDeviceProcAddr = NULL;
  return VK_SUCCESS;
}
