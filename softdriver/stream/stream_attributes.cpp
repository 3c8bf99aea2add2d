#include "stream/stream_attributes.h"
#include "api/call.h"

#include "api/state.h"
#include "device/device_attributes.h"

#include <algorithm>
#include <cstring>

namespace soft {
namespace {

bool valid(const CUaccessPolicyWindow &window) {
    auto known = [](CUaccessProperty property) {
        return property >= CU_ACCESS_PROPERTY_NORMAL && property <= CU_ACCESS_PROPERTY_PERSISTING;
    };
    return window.num_bytes <= size_t(max_policy_window) && window.hitRatio >= 0 &&
           window.hitRatio <= 1 && known(window.hitProp) && known(window.missProp) &&
           window.missProp != CU_ACCESS_PROPERTY_PERSISTING;
}

bool valid(const CUlaunchMemSyncDomainMap &map) {
    return map.default_ < memory_sync_domains && map.remote < memory_sync_domains;
}

CUresult read_attribute(const Stream &stream, CUstreamAttrID attribute, CUstreamAttrValue &value) {
    const StreamAttributes &attributes = stream.attributes;
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value.accessPolicyWindow = attributes.window;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        std::memcpy(&value.syncPolicy, &attributes.policy, sizeof(value.syncPolicy));
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value.priority = stream.priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value.memSyncDomainMap = attributes.domains;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value.memSyncDomain = attributes.domain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

template <class Value> CUresult set(Value &target, const Value &value, bool valid) {
    if (!valid)
        return CUDA_ERROR_INVALID_VALUE;
    target = value;
    return CUDA_SUCCESS;
}

CUresult write_attribute(Stream &stream, CUstreamAttrID attribute, const CUstreamAttrValue &value) {
    StreamAttributes &attributes = stream.attributes;
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return set(attributes.window, value.accessPolicyWindow, valid(value.accessPolicyWindow));
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return set(attributes.policy, static_cast<int>(value.syncPolicy),
                   value.syncPolicy >= CU_SYNC_POLICY_AUTO &&
                       value.syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        stream.priority = std::clamp(value.priority, greatest_priority, least_priority);
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return set(attributes.domains, value.memSyncDomainMap, valid(value.memSyncDomainMap));
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return set(attributes.domain, value.memSyncDomain,
                   value.memSyncDomain >= CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
                       value.memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

} // namespace

SOFT_STREAM_API(cuStreamGetAttribute,
                (CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value),
                (handle, attribute, value)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    return value ? read_attribute(*stream, attribute, *value) : CUDA_ERROR_INVALID_VALUE;
}

SOFT_STREAM_API(cuStreamSetAttribute,
                (CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value),
                (handle, attribute, value)) {
    StreamPtr stream;
    if (CUresult status = resolve_stream(call, handle, stream))
        return status;
    return value ? write_attribute(*stream, attribute, *value) : CUDA_ERROR_INVALID_VALUE;
}

SOFT_STREAM_API(cuStreamCopyAttributes, (CUstream target_handle, CUstream source_handle),
                (target_handle, source_handle)) {
    StreamPtr target, source;
    if (CUresult status = resolve_stream(call, target_handle, target))
        return status;
    if (CUresult status = resolve_stream(call, source_handle, source))
        return status;
    if (target->owner != source->owner)
        return CUDA_ERROR_INVALID_VALUE;
    target->attributes = source->attributes;
    target->priority = source->priority;
    return CUDA_SUCCESS;
}

} // namespace soft
