// A tool service in Node: the tool `note` adds a line to a file. What is particular to this tool is in `run`; the rest
// is the protocol, and would be the same for any other tool. See docs/protocol.md.

import { appendFile, readFile } from "node:fs/promises";
import { connect, nkeyAuthenticator, nkeys } from "@nats-io/transport-node";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { ReadCommand, callback, cardFaults, resultCard, resultId } from "./protocol.js";
import { Cards } from "./cards.js";

const subject = process.env.TOOL_SUBJECT ?? "cg.v1r4.test.public.cmd.tool.note";
const tool = process.env.TOOL_NAME ?? "note";
const notes = process.env.NOTES ?? "notes.txt";
const [, version, project, , , , target] = subject.split(".");

/** The tool itself. What it returns is the result; an error that it throws becomes a failed one. */
async function run({ text }) {
  if (typeof text !== "string") throw new Error("text must be text");
  await appendFile(notes, `${text}\n`);
  return { noted: text.length };
}

/** How to log in with a key of `toolwire nats config`: answers then come in at an inbox of its own. */
async function login() {
  if (!process.env.NATS_SEED_FILE) return {};
  const seed = new TextEncoder().encode((await readFile(process.env.NATS_SEED_FILE, "utf8")).trim());
  const inboxPrefix = `_INBOX.${nkeys.fromSeed(seed).getPublicKey()}`;
  const tls = process.env.NATS_CA_FILE ? { caFile: process.env.NATS_CA_FILE } : undefined;
  return { authenticator: nkeyAuthenticator(seed), inboxPrefix, tls };
}

const servers = process.env.NATS_URL ?? "nats://127.0.0.1:4222";
const nats = await connect({ servers, name: `service ${tool}`, ...(await login()) });
const js = jetstream(nats);
const cards = new Cards(process.env.CARDS_URL ?? "http://127.0.0.1:8787", project, process.env.CARDS_TOKEN ?? "");

/** Calls that are being run, by their card: a command that comes twice must not run its call twice. */
const running = new Map();

async function execute(command) {
  const kept = await cards.read(resultId(command));
  if (kept) return kept; // answered before: the card wins
  const card = await cards.read(command.tool_call_card_id);
  const faults = cardFaults(command, card, { project, tool });
  if (faults.length) {
    console.error(`call ${command.tool_call_id} was not run: ${faults.join("; ")}`);
    return null;
  }
  let content;
  try {
    content = { status: "success", result: await run(card.content.arguments) };
  } catch (error) {
    content = { status: "failed", error: { code: "internal_error", message: String(error.message) } };
  }
  return cards.write(resultCard(command, resultId(command), { project, tool, content }));
}

async function answer(command) {
  const key = command.tool_call_card_id;
  if (!running.has(key)) running.set(key, execute(command).finally(() => running.delete(key)));
  const card = await running.get(key);
  if (card) await report(command, card);
}

async function refuse(command, faults) {
  console.error(`a command was refused: ${faults.join("; ")}`);
  if (!command) return; // it does not say whose call it is
  const content = { status: "failed", error: { code: "bad_request", message: faults.join("; ") } };
  const card = await cards.write(resultCard(command, resultId(command, "refused"), { project, tool, content }));
  if (card) await report(command, card);
}

async function report(command, card) {
  const { subject: to, payload, headers } = callback(command, card);
  await js.publish(to, JSON.stringify(payload), { headers });
}

async function handle(message) {
  const beating = setInterval(() => message.working(), 10_000);
  try {
    const { command, faults } = ReadCommand.of(message, subject, version);
    await (faults.length ? refuse(command, faults) : answer(command));
    message.ack();
  } catch (error) {
    console.error(`a command will come again: ${error.message}`);
    message.nak(1_000); // the broker or the cards are away
  } finally {
    clearInterval(beating);
  }
}

async function consumer() {
  const manager = await jetstreamManager(nats, { checkAPI: false });
  const stream = `cg_cmd_${version}`;
  const durable = `service-${target}`; // all processes of this service share it
  await manager.consumers.add(stream, {
    durable_name: durable, filter_subject: subject, ack_policy: AckPolicy.Explicit, max_ack_pending: 64,
  });
  return js.consumers.get(stream, durable);
}

const messages = await (await consumer()).consume({ max_messages: 16 });
const inFlight = new Set();
process.on("SIGTERM", () => messages.stop()); // no more commands; those that are here are finished
for await (const message of messages) {
  const work = handle(message).finally(() => inFlight.delete(work));
  inFlight.add(work);
}
await Promise.all(inFlight);
await nats.drain();
