// The openid-connect plugin exchanges tokens (RFC 8693) at another maker's
// provider, oidc-provider, which has that grant from here: what is a good token
// and who may have which is the provider's own word.
import test, { after, before, beforeEach } from 'node:test'
import assert from 'node:assert/strict'
import { errors } from 'oidc-provider'
import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, importJWK, jwtVerify, SignJWT } from 'jose'
import { administer, Browser, BYE, call, door, guarded, passed, refused, until } from './gateway.mjs'
import { API, Foreign, grant, issuer, key, machine, publicOf, secret, signed } from './foreign.mjs'

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
/** For whom the gateway asks. */
const DEEP = 'https://deep.test/'
/** An issuer that the provider believes. */
const partner = `http://127.0.0.1:${process.env.DOORWARD_SITE}`

/** How long tokens live that are given for others, in seconds. */
let life = 600
/** Signed tokens that the provider does not take any more. */
const withdrawn = new Set()

/** Whose a token is, and what it is good for, if it is good. */
async function subject(provider, token) {
  const own = (await provider.AccessToken.find(token)) ?? (await provider.ClientCredentials.find(token))
  if (own) return own.isValid && { user: own.accountId ?? own.clientId, scope: own.scope ?? '' }
  try {
    const keys = { [issuer]: foreign.keys, [partner]: other.keys }[decodeJwt(token).iss]
    const { payload } = await jwtVerify(token, createLocalJWKSet({ keys: keys.map(publicOf) }))
    return !withdrawn.has(payload.jti) && { user: payload.sub, scope: payload.scope ?? '' }
  } catch {
    return undefined
  }
}

/** The grant. */
async function exchange(context) {
  const { client, params, provider } = context.oidc
  assert.equal(params.subject_token_type, ACCESS_TOKEN)
  const { user, scope } = (await subject(provider, params.subject_token)) || {}
  if (!user) throw new errors.InvalidRequest('the subject token is not good')
  if (params.audience !== DEEP) throw new errors.InvalidTarget()
  const wanted = params.scope.split(' ')
  if (!wanted.every((one) => scope.split(' ').includes(one))) throw new errors.InvalidScope('too much', params.scope)
  const resourceServer = new provider.ResourceServer(DEEP, signed().getResourceServerInfo(undefined, DEEP))
  const given = new provider.AccessToken({ accountId: user, client, scope: params.scope, expiresIn: life, resourceServer })
  context.body = {
    access_token: await given.save(),
    issued_token_type: ACCESS_TOKEN,
    token_type: 'Bearer',
    expires_in: life,
    scope: params.scope,
  }
}

const foreign = new Foreign(
  {
    clients: [
      machine('caller'),
      machine('gateway', { grant_types: [EXCHANGE] }),
      machine('outsider'),
      { client_id: 'front', client_secret: secret, redirect_uris: [`${door}/front`], post_logout_redirect_uris: [BYE] },
    ],
    scopes: ['openid', 'read', 'write'],
    features: {
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: signed(),
    },
  },
  (provider) =>
    provider.registerGrantType(
      EXCHANGE,
      exchange,
      ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'scope'],
    ),
)

const other = new Foreign(
  {
    clients: [machine('partner')],
    features: { clientCredentials: { enabled: true }, resourceIndicators: signed() },
  },
  undefined,
  partner,
)
const stranger = await key('RS256')

/** A signed token of the provider, of `caller`. */
async function own(scope) {
  return (await grant('caller', { grant_type: 'client_credentials', scope, resource: API })).access_token
}

/** One of the partner. */
async function theirs() {
  const form = { grant_type: 'client_credentials', scope: 'read', resource: API }
  return (await grant('partner', form, {}, partner)).access_token
}

/** One that says what it likes, with this key. */
async function made(jwk, claims) {
  const now = Math.floor(Date.now() / 1000)
  const all = { iss: partner, sub: 'ann', aud: API, scope: 'read', client_id: 'partner', jti: 'x', iat: now, exp: now + 60, ...claims }
  const header = { alg: jwk.alg, kid: jwk.kid, typ: 'at+jwt' }
  return new SignJWT(all).setProtectedHeader(header).sign(await importJWK(jwk))
}

const bearer = (name, token) => call(name, { authorization: `Bearer ${token}` })
const questions = () => foreign.asked.filter(({ body }) => body?.grant_type === EXCHANGE)

/** What the upstream of a service gets for a token. */
async function given(name, token) {
  const { headers } = await passed(bearer(name, token))
  return headers.authorization.replace('Bearer ', '')
}

const request = { scopes: ['read'], audience: [DEEP] }
/** Tokens of the provider are exchanged if they may write. */
const narrow = { subject_token_issuers: [{ issuer, conditions: { has_scopes: ['write'] } }], request }

/** A service to which the gateway takes what it is given by the provider. */
const service = (name, config) =>
  guarded(name, {
    issuer,
    client_id: ['gateway'],
    client_secret: [secret],
    auth_methods: ['bearer'],
    display_errors: true,
    cache_ttl_neg: 600,
    ...config,
  })

before(async () => {
  await foreign.open([await key('RS256')])
  await other.open([await key('RS256')])
  await service('own', { token_exchange: narrow })
  await service('forgetful', { token_exchange: { ...narrow, cache: { enabled: false } }, cache_ttl_neg: 0 })
  const verified = [{ issuer: partner, verify_signature: true }]
  await service('partners', { token_exchange: { subject_token_issuers: verified, request } })
  const every = { token_exchange_endpoint: `${issuer}/token`, audience: [DEEP] }
  await service('kept', every)
  await service('every', { ...every, cache_token_exchange: false })
  await guarded('front', {
    issuer,
    client_secret: [secret],
    logout_query_arg: 'bye',
    logout_methods: ['GET'],
    logout_revoke: true,
    logout_redirect_uri: [BYE],
  })
})

