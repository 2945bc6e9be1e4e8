// The protocol's own conformance runner before a server, with the door between them and
// without it: the door changes nothing that the runner sees.
import test from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createServer, request as ask } from 'node:http'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { completable } from '@modelcontextprotocol/sdk/server/completable.js'
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js'
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'
import { listenWithSessions } from './mcp-servers.mjs'

const door = process.env.DOORWARD_BASE
const upstream = `http://127.0.0.1:${process.env.DOORWARD_UPSTREAM}/mcp`
const RUNNER = 'node_modules/@modelcontextprotocol/conformance/dist/index.js'
/** A picture and a sound as small as there are. */
const PICTURE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const SOUND = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA='

const text = (text) => ({ type: 'text', text })
const picture = { type: 'image', data: PICTURE, mimeType: 'image/png' }
const embedded = (uri, content) => ({ type: 'resource', resource: { uri, mimeType: 'text/plain', text: content } })
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

/** What the runner wants to find: its tools, resources and prompts. */
function furnished() {
  const capabilities = { logging: {}, resources: { subscribe: true } }
  const server = new McpServer({ name: 'conformance', version: '1' }, { capabilities })
  const tool = (name, content) => server.registerTool(name, { description: name }, () => ({ content }))
  tool('test_simple_text', [text('This is a simple text response for testing.')])
  tool('test_image_content', [picture])
  tool('test_audio_content', [{ type: 'audio', data: SOUND, mimeType: 'audio/wav' }])
  tool('test_embedded_resource', [embedded('test://embedded-resource', 'This is an embedded resource content.')])
  tool('test_multiple_content_types', [
    text('Multiple content types test:'),
    picture,
    embedded('test://mixed-content-resource', '{"test":"data","value":123}'),
  ])
  server.registerTool('test_error_handling', { description: 'fails' }, () => {
    throw new Error('This tool intentionally returns an error for testing')
  })
  server.registerTool('test_tool_with_logging', { description: 'logs' }, async ({ sendNotification }) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await sendNotification({ method: 'notifications/message', params: { level: 'info', data } })
      await pause(50)
    }
    return { content: [text('done')] }
  })
  server.registerTool('test_tool_with_progress', { description: 'reports' }, async ({ sendNotification, _meta }) => {
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: _meta?.progressToken, progress, total: 100 }
      await sendNotification({ method: 'notifications/progress', params })
      await pause(50)
    }
    return { content: [text('done')] }
  })
  const prompt = { inputSchema: { prompt: z.string() } }
  server.registerTool('test_sampling', { description: 'samples', ...prompt }, async ({ prompt }, { sendRequest }) => {
    const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 }
    const { content } = await sendRequest({ method: 'sampling/createMessage', params }, CreateMessageResultSchema)
    return { content: [text(`LLM response: ${content.text}`)] }
  })
  const elicit = (name, message, properties, required) =>
    server.registerTool(name, { description: 'asks', inputSchema: { message: z.string().optional() } }, async (given, { sendRequest }) => {
      const params = { message: given.message ?? message, requestedSchema: { type: 'object', properties, required } }
      const answer = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema)
      return { content: [text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content)}`)] }
    })
  const title = { type: 'string', description: 'answer' }
  elicit('test_elicitation', 'asks', { username: title, email: title }, ['username', 'email'])
  elicit('test_elicitation_sep1034_defaults', 'defaults', {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  })
  const titled = (options) => options.map((value) => ({ const: value, title: `The ${value}` }))
  elicit('test_elicitation_sep1330_enums', 'choices', {
    untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
    titledSingle: { type: 'string', oneOf: titled(['value1', 'value2', 'value3']) },
    legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option 1', 'Option 2', 'Option 3'] },
    untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
    titledMulti: { type: 'array', items: { anyOf: titled(['value1', 'value2', 'value3']) } },
  })
  const reads = (name, uri, content) =>
    server.registerResource(name, uri, { mimeType: content.mimeType }, () => ({ contents: [{ uri, ...content }] }))
  reads('static text', 'test://static-text', { mimeType: 'text/plain', text: 'This is the content of the static text resource.' })
  reads('static binary', 'test://static-binary', { mimeType: 'image/png', blob: PICTURE })
  reads('watched', 'test://watched-resource', { mimeType: 'text/plain', text: 'Watched resource content' })
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined })
  server.registerResource('template', template, { mimeType: 'application/json' }, (uri, { id }) => ({
    contents: [{ uri: uri.href, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }],
  }))
  server.server.setRequestHandler(SubscribeRequestSchema, () => ({}))
  server.server.setRequestHandler(UnsubscribeRequestSchema, () => ({}))
  const says = (...content) => ({ messages: content.map((content) => ({ role: 'user', content })) })
  server.registerPrompt('test_simple_prompt', { description: 'simple' }, () => says(text('This is a simple prompt for testing.')))
  const some = completable(z.string(), (value) => ['test', 'value'].filter((one) => one.startsWith(value)))
  server.registerPrompt('test_prompt_with_arguments', { description: 'both', argsSchema: { arg1: some, arg2: z.string() } }, ({ arg1, arg2 }) =>
    says(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  )
  server.registerPrompt('test_prompt_with_embedded_resource', { description: 'resource', argsSchema: { resourceUri: z.string() } }, ({ resourceUri }) =>
    says(embedded(resourceUri, 'Embedded resource content for testing.'), text('Please process the embedded resource above.')),
  )
  server.registerPrompt('test_prompt_with_image', { description: 'picture' }, () => says(picture, text('Please analyze the image above.')))
  return server
}

/** The runner knows no tokens: this adds one to what it sends to the door, and is of the
 * door's origin. */
async function bearer() {
  const form = { grant_type: 'client_credentials', client_id: 'runner', client_secret: 'runner-secret', resource: `${door}/mcp`, scope: 'tools' }
  const answer = await fetch(`${door}/oauth2/access_token`, { method: 'POST', body: new URLSearchParams(form) })
  const { access_token: token } = await answer.json()
  assert.ok(token)
  const server = createServer((incoming, response) => {
    const headers = { ...incoming.headers, authorization: `Bearer ${token}` }
    if (headers.origin === `http://localhost:${server.address().port}`) headers.origin = door
    const outgoing = ask(`${door}${incoming.url}`, { method: incoming.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers)
      response.flushHeaders()
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    response.on('close', () => outgoing.destroy())
    incoming.pipe(outgoing)
  })
  server.listen(0, 'localhost')
  await once(server, 'listening')
  return server
}

