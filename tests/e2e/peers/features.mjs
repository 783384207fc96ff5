// Every feature of the conformance fixture server, as a TypeScript client of another maker sees it: the same list, with
// the same names, as features.py. An adapter (drive_sdk1.mjs, drive_client2.mjs) supplies the client; the checks are here.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const TIMEOUT = 20_000; // for one feature, in milliseconds
const ROOTS = [
  { uri: "file:///home/one", name: "one" },
  { uri: "file:///home/two", name: "two" },
];
const DEFAULTS = { name: "John Doe", age: 30, score: 95.5, status: "active", verified: true };
const CHOICES = {
  untitledSingle: "option1",
  titledSingle: "value1",
  legacyEnum: "opt1",
  untitledMulti: ["option1", "option2"],
  titledMulti: ["value1", "value2"],
};

export const STATELESS = process.env.PEER_LIFE === "stateless";
const SKIPPED = (process.env.PEER_SKIP ?? "").split(","); // what this life does not have

export const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };
export const load = createRequire(`${process.env.PEER_MODULES}/`);

/** What the adapters share: what was notified, what was asked, what the person answers. */
export class Peer {
  received = []; // every frame, as the transport hands it over
  notified = [];
  asked = [];
  answer = {}; // what the person says to the next elicitation
  answers = []; // what they say to the next ones, where that differs

  // An adapter sets `client` and defines call(name, args, options).

  /** Make a request by the client's own function for it. */
  request(method, params) {
    const { client } = this;
    const ways = {
      ping: () => client.ping(),
      "tools/list": () => client.listTools(params),
      "prompts/list": () => client.listPrompts(params),
      "prompts/get": () => client.getPrompt(params),
      "resources/list": () => client.listResources(params),
      "resources/templates/list": () => client.listResourceTemplates(params),
      "resources/read": () => client.readResource(params),
      "resources/subscribe": () => client.subscribeResource(params),
      "resources/unsubscribe": () => client.unsubscribeResource(params),
      "logging/setLevel": () => client.setLoggingLevel(params.level),
      "completion/complete": () => client.complete(params),
    };
    return ways[method]();
  }

  handlers() {
    return {
      "elicitation/create": (request) => {
        this.asked.push(request);
        return this.answers.shift() ?? this.answer;
      },
      "sampling/createMessage": (request) => {
        this.asked.push(request);
        const said = [request.params.messages[0].content].flat()[0];
        const content = { type: "text", text: `You said: ${said.text}` };
        return { role: "assistant", model: "a-model", stopReason: "endTurn", content };
      },
      "roots/list": () => ({ roots: ROOTS }),
    };
  }

  paramsOf(method) {
    return this.notified.filter((one) => one.method === method).map((one) => one.params ?? {});
  }

  async until(what, isTrue) {
    const deadline = Date.now() + 5_000;
    while (!(await isTrue())) {
      assert(Date.now() < deadline, `did not come: ${what}; notified: ${JSON.stringify(this.notified.slice(-5))}`);
      await sleep(20);
    }
  }
}

