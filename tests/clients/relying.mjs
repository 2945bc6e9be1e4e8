// The openid-connect plugin as a client of a provider of another maker:
// oidc-provider, which is certified.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createHash, randomUUID, webcrypto } from 'node:crypto'
import Provider from 'oidc-provider'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from 'jose'
import { Browser as Visitor } from './visitor.mjs'

globalThis.crypto ??= webcrypto

const door = process.env.DOORWARD_BASE
const admin = process.env.DOORWARD_ADMIN.replace(/\/$/, '')
const port = Number(process.env.DOORWARD_UPSTREAM)
const issuer = `http://127.0.0.1:${port}`
const BYE = 'https://app.test/bye'
const secret = 'a secret of more than thirty-two characters'

/** Goes between gateway and provider. */
class Browser extends Visitor {
  constructor(user) {
    super([door, issuer], user)
  }
}

let server
let asked = []
const own = await key('ES256')

async function key(alg) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = await exportJWK(privateKey)
  return { ...jwk, alg, use: 'sig', kid: await calculateJwkThumbprint(jwk) }
}

const publicOf = ({ d, p, q, dp, dq, qi, ...jwk }) => jwk

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
  client('secret-jwt', 'client_secret_jwt'),
  client('key-jwt', 'private_key_jwt'),
  client('public', 'none'),
  client('form', 'client_secret_basic'),
  client('rotating', 'client_secret_basic'),
  client('pushed', 'client_secret_basic', { require_pushed_authorization_requests: true }),
  client('pushed-key', 'private_key_jwt', { require_pushed_authorization_requests: true }),
  client('signed', 'private_key_jwt', { request_object_signing_alg: 'ES256' }),
  client('answered', 'client_secret_post'),
  client('bound', 'client_secret_basic'),
  {
    client_id: 'machine',
    client_secret: secret,
    redirect_uris: [],
    response_types: [],
    grant_types: ['client_credentials'],
    dpop_bound_access_tokens: true,
  },
]

async function open(keys) {
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys },
    cookies: { keys: ['for a test'] },
    features: {
      devInteractions: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      clientCredentials: { enabled: true },
      jwtResponseModes: { enabled: true },
      requestObjects: { enabled: true },
      dPoP: { enabled: true },
    },
    claims: { openid: ['sub', 'email'] },
    conformIdTokenClaims: false,
    issueRefreshToken: async (_, { grantTypes }) => grantTypes.includes('refresh_token'),
    rotateRefreshToken: () => true,
    // Of one client they are over at once.
    ttl: { AccessToken: (_, token) => (token.clientId === 'brief' ? 1 : 600), IdToken: 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@foreign.example` }) }),
  })
  provider.use(async (context, next) => {
    await next()
    asked.push({ path: context.path, status: context.status, route: context.oidc?.route, body: context.oidc?.body })
  })
  server = provider.listen(port, '127.0.0.1')
  await new Promise((listening) => server.once('listening', listening))
}

async function shut() {
  server.closeAllConnections()
  await new Promise((closed) => server.close(closed))
}

/** Makes a change by the admin listener. */
async function change(path, body) {
  const response = await fetch(`${admin}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  assert.equal(response.status, 201, await response.clone().text())
}

/** A route of the client's name, which says what the upstream got. */
async function route(name, config = {}) {
  const { client_secret, token_endpoint_auth_method: method } = clients.find((one) => one.client_id === name)
  await change('/services', { name, protocol: 'internal', host: 'echo' })
  await change(`/services/${name}/routes`, { paths: [`/${name}`], strip_path: false })
  await change(`/services/${name}/plugins`, {
    name: 'openid-connect',
    config: {
      issuer,
      client_id: [name],
      ...(client_secret && { client_secret: [client_secret] }),
      ...(method === 'private_key_jwt' && {
        client_jwk: [Object.fromEntries(Object.entries(own).filter(([, value]) => typeof value === 'string'))],
      }),
      client_auth: [method],
      redirect_uri: [`${door}/${name}`],
      session_secret: `of ${name}`,
      session_cookie_name: `session_${name.replace('-', '_')}`,
      display_errors: true,
      upstream_headers_claims: ['email'],
      upstream_headers_names: ['x-mail'],
      upstream_refresh_token_header: 'x-refresh',
      ...config,
    },
  })
}

before(async () => {
  await open([await key('RS256')])
})

