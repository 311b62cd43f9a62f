#!/usr/bin/env bash
# The TypeScript client of the Model Context Protocol (npm @modelcontextprotocol/sdk 1.32.2): where a tool has an output schema, a failure
# (`isError: true`) with structured content of another shape is not given to the caller. Once the client has listed the tools, callTool throws
# that the content does not match the schema, so nobody reads what failed. A comment there says that it validates "not when there's an error".
# The protocol asks for the schema's shape of structured results, and does not say that this means failures too. So a server answers failures
# with text alone.
#
# Seen: text alone is returned; with structured content, the call throws -32602 with a text that does not have the server's.
# Installs the package in a temporary folder, runs it without phpprof in one process, and fails if it prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts @modelcontextprotocol/sdk@1.32.2 >/dev/null
cat >seen.mjs <<'JS'
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const object = (properties, required) => ({ type: "object", properties, required });
const tool = {
  name: "divide",
  inputSchema: object({}, []),
  outputSchema: object({ quotient: { type: "number" } }, ["quotient"]),
};
const failure = { isError: true, content: [{ type: "text", text: "the divisor is 0" }] };
const server = new Server({ name: "server", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [tool] }));
server.setRequestHandler(CallToolRequestSchema, ({ params }) =>
  params.arguments.structured ? { ...failure, structuredContent: { reason: "divisor" } } : failure,
);
const client = new Client({ name: "client", version: "1" });
const [one, other] = InMemoryTransport.createLinkedPair();
await Promise.all([server.connect(one), client.connect(other)]);
await client.listTools();
for (const structured of [false, true]) {
  const call = client.callTool({ name: "divide", arguments: { structured } });
  const said = await call.then(
    (result) => `returns isError ${result.isError}: ${result.content[0].text}`,
    (error) => `throws ${error.code}, with the server's text: ${error.message.includes("the divisor is 0")}`,
  );
  console.log(structured ? "text and structured content:" : "text alone:", said);
}
await client.close();
JS
seen=$(node seen.mjs)
expected='text alone: returns isError true: the divisor is 0
text and structured content: throws -32602, with the server'"'"'s text: false'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
