// Calls a tool that reports progress directly before its result, and prints how many calls lost how much of it:
// node progress.mjs sdk1|client2 CALLS COMMAND ARGUMENT…

import { createRequire } from "node:module";

const [which, calls, command, ...args] = process.argv.slice(2);
const load = createRequire(`${process.env.PEER_MODULES}/`);
const { Client } = load(which === "sdk1" ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
const { StdioClientTransport } = load(
  which === "sdk1" ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio",
);

const client = new Client({ name: "progress", version: "1" });
await client.connect(new StdioClientTransport({ command, args, stderr: "ignore" }));
const counts = {};
for (let call = 0; call < Number(calls); call++) {
  let seen = 0;
  const options = { onprogress: () => void seen++ };
  const params = { name: "hurried", arguments: {} };
  await (which === "sdk1" ? client.callTool(params, undefined, options) : client.callTool(params, options));
  counts[seen] = (counts[seen] ?? 0) + 1;
}
await client.close();
console.log(JSON.stringify(counts));
