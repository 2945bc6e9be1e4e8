// The token broker in front of a foreign provider (oidc-provider, which is
// certified): what a client of it does, and what it is told when the provider
// is down, slow, or answers with nonsense.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import Provider, { errors } from 'oidc-provider'

const base = process.env.DOORWARD_BASE
const port = Number(process.env.DOORWARD_UPSTREAM)
const issuer = `http://127.0.0.1:${port}`
const people = { zoe: 'zoe-Passw0rd' }

/** What a test that makes the provider misbehave answers with. */
let misbehave
let server
let asked = 0

/** The grant that oidc-provider leaves to those who want it. */
async function password(ctx) {
  const { username, password, scope } = ctx.oidc.params
  if (!people[username] || people[username] !== password) throw new errors.InvalidGrant('who is that?')
  const { client, provider } = ctx.oidc
  const grant = new provider.Grant({ accountId: username, clientId: client.clientId })
  grant.addOIDCScope(scope ?? 'openid')
  const of = { accountId: username, client, grantId: await grant.save(), gty: 'password', scope: scope ?? 'openid' }
  const access = new provider.AccessToken(of)
  ctx.body = {
    access_token: await access.save(),
    refresh_token: await new provider.RefreshToken(of).save(),
    expires_in: access.expiration,
    token_type: access.tokenType,
    scope: of.scope,
  }
}