const same = (found, wanted) =>
  assert.deepStrictEqual(found, wanted, `${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
const texts = (result) => result.content.filter((block) => block.type === "text").map((block) => block.text);

function after(prefix, text) {
  assert(text.startsWith(prefix), `${JSON.stringify(text)} does not begin with ${JSON.stringify(prefix)}`);
  return JSON.parse(text.slice(prefix.length));
}

async function refusal(request) {
  let result;
  try {
    result = await request;
  } catch (error) {
    return error.code;
  }
  throw new Error(`was not refused: ${JSON.stringify(result)}`);
}

const accepted = (content) => ({ action: "accept", content });

async function listChanged(peer, tool, method) {
  const before = peer.paramsOf(method).length;
  await peer.call(tool);
  await peer.until(method, () => peer.paramsOf(method).length > before);
}

async function prompt(peer, name, given) {
  const result = await peer.request("prompts/get", given ? { name, arguments: given } : { name });
  assert(result.messages.every((message) => message.role === "user"));
  return result.messages.map((message) => message.content);
}

const FEATURES = {
  // -- opening

  async initialize(peer) {
    same(peer.version(), STATELESS ? "2026-07-28" : "2025-11-25");
    const info = peer.client.getServerVersion();
    assert(info.name && info.version, JSON.stringify(info));
    const offered = peer.client.getServerCapabilities();
    assert(offered.logging && offered.completions, JSON.stringify(offered));
    same(["tools", "prompts", "resources"].map((name) => offered[name]?.listChanged), [true, true, true]);
    same(offered.resources.subscribe, true);
  },

  async ping(peer) {
    same(await peer.request("ping"), {});
  },

  // -- tools

  async tools_list(peer) {
    const { tools } = await peer.request("tools/list");
    assert(tools.every((tool) => tool.description));
    const byName = Object.fromEntries(tools.map((tool) => [tool.name, tool]));
    const schema = byName.json_schema_2020_12_tool.inputSchema;
    same(schema.$defs.address.$anchor, "addressDef");
    same(schema.additionalProperties, false);
    same(schema.if.properties.contactMethod, { const: "phone" });
    const fields = Object.entries(byName.test_structured_output.outputSchema.properties);
    const types = Object.fromEntries(fields.map(([name, field]) => [name, field.type]));
    same(types, { city: "string", temperature: "number", conditions: "string" });
  },

  async tool_text(peer) {
    const result = await peer.call("test_simple_text");
    same(texts(result), ["This is a simple text response for testing."]);
    assert(!result.isError);
  },

  async tool_image(peer) {
    const [block, ...more] = (await peer.call("test_image_content")).content;
    same([block.type, block.mimeType, block.data.slice(0, 8), more], ["image", "image/png", "iVBORw0K", []]);
  },

  async tool_audio(peer) {
    const [block, ...more] = (await peer.call("test_audio_content")).content;
    same([block.type, block.mimeType, block.data.slice(0, 4), more], ["audio", "audio/wav", "UklG", []]);
  },

  async tool_embedded_resource(peer) {
    const [block] = (await peer.call("test_embedded_resource")).content;
    same([block.type, block.resource.uri], ["resource", "test://embedded-resource"]);
    same(block.resource.text, "This is an embedded resource content.");
  },

  async tool_mixed_content(peer) {
    const { content } = await peer.call("test_multiple_content_types");
    same(content.map((block) => block.type), ["text", "image", "resource"]);
    same(JSON.parse(content[2].resource.text), { test: "data", value: 123 });
  },

  async tool_structured_output(peer) {
    const result = await peer.call("test_structured_output", { city: "Oslo" });
    const wanted = { city: "Oslo", temperature: 22.5, conditions: "sunny" };
    same(result.structuredContent, wanted);
    same(texts(result).map((text) => JSON.parse(text)), [wanted]);
  },

  async tool_error(peer) {
    const result = await peer.call("test_error_handling");
    same(result.isError, true);
    same(texts(result), ["This tool intentionally returns an error for testing"]);
  },

  async tool_unknown(peer) {
    same(await refusal(peer.call("there_is_no_such_tool")), -32602);
  },

  async tool_bad_arguments(peer) {
    const result = await peer.call("test_structured_output", { city: ["not", "a", "string"] });
    same(result.isError, true);
    assert(texts(result)[0].includes("city"), texts(result)[0]);
  },

  async tools_at_once(peer) {
    for (const seconds of [0.5, 10]) { // the second time only if a busy machine took longer than the first
      let slowIsDone = false;
      const slow = peer.call("test_cancellation", { seconds }).then((result) => {
        slowIsDone = true;
        return result;
      });
      const quick = await Promise.all([1, 2, 3].map(() => peer.call("test_simple_text")));
      const overtaken = !slowIsDone;
      for (const result of quick) same(texts(result), ["This is a simple text response for testing."]);
      same(texts(await slow), ["finished"]);
      if (overtaken) return;
    }
    assert(false, "a slow call held up the quick ones");
  },

  async logging(peer) {
    await peer.request("logging/setLevel", { level: "debug" });
    const before = peer.paramsOf("notifications/message").length;
    await peer.call("test_tool_with_logging");
    await peer.until("three log messages", () => peer.paramsOf("notifications/message").length >= before + 3);
    const said = peer.paramsOf("notifications/message").slice(before);
    const wanted = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    same(said.map((one) => [one.level, one.data]), wanted.map((text) => ["info", text]));
  },

  async logging_level(peer) {
    await peer.request("logging/setLevel", { level: "error" });
    const before = peer.paramsOf("notifications/message").length;
    await peer.call("test_tool_with_logging");
    await peer.request("logging/setLevel", { level: "info" });
    same(peer.paramsOf("notifications/message").slice(before), []);
  },

  async progress(peer) {
    const seen = [];
    const onprogress = ({ progress, total }) => seen.push([progress, total]);
    await peer.call("test_tool_with_progress", {}, { onprogress });
    const wanted = [[0, 100], [50, 100], [100, 100]];
    const steps = peer.received.filter((frame) => frame.method === "notifications/progress");
    same(steps.slice(-3).map(({ params }) => [params.progress, params.total]), wanted);
    // The last step may come in one piece with the answer, and this client then forgets whom to tell first
    // (modelcontextprotocol/typescript-sdk#2580). So all three must arrive, and the callback must get the first two.
    same(seen, wanted.slice(0, Math.max(2, seen.length)));
  },

  async cancellation(peer) {
    const count = async () => after("cancelled: ", texts(await peer.call("test_cancellation_count"))[0]);
    const before = await count();
    const stop = new AbortController();
    const call = peer.call("test_cancellation", { seconds: 60 }, { signal: stop.signal });
    const ended = assert.rejects(call);
    await sleep(500);
    stop.abort("enough");
    await ended;
    await peer.until("a cancelled call to be counted", async () => (await count()) === before + 1);
  },

  // -- questions to the client

  async sampling(peer) {
    same(texts(await peer.call("test_sampling", { prompt: "Good morning" })), ["LLM response: You said: Good morning"]);
    const { method, params } = peer.asked.at(-1);
    same([method, params.maxTokens, params.messages[0].role], ["sampling/createMessage", 100, "user"]);
  },

  async elicitation(peer) {
    peer.answer = { action: "accept", content: { username: "ada", email: "ada@example.org" } };
    const [text] = texts(await peer.call("test_elicitation", { message: "Who are you?" }));
    same(after("User response: action=accept, content=", text), peer.answer.content);
    const { method, params } = peer.asked.at(-1);
    same([method, params.message], ["elicitation/create", "Who are you?"]);
    same(params.requestedSchema.required.toSorted(), ["email", "username"]);
  },

  async elicitation_declined(peer) {
    for (const action of ["decline", "cancel"]) {
      peer.answer = { action };
      const [text] = texts(await peer.call("test_elicitation", { message: "Who are you?" }));
      assert(text.startsWith(`User response: action=${action}`), text);
    }
  },

  async elicitation_defaults(peer) {
    peer.answer = { action: "accept", content: { ...DEFAULTS } };
    const [text] = texts(await peer.call("test_elicitation_sep1034_defaults"));
    same(after("Elicitation completed: action=accept, content=", text), DEFAULTS);
    const fields = peer.asked.at(-1).params.requestedSchema.properties;
    same(Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.default])), DEFAULTS);
    same(fields.status.enum, ["active", "inactive", "pending"]);
  },

  async elicitation_enums(peer) {
    peer.answer = { action: "accept", content: { ...CHOICES } };
    const [text] = texts(await peer.call("test_elicitation_sep1330_enums"));
    same(after("Elicitation completed: action=accept, content=", text), CHOICES);
    const fields = peer.asked.at(-1).params.requestedSchema.properties;
    assert(fields.untitledSingle.enum.includes("option1"), JSON.stringify(fields));
    same(fields.titledSingle.oneOf[0].const, "value1");
    same(fields.legacyEnum.enum.length, fields.legacyEnum.enumNames.length);
    assert(fields.untitledMulti.items.enum.includes("option1"), JSON.stringify(fields));
    same(fields.titledMulti.items.anyOf[0].const, "value1");
  },

  async elicitation_url(peer) {
    peer.answer = { action: "accept" };
    const result = await peer.call("test_elicitation_url", { url: "https://example.org/pay" });
    same(texts(result), ["URL elicitation: action=accept"]);
    const { params } = peer.asked.at(-1);
    same([params.mode, params.url], ["url", "https://example.org/pay"]);
    same(params.message, "Please visit the link");
    same(Boolean(params.elicitationId), !STATELESS);
  },

  async roots(peer) {
    same(texts(await peer.call("test_list_roots")), ["Roots: file:///home/one, file:///home/two"]);
  },

  async questions_in_turn(peer) {
    peer.answers = [accepted({ name: "Ada" }), accepted({ color: "green" })];
    same(texts(await peer.call("test_input_required_result_multi_round")), ["Ada likes green."]);
    const wanted = ["Step 1: What is your name?", "Step 2: What is your favorite color?"];
    same(peer.asked.slice(-2).map((one) => one.params.message), wanted);
  },

  async questions_at_once(peer) {
    peer.answer = accepted({ name: "Ada" });
    const result = await peer.call("test_input_required_result_multiple_inputs");
    same(texts(result), ["name: Ada, greeting: You said: Generate a greeting, roots: 2"]);
  },

  async prompt_that_asks(peer) {
    peer.answer = accepted({ context: "the sea" });
    const [block] = await prompt(peer, "test_input_required_result_prompt");
    same(block.text, "Use this context: the sea");
  },

  async header_parameter(peer) {
    await peer.request("tools/list"); // the client has to know the tool's schema
    for (const region of ["eu-west1", "gr\u00fcn ", ""])
      same(texts(await peer.call("test_x_mcp_header", { region })), [`region: ${region}`]);
  },

  async reconnection(peer) {
    same(texts(await peer.call("test_reconnection")), ["Reconnection test completed"]);
  },

  // -- resources

  async resources_list(peer) {
    const sizes = [];
    const found = [];
    let cursor;
    do {
      const page = await peer.request("resources/list", cursor ? { cursor } : {});
      sizes.push(page.resources.length);
      found.push(...page.resources);
      cursor = page.nextCursor;
    } while (cursor);
    const uris = new Set(found.map((resource) => resource.uri));
    const wanted = Array.from({ length: 25 }, (_, index) => `test://page/${String(index + 1).padStart(2, "0")}`);
    wanted.push("test://static-text", "test://static-binary", "test://watched-resource");
    same(wanted.filter((uri) => !uris.has(uri)), []);
    same(uris.size, found.length);
    same([...new Set(sizes.slice(0, -1))], [10]);
    assert(found.every((resource) => resource.name));
  },

  async resources_bad_cursor(peer) {
    same(await refusal(peer.request("resources/list", { cursor: "no-such-cursor" })), -32602);
  },

  async resource_text(peer) {
    const [one] = (await peer.request("resources/read", { uri: "test://static-text" })).contents;
    same([one.uri, one.mimeType], ["test://static-text", "text/plain"]);
    same(one.text, "This is the content of the static text resource.");
  },

  async resource_binary(peer) {
    const [one] = (await peer.request("resources/read", { uri: "test://static-binary" })).contents;
    same([one.mimeType, one.blob.slice(0, 8)], ["image/png", "iVBORw0K"]);
  },

  async resource_template(peer) {
    const { resourceTemplates } = await peer.request("resources/templates/list", {});
    assert(resourceTemplates.some((template) => template.uriTemplate === "test://template/{id}/data"));
    const [one] = (await peer.request("resources/read", { uri: "test://template/123/data" })).contents;
    same([one.uri, one.mimeType], ["test://template/123/data", "application/json"]);
    same(JSON.parse(one.text), { id: "123", templateTest: true, data: "Data for ID: 123" });
  },

  async resource_unknown(peer) {
    // The 2.x client shows its user the newer code, -32602, for either; the wire has the one of its revision.
    const code = await refusal(peer.request("resources/read", { uri: "test://no-such-resource" }));
    assert([-32002, -32602].includes(code), String(code));
    same(peer.received.findLast((frame) => frame.error).error.code, STATELESS ? -32602 : -32002);
  },

  async subscription(peer) {
    const uri = "test://watched-resource";
    const updates = () => peer.paramsOf("notifications/resources/updated").filter((one) => one.uri === uri).length;
    const before = updates();
    same(await peer.request("resources/subscribe", { uri }), {});
    same(texts(await peer.call("test_update_watched_resource", { text: "first" })), ["updated"]);
    await peer.until("an update of the watched resource", () => updates() === before + 1);
    const [one] = (await peer.request("resources/read", { uri })).contents;
    same(one.text, "first");
    same(await peer.request("resources/unsubscribe", { uri }), {});
    await peer.call("test_update_watched_resource", { text: "second" });
    await sleep(200);
    same(updates(), before + 1);
  },

  async tools_list_changed(peer) {
    await listChanged(peer, "test_trigger_tool_change", "notifications/tools/list_changed");
  },

  async prompts_list_changed(peer) {
    await listChanged(peer, "test_trigger_prompt_change", "notifications/prompts/list_changed");
  },

  async resources_list_changed(peer) {
    await listChanged(peer, "test_trigger_resource_change", "notifications/resources/list_changed");
  },

  // -- prompts and completion

  async prompts_list(peer) {
    const { prompts } = await peer.request("prompts/list", {});
    assert(prompts.every((one) => one.description));
    const { arguments: given } = prompts.find((one) => one.name === "test_prompt_with_arguments");
    same(given.map((one) => [one.name, one.required]), [["arg1", true], ["arg2", true]]);
  },

  async prompt_simple(peer) {
    const [block] = await prompt(peer, "test_simple_prompt");
    same(block.text, "This is a simple prompt for testing.");
  },

  async prompt_arguments(peer) {
    const [block] = await prompt(peer, "test_prompt_with_arguments", { arg1: "hello", arg2: "world" });
    same(block.text, "Prompt with arguments: arg1='hello', arg2='world'");
  },

  async prompt_missing_argument(peer) {
    const params = { name: "test_prompt_with_arguments", arguments: { arg1: "x" } };
    same(await refusal(peer.request("prompts/get", params)), -32602);
  },

  async prompt_embedded_resource(peer) {
    const [first, second] = await prompt(peer, "test_prompt_with_embedded_resource", { resourceUri: "test://mine" });
    same([first.type, first.resource.uri], ["resource", "test://mine"]);
    same(first.resource.text, "Embedded resource content for testing.");
    same(second.text, "Please process the embedded resource above.");
  },

  async prompt_image(peer) {
    const [first, second] = await prompt(peer, "test_prompt_with_image");
    same([first.type, first.mimeType], ["image", "image/png"]);
    same(second.text, "Please analyze the image above.");
  },

  async completion(peer) {
    const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
    const result = await peer.request("completion/complete", { ref, argument: { name: "arg1", value: "t" } });
    assert(Array.isArray(result.completion.values));
  },
};

