#include "api/call.h"
#include "api/state.h"
#include "graph/graph.h"

#include <thread>

// User objects: references to something of the program, which graphs can keep.

namespace soft {
namespace {

using UserObjectPtr = std::shared_ptr<UserObject>;
using OwnedObjectPtr = std::shared_ptr<OwnedObject>;

OwnedObjectPtr find_object(CUuserObject handle) {
    return state().user_objects.find(reinterpret_cast<uintptr_t>(handle));
}

} // namespace

// The function of the program runs on a thread of the driver, because the state lock is held here.
UserObject::~UserObject() {
    state().user_objects.erase(reinterpret_cast<uintptr_t>(handle));
    state().chooser.limit(explore::Limit::UserObject);
    std::thread([destroy = destroy, data = data] {
        in_callback = true;
        destroy(data);
    }).detach();
}

SOFT_API(cuUserObjectCreate,
         (CUuserObject * result, void *data, CUhostFn destroy, unsigned count, unsigned flags),
         (result, data, destroy, count, flags)) {
    if (!result || !destroy || !count || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<UserObject>();
    object->destroy = destroy;
    object->data = data;
    auto owned = std::make_shared<OwnedObject>();
    owned->object = owned->kept = object;
    owned->count = count;
    object->handle =
        reinterpret_cast<CUuserObject>(state().user_objects.insert(owned, state().reuse()));
    *result = object->handle;
    return CUDA_SUCCESS;
}

SOFT_API(cuUserObjectRetain, (CUuserObject handle, unsigned count), (handle, count)) {
    OwnedObjectPtr owned = find_object(handle);
    if (!owned || !count)
        return CUDA_ERROR_INVALID_VALUE;
    owned->kept = owned->object.lock();
    owned->count += count;
    return CUDA_SUCCESS;
}

SOFT_API(cuUserObjectRelease, (CUuserObject handle, unsigned count), (handle, count)) {
    OwnedObjectPtr owned = find_object(handle);
    if (!owned || !count || count > owned->count)
        return CUDA_ERROR_INVALID_VALUE;
    owned->count -= count;
    if (!owned->count)
        owned->kept = nullptr;
    return CUDA_SUCCESS;
}

SOFT_API(cuGraphRetainUserObject,
         (CUgraph handle, CUuserObject object, unsigned count, unsigned flags),
         (handle, object, count, flags)) {
    GraphPtr graph = find_graph(handle);
    OwnedObjectPtr owned = find_object(object);
    bool moves = flags & CU_GRAPH_USER_OBJECT_MOVE;
    if (!graph || !owned || !count || (flags & ~unsigned(CU_GRAPH_USER_OBJECT_MOVE)) ||
        (moves && count > owned->count))
        return CUDA_ERROR_INVALID_VALUE;
    graph->objects[owned->object.lock()] += count;
    return moves ? cuUserObjectRelease_body(call, object, count) : CUDA_SUCCESS;
}

SOFT_API(cuGraphReleaseUserObject, (CUgraph handle, CUuserObject object, unsigned count),
         (handle, object, count)) {
    GraphPtr graph = find_graph(handle);
    OwnedObjectPtr owned = find_object(object);
    if (!graph || !owned || !count)
        return CUDA_ERROR_INVALID_VALUE;
    auto kept = graph->objects.find(owned->object.lock());
    if (kept == graph->objects.end() || kept->second < count)
        return CUDA_ERROR_INVALID_VALUE;
    kept->second -= count;
    if (!kept->second)
        graph->objects.erase(kept);
    return CUDA_SUCCESS;
}

} // namespace soft
