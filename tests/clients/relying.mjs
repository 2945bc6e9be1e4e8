// The openid-connect plugin as a client of a provider of another maker:
// oidc-provider, which is certified.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { administer, Browser, BYE, door, guarded, reconfigure, until } from './gateway.mjs'
import { Foreign, TTL, grant, issuer, key, publicOf, secret } from './foreign.mjs'

const own = await key('ES256')

/** A client of the provider for the route of its name. */
const client = (name, method, more = {}) => ({
  client_id: name,
  redirect_uris: [`${door}/${name}`],
  post_logout_redirect_uris: [BYE],
  grant_types: ['authorization_code', 'refresh_token'],
  token_endpoint_auth_method: method,
  ...(method.startsWith('client_secret') && { client_secret: secret }),
  ...(method === 'private_key_jwt' && {
    jwks: { keys: [publicOf(own)] },
    token_endpoint_auth_signing_alg: 'ES256',
  }),
  ...more,
})

const clients = [
  client('basic', 'client_secret_basic'),
  client('post', 'client_secret_post'),
  client('brief', 'client_secret_basic'),
  client('crowded', 'client_secret_basic'),
  client('secret-jwt', 'client_secret_jwt'),
  client('key-jwt', 'private_key_jwt'),
  client('public', 'none'),
  client('form', 'client_secret_basic'),
  client('rotating', 'client_secret_basic'),
  client('pushed', 'client_secret_basic', { require_pushed_authorization_requests: true }),
  client('pushed-key', 'private_key_jwt', { require_pushed_authorization_requests: true }),
  client('signed', 'private_key_jwt', { request_object_signing_alg: 'ES256' }),
  client('answered', 'client_secret_post'),
]

const foreign = new Foreign({
  clients,
  features: {
    introspection: { enabled: true },
    revocation: { enabled: true },
    jwtResponseModes: { enabled: true },
    requestObjects: { enabled: true },
  },
  rotateRefreshToken: () => true,
  // Of one client they are over at once.
  ttl: { ...TTL, AccessToken: (_, token) => (token.clientId === 'brief' ? 1 : 600) },
})

/** A route of the client's name, which says what the upstream got. */
function route(name, config = {}) {
  const { client_secret, token_endpoint_auth_method: method } = clients.find((one) => one.client_id === name)
  return guarded(name, {
    issuer,
    ...(client_secret && { client_secret: [client_secret] }),
    ...(method === 'private_key_jwt' && {
      client_jwk: [own],
    }),
    client_auth: [method],
    display_errors: true,
    upstream_headers_claims: ['email'],
    upstream_headers_names: ['x-mail'],
    upstream_refresh_token_header: 'x-refresh',
    ...config,
  })
}

before(async () => foreign.open([await key('RS256')]))

after(() => foreign.shut())

for (const name of ['basic', 'post', 'secret-jwt', 'key-jwt', 'public']) {
  test(`a user signs in, and the gateway is a client by ${name}`, async () => {
    await route(name)
    const browser = new Browser()
    const seen = await browser.json(`/${name}?a=1`)
    assert.equal(seen.headers['x-mail'], 'zoe@foreign.example')
    assert.equal(seen.query, 'a=1')
    assert.match(seen.headers.authorization, /^Bearer /)
    assert.ok(!String(seen.headers.cookie ?? '').includes('session_'))
    const again = await browser.json(`/${name}`)
    assert.equal(again.headers['x-mail'], 'zoe@foreign.example')
  })
}

test('the answer comes as a form', async () => {
  await route('form', { response_mode: 'form_post' })
  const seen = await new Browser().json('/form?b=2')
  assert.equal(seen.method, 'GET')
  assert.equal(seen.query, 'b=2')
})

