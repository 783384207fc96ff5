"""The data of the protocol as frozen, keyword-only classes, one set for all revisions.

Each class is imported on first use (PEP 562): building a class takes longer than most servers take to use it, and a
server uses few of them.
"""

# ruff: noqa: F403  # type checkers read the names from the modules, so that they are listed only once here

from typing import TYPE_CHECKING, Any, Final

_HOME: Final = {
    name: module
    for module, names in {
        "base": """
            CacheScope CallToolParams Icon InputResponseParams JsonObject LOGGING_LEVELS LoggingLevel NULL Null
            PaginatedParams Params PingParams ProgressToken Record RequestId Role
        """,
        "completion": """
            CompleteParams CompleteResult Completion CompletionArgument CompletionContext CompletionReference
            PromptReference REFERENCE_BY_TYPE ResourceTemplateReference
        """,
        "content": """
            Annotations AudioContent BlobResourceContents CONTENT_BY_TYPE ContentBlock EmbeddedResource ImageContent
            ResourceContents ResourceLink TextContent TextResourceContents UnknownContent
        """,
        "discovery": """
            DiscoverResult InitializeResult MissingClientCapabilityData NotificationMeta PromptsCapability RequestMeta
            ResourcesCapability ResultMeta ServerCapabilities ToolsCapability UnsupportedProtocolVersionData
        """,
        "elicitation": "ElicitParams ElicitResult ElicitationCompleteParams UrlElicitationRequiredData",
        "helpers": "Audio ContentLike Image Message assistant to_content user",
        "lifecycle": """
            ClientCapabilities DiscoverParams ElicitationCapability Implementation InitializeParams InitializedParams
            RootsCapability SamplingCapability
        """,
        "notifications": """
            CancelledParams LoggingMessageParams ProgressParams SetLevelParams SubscriptionFilter
            SubscriptionsAcknowledgedParams SubscriptionsListenParams SubscriptionsListenResult
        """,
        "prompts": """
            GetPromptParams GetPromptResult ListPromptsParams ListPromptsResult Prompt PromptArgument
            PromptListChangedParams PromptMessage
        """,
        "resources": """
            ListResourceTemplatesParams ListResourceTemplatesResult ListResourcesParams ListResourcesResult
            ReadResourceParams ReadResourceResult Resource ResourceListChangedParams ResourceTemplate
            ResourceUpdatedParams SubscribeParams UnsubscribeParams
        """,
        "results": "CacheableResult EmptyResult PaginatedResult Result",
        "roots": "ListRootsParams ListRootsResult Root RootsListChangedParams",
        "round_trips": """
            INPUT_PARAMS_BY_METHOD INPUT_RESULT_BY_METHOD InputRequest InputRequests InputRequiredResult InputResponses
        """,
        "sampling": """
            CreateMessageParams CreateMessageResult ModelHint ModelPreferences SAMPLING_CONTENT_BY_TYPE SamplingContent
            SamplingMessage ToolChoice ToolResultContent ToolUseContent
        """,
        "tools": """
            CallToolResult ListToolsParams ListToolsResult Tool ToolAnnotations ToolExecution ToolListChangedParams
        """,
    }.items()
    for name in names.split()
}

if TYPE_CHECKING:  # the modules define no other public names; a test checks it
    from .base import *
    from .completion import *
    from .content import *
    from .discovery import *
    from .elicitation import *
    from .helpers import *
    from .lifecycle import *
    from .notifications import *
    from .prompts import *
    from .resources import *
    from .results import *
    from .roots import *
    from .round_trips import *
    from .sampling import *
    from .tools import *
else:  # hidden from type checkers, which would otherwise accept every name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        """Import the module that defines a name, on first use of the name."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})
