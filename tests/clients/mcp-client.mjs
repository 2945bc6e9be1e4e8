// The TypeScript SDK of the Model Context Protocol as client and server, in both of its
// generations: Chromium signs the user in and shows what is asked for.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { once } from 'node:events'
import { Client as FirstClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as FirstTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { Client as SecondClient, StreamableHTTPClientTransport as SecondTransport } from '@modelcontextprotocol/client'
import { signIn, shot, start } from './chromium.mjs'
import { first, second } from './mcp-servers.mjs'

const RESOURCE = `${process.env.DOORWARD_BASE}/mcp`
let browser, back, told

before(async () => {
  browser = await start()
  back = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1')
    if (pathname === '/callback') told = searchParams
    response.end('signed in')
  })
  back.listen(0, '127.0.0.1')
  await once(back, 'listening')
})
after(async () => {
  await browser?.close()
  back?.close()
})

/** What an application has to bring: a place for what the SDK remembers, and a browser. */
class Application {
  asked = []

  constructor(page) {
    this.page = page
  }

  get redirectUrl() {
    return `http://127.0.0.1:${back.address().port}/callback`
  }

  get clientMetadata() {
    return {
      client_name: 'sdk',
      redirect_uris: [this.redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native',
    }
  }

  clientInformation = () => this.client
  saveClientInformation = (client) => void (this.client = client)
  tokens = () => this.current
  saveTokens = (tokens) => void (this.current = tokens)
  codeVerifier = () => this.verifier
  saveCodeVerifier = (verifier) => void (this.verifier = verifier)

  redirectToAuthorization(url) {
    this.asked.push(url)
  }

  /** The user goes where the SDK has asked for; what the provider answers there. */
  async visit() {
    told = undefined
    const { page } = this
    await page.goto(this.asked.at(-1).href)
    if (await page.locator('input[name=username]').count()) await signIn(page)
    await shot(page, 'mcp-consent')
    if (!told) await page.click('button[name=approve]')
    await page.waitForURL((url) => url.pathname === '/callback')
    return told
  }
}

const unauthorized = (error) => error.constructor.name === 'UnauthorizedError'

/** Begins anew once the user has signed in: the SDK leaves that to applications. */
async function connected(application, Client, Transport, options) {
  const make = () => [
    new Client({ name: 'test', version: '1' }, options),
    new Transport(new URL(RESOURCE), { authProvider: application }),
  ]
  const [early, transport] = make()
  await assert.rejects(early.connect(transport), unauthorized)
  await finish(transport, await application.visit())
  const [client, again] = make()
  await client.connect(again)
  return { client, transport: again }
}

const finish = (transport, told) =>
  transport instanceof SecondTransport ? transport.finishAuth(told) : transport.finishAuth(told.get('code'))

const say = async (client, name, args) => (await client.callTool({ name, arguments: args })).content[0].text

async function use(Client, Transport, options) {
  const context = await browser.newContext()
  const application = new Application(await context.newPage())
  const { client, transport } = await connected(application, Client, Transport, options)
  assert.equal(application.asked[0].searchParams.get('resource'), RESOURCE)
  const { tools } = await client.listTools()
  assert.deepEqual(tools.map(({ name }) => name), ['add', 'pay'])
  assert.equal(await say(client, 'add', { a: 1, b: 2 }), '3')

  // Denied, and no scope would help: the call fails alone.
  await assert.rejects(say(client, 'delete', { name: 'x' }), /the caller may not do this/)
  // A scope would help that no client can have: nobody is asked for it either.
  await assert.rejects(say(client, 'refund', {}), /the client can't have a scope for this/)
  assert.equal(await say(client, 'add', { a: 3, b: 4 }), '7')
  assert.equal(application.asked.length, 1, 'nobody was asked for more')

  // A scope helps: the user is asked for it, and the same client goes on. The first
  // generation renews a token that it can renew, whatever is asked for.
  if (Client === FirstClient) delete application.current.refresh_token
  await assert.rejects(say(client, 'pay', { amount: 5 }), unauthorized)
  assert.ok(application.asked[1].searchParams.get('scope').split(' ').includes('payments'))
  await finish(transport, await application.visit())
  assert.equal(await say(client, 'pay', { amount: 5 }), 'paid 5')
  await client.close()
  await context.close()
}

const clients = {
  'the first generation': [FirstClient, FirstTransport],
  'the second generation as the first': [SecondClient, SecondTransport],
  'the newest revision': [SecondClient, SecondTransport, { versionNegotiation: { mode: { pin: '2026-07-28' } } }],
  'a client that probes': [SecondClient, SecondTransport, { versionNegotiation: { mode: 'auto' } }],
}

for (const [server, begin] of Object.entries({ first, second })) {
  for (const [name, parts] of Object.entries(clients)) {
    if (server === 'first' && name === 'the newest revision') continue
    test(`${name} before the ${server} server`, { timeout: 120_000 }, async () => {
      const upstream = await begin()
      try {
        await use(...parts)
        for (const { headers } of upstream.seen) assert.equal(headers.authorization, undefined)
      } finally {
        await upstream.close()
      }
    })
  }
}