beforeEach(() => {
  foreign.asked = []
  life = 600
})

after(async () => {
  await other.shut()
  await foreign.shut()
})

test('a token with too much is exchanged for one with less, once', async () => {
  const wide = await own('read write')
  const gave = await Promise.all(Array.from({ length: 20 }, () => given('own', wide)))
  assert.equal(new Set(gave).size, 1)
  assert.notEqual(gave[0], wide)
  const { sub, aud, scope, client_id } = decodeJwt(gave[0])
  assert.deepEqual([sub, aud, scope, client_id], ['caller', DEEP, 'read', 'gateway'])
  const [{ body }, ...more] = questions()
  assert.deepEqual(more, [])
  assert.deepEqual({ ...body }, {
    grant_type: EXCHANGE,
    subject_token: wide,
    subject_token_type: ACCESS_TOKEN,
    requested_token_type: ACCESS_TOKEN,
    audience: DEEP,
    scope: 'read',
  })
  const enough = await own('read')
  assert.equal(await given('own', enough), enough)
  assert.equal(questions().length, 1)
})

test('tokens of another issuer are exchanged, and those of nobody are no question', async () => {
  const gave = await given('partners', await theirs())
  const { iss, sub } = decodeJwt(gave)
  assert.deepEqual([iss, sub], [issuer, 'partner'])
  assert.equal(questions().length, 1)
  const [good] = other.keys
  const minute = Math.floor(Date.now() / 1000) - 60
  for (const [token, code] of [
    [await made(stranger), 'unknown_key'],
    [await made({ ...stranger, kid: good.kid }), 'bad_signature'],
    [await made(good, { exp: minute }), 'token_expired'],
    [await made(good, { exp: undefined }), 'malformed_times'],
    [await made(stranger, { iss: 'https://nobody.test' }), 'unknown_key'],
    ['opaque', 'malformed_token'],
  ]) {
    assert.equal(await refused(bearer('partners', token)), code)
  }
  assert.equal(questions().length, 1)
})

test('each no of the provider has its name, and is remembered', async () => {
  const gone = await own('read write')
  withdrawn.add(decodeJwt(gone).jti)
  await service('astray', { token_exchange: { ...narrow, request: { ...request, audience: ['https://other.test/'] } } })
  await service('outside', { token_exchange: narrow, client_id: ['outsider'] })
  await service('wrong', { token_exchange: narrow, client_secret: ['another secret'] })
  const wide = await own('read write')
  for (const [name, token, status, code] of [
    ['own', gone, 401, 'exchange_refused'],
    ['own', await own('write'), 403, 'exchange_beyond'],
    ['astray', wide, 403, 'exchange_beyond'],
    // This provider calls it an invalid request, as it does a bad token.
    ['outside', wide, 401, 'exchange_refused'],
  ]) {
    foreign.asked = []
    for (let n = 0; n < 2; n += 1) assert.equal(await refused(bearer(name, token), status), code)
    assert.equal(questions().length, 1)
  }
  // That says nothing about the token.
  assert.equal(await refused(bearer('wrong', wide), 500), 'client_refused')
})

test('what is given is remembered until it ends, or not at all', async () => {
  const wide = await own('read write')
  const each = [await given('forgetful', wide), await given('forgetful', wide)]
  assert.equal(new Set(each).size, 2)
  foreign.asked = []
  life = 2
  const first = await given('own', wide)
  life = 600
  await until(async () => (await given('own', wide)) !== first)
  assert.equal(questions().length, 2)
})

test('what is given does not outlive the token that it was given for', async () => {
  const brief = await made(other.keys[0], { exp: Math.floor(Date.now() / 1000) + 5 })
  await given('partners', brief)
  await until(async () => (await bearer('partners', brief)).code === 'token_expired')
  assert.equal(questions().length, 1)
})

test('the token of a user who signed out is exchanged no more', async () => {
  const user = new Browser('uma')
  const { headers } = await user.json('/front')
  const token = headers.authorization.replace('Bearer ', '')
  assert.equal(decodeJwt(await given('every', token)).sub, 'uma')
  life = 3
  await given('kept', token)
  await user.go(`${door}/front?bye`)
  assert.equal(await refused(bearer('every', token)), 'exchange_refused')
  // Elsewhere it ends with what was given for it.
  await until(async () => (await bearer('kept', token)).code === 'exchange_refused')
})

test('a withdrawn token does not pass where nothing is remembered', async () => {
  const wide = await own('read write')
  await given('forgetful', wide)
  withdrawn.add(decodeJwt(wide).jti)
  assert.equal(await refused(bearer('forgetful', wide)), 'exchange_refused')
})

test('a remembered token whose key the provider gave up is asked for again', async () => {
  const token = await theirs()
  const before = await given('partners', token)
  const next = await key('RS256')
  foreign.sign([next])
  assert.equal(await given('partners', token), before)
  await administer('DELETE', '/openid-connect/issuers', undefined, 204)
  const after = await given('partners', token)
  assert.equal(decodeProtectedHeader(after).kid, next.kid)
})

test('while the provider is down what it gave is good, and there is nothing new', async () => {
  const [known, unknown] = [await own('read write'), await own('read write')]
  const gave = await given('own', known)
  await foreign.shut()
  assert.equal(await given('own', known), gave)
  assert.equal(await refused(bearer('own', unknown), 500), 'provider_unavailable')
  await foreign.open(foreign.keys)
  await until(async () => (await bearer('own', unknown)).status === 200)
})
