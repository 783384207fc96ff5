// Drives the fixture server with the official TypeScript SDK, 1.x: node drive_sdk1.mjs URL, or … COMMAND ARGUMENT…

import { CAPABILITIES, Peer, drive, load, target } from "./features.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = load("@modelcontextprotocol/sdk/types.js");

const SCHEMAS = {
  "elicitation/create": types.ElicitRequestSchema,
  "sampling/createMessage": types.CreateMessageRequestSchema,
  "roots/list": types.ListRootsRequestSchema,
};

class Adapter extends Peer {
  client = new Client({ name: "drive-sdk1", version: "1" }, { capabilities: CAPABILITIES });

  constructor(transport) {
    super();
    this.transport = transport;
    for (const [method, handler] of Object.entries(this.handlers())) {
      this.client.setRequestHandler(SCHEMAS[method], async (request) => handler(request));
    }
    this.client.fallbackNotificationHandler = async (notification) => void this.notified.push(notification);
    // This client keeps the agreed version to itself; it tells the transport, where that is HTTP.
    const tell = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = (version) => {
      this.agreed = version;
      tell?.(version);
    };
  }

  version() {
    return this.agreed;
  }

  call(name, given, options) {
    return this.client.callTool({ name, arguments: given }, undefined, options);
  }
}

const { url, ...command } = target();
const transport = url ? new StreamableHTTPClientTransport(url) : new StdioClientTransport(command);
await drive(new Adapter(transport), transport);
