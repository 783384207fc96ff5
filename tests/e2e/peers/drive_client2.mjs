// Drives the fixture server with the official TypeScript client, 2.x: node drive_client2.mjs URL, or … COMMAND ARGUMENT…

import { CAPABILITIES, Peer, STATELESS, drive, load, target } from "./features.mjs";

const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

class Adapter extends Peer {
  client = new Client(
    { name: "drive-client2", version: "1" },
    { capabilities: CAPABILITIES, versionNegotiation: { mode: STATELESS ? { pin: "2026-07-28" } : "legacy" } },
  );
  level; // of the log messages that each request asks for
  watching;

  constructor() {
    super();
    for (const [method, handler] of Object.entries(this.handlers())) this.client.setRequestHandler(method, handler);
    this.client.fallbackNotificationHandler = async (notification) => void this.notified.push(notification);
  }

  version() {
    return this.client.getNegotiatedProtocolVersion();
  }

  async opened() {
    const filter = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
    if (STATELESS) await this.client.listen(filter);
  }

  call(name, given, options) {
    const level = STATELESS && this.level ? { _meta: { "io.modelcontextprotocol/logLevel": this.level } } : {};
    return this.client.callTool({ name, arguments: given, ...level }, options);
  }

  /** The requests that the stateless life has another way for. */
  async instead(method, params) {
    if (method === "resources/subscribe") this.watching = await this.client.listen({ resourceSubscriptions: [params.uri] });
    else if (method === "resources/unsubscribe") await this.watching.close();
    else this.level = params.level;
    return {};
  }

  request(method, params) {
    if (STATELESS && (method.endsWith("subscribe") || method === "logging/setLevel")) return this.instead(method, params);
    if (method === "resources/list") return this.client.request({ method, params }); // listResources() walks all the pages
    return super.request(method, params);
  }
}

const { url, ...command } = target();
await drive(new Adapter(), url ? new StreamableHTTPClientTransport(url) : new StdioClientTransport(command));
