// What the official suite for OpenID providers asks of a provider, module by
// module; each test has the name of its module. Plans: config, basic, implicit,
// hybrid, form post, RP-initiated logout.
import { Browser, base, callback, challenge, claims, desk, form, issuer, random, request as requestOf, verifier } from './setting.mjs'
import test from 'node:test'
import assert from 'node:assert/strict'
import { createRemoteJWKSet, jwtVerify } from 'jose'

const meta = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()
const keys = createRemoteJWKSet(new URL(meta.jwks_uri))
const PKCE = { code_challenge: challenge, code_challenge_method: 'S256' }
const request = (changes) => requestOf('hybrid', changes)
const address = (parameters) => `${meta.authorization_endpoint}?${new URLSearchParams(parameters)}`

/** What the client is told; in the fragment exactly where that is due. */
async function authorize(parameters, { browser = new Browser(), ...how } = {}) {
  const answer = await browser.authorize(address(parameters), how)
  assert.equal(answer.origin + answer.pathname, callback, answer.href)
  const front = (parameters.response_type ?? '') !== 'code' && !!parameters.response_type
  const [due, empty] = front ? [answer.hash, answer.search] : [answer.search, answer.hash]
  assert.equal(empty, '', answer.href)
  const told = Object.fromEntries(new URLSearchParams(due.slice(1)))
  assert.equal(told.state, parameters.state)
  return told
}

async function token(fields, authentication = { client_id: 'hybrid', client_secret: 'hybrid-secret' }) {
  const body = new URLSearchParams({ ...authentication, ...fields })
  const response = await fetch(meta.token_endpoint, { method: 'POST', body })
  assert.match(response.headers.get('content-type'), /^application\/json/)
  assert.match(response.headers.get('cache-control'), /no-store/)
  return { status: response.status, ...(await response.json()) }
}

const exchange = (code, more = {}) =>
  token({ grant_type: 'authorization_code', code, redirect_uri: callback, ...more })

/** The claims of an ID token that is all right. */
async function verified(id_token, { nonce, audience = 'hybrid' } = {}) {
  const { payload, protectedHeader } = await jwtVerify(id_token, keys, { issuer, audience, clockTolerance: 1 })
  assert.ok(protectedHeader.kid)
  assert.equal(payload.nonce, nonce)
  assert.ok(payload.sub.length <= 255)
  assert.ok(Number.isInteger(payload.iat) && Number.isInteger(payload.exp))
  for (const value of Object.values(payload)) assert.notEqual(value, null)
  return payload
}

async function signIn(changes, how) {
  const parameters = request(changes)
  const told = await authorize(parameters, how)
  assert.ok(told.code, JSON.stringify(told))
  const tokens = await exchange(told.code)
  assert.equal(tokens.status, 200, JSON.stringify(tokens))
  assert.match(tokens.token_type, /^bearer$/i)
  assert.ok(Number.isInteger(tokens.expires_in))
  return { ...tokens, claims: await verified(tokens.id_token, parameters), told }
}

async function userinfo(access_token) {
  const response = await fetch(meta.userinfo_endpoint, { headers: { authorization: `Bearer ${access_token}` } })
  assert.equal(response.status, 200)
  return response.json()
}

async function refused(changes, error, how) {
  const told = await authorize(request(changes), how)
  assert.ok([error].flat().includes(told.error), JSON.stringify(told))
  assert.equal(told.code ?? told.id_token ?? told.access_token, undefined)
  assert.equal(told.iss, issuer)
}

/** An answer that leads nowhere and says why. */
async function shown(url, code, init) {
  const response = await new Browser().fetch(url, init)
  assert.equal(response.status, 400)
  assert.equal(response.headers.get('location'), null)
  assert.match(await response.text(), new RegExp(`id="doorward-error">${code}<`))
}

// --- config