/** What the runner says of each scenario. */
async function verdicts(url) {
  // The runner wants a function of newer versions of Node that it does not need here.
  const node = ['--import', './conformance-runner.mjs', RUNNER, 'server', '--url', url]
  const { stdout } = await promisify(execFile)(process.execPath, node, { timeout: 120_000, maxBuffer: 16 << 20 }).catch((error) => error)
  const lines = [...stdout.matchAll(/^\W*([a-z0-9-]+): (\d+) passed, (\d+) failed/gm)]
  assert.ok(lines.length > 20, stdout)
  return { lines: Object.fromEntries(lines.map(([, name, passed, failed]) => [name, `${passed} passed, ${failed} failed`])), stdout }
}

test('the runner sees the same behind the door', { timeout: 300_000 }, async () => {
  const server = await listenWithSessions(furnished)
  const adder = await bearer()
  try {
    const direct = await verdicts(upstream)
    const behind = await verdicts(`http://localhost:${adder.address().port}/mcp`)
    // The server alone lets pages of foreign origins in; the door does not.
    const rebinding = 'dns-rebinding-protection'
    assert.match(direct.lines[rebinding], /1 failed/)
    assert.deepEqual(behind.lines, { ...direct.lines, [rebinding]: '2 passed, 0 failed' }, behind.stdout)
    assert.doesNotMatch(behind.stdout, /[1-9] failed/)
  } finally {
    adder.closeAllConnections()
    adder.close()
    await server.close()
  }
})