/** The target: a URL, or the words of a command for stdio. */
export function target() {
  const [first, ...rest] = process.argv.slice(2);
  return first.startsWith("http") ? { url: new URL(first) } : { command: first, args: rest };
}

/** Runs every feature, each with its own deadline, and prints feature -> "ok" or what went wrong. */
export async function drive(peer, transport) {
  await peer.client.connect(transport);
  const { onmessage } = transport;
  transport.onmessage = (frame, extra) => {
    peer.received.push(frame);
    onmessage(frame, extra);
  };
  await peer.opened?.();
  const found = {};
  for (const [name, check] of Object.entries(FEATURES)) {
    if (SKIPPED.includes(name)) continue;
    const late = new AbortController();
    const deadline = sleep(TIMEOUT, undefined, { signal: late.signal }).then(() => {
      throw new Error(`not done after ${TIMEOUT / 1000} s`);
    });
    try {
      await Promise.race([check(peer), deadline]);
      found[name] = "ok";
    } catch (error) {
      found[name] = `${error.name}: ${error.message.split("\n")[0]}`; // what follows is a picture of the difference
    } finally {
      late.abort();
      deadline.catch(() => {});
    }
  }
  await transport.terminateSession?.();
  await peer.client.close();
  console.log(JSON.stringify({ ...found, close: "ok" }));
}