after(shut)

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
    const { data } = await (await fetch(`${admin}/services/${name}/plugins`)).json()
    const response = await fetch(`${admin}/plugins/${data[0].id}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ config: { require_pushed_authorization_requests: true } }),
    })
    assert.equal(response.status, 200)
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
  await shut()
  await open([await key('ES256'), await key('RS256')])
  asked = []
  const late = Array.from({ length: 5 }, (_, n) => new Browser(`late${n}`))
  const seen = await Promise.all(late.map((browser) => browser.json('/rotating')))
  seen.forEach((one, n) => assert.equal(one.headers['x-mail'], `late${n}@foreign.example`))
  const fetches = asked.filter(({ path }) => path === '/jwks')
  assert.ok(fetches.length <= 2, `${fetches.length} fetches of keys`)
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
  const stolen = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`brief:${encodeURIComponent(secret).replaceAll('%20', '+')}`)}` },
    body: new URLSearchParams({ grant_type: 'refresh_token', refresh_token: tokens[0] }),
  })
  assert.equal((await stolen.json()).error, 'invalid_grant')
  // Until its access token ends the session may go on, and no longer.
  await new Promise((over) => setTimeout(over, 1500))
  const over = await browser.fetch(`${door}/brief`)
  assert.equal(over.status, 401)
  assert.match(await over.text(), /the session is over/)
})

test('twenty requests on an ended access token refresh it once', async () => {
  const browser = new Browser('many')
  await browser.json('/brief')
  asked = []
  const frozen = new Browser()
  frozen.cookies = structuredClone(browser.cookies)
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => {
      const one = new Browser()
      one.cookies = structuredClone(frozen.cookies)
      return one.fetch(`${door}/brief`)
    }),
  )
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
  assert.equal(asked.filter(({ path }) => path === '/token').length, 1)
})

test('a token that is bound to a key passes with its proof alone', async () => {
  await route('bound', {
    auth_methods: ['introspection'],
    proof_of_possession_dpop: 'strict',
    redirect_uri: null,
  })
  const { privateKey, publicKey } = await generateKeyPair('ES256')
  const jwk = await exportJWK(publicKey)
  const proof = (htm, htu, more = {}) =>
    new SignJWT({ jti: randomUUID(), htm, htu, ...more })
      .setProtectedHeader({ alg: 'ES256', typ: 'dpop+jwt', jwk })
      .setIssuedAt()
      .sign(privateKey)
  const response = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: {
      authorization: `Basic ${btoa(`machine:${encodeURIComponent(secret).replaceAll('%20', '+')}`)}`,
      dpop: await proof('POST', `${issuer}/token`),
    },
    body: new URLSearchParams({ grant_type: 'client_credentials' }),
  })
  const { access_token: token, token_type: kind } = await response.json()
  assert.equal(kind, 'DPoP')
  const ath = createHash('sha256').update(token).digest('base64url')
  const url = `${door}/bound`
  const ask = async (authorization, dpop) => {
    const answer = await fetch(url, { headers: { authorization, ...(dpop && { dpop }) } })
    return [answer, await answer.json()]
  }
  const good = await proof('GET', url, { ath })
  const [passed, seen] = await ask(`DPoP ${token}`, good)
  assert.equal(passed.status, 200, JSON.stringify(seen))
  assert.equal(seen.headers.authorization, `Bearer ${token}`)
  assert.equal(seen.headers.dpop, undefined)
  for (const [authorization, dpop, why] of [
    [`DPoP ${token}`, good, /used before/],
    [`DPoP ${token}`, undefined, /missing/],
    [`Bearer ${token}`, await proof('GET', url, { ath }), /not proven/],
    [`DPoP ${token}`, await proof('GET', `${door}/other`, { ath }), /not valid/],
    [`DPoP ${token}`, await proof('POST', url, { ath }), /not valid/],
  ]) {
    const [refused, body] = await ask(authorization, dpop)
    assert.equal(refused.status, 401, JSON.stringify(body))
    assert.match(body.message, why)
    assert.match(refused.headers.get('www-authenticate'), /DPoP /)
  }
})

test('a user signs out here and there', async () => {
  const { data } = await (await fetch(`${admin}/services/post/plugins`)).json()
  const patched = await fetch(`${admin}/plugins/${data[0].id}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      config: {
        logout_query_arg: 'bye',
        logout_methods: ['GET'],
        logout_revoke: true,
        logout_redirect_uri: [BYE],
      },
    }),
  })
  assert.equal(patched.status, 200, await patched.text())
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
  const { data } = await (await fetch(`${admin}/openid-connect/issuers`)).json()
  const shown = data.find((one) => one.issuer.startsWith(issuer))
  assert.equal(shown.health.state, 'up')
  assert.equal(shown.configuration.issuer, issuer)
  assert.ok(shown.keys.every((jwk) => jwk.d === undefined))
})
