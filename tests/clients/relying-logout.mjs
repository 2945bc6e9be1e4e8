// Users end their sessions at a provider of another maker, oidc-provider, and it
// tells the openid-connect plugin so (OpenID Connect Back-Channel Logout 1.0).
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { webcrypto } from 'node:crypto'
import Provider from 'oidc-provider'
import MemoryAdapter from 'oidc-provider/lib/adapters/memory_adapter.js'
import { calculateJwkThumbprint, exportJWK, generateKeyPair } from 'jose'
import { Browser as Visitor } from './visitor.mjs'

globalThis.crypto ??= webcrypto

const door = process.env.DOORWARD_BASE
const admin = process.env.DOORWARD_ADMIN.replace(/\/$/, '')
const port = Number(process.env.DOORWARD_UPSTREAM)
const issuer = `http://127.0.0.1:${port}`
const BYE = 'https://app.test/bye'
const secret = 'a secret of more than thirty-two characters'
/** What the plugin of each kind of storage needs. */
const STORAGES = {
  cookie: {},
  store: {},
  redis: { session_redis_port: Number(process.env.DOORWARD_REDIS), session_redis_password: 'open-sesame' },
  memcached: { session_memcached_port: Number(process.env.DOORWARD_MEMCACHED) },
}

let server
/** The logout tokens that the provider posted, and what came of it. */
let posted = []
let failed = []

/** Goes between gateway and provider. */
class Browser extends Visitor {
  constructor(user) {
    super([door, issuer], user)
  }

  /** Whether the gateway lets it in without asking the provider. */
  async isIn(path) {
    const { status } = await this.fetch(`${door}${path}`)
    assert.ok([200, 302].includes(status), String(status))
    return status === 200
  }
}

async function key(alg) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = await exportJWK(privateKey)
  return { ...jwk, alg, use: 'sig', kid: await calculateJwkThumbprint(jwk) }
}

const client = (name, more = {}) => ({
  client_id: name,
  client_secret: secret,
  redirect_uris: [`${door}/${name}`],
  post_logout_redirect_uris: [BYE],
  grant_types: ['authorization_code', 'refresh_token'],
  backchannel_logout_uri: `${door}/${name}/backchannel`,
  backchannel_logout_session_required: true,
  ...more,
})

const clients = [
  ...Object.keys(STORAGES).map((name) => client(name)),
  // Logout tokens for it name the user alone.
  client('nameless', { backchannel_logout_session_required: false }),
]

async function open(keys) {
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys },
    cookies: { keys: ['for a test'] },
    features: {
      devInteractions: { enabled: true },
      revocation: { enabled: true },
      backchannelLogout: { enabled: true },
    },
    // What it posts, for the test to see; its own way forbids loopback addresses.
    fetch: (url, { dispatcher, ...options }) => {
      posted.push({ url: String(url), form: new URLSearchParams(String(options.body)) })
      return globalThis.fetch(url, options)
    },
    // Sessions outlive what opens and shuts.
    adapter: class extends MemoryAdapter {},
    issueRefreshToken: async () => true,
    ttl: { AccessToken: 600, IdToken: 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  })
  provider.on('backchannel.error', (_, error) => failed.push(error.message))
  server = provider.listen(port, '127.0.0.1')
  await new Promise((listening) => server.once('listening', listening))
}

async function shut() {
  server.closeAllConnections()
  await new Promise((closed) => server.close(closed))
}

