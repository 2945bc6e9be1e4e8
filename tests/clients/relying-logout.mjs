// Users end their sessions at a provider of another maker, oidc-provider, and it
// tells the openid-connect plugin so (OpenID Connect Back-Channel Logout 1.0).
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { Browser as Visitor, BYE, door, guarded } from './gateway.mjs'
import { Foreign, issuer, key, secret } from './foreign.mjs'

/** What the plugin of each kind of storage needs. */
const STORAGES = {
  cookie: {},
  store: {},
  redis: { session_redis_port: Number(process.env.DOORWARD_REDIS), session_redis_password: 'open-sesame' },
  memcached: { session_memcached_port: Number(process.env.DOORWARD_MEMCACHED) },
}

/** The logout tokens that the provider posted, and what came of it. */
let posted = []
let failed = []

class Browser extends Visitor {
  /** Whether the gateway lets it in without asking the provider. */
  async isIn(path) {
    const { status } = await this.fetch(`${door}${path}`)
    assert.ok([200, 302].includes(status), String(status))
    return status === 200
  }
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

const config = {
  clients,
  features: { revocation: { enabled: true }, backchannelLogout: { enabled: true } },
  // What it posts, for the test to see; its own way forbids loopback addresses.
  // It would give up after 2.5 s.
  fetch: (url, { dispatcher, signal, ...options }) => {
    posted.push({ url: String(url), form: new URLSearchParams(String(options.body)) })
    return globalThis.fetch(url, options)
  },
}
const foreign = new Foreign(config, (provider) =>
  provider.on('backchannel.error', (_, error) => failed.push(error.message)),
)

/** A route of the client's name: pages, and where the provider posts. */
const route = (name, more) =>
  guarded(name, {
    issuer,
    client_secret: [secret],
    backchannel_logout_uri_suffix: '/backchannel',
    logout_query_arg: 'bye',
    logout_methods: ['GET'],
    logout_redirect_uri: [BYE],
    ...more,
  })

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
  await foreign.open([await key('RS256')])
  for (const [name, config] of Object.entries(STORAGES)) await route(name, { session_storage: name, ...config })
  await route('nameless', { session_storage: 'cookie' })
})

after(() => foreign.shut())

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
  await foreign.shut()
  await foreign.open([await key('RS256')])
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