before(async () => {
  const client = (id) => ({
    client_id: id,
    client_secret: `${id}-secret`,
    token_endpoint_auth_method: 'client_secret_post',
    grant_types: ['password', 'refresh_token'],
    response_types: [],
    redirect_uris: [],
    scope: 'openid',
  })
  const provider = new Provider(issuer, {
    clients: ['orders', 'other'].map(client),
    cookies: { keys: ['for a test'] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    ttl: { AccessToken: 3600, Grant: 7200, RefreshToken: 7200 },
  })
  provider.registerGrantType('password', password, ['username', 'password', 'scope'])
  const regular = provider.callback()
  server = createServer((request, response) => {
    asked += 1
    if (misbehave) misbehave(response, request)
    else regular(request, response)
  })
  await listen()
})

async function listen() {
  server.listen(port, '127.0.0.1')
  await new Promise((listening) => server.once('listening', listening))
}

async function close() {
  server.closeAllConnections()
  await new Promise((closed) => server.close(closed))
}

after(close)

const FORM = {
  grant_type: 'password',
  username: 'zoe',
  password: people.zoe,
  client_id: 'orders',
  client_secret: 'orders-secret',
  scope: 'openid',
}

async function post(path, form) {
  const response = await fetch(`${base}${path}`, { method: 'POST', body: new URLSearchParams(form), redirect: 'manual' })
  const text = await response.text()
  return { status: response.status, text, body: JSON.parse(text) }
}

const ask = (changes = {}) => post('/weather/access_token', { ...FORM, ...changes })

async function call(token, path = '/weather/today') {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const response = await fetch(`${base}${path}`, { headers })
  return { status: response.status, text: await response.text(), challenge: response.headers.get('www-authenticate') }
}

const INVALID = {
  fault: { faultstring: 'Invalid access token', detail: { errorcode: 'oauth.v2.InvalidAccessToken' } },
}

/** How many tokens the broker keeps. */
async function kept() {
  const { DOORWARD_PROGRAM, DOORWARD_DIR } = process.env
  const words = ['store', 'export', '-c', `${DOORWARD_DIR}/doorward.yaml`]
  const { stdout } = await promisify(execFile)(DOORWARD_PROGRAM, words, { maxBuffer: 64 << 20 })
  return JSON.parse(stdout.trimEnd().split('\n').at(-1)).rows.broker_tokens
}

test('a password becomes the token of the foreign provider', async () => {
  const { status, body, text } = await ask()
  assert.equal(status, 200, text)
  assert.deepEqual(Object.keys(body), [
    'refresh_token_expires_in',
    'refresh_token_status',
    'api_product_list',
    'api_product_list_json',
    'organization_name',
    'developer.email',
    'token_type',
    'issued_at',
    'client_id',
    'access_token',
    'refresh_token',
    'application_name',
    'scope',
    'refresh_token_issued_at',
    'expires_in',
    'refresh_count',
    'status',
  ])
  const { api_product_list_json: products, ...others } = body
  assert.deepEqual(products, ['weather', 'reports premium'])
  for (const [name, value] of Object.entries(others)) assert.equal(typeof value, 'string', name)
  assert.equal(body.expires_in, '1799')
  assert.equal(body.token_type, 'BearerToken')
  assert.equal(body.client_id, 'orders')
  // It is the provider's own, which knows it.
  const known = await fetch(`${issuer}/me`, { headers: { authorization: `Bearer ${body.access_token}` } })
  assert.deepEqual(await known.json(), { sub: 'zoe' })
  assert.equal((await call(body.access_token)).status, 200)
  assert.equal(await kept(), 1)
})

test('who has no good token is told so', async () => {
  for (const token of [undefined, '', 'nobodys']) {
    const { status, text, challenge } = await call(token)
    assert.equal(status, 401)
    assert.deepEqual(JSON.parse(text), INVALID)
    assert.match(challenge, /^Bearer realm="null",error="invalid_token"/)
  }
})

test('what the provider or the broker does not let in gets no token', async () => {
  const before = await kept()
  for (const [change, status, error] of [
    [{ password: 'wrong' }, 401, ['invalid_request', 'External authorization failed']],
    [{ username: 'nobody' }, 401, ['invalid_request', 'External authorization failed']],
    [{ client_secret: 'wrong' }, 401, ['invalid_client', 'ClientId is Invalid']],
    [{ grant_type: 'client_credentials' }, 400, ['invalid_request', 'Unsupported grant type : client_credentials']],
    [{ username: '' }, 400, ['invalid_request', 'Required param : username']],
  ]) {
    const answer = await ask(change)
    assert.equal(answer.status, status, answer.text)
    assert.deepEqual(answer.body, { ErrorCode: error[0], Error: error[1] })
  }
  // The provider knows this client, the broker does not: nobody is asked.
  const calls = asked
  const answer = await ask({ client_id: 'other', client_secret: 'other-secret' })
  assert.deepEqual([answer.status, answer.body.ErrorCode], [401, 'invalid_client'])
  assert.equal(asked, calls)
  assert.equal(await kept(), before)
})

test('a refresh is between client and broker', async () => {
  const first = (await ask()).body
  const calls = asked
  const form = { grant_type: 'refresh_token', client_id: 'orders', client_secret: 'orders-secret' }
  const refresh = (token) => post('/weather/refresh_token', { ...form, refresh_token: token })
  const second = await refresh(first.refresh_token)
  assert.equal(second.status, 200, second.text)
  assert.equal(second.body.refresh_count, '1')
  assert.equal(asked, calls)
  assert.equal((await call(second.body.access_token)).status, 200)
  assert.equal((await call(first.access_token)).status, 401)
  assert.equal((await refresh(first.refresh_token)).status, 400)
})

const EXTRACTION = 'steps.extractvariables.SourceMessageNotAvailable'
const EXECUTION = 'steps.servicecallout.ExecutionFailed'
const GOOD = '{"access_token":"s3cret-token","expires_in":60}'
const json = { 'content-type': 'application/json' }
const reply = (status, headers, body) => (response) => response.writeHead(status, headers).end(body)
const huge = `{"access_token":"s3cret-token","pad":"${'s3cret'.repeat(10 << 18)}"}`

for (const [name, way, code] of [
  ['answers with a page', reply(200, { 'content-type': 'text/html' }, '<html>s3cret</html>'), EXTRACTION],
  ['breaks off its JSON', reply(200, json, GOOD.slice(0, -1)), EXTRACTION],
  ['answers with nothing', reply(200, json, ''), EXTRACTION],
  ['answers with a list', reply(200, json, `[${GOOD}]`), EXTRACTION],
  ['says the token twice', reply(200, json, '{"access_token":"s3cret-a","access_token":"s3cret-b"}'), EXTRACTION],
  ['gives a number for a token', reply(200, json, '{"access_token":7}'), EXTRACTION],
  ['gives a token that is no header', reply(200, json, '{"access_token":"s3cret\\r\\nX: y"}'), EXTRACTION],
  ['packs its answer', reply(200, { ...json, 'content-encoding': 'gzip' }, gzipSync(GOOD)), EXTRACTION],
  ['fails', reply(500, json, GOOD), EXECUTION],
  ['is busy', reply(503, { ...json, 'retry-after': '1' }, GOOD), EXECUTION],
  ['leads elsewhere', reply(302, { ...json, location: `${issuer}/elsewhere` }, GOOD), EXECUTION],
  ['leads elsewhere with the form', reply(307, { ...json, location: 'http://127.0.0.1:1/' }, GOOD), EXECUTION],
  ['answers with 10 MB', reply(200, { ...json, 'content-length': huge.length }, huge), EXECUTION],
  ['answers with 10 MB in pieces', reply(200, { ...json, 'transfer-encoding': 'chunked' }, huge), EXECUTION],
  ['says nothing', () => {}, EXECUTION],
  ['says a byte now and then', (response) => {
    response.writeHead(200, json)
    const timer = setInterval(() => response.write(' '), 100)
    response.on('close', () => clearInterval(timer))
  }, EXECUTION],
  ['hangs up', (_, request) => request.socket.destroy(), EXECUTION],
]) {
  test(`a provider that ${name} is a fault, which shows and keeps nothing of it`, async () => {
    const before = await kept()
    misbehave = way
    const answer = await ask().finally(() => (misbehave = undefined))
    assert.equal(answer.status, 500, answer.text)
    assert.deepEqual(Object.keys(answer.body), ['fault'])
    assert.equal(answer.body.fault.detail.errorcode, code)
    assert.doesNotMatch(answer.text, /s3cret|elsewhere|127\.0\.0\.1/)
    assert.equal(await kept(), before)
    assert.equal((await ask()).status, 200)
  })
}

test('while the provider is down tokens are good, and there are no new ones', async () => {
  const { access_token: token } = (await ask()).body
  const before = await kept()
  await close()
  const answer = await ask()
  assert.equal(answer.status, 500)
  assert.equal(answer.body.fault.detail.errorcode, EXECUTION)
  assert.doesNotMatch(answer.text, /127\.0\.0\.1|refused/)
  assert.equal((await call(token)).status, 200)
  assert.equal(await kept(), before)
  await listen()
  assert.equal((await ask()).status, 200)
})
