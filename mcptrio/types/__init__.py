"""What handlers see: the data of the protocol as frozen, keyword-only classes, one for all revisions."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .annotations import Annotations
    from .base import (
        NULL,
        CacheScope,
        InputResponseParams,
        JsonObject,
        Null,
        Params,
        PingParams,
        ProgressToken,
        Record,
        RequestId,
        Role,
    )
    from .client_capabilities import (
        ClientCapabilities,
        ElicitationCapability,
        RootsCapability,
        SamplingCapability,
    )
    from .completion import (
        REFERENCE_BY_TYPE,
        CompleteParams,
        CompleteResult,
        Completion,
        CompletionArgument,
        CompletionContext,
        CompletionReference,
        PromptReference,
        ResourceTemplateReference,
    )
    from .content import (
        CONTENT_BY_TYPE,
        SAMPLING_CONTENT_BY_TYPE,
        AudioContent,
        ContentBlock,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        SamplingContent,
        TextContent,
        ToolResultContent,
        ToolUseContent,
        UnknownContent,
    )
    from .contents import (
        BlobResourceContents,
        ResourceContents,
        TextResourceContents,
    )
    from .elicitation import (
        ElicitationCompleteParams,
        ElicitParams,
        ElicitResult,
    )
    from .error_data import (
        MissingClientCapabilityData,
        UnsupportedProtocolVersionData,
        UrlElicitationRequiredData,
    )
    from .helpers import (
        Audio,
        ContentLike,
        Image,
        Link,
        Message,
        assistant,
        to_content,
        user,
    )
    from .icons import Icon
    from .levels import (
        LOGGING_LEVELS,
        LoggingLevel,
    )
    from .lifecycle import (
        DiscoverParams,
        Implementation,
        InitializedParams,
        InitializeParams,
    )
    from .lifecycle_results import (
        DiscoverResult,
        InitializeResult,
    )
    from .logging import (
        LoggingMessageParams,
        SetLevelParams,
    )
    from .meta import (
        NotificationMeta,
        RequestMeta,
        ResultMeta,
    )
    from .pages import (
        ListPromptsParams,
        ListResourcesParams,
        ListResourceTemplatesParams,
        ListToolsParams,
        PaginatedParams,
    )
    from .progress import (
        CancelledParams,
        ProgressParams,
    )
    from .prompts import (
        GetPromptParams,
        GetPromptResult,
        ListPromptsResult,
        Prompt,
        PromptArgument,
        PromptListChangedParams,
        PromptMessage,
    )
    from .resource_params import (
        ReadResourceParams,
        ResourceListChangedParams,
        ResourceUpdatedParams,
        SubscribeParams,
        UnsubscribeParams,
    )
    from .resource_results import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
    )
    from .resources import (
        Resource,
        ResourceTemplate,
    )
    from .result import (
        CacheableResult,
        EmptyResult,
        PaginatedResult,
        Result,
    )
    from .roots import (
        ListRootsParams,
        ListRootsResult,
        Root,
        RootsListChangedParams,
    )
    from .round_trips import (
        INPUT_PARAMS_BY_METHOD,
        INPUT_RESULT_BY_METHOD,
        InputRequest,
        InputRequests,
        InputRequiredResult,
        InputResponses,
    )
    from .sampling import (
        CreateMessageParams,
        CreateMessageResult,
        ModelHint,
        ModelPreferences,
        SamplingMessage,
        ToolChoice,
    )
    from .server_capabilities import (
        PromptsCapability,
        ResourcesCapability,
        ServerCapabilities,
        ToolsCapability,
    )
    from .subscriptions import (
        SubscriptionFilter,
        SubscriptionsAcknowledgedParams,
        SubscriptionsListenParams,
        SubscriptionsListenResult,
    )
    from .tool_params import (
        CallToolParams,
        ToolListChangedParams,
    )
    from .tool_results import (
        CallToolResult,
        ListToolsResult,
    )
    from .tools import (
        Tool,
        ToolAnnotations,
        ToolExecution,
    )

__all__ = [
    "CONTENT_BY_TYPE",
    "INPUT_PARAMS_BY_METHOD",
    "INPUT_RESULT_BY_METHOD",
    "LOGGING_LEVELS",
    "NULL",
    "REFERENCE_BY_TYPE",
    "SAMPLING_CONTENT_BY_TYPE",
    "Annotations",
    "Audio",
    "AudioContent",
    "BlobResourceContents",
    "CacheScope",
    "CacheableResult",
    "CallToolParams",
    "CallToolResult",
    "CancelledParams",
    "ClientCapabilities",
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "ContentBlock",
    "ContentLike",
    "CreateMessageParams",
    "CreateMessageResult",
    "DiscoverParams",
    "DiscoverResult",
    "ElicitParams",
    "ElicitResult",
    "ElicitationCapability",
    "ElicitationCompleteParams",
    "EmbeddedResource",
    "EmptyResult",
    "GetPromptParams",
    "GetPromptResult",
    "Icon",
    "Image",
    "ImageContent",
    "Implementation",
    "InitializeParams",
    "InitializeResult",
    "InitializedParams",
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponseParams",
    "InputResponses",
    "JsonObject",
    "Link",
    "ListPromptsParams",
    "ListPromptsResult",
    "ListResourceTemplatesParams",
    "ListResourceTemplatesResult",
    "ListResourcesParams",
    "ListResourcesResult",
    "ListRootsParams",
    "ListRootsResult",
    "ListToolsParams",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageParams",
    "Message",
    "MissingClientCapabilityData",
    "ModelHint",
    "ModelPreferences",
    "NotificationMeta",
    "Null",
    "PaginatedParams",
    "PaginatedResult",
    "Params",
    "PingParams",
    "ProgressParams",
    "ProgressToken",
    "Prompt",
    "PromptArgument",
    "PromptListChangedParams",
    "PromptMessage",
    "PromptReference",
    "PromptsCapability",
    "ReadResourceParams",
    "ReadResourceResult",
    "Record",
    "RequestId",
    "RequestMeta",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceListChangedParams",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedParams",
    "ResourcesCapability",
    "Result",
    "ResultMeta",
    "Role",
    "Root",
    "RootsCapability",
    "RootsListChangedParams",
    "SamplingCapability",
    "SamplingContent",
    "SamplingMessage",
    "ServerCapabilities",
    "SetLevelParams",
    "SubscribeParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedParams",
    "SubscriptionsListenParams",
    "SubscriptionsListenResult",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolListChangedParams",
    "ToolResultContent",
    "ToolUseContent",
    "ToolsCapability",
    "UnknownContent",
    "UnsubscribeParams",
    "UnsupportedProtocolVersionData",
    "UrlElicitationRequiredData",
    "assistant",
    "to_content",
    "user",
]

# Where each of them is: to build a class takes longer than most servers take to use it, and they use few of them.
_HOME: Final = {
    name: module
    for module, names in {
        "annotations": "Annotations",
        "base": (
            "NULL CacheScope InputResponseParams JsonObject Null Params PingParams ProgressToken Record RequestId Role"
        ),
        "client_capabilities": "ClientCapabilities ElicitationCapability RootsCapability SamplingCapability",
        "completion": (
            "REFERENCE_BY_TYPE CompleteParams CompleteResult Completion CompletionArgument CompletionContext "
            "CompletionReference PromptReference ResourceTemplateReference"
        ),
        "content": (
            "CONTENT_BY_TYPE SAMPLING_CONTENT_BY_TYPE AudioContent ContentBlock EmbeddedResource ImageContent "
            "ResourceLink SamplingContent TextContent ToolResultContent ToolUseContent UnknownContent"
        ),
        "contents": "BlobResourceContents ResourceContents TextResourceContents",
        "elicitation": "ElicitParams ElicitResult ElicitationCompleteParams",
        "error_data": "MissingClientCapabilityData UnsupportedProtocolVersionData UrlElicitationRequiredData",
        "helpers": "Audio ContentLike Image Link Message assistant to_content user",
        "icons": "Icon",
        "levels": "LOGGING_LEVELS LoggingLevel",
        "lifecycle": "DiscoverParams Implementation InitializeParams InitializedParams",
        "lifecycle_results": "DiscoverResult InitializeResult",
        "logging": "LoggingMessageParams SetLevelParams",
        "meta": "NotificationMeta RequestMeta ResultMeta",
        "pages": ("ListPromptsParams ListResourceTemplatesParams ListResourcesParams ListToolsParams PaginatedParams"),
        "progress": "CancelledParams ProgressParams",
        "prompts": (
            "GetPromptParams GetPromptResult ListPromptsResult Prompt PromptArgument "
            "PromptListChangedParams PromptMessage"
        ),
        "resource_params": (
            "ReadResourceParams ResourceListChangedParams ResourceUpdatedParams SubscribeParams UnsubscribeParams"
        ),
        "resource_results": "ListResourceTemplatesResult ListResourcesResult ReadResourceResult",
        "resources": "Resource ResourceTemplate",
        "result": "CacheableResult EmptyResult PaginatedResult Result",
        "roots": "ListRootsParams ListRootsResult Root RootsListChangedParams",
        "round_trips": (
            "INPUT_PARAMS_BY_METHOD INPUT_RESULT_BY_METHOD InputRequest InputRequests InputRequiredResult "
            "InputResponses"
        ),
        "sampling": "CreateMessageParams CreateMessageResult ModelHint ModelPreferences SamplingMessage ToolChoice",
        "server_capabilities": "PromptsCapability ResourcesCapability ServerCapabilities ToolsCapability",
        "subscriptions": (
            "SubscriptionFilter SubscriptionsAcknowledgedParams SubscriptionsListenParams SubscriptionsListenResult"
        ),
        "tool_results": "CallToolResult ListToolsResult",
        "tool_params": "CallToolParams ToolListChangedParams",
        "tools": "Tool ToolAnnotations ToolExecution",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """A module of this package is imported when the first of its names is asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