async function change(path, body) {
  const response = await fetch(`${admin}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  assert.equal(response.status, 201, await response.clone().text())
}

/** A route of the client's name: pages, and where the provider posts. */
async function route(name, config) {
  await change('/services', { name, protocol: 'internal', host: 'echo' })
  await change(`/services/${name}/routes`, { paths: [`/${name}`], strip_path: false })
  await change(`/services/${name}/plugins`, {
    name: 'openid-connect',
    config: {
      issuer,
      client_id: [name],
      client_secret: [secret],
      redirect_uri: [`${door}/${name}`],
      session_secret: `of ${name}`,
      session_cookie_name: `session_${name}`,
      backchannel_logout_uri_suffix: '/backchannel',
      logout_query_arg: 'bye',
      logout_methods: ['GET'],
      logout_redirect_uri: [BYE],
      ...config,
    },
  })
}

/** Who signs out at the provider's own page, and of every client. */
async function signOut(browser) {
  posted = []
  failed = []
  const { response, body } = await browser.go(`${issuer}/session/end`)
  assert.equal(response.status, 200, body)
  assert.deepEqual(failed, [])
}

const post = (url, form) => fetch(url, { method: 'POST', body: form })

before(async () => {
  await open([await key('RS256')])
  for (const [name, config] of Object.entries(STORAGES)) await route(name, { session_storage: name, ...config })
  await route('nameless', { session_storage: 'cookie' })
})

after(shut)

for (const name of Object.keys(STORAGES)) {
  test(`a session in ${name} is over when its user signs out at the provider`, async () => {
    const [browser, other] = [new Browser('ben'), new Browser('zoe')]
    for (const one of [browser, other]) await one.go(`${door}/${name}`)
    const copy = browser.copy()
    assert.ok(await browser.isIn(`/${name}`))
    assert.ok(await copy.isIn(`/${name}`))
    await signOut(browser)
    assert.deepEqual(posted.map(({ url }) => url), [`${door}/${name}/backchannel`])
    assert.ok(!(await browser.isIn(`/${name}`)), 'at once')
    assert.ok(!(await copy.isIn(`/${name}`)), 'and every copy of it')
    assert.ok(await other.isIn(`/${name}`), 'and nobody else')
    const [{ url, form }] = posted
    const repeated = await post(url, form)
    assert.equal(repeated.status, 400)
    assert.equal((await repeated.json()).error_description, 'logout_repeated')
    await browser.go(`${door}/${name}`)
    assert.ok(await browser.isIn(`/${name}`), 'who signs in again is in')
    const { status } = await post(url, form)
    assert.equal(status, 400)
    assert.ok(await browser.isIn(`/${name}`), 'and an old token does not end that')
  })
}

test('a logout token that names the user alone ends each session of theirs', async () => {
  const [browser, elsewhere, other] = [new Browser('eve'), new Browser('eve'), new Browser('zoe')]
  for (const one of [browser, elsewhere, other]) await one.go(`${door}/nameless`)
  await signOut(browser)
  assert.equal(posted.length, 1)
  assert.ok(!(await browser.isIn('/nameless')))
  assert.ok(!(await elsewhere.isIn('/nameless')))
  assert.ok(await other.isIn('/nameless'))
})

test('who signs out of one service signs out of those beside it', async () => {
  const browser = new Browser('sam')
  for (const name of Object.keys(STORAGES)) await browser.go(`${door}/${name}`)
  posted = []
  failed = []
  const { url } = await browser.go(`${door}/cookie?bye`)
  assert.ok(url.startsWith(BYE), url)
  assert.deepEqual(failed, [])
  assert.equal(posted.length, Object.keys(STORAGES).length)
  for (const name of Object.keys(STORAGES)) assert.ok(!(await browser.isIn(`/${name}`)), name)
})

test('a logout token that a new key signed is taken', async () => {
  const browser = new Browser('kim')
  await browser.go(`${door}/store`)
  await shut()
  await open([await key('RS256')])
  await signOut(browser)
  assert.equal(posted.length, 1)
  assert.ok(!(await browser.isIn('/store')))
})

test('what the provider did not say ends nothing', async () => {
  const browser = new Browser('tom')
  await browser.go(`${door}/store`)
  await signOut(browser)
  const [{ url, form }] = posted
  await browser.go(`${door}/store`)
  const [head, claims] = form.get('logout_token').split('.')
  const forged = `${head}.${claims}.${'A'.repeat(342)}`
  for (const [token, code] of [
    [forged, 'bad_logout_signature'],
    [claims, 'malformed_logout'],
    ['', 'malformed_logout'],
  ]) {
    const response = await post(url, new URLSearchParams({ logout_token: token }))
    assert.equal(response.status, 400)
    assert.equal((await response.json()).error_description, code)
  }
  // A token for another service is none for this one.
  const foreign = await post(`${door}/cookie/backchannel`, form)
  assert.equal((await foreign.json()).error_description, 'wrong_logout_audience')
  assert.ok(await browser.isIn('/store'))
})
