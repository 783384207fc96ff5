// The measured tools on the TypeScript SDK. PEER_MODULES is the folder in which the SDK is installed.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const load = createRequire(`${process.env.PEER_MODULES}/`);
const { McpServer, createMcpHandler, isInitializeRequest } = load("@modelcontextprotocol/server");
const { z } = load("zod");
const { values: given } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    form: { type: "string", default: "json" },
    tools: { type: "string", default: "0" },
    engine: { type: "string" },
    store: { type: "string" },
  },
});
const text = (said) => ({ content: [{ type: "text", text: said }] });
const NUMBERS = z.object({ a: z.number().int(), b: z.number().int() });
const SEARCH = z.object({ query: z.string(), limit: z.number().int().default(10), exact: z.boolean().default(false) });
const SIZE = { type: "object", properties: { size: { type: "integer" } }, required: ["size"] };

function make() {
  const server = new McpServer({ name: "bench", version: "1" });
  server.registerTool(
    "add",
    { description: "Add two numbers after one turn of the event loop.", inputSchema: NUMBERS },
    async ({ a, b }) => {
      await new Promise((resume) => setImmediate(resume));
      return text(`${a + b}`);
    },
  );
  server.registerTool(
    "add_without_waiting",
    { description: "Add two numbers without waiting.", inputSchema: NUMBERS },
    async ({ a, b }) => text(`${a + b}`),
  );
  server.registerTool(
    "count",
    { description: "Report progress once per step.", inputSchema: z.object({ to: z.number().int() }) },
    async ({ to }, ctx) => {
      const progressToken = ctx.mcpReq._meta.progressToken;
      for (let step = 0; step < to; step++)
        await ctx.mcpReq.notify({
          method: "notifications/progress",
          params: { progressToken, progress: step + 1, total: to },
        });
      return text("done");
    },
  );
  server.registerTool("ask", { description: "Ask the user for a size.", inputSchema: z.object({}) }, async (_, ctx) =>
    // Without relatedRequestId the question would go to the client's GET stream.
    text(
      (
        await ctx.mcpReq.elicitInput(
          { message: "Which size?", requestedSchema: SIZE },
          { relatedRequestId: ctx.mcpReq.id },
        )
      ).action,
    ),
  );
  for (let number = 0; number < Number(given.tools); number++)
    server.registerTool(
      `search_${String(number).padStart(4, "0")}`,
      {
        description: "Search one of the collections and return what was found there, the best match first.",
        inputSchema: SEARCH,
      },
      async ({ query }) => text(query),
    );
  return server;
}

if (given.port === "0") {
  const { serveStdio } = load("@modelcontextprotocol/server/stdio");
  serveStdio(make);
} else {
  const { NodeStreamableHTTPServerTransport, toNodeHandler } = load("@modelcontextprotocol/node");
  const { localhostHostValidation, localhostOriginValidation } = load("@modelcontextprotocol/node");
  const [goodHost, goodOrigin] = [localhostHostValidation(), localhostOriginValidation()];
  const sessions = new Map();
  const modern = toNodeHandler(createMcpHandler(make, { responseMode: given.form === "json" ? "auto" : "sse" }));

  const open = async () => {
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: given.form === "json",
      onsessioninitialized: (id) => void sessions.set(id, transport),
    });
    await make().connect(transport);
    return transport;
  };

  createServer(async (req, res) => {
    if (!goodHost(req, res) || !goodOrigin(req, res)) return;
    if (req.headers["mcp-method"]) return void modern(req, res);
    const known = sessions.get(req.headers["mcp-session-id"]);
    await (known ?? (await open())).handleRequest(req, res);
  }).listen(Number(given.port), "127.0.0.1");
}