test('oidcc-discovery-endpoint-verification', async () => {
  const response = await fetch(`${issuer}/.well-known/openid-configuration`)
  assert.equal(response.headers.get('content-type'), 'application/json')
  assert.equal(meta.issuer, issuer)
  for (const [name, value] of Object.entries(meta)) {
    if (/_endpoint$|_uri$|_iframe$/.test(name)) assert.match(value, /^https:\/\/[^?#]+$/, name)
    if (/_supported$/.test(name) && Array.isArray(value)) {
      assert.ok(value.length > 0, name)
      assert.equal(new Set(value).size, value.length, name)
    }
  }
  for (const name of ['authorization_endpoint', 'token_endpoint', 'jwks_uri', 'userinfo_endpoint']) assert.ok(meta[name])
  assert.ok(meta.scopes_supported.includes('openid'))
  assert.ok(meta.id_token_signing_alg_values_supported.includes('RS256'))
  assert.ok(meta.subject_types_supported.includes('public'))
  assert.ok(meta.claims_supported.includes('sub'))
  assert.equal(meta.claims_parameter_supported, true)
  for (const type of ['code', 'id_token', 'id_token token', 'code id_token']) {
    assert.ok(meta.response_types_supported.includes(type))
  }
  const { keys } = await (await fetch(meta.jwks_uri)).json()
  assert.equal(new Set(keys.map(({ kid }) => kid)).size, keys.length)
  for (const key of keys) {
    assert.ok(key.kty && key.kid && key.use === 'sig' && key.alg)
    for (const secret of ['d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'oth']) assert.equal(key[secret], undefined)
    if (key.kty === 'RSA') assert.ok(Buffer.from(key.n, 'base64url').length >= 256)
  }
})

// --- basic

test('oidcc-server', async () => {
  const { access_token, claims, told } = await signIn()
  assert.ok(told.code.length >= 22 && access_token.length >= 22)
  assert.equal((await userinfo(access_token)).sub, claims.sub)
})

test('oidcc-response-type-missing', () => refused({ response_type: undefined }, ['invalid_request', 'unsupported_response_type']))

test('oidcc-userinfo-get, -post-header, -post-body', async () => {
  const { access_token } = await signIn()
  const authorization = `Bearer ${access_token}`
  for (const init of [
    { headers: { authorization } },
    { method: 'POST', headers: { authorization } },
    { method: 'POST', body: new URLSearchParams({ access_token }) },
  ]) {
    const response = await fetch(meta.userinfo_endpoint, init)
    assert.equal(response.status, 200)
    assert.match(response.headers.get('content-type'), /^application\/json/)
    assert.equal((await response.json()).sub, 'demo')
  }
})

test('oidcc-ensure-request-without-nonce-succeeds-for-code-flow', () => signIn({ nonce: undefined }))

test('oidcc-scope-profile, -email, -address, -phone, -all', async () => {
  const due = {
    profile: ['name', 'given_name', 'family_name', 'preferred_username', 'zoneinfo', 'locale', 'updated_at'],
    email: ['email', 'email_verified'],
    address: ['address'],
    phone: ['phone_number'],
  }
  const ask = async (scope) => {
    const parameters = request({ client_id: desk.id, scope, ...PKCE })
    const { code } = await authorize(parameters)
    const response = await fetch(meta.token_endpoint, {
      method: 'POST',
      headers: {
        authorization: `Basic ${Buffer.from(`${encodeURIComponent(desk.id)}:${encodeURIComponent(desk.secret)}`).toString('base64')}`,
      },
      body: new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri: callback, code_verifier: verifier }),
    })
    const tokens = await response.json()
    const told = await verified(tokens.id_token, { ...parameters, audience: desk.id })
    // They are for the userinfo endpoint, as there is an access token.
    assert.equal(told.email ?? told.name ?? told.address ?? told.phone_number, undefined)
    return userinfo(tokens.access_token)
  }
  for (const [scope, names] of Object.entries(due)) {
    const info = await ask(`openid ${scope}`)
    for (const name of names) assert.ok(name in info, `${scope}: ${name}`)
    for (const [other, names] of Object.entries(due)) {
      if (other !== scope) assert.ok(!names.some((name) => name in info), `${scope} gives ${other}`)
    }
    assert.ok(Object.values(info).every((value) => value !== null && value !== ''))
  }
  const all = await ask('openid profile email address phone')
  for (const name of Object.values(due).flat()) assert.ok(name in all, name)
  assert.equal(typeof all.email_verified, 'boolean')
  assert.equal(typeof all.address, 'object')
})

test('oidcc-ensure-other-scope-order-succeeds', () => signIn({ scope: 'email openid' }))

test('oidcc-display-page, -popup; unknown parameters; locales; acr_values; login_hint', async () => {
  for (const more of [
    { display: 'page' },
    { display: 'popup' },
    { extra: 'foobar' },
    { ui_locales: 'se' },
    { claims_locales: 'se' },
    { acr_values: '1 2' },
    { login_hint: 'buffy@127.0.0.1' },
    { id_token_hint: undefined, registration: undefined },
  ]) {
    await signIn(more)
  }
})

test('oidcc-prompt-login', async () => {
  const browser = new Browser()
  const first = await signIn({ max_age: '15000' }, { browser })
  await new Promise((done) => setTimeout(done, 1100))
  const page = await (await browser.fetch(address(request({ prompt: 'login' })))).text()
  assert.match(page, /name="password"/)
  const second = await signIn({ prompt: 'login', max_age: '15000' }, { browser })
  assert.ok(second.claims.auth_time > first.claims.auth_time)
})

test('oidcc-prompt-none-not-logged-in', () => refused({ prompt: 'none' }, ['login_required', 'interaction_required']))

test('oidcc-prompt-none-logged-in, oidcc-id-token-hint', async () => {
  const browser = new Browser()
  const first = await signIn({ max_age: '10000' }, { browser })
  const second = await signIn({ prompt: 'none', max_age: '10000' }, { browser })
  assert.equal(second.claims.sub, first.claims.sub)
  assert.equal(second.claims.auth_time, first.claims.auth_time)
  const hinted = await signIn({ prompt: 'none', id_token_hint: first.id_token }, { browser })
  assert.equal(hinted.claims.sub, first.claims.sub)
  await refused({ prompt: 'none', id_token_hint: first.id_token }, 'login_required', {})
})

test('oidcc-max-age-1, oidcc-max-age-10000', async () => {
  const browser = new Browser()
  const first = await signIn({}, { browser })
  const old = await signIn({ max_age: '10000' }, { browser })
  assert.ok(Number.isInteger(old.claims.auth_time))
  await new Promise((done) => setTimeout(done, 2100))
  const again = await signIn({ max_age: '1' }, { browser })
  assert.ok(again.claims.auth_time > old.claims.auth_time)
  assert.equal(again.claims.sub, first.claims.sub)
})

test('oidcc-codereuse', async () => {
  const { code } = await authorize(request())
  const tokens = await exchange(code)
  const again = await exchange(code)
  assert.deepEqual([again.status, again.error], [400, 'invalid_grant'])
  const response = await fetch(meta.userinfo_endpoint, { headers: { authorization: `Bearer ${tokens.access_token}` } })
  assert.equal(response.status, 401)
  assert.equal((await token({ grant_type: 'refresh_token', refresh_token: tokens.refresh_token ?? 'x' })).error, 'invalid_grant')
})

test('oidcc-ensure-registered-redirect-uri, -redirect-uri-in-authorization-request', async () => {
  for (const redirect_uri of [`${callback}/`, `${callback}?x=1`, 'https://evil.test/cb', `${callback}#f`]) {
    await shown(address(request({ redirect_uri })), 'redirect_uri_mismatch')
  }
  await shown(address(request({ redirect_uri: undefined })), 'invalid_request')
})

test('oidcc-ensure-post-request-succeeds', async () => {
  const browser = new Browser()
  const parameters = request()
  const first = await browser.fetch(meta.authorization_endpoint, { method: 'POST', body: new URLSearchParams(parameters) })
  const answer = await browser.follow(first)
  assert.equal(answer.searchParams.get('state'), parameters.state)
  assert.equal((await exchange(answer.searchParams.get('code'))).status, 200)
})

test('oidcc-claims-essential', async () => {
  const { access_token } = await signIn({ scope: 'openid profile', claims: '{"userinfo":{"name":{"essential":true}}}' })
  assert.equal((await userinfo(access_token)).name, 'Demo User')
})

test('oidcc-ensure-request-with-valid-pkce-succeeds', async () => {
  const { code } = await authorize(request(PKCE))
  assert.equal((await exchange(code, { code_verifier: verifier })).status, 200)
})

test('oidcc-refresh-token', async () => {
  const first = await signIn({ scope: 'openid offline_access', prompt: 'consent' })
  const refresh = (more) => token({ grant_type: 'refresh_token', refresh_token: first.refresh_token, ...more })
  const foreign = await token(
    { grant_type: 'refresh_token', refresh_token: first.refresh_token },
    { client_id: 'poster', client_secret: 'poster-secret' },
  )
  assert.deepEqual([foreign.status, foreign.error], [400, 'invalid_grant'])
  const second = await refresh()
  assert.equal(second.status, 200, JSON.stringify(second))
  const next = claims(second.id_token)
  for (const name of ['iss', 'sub', 'aud', 'auth_time', 'azp']) {
    assert.deepEqual(next[name], first.claims[name], name)
  }
  assert.ok(next.iat >= first.claims.iat)
})

const rejected = async (parameters, errors) => {
  const response = await new Browser().fetch(address(request(parameters)))
  const { searchParams } = new URL(response.headers.get('location') ?? base)
  assert.ok(errors.includes(searchParams.get('error')), response.headers.get('location'))
}

test('oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported', () => {
  const object = [{ alg: 'none' }, request()].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
  return rejected({ request: `${object.join('.')}.` }, ['request_not_supported', 'invalid_request_object'])
})

test('oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported', () =>
  rejected({ request_uri: 'https://app.test/request.jwt' }, [
    'request_uri_not_supported',
    'invalid_request_uri',
    'invalid_request',
  ]))

// --- implicit and hybrid

const half = async (text) => {
  const hash = await crypto.subtle.digest('SHA-256', Buffer.from(text))
  return Buffer.from(hash).subarray(0, 16).toString('base64url')
}

for (const response_type of ['id_token', 'id_token token', 'code id_token', 'code token', 'code id_token token']) {
  test(`oidcc-server, response_type=${response_type}`, async () => {
    const parameters = request({ response_type, scope: 'openid email' })
    const told = await authorize(parameters)
    let first
    if (told.id_token) {
      first = await verified(told.id_token, parameters)
      assert.equal(first.at_hash, told.access_token && (await half(told.access_token)))
      assert.equal(first.c_hash, told.code && (await half(told.code)))
      assert.equal(first.email !== undefined, response_type === 'id_token')
    }
    if (told.access_token) {
      assert.match(told.token_type, /^bearer$/i)
      assert.equal((await userinfo(told.access_token)).email, 'demo@example.com')
    }
    if (told.code) {
      const tokens = await exchange(told.code)
      const second = await verified(tokens.id_token, parameters)
      if (first) assert.deepEqual([first.iss, first.sub], [second.iss, second.sub])
    }
  })

  test(`oidcc-ensure-request-without-nonce-fails, response_type=${response_type}`, { skip: !/id_token/.test(response_type) }, () =>
    refused({ response_type, nonce: undefined }, 'invalid_request'))

  test(`oidcc-prompt-none-not-logged-in, response_type=${response_type}`, () =>
    refused({ response_type, prompt: 'none' }, 'login_required'))

  test(`oidcc form post, response_type=${response_type}`, async () => {
    const parameters = request({ response_type, response_mode: 'form_post' })
    const page = await new Browser().authorize(address(parameters))
    assert.equal(page.action, callback)
    assert.equal(page.fields.get('state'), parameters.state)
    for (const word of ['code', 'id_token']) {
      assert.equal(page.fields.has(word), response_type.split(' ').includes(word))
    }
    const failed = await new Browser().authorize(address({ ...parameters, prompt: 'none' }))
    assert.equal(failed.fields.get('error'), 'login_required')
  })
}

test('a mode that would show tokens to servers is refused', async () => {
  const response = await new Browser().fetch(address(request({ response_type: 'id_token', response_mode: 'query' })))
  const location = new URL(response.headers.get('location'))
  assert.equal(location.search, '')
  assert.equal(new URLSearchParams(location.hash.slice(1)).get('error'), 'invalid_request')
})

test('a long nonce and a long state come back unchanged', async () => {
  const parameters = request({ nonce: 'n'.repeat(384), state: `s ${'ß&=+%"<>'.repeat(16)}` })
  const { code } = await authorize(parameters)
  await verified((await exchange(code)).id_token, parameters)
})

// --- RP-initiated logout

const BYE = 'https://app.test/bye'

/** Someone who is signed in, and who may ask to be signed out. */
async function session() {
  const browser = new Browser()
  const { id_token } = await signIn({}, { browser })
  return {
    id_token,
    ask: (parameters, method = 'GET') => {
      const query = new URLSearchParams(parameters)
      return method === 'GET'
        ? browser.fetch(`${meta.end_session_endpoint}?${query}`)
        : browser.fetch(meta.end_session_endpoint, { method, body: query })
    },
    signedIn: async () => {
      const told = await authorize(request({ prompt: 'none' }), { browser })
      return told.code !== undefined
    },
    browser,
  }
}

test('oidcc-rp-initiated-logout, by GET and POST', async () => {
  for (const method of ['GET', 'POST']) {
    const user = await session()
    const answer = await user.ask({ id_token_hint: user.id_token, post_logout_redirect_uri: BYE, state: 'a b' }, method)
    assert.match(answer.headers.get('location'), /^https:\/\/app\.test\/bye\?state=a(\+|%20)b$/)
    assert.equal(await user.signedIn(), false)
  }
})

test('oidcc-rp-initiated-logout-no-state', async () => {
  const user = await session()
  const answer = await user.ask({ id_token_hint: user.id_token, post_logout_redirect_uri: BYE })
  assert.equal(answer.headers.get('location'), BYE)
})

test('oidcc-rp-initiated-logout-bad-post-logout-redirect-uri, -query-added', async () => {
  for (const bad of ['https://evil.test/', `${BYE}?foo=bar`, `${BYE}/`, 'https://app.test/other']) {
    const user = await session()
    const answer = await user.ask({ id_token_hint: user.id_token, post_logout_redirect_uri: bad, state: 's' })
    assert.equal(answer.headers.get('location'), null, bad)
  }
})

test('oidcc-rp-initiated-logout-modified-id-token-hint, -bad-id-token-hint', async () => {
  const user = await session()
  const [header, payload, signature] = user.id_token.split('.')
  const none = Buffer.from('{"alg":"none"}').toString('base64url')
  const other = Buffer.from(JSON.stringify({ ...claims(user.id_token), sub: 'alice' })).toString('base64url')
  for (const hint of [`${none}.${payload}.`, `${header}.${other}.${signature}`, 'bad']) {
    const answer = await user.ask({ id_token_hint: hint, post_logout_redirect_uri: BYE, state: 's' })
    assert.equal(answer.headers.get('location'), null, hint)
    assert.equal(await user.signedIn(), true)
  }
})

test('oidcc-rp-initiated-logout-no-id-token-hint, -no-params, -only-state', async () => {
  for (const parameters of [{ post_logout_redirect_uri: BYE, state: 's' }, {}, { state: 's' }]) {
    const user = await session()
    const answer = await user.ask(parameters)
    assert.equal(answer.status, 200, JSON.stringify(parameters))
    assert.match(await answer.clone().text(), /name="logout-yes"/)
    assert.equal(await user.signedIn(), true)
    const page = form(await answer.text())
    page.fields.set('logout-yes', 'true')
    const done = await user.browser.fetch(new URL(page.action, base), { method: 'POST', body: page.fields })
    assert.equal(done.status, 200)
    assert.equal(await user.signedIn(), false)
  }
})

test('oidcc-rp-initiated-logout-no-post-logout-redirect-uri', async () => {
  const user = await session()
  const answer = await user.ask({ id_token_hint: user.id_token })
  assert.equal(answer.status, 200)
  assert.equal(await user.signedIn(), false)
})
