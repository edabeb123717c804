// Commands, cards and callbacks of the protocol (docs/protocol.md), and what can be wrong with them.

import { createHash } from "node:crypto";
import { headers as newHeaders } from "@nats-io/transport-node";

const LARGEST_PAYLOAD = 64 * 1024;
const BANNED = new Set(["args", "arguments", "result"]);
const AFTER = new Set(["suspend", "terminate", "detach"]);
/** Fields that stand in the payload and in a header. */
const HEADERS = {
  agent_id: "CG-Agent-Id", agent_turn_id: "CG-Turn-Id", turn_epoch: "CG-Turn-Epoch", step_id: "CG-Step-Id",
  tool_call_id: "CG-Tool-Call-Id", parent_agent_id: "CG-Parent-Agent-Id", parent_agent_turn_id: "CG-Parent-Turn-Id",
  parent_step_id: "CG-Parent-Step-Id", recursion_depth: "CG-Recursion-Depth",
  project_id: "CG-Project-Id", channel_id: "CG-Channel-Id",
};
const COUNTS = new Set(["turn_epoch", "recursion_depth"]);
const IDENTITY = ["agent_id", "agent_turn_id", "turn_epoch", "tool_call_id"];
const ID = /^[!-~]{1,200}$/;

export class ReadCommand {
  /** The command that a message is, and what is wrong with it. No command where it cannot be told whose call it is. */
  static of(message, subject, version) {
    const read = new ReadCommand(message, subject, version);
    const known = IDENTITY.every((name) => read.fields[name] !== undefined && !read.doubtful.has(name));
    return { command: known ? read.fields : null, faults: read.faults };
  }

  constructor(message, subject, version) {
    this.faults = [];
    this.doubtful = new Set();
    this.fields = { after_execution: "suspend" };
    this.sent = new Map([...(message.headers ?? [])].map(([name, values]) => [name.toLowerCase(), values[0]]));
    const [, , project, channel] = subject.split(".");
    const payload = this.#payload(message.data);
    if (!payload) return;
    this.#take(payload);
    this.#require(this.fields.project_id ?? project, project, "project_id");
    this.#require(this.fields.channel_id ?? channel, channel, "channel_id");
    this.#require(this.sent.get("cg-version") ?? version, version, "CG-Version");
    for (const name of [...IDENTITY, "tool_call_card_id"]) {
      if (!this.#fits(name, this.fields[name])) this.#fault(name, `${name} is missing or wrong`);
    }
    if (!AFTER.has(this.fields.after_execution)) this.#fault("after_execution", "after_execution is unknown");
    Object.assign(this.fields, { project_id: project, channel_id: channel, version });
  }

  #payload(data) {
    if (data.length > LARGEST_PAYLOAD) return this.#fault("", "the payload is too large");
    try {
      const payload = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
      if (payload && typeof payload === "object" && !Array.isArray(payload)) return payload;
    } catch {
      // told below
    }
    return this.#fault("", "the payload is not a JSON object");
  }

  #take(payload) {
    for (const [name, value] of Object.entries(payload)) {
      if (BANNED.has(name.toLowerCase())) this.#fault(name, `${name} must not be in a message`);
      else this.fields[name] = value;
    }
    for (const [name, header] of Object.entries(HEADERS)) {
      const text = this.sent.get(header.toLowerCase());
      if (text === undefined) continue;
      const value = COUNTS.has(name) && /^\d+$/.test(text) ? Number(text) : text;
      this.#require(payload[name] ?? value, value, name);
      this.fields[name] = value;
    }
    const trace = payload.traceparent ?? this.sent.get("traceparent");
    this.fields.traceparent = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(trace) ? trace : undefined;
  }

  #fits(name, value) {
    return COUNTS.has(name) ? Number.isSafeInteger(value) && value >= 0 : typeof value === "string" && ID.test(value);
  }

  #require(value, right, name) {
    if (value !== right) this.#fault(name, `${name} is ${JSON.stringify(value)} in one place and ${right} in another`);
  }

  #fault(name, sentence) {
    this.faults.push(sentence);
    this.doubtful.add(name);
    return null;
  }
}

/** What keeps a command and the card that it points to from belonging together. */
export function cardFaults(command, card, { project, tool }) {
  if (!card) return ["there is no such card"];
  const { content = {}, metadata = {} } = card;
  const pairs = {
    type: [card.type, "tool.call"],
    card_id: [card.card_id, command.tool_call_card_id],
    project_id: [card.project_id, project],
    agent_turn_id: [metadata.agent_turn_id, command.agent_turn_id],
    tool_call_id: [metadata.tool_call_id, command.tool_call_id],
    step_id: [metadata.step_id ?? command.step_id, command.step_id ?? metadata.step_id],
    tool_name: [content.tool_name, tool],
    arguments_digest: [
      metadata.arguments_digest ?? command.arguments_digest, command.arguments_digest ?? metadata.arguments_digest,
    ],
  };
  const faults = Object.keys(pairs).filter((name) => pairs[name][0] !== pairs[name][1]).map((name) => `${name} differs`);
  if (metadata.turn_epoch > command.turn_epoch) faults.push("the command is stale");
  if (metadata.deadline && Date.parse(metadata.deadline) < Date.now()) faults.push("the deadline is over");
  return faults;
}

/** The id of the result card of a call: the same whenever it is asked for, so that a call has one. */
export function resultId(command, kind = "result") {
  const call = [command.agent_turn_id, command.tool_call_id].join("\n");
  return `${kind}-${createHash("sha256").update(call).digest("hex").slice(0, 32)}`;
}

export function resultCard(command, id, { project, tool, content }) {
  const { agent_turn_id, tool_call_id, step_id, turn_epoch } = command;
  return {
    card_id: id, project_id: project, type: "tool.result", author_id: tool, content,
    metadata: { agent_turn_id, tool_call_id, step_id, turn_epoch, role: "tool", function_name: tool },
  };
}

/** The callback to a command: what may not change is taken from it. */
export function callback(command, card) {
  const names = [...Object.keys(HEADERS), "after_execution", "traceparent"];
  const payload = Object.fromEntries(names.map((name) => [name, command[name]]).filter(([, value]) => value !== undefined));
  Object.assign(payload, { tool_result_card_id: card.card_id, status: card.content.status });
  const headers = newHeaders();
  headers.set("CG-Version", command.version);
  headers.set("CG-Msg-Type", "ToolCallback");
  if (payload.traceparent) headers.set("traceparent", payload.traceparent);
  for (const [name, header] of Object.entries(HEADERS)) {
    if (payload[name] !== undefined) headers.set(header, String(payload[name]));
  }
  const subject = `cg.${command.version}.${command.project_id}.${command.channel_id}.cmd.sys.execution.report`;
  return { subject, payload, headers };
}
