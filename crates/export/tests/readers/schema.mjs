// Whether a file is valid by a schema:
//   node schema.mjs NODE_MODULES SCHEMA FILE

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, schema, file] = process.argv.slice(2);
const Ajv = createRequire(join(modules, "x.js"))("ajv");
const read = (path) => JSON.parse(readFileSync(path, "utf8"));

const validate = new Ajv({ strict: false }).compile(read(join(modules, schema)));
console.log(validate(read(file)) ? "valid" : JSON.stringify(validate.errors));