test('requests are pushed, by both kinds of clients', async () => {
  for (const name of ['pushed', 'pushed-key']) {
    await route(name)
    const browser = new Browser()
    const refused = await browser.fetch(`${door}/${name}`)
    assert.equal(refused.status, 302)
    assert.ok(!refused.headers.get('location').includes('request_uri='), 'only where that is required')
  }
  for (const name of ['pushed', 'pushed-key']) {
    await reconfigure(name, { require_pushed_authorization_requests: true })
    const seen = await new Browser().json(`/${name}?c=3`)
    assert.equal(seen.query, 'c=3')
  }
})

test('requests are signed, and so are answers', async () => {
  await route('signed', { require_signed_request_object: true })
  const seen = await new Browser().json('/signed?d=4')
  assert.equal(seen.query, 'd=4')
  await route('answered', { response_mode: 'jwt' })
  const browser = new Browser()
  const answered = await browser.json('/answered?e=5')
  assert.equal(answered.query, 'e=5')
})

test('keys are rotated during traffic', async () => {
  await route('rotating')
  const early = new Browser('early')
  await early.json('/rotating')
  await foreign.shut()
  await foreign.open([await key('ES256'), await key('RS256')])
  foreign.asked = []
  const late = Array.from({ length: 5 }, (_, n) => new Browser(`late${n}`))
  const seen = await Promise.all(late.map((browser) => browser.json('/rotating')))
  seen.forEach((one, n) => assert.equal(one.headers['x-mail'], `late${n}@foreign.example`))
  const fetches = foreign.count('/jwks')
  assert.ok(fetches <= 2, `${fetches} fetches of keys`)
  assert.equal((await early.json('/rotating')).headers['x-mail'], 'early@foreign.example')
})

test('refresh tokens rotate, and a stolen one ends the session', async () => {
  // Every access token is too old: each request refreshes.
  await route('brief', { leeway: 86_400 })
  const browser = new Browser('rita')
  const seen = []
  for (let n = 0; n < 3; n += 1) seen.push(await browser.json('/brief'))
  const tokens = seen.map(({ headers }) => headers['x-refresh'])
  assert.equal(new Set(tokens).size, 3, 'each request has another one')
  const stolen = await grant('brief', { grant_type: 'refresh_token', refresh_token: tokens[0] })
  assert.equal(stolen.error, 'invalid_grant')
  // Until its access token ends the session may go on, and no longer.
  let over
  await until(async () => (over = await browser.fetch(`${door}/brief`)).status !== 200)
  assert.equal(over.status, 401)
  assert.match(await over.text(), /the session is over/)
})

test('twenty requests on an ended access token refresh it once', async () => {
  await route('crowded', { leeway: 86_400 })
  const browser = new Browser('many')
  await browser.json('/crowded')
  foreign.asked = []
  const frozen = new Browser()
  frozen.cookies = structuredClone(browser.cookies)
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => {
      const one = new Browser()
      one.cookies = structuredClone(frozen.cookies)
      return one.fetch(`${door}/crowded`)
    }),
  )
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
  assert.equal(foreign.count('/token'), 1)
})

test('a user signs out here and there', async () => {
  await reconfigure('post', {
    logout_query_arg: 'bye',
    logout_methods: ['GET'],
    logout_revoke: true,
    logout_redirect_uri: [BYE],
  })
  const browser = new Browser('lea')
  await browser.json('/post')
  const { url } = await browser.go(`${door}/post?bye`)
  assert.ok(url.startsWith(BYE), url)
  const next = await browser.fetch(`${door}/post`)
  assert.equal(next.status, 302)
  const page = await browser.fetch(next.headers.get('location'))
  const login = await browser.fetch(new URL(page.headers.get('location'), issuer).href)
  assert.match(await login.text(), /name="login"/, 'the provider asks again')
})

test('the provider is shown on the admin listener', async () => {
  const { data } = await administer('GET', '/openid-connect/issuers')
  const shown = data.find((one) => one.issuer.startsWith(issuer))
  assert.equal(shown.health.state, 'up')
  assert.equal(shown.configuration.issuer, issuer)
  assert.ok(shown.keys.every((jwk) => jwk.d === undefined))
})
