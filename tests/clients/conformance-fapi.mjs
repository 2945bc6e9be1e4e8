// What the official suite asks of a provider for the FAPI 2.0 Security Profile
// (private_key_jwt, DPoP, OpenID Connect) and of signed requests of FAPI 2.0
// Message Signing; each test has the name of its module.
import { Browser, callback, claims, issuer } from './setting.mjs'
import { CLIENTS, Flow, Key, meta, now, post, published, random, sign } from './fapi.mjs'
import test from 'node:test'
import assert from 'node:assert/strict'
import * as jose from 'jose'

const start = async (client, alg) => new Flow(client, await Key.make(alg))

const told = ({ status, error }) => [status, error]

test('discovery-endpoint-verification', () => {
  assert.ok(meta.token_endpoint_auth_methods_supported.includes('private_key_jwt'))
  for (const alg of ['PS256', 'ES256', 'EdDSA']) {
    assert.ok(meta.token_endpoint_auth_signing_alg_values_supported.includes(alg))
    assert.ok(meta.dpop_signing_alg_values_supported.includes(alg))
  }
  assert.ok(!meta.dpop_signing_alg_values_supported.some((alg) => /^HS|none/.test(alg)))
  assert.ok(meta.code_challenge_methods_supported.includes('S256'))
  assert.equal(meta.authorization_response_iss_parameter_supported, true)
  assert.match(meta.pushed_authorization_request_endpoint, /^https:/)
})

for (const client of ['fapi-1', 'fapi-2']) {
  test(`happy-flow, ${client}`, async () => {
    for (const alg of ['ES256', 'PS256', 'EdDSA']) {
      const flow = await start(client, alg)
      const tokens = await flow.whole()
      assert.match(tokens.token_type, /^dpop$/i)
      const { payload, protectedHeader } = await jose.jwtVerify(tokens.id_token, published, { issuer, audience: client })
      assert.ok(['PS256', 'ES256', 'EdDSA'].includes(protectedHeader.alg))
      assert.equal(payload.nonce, flow.nonce)
      const due = 'iss sub aud exp iat auth_time nonce acr amr azp at_hash s_hash'.split(' ')
      assert.deepEqual(Object.keys(payload).filter((name) => !due.includes(name)), [])
      const response = await flow.resource(tokens.access_token)
      assert.equal(response.status, 200)
      assert.ok(response.headers.get('date'))
      assert.ok(tokens.access_token.length >= 22)
    }
  })
}

test('access-token-type-header-case-sensitivity', async () => {
  const flow = await start()
  const { access_token } = await flow.whole()
  for (const scheme of ['DPoP', 'dpop', 'DPOP']) assert.equal((await flow.resource(access_token, { scheme })).status, 200)
})

test('user-rejects-authentication', async () => {
  const flow = await start()
  const answer = await flow.authorize({ prompt: 'consent' }, { decide: 'deny' })
  assert.deepEqual([answer.error, answer.state], ['access_denied', flow.state])
})

test('ensure-authorization-request-without-state-success, -without-nonce-success, -with-long-nonce, -with-long-state', async () => {
  const changes = [{ state: undefined }, { nonce: undefined }, { nonce: 'n'.repeat(384) }, { state: 's'.repeat(1000) }]
  for (const change of changes) {
    const flow = await start()
    const answer = await flow.authorize(change)
    assert.equal(answer.state, 'state' in change ? change.state : flow.state)
    const tokens = await flow.exchange(answer.code)
    assert.equal(claims(tokens.id_token).nonce, 'nonce' in change ? change.nonce : flow.nonce)
  }
})

test('ensure-other-scope-order-succeeds, test-claims-parameter-identity-claims', async () => {
  await (await start()).whole({ scope: 'email openid' })
  const wish = JSON.stringify({ id_token: { email: { essential: true }, auth_time: { essential: true } } })
  const tokens = await (await start()).whole({ claims: wish })
  assert.ok(claims(tokens.id_token).email && claims(tokens.id_token).auth_time)
})

test('ensure-unsigned-authorization-request-without-using-par-fails', async () => {
  const flow = await start()
  const response = await new Browser().fetch(`${meta.authorization_endpoint}?${new URLSearchParams(flow.parameters)}`)
  const location = response.headers.get('location')
  assert.equal(location ? new URL(location).searchParams.get('error') : 'invalid_request', 'invalid_request')
})

test('par-without-redirect-uri, ensure-registered-redirect-uri, ensure-request-object-... response_type', async () => {
  for (const [change, errors] of [
    [{ redirect_uri: undefined }, ['invalid_request']],
    [{ redirect_uri: 'https://evil.test/' }, ['invalid_request', 'invalid_redirect_uri']],
    [{ redirect_uri: 'http://app.test/cb' }, ['invalid_request', 'invalid_redirect_uri']],
    [{ response_type: 'code id_token' }, ['unsupported_response_type', 'unauthorized_client', 'invalid_request']],
    [{ response_type: 'none' }, ['unsupported_response_type', 'invalid_request']],
    [{ response_type: undefined }, ['invalid_request']],
    [{ scope: 'openid', request_uri: 'urn:ietf:params:oauth:request_uri:x' }, ['invalid_request']],
    [{ code_challenge: undefined, code_challenge_method: undefined }, ['invalid_request']],
    [{ code_challenge_method: 'plain' }, ['invalid_request']],
  ]) {
    const answer = await (await start()).push(change)
    assert.equal(answer.status, 400, JSON.stringify(change))
    assert.ok(errors.includes(answer.error), `${JSON.stringify(change)}: ${answer.error}`)
  }
})

test('incorrect-pkce-code-verifier-rejected, missing-pkce-code-verifier-rejected', async () => {
  for (const code_verifier of [random(), undefined]) {
    const flow = await start()
    const { code } = await flow.authorize()
    const answer = await flow.exchange(code, { code_verifier })
    assert.equal(answer.status, 400)
    assert.match(answer.error, /^invalid_(grant|request)$/)
  }
})

test('ensure-authorization-code-is-bound-to-client, attempt-reuse-authorization-code', async () => {
  const flow = await start()
  const { code } = await flow.authorize()
  const other = await start('fapi-2')
  other.verifier = flow.verifier
  assert.deepEqual(told(await other.exchange(code)), [400, 'invalid_grant'])
  const again = await flow.authorize()
  const tokens = await flow.exchange(again.code)
  await new Promise((done) => setTimeout(done, 1000))
  assert.deepEqual(told(await flow.exchange(again.code)), [400, 'invalid_grant'])
  assert.equal((await flow.resource(tokens.access_token)).status, 401)
})

test('par-attempt-invalid-http-method', async () => {
  const flow = await start()
  const query = new URLSearchParams(await flow.authenticated(flow.parameters))
  const response = await fetch(`${meta.pushed_authorization_request_endpoint}?${query}`)
  assert.equal(response.status, 405)
  assert.equal(response.headers.get('allow'), 'POST')
})

/** The provider's answer to a request that it must not follow. */
async function refused(url) {
  const response = await new Browser().fetch(url)
  const location = response.headers.get('location')
  const error = location
    ? new URL(location).searchParams.get('error')
    : /id="doorward-error">([^<]*)</.exec(await response.text())?.[1]
  assert.match(error ?? `status ${response.status}`, /^invalid_request/)
}

test('par-attempt-to-use-request-uri-for-different-client, par-attempt-reuse-request-uri', async () => {
  const flow = await start()
  const pushed = await flow.push()
  await refused(flow.address(pushed, 'fapi-2'))
  await new Browser().authorize(flow.address(pushed))
  await refused(flow.address(pushed))
  await refused(flow.address({ request_uri: `${pushed.request_uri}x` }))
})

test('par-ensure-reused-request-uri-prior-to-auth-completion-succeeds', async () => {
  const flow = await start()
  const pushed = await flow.push()
  const browser = new Browser()
  for (let visits = 0; visits < 2; visits += 1) {
    const page = await browser.authorize(flow.address(pushed), { until: 'name="password"' })
    assert.match(page, /name="password"/)
  }
  const answer = await browser.authorize(flow.address(pushed))
  assert.equal((await flow.exchange(answer.searchParams.get('code'))).status, 200)
})

// --- client assertions

test('ensure-client-assertion: what is accepted', async () => {
  for (const change of [
    (payload) => (payload.nbf = now()),
    (payload) => (payload.nbf = payload.iat = now() + 8),
    (payload) => delete payload.iat,
  ]) {
    const flow = await start()
    assert.equal((await flow.push({}, { assertion: change })).status, 201, String(change))
  }
})

test('ensure-client-assertion: what is refused', async () => {
  const changes = [
    (payload) => (payload.aud = [issuer, 'https://other.test']),
    (payload) => (payload.aud = [issuer]),
    (payload) => (payload.aud = meta.token_endpoint),
    (payload) => (payload.aud = meta.pushed_authorization_request_endpoint),
    (payload) => (payload.aud = `${issuer}/`),
    (payload) => delete payload.aud,
    (payload) => delete payload.sub,
    (payload) => delete payload.iss,
    (payload) => delete payload.exp,
    (payload) => (payload.exp = now() - 300),
    (payload) => (payload.nbf = payload.iat = now() + 60),
    (payload) => (payload.iss = payload.sub = 'fapi-2'),
  ]
  const flow = await start()
  const { code } = await flow.authorize()
  for (const change of changes) {
    assert.deepEqual(told(await flow.push({}, { assertion: change })), [401, 'invalid_client'], String(change))
    assert.deepEqual(told(await flow.exchange(code, {}, { assertion: change })), [401, 'invalid_client'], String(change))
  }
})

test('ensure-signed-client-assertion-with-RS256-fails, without an assertion', async () => {
  const flow = await start('fapi-2')
  assert.deepEqual(told(await flow.push({}, { as: 'RS256' })), [401, 'invalid_client'])
  const bare = await post(meta.pushed_authorization_request_endpoint, flow.parameters)
  assert.deepEqual(told(bare), [401, 'invalid_client'])
  const { code } = await flow.authorize()
  const fields = { grant_type: 'authorization_code', code, redirect_uri: callback, code_verifier: flow.verifier }
  const dpop = await flow.key.proof('POST', meta.token_endpoint)
  const answer = await post(meta.token_endpoint, { ...fields, client_id: 'fapi-2' }, { dpop })
  assert.deepEqual(told(answer), [401, 'invalid_client'])
})

test('ensure-client-assertion: good once', async () => {
  const flow = await start()
  const jti = random()
  assert.equal((await flow.push({}, { assertion: (payload) => (payload.jti = jti) })).status, 201)
  assert.equal((await flow.push({}, { assertion: (payload) => (payload.jti = jti) })).status, 401)
})

// --- DPoP

test('ensure-holder-of-key-required, dpop-negative-tests at the resource', async () => {
  const flow = await start()
  const { code } = await flow.authorize()
  const bare = await flow.exchange(code, {}, { key: null })
  assert.equal(bare.status, 400)
  assert.match(bare.error, /^invalid_(dpop_proof|request|grant)$/)
  const { access_token } = await (flow.verifier = random(), flow.whole())
  const wrong = [
    { scheme: 'Bearer', key: null },
    { scheme: 'Bearer' },
    { key: null },
    { key: await Key.make() },
    { proof: { token: 'other' } },
    { proof: { token: undefined } },
    { proof: { change: (payload) => (payload.htm = 'POST') } },
    { proof: { change: (payload) => (payload.htu = meta.token_endpoint) } },
    { proof: { change: (payload) => (payload.iat -= 3600) } },
    { proof: { change: (payload) => (payload.iat += 3600) } },
    { proof: { change: (payload) => delete payload.jti } },
    { proof: { header: { typ: 'JWT' } } },
    { proof: { header: { jwk: undefined } } },
  ]
  for (const how of wrong) {
    const response = await flow.resource(access_token, how)
    assert.equal(response.status, 401, JSON.stringify(how))
    assert.match(response.headers.get('www-authenticate'), /DPoP/)
  }
  for (const skew of [-10, 10]) {
    const proof = { change: (payload) => (payload.iat += skew) }
    assert.equal((await flow.resource(access_token, { proof })).status, 200, `${skew} s`)
  }
  // RFC 9449, section 4.3: query and fragment do not count.
  const proof = { change: (payload) => (payload.htu += '?a=b#c') }
  assert.equal((await flow.resource(access_token, { proof })).status, 200)
})

test('dpop-negative-tests at the token endpoint', async () => {
  const flow = await start()
  for (const proof of [
    { header: { typ: 'jwt' } },
    { header: { jwk: undefined } },
    { change: (payload) => (payload.htm = 'GET') },
    { change: (payload) => (payload.htu = issuer) },
    { change: (payload) => (payload.iat -= 3600) },
    { change: (payload) => delete payload.jti },
    { change: (payload) => delete payload.iat },
  ]) {
    const { code } = await flow.authorize()
    assert.deepEqual(told(await flow.exchange(code, {}, { proof })), [400, 'invalid_dpop_proof'], String(proof.change))
  }
  const { code } = await flow.authorize()
  const jwk = await jose.exportJWK(flow.key.privateKey ?? {}).catch(() => undefined)
  if (jwk) assert.equal((await flow.exchange(code, {}, { proof: { header: { jwk } } })).error, 'invalid_dpop_proof')
})

test('ensure-dpop-auth-code-binding-success, ensure-token-endpoint-fails-with-mismatched-dpop-jkt', async () => {
  for (const how of ['parameter', 'proof']) {
    for (const same of [true, false]) {
      const flow = await start()
      const dpop_jkt = how === 'parameter' ? await jose.calculateJwkThumbprint(flow.key.jwk) : undefined
      const htu = meta.pushed_authorization_request_endpoint
      const headers = how === 'proof' ? { dpop: await flow.key.proof('POST', htu) } : undefined
      const { code } = await flow.authorize({ dpop_jkt }, { headers })
      const answer = await flow.exchange(code, {}, { key: same ? flow.key : await Key.make() })
      assert.equal(answer.status, same ? 200 : 400, `${how} ${answer.error}`)
      if (!same) assert.match(answer.error, /^invalid_(grant|dpop_proof)$/)
    }
  }
  const flow = await start()
  const htu = meta.pushed_authorization_request_endpoint
  const other = await jose.calculateJwkThumbprint((await Key.make()).jwk)
  const pushed = await flow.push({ dpop_jkt: other }, { headers: { dpop: await flow.key.proof('POST', htu) } })
  assert.equal(pushed.status, 400)
})

test('refresh-token', async () => {
  const flow = await start()
  const first = await flow.whole({ scope: 'openid offline_access', prompt: 'consent' })
  const refresh = (how) => flow.token({ grant_type: 'refresh_token', refresh_token: first.refresh_token }, how)
  const second = await refresh()
  assert.equal(second.status, 200)
  assert.notEqual(second.access_token, first.access_token)
  assert.ok(!second.refresh_token || second.refresh_token === first.refresh_token, 'the profile has it stay')
  // A confidential client may come with another key.
  const key = await Key.make()
  const third = await refresh({ key })
  assert.equal(third.status, 200)
  assert.equal(claims(third.access_token).cnf.jkt, await jose.calculateJwkThumbprint(key.jwk))
  assert.equal((await flow.resource(third.access_token, { key })).status, 200)
  const other = await start('fapi-2')
  const foreign = await other.token({ grant_type: 'refresh_token', refresh_token: first.refresh_token })
  assert.deepEqual(told(foreign), [400, 'invalid_grant'])
})

// --- message signing: the request

/** Pushes the request as an object that the client signed. */
async function pushSigned(flow, change = () => {}, { as, header, beside } = {}) {
  const payload = { ...flow.parameters, iss: flow.client, aud: issuer, iat: now(), nbf: now(), exp: now() + 300, jti: random() }
  change(payload)
  const request = await sign(CLIENTS[flow.client], { typ: 'oauth-authz-req+jwt', ...header }, JSON.parse(JSON.stringify(payload)), as)
  const fields = await flow.authenticated({ request, ...beside })
  return post(meta.pushed_authorization_request_endpoint, fields)
}

test('signed requests: what is accepted', async () => {
  for (const change of [
    () => {},
    (payload) => (payload.aud = [issuer, 'https://other.test']),
    (payload) => (payload.nbf = now() + 8),
    (payload) => (payload.exp = payload.nbf + 3590),
  ]) {
    const flow = await start('fapi-ms')
    const pushed = await pushSigned(flow, change)
    assert.equal(pushed.status, 201, `${change} ${pushed.error_description}`)
    const answer = await new Browser().authorize(flow.address(pushed))
    assert.equal((await flow.exchange(answer.searchParams.get('code'))).status, 200)
  }
})

test('signed requests: what is refused', async () => {
  const changes = [
    (payload) => delete payload.exp,
    (payload) => delete payload.nbf,
    (payload) => delete payload.aud,
    (payload) => delete payload.iss,
    (payload) => (payload.exp = now() - 60),
    (payload) => (payload.exp = payload.nbf + 70 * 60),
    (payload) => (payload.nbf = now() - 70 * 60),
    (payload) => (payload.nbf = now() + 60),
    (payload) => (payload.aud = 'https://other.test'),
    (payload) => (payload.iss = 'fapi-2'),
    (payload) => (payload.client_id = 'fapi-2'),
    (payload) => (payload.request_uri = 'urn:x'),
    (payload) => delete payload.code_challenge,
  ]
  for (const change of changes) {
    const answer = await pushSigned(await start('fapi-ms'), change)
    assert.equal(answer.status, 400, String(change))
    assert.match(answer.error, /^invalid_request(_object)?$/)
  }
  const weak = await pushSigned(await start('fapi-ms'), undefined, { as: 'RS256' })
  assert.deepEqual(told(weak), [400, 'invalid_request_object'])
  const plain = await (await start('fapi-ms')).push()
  assert.equal(plain.status, 400)
  const foreign = await start('fapi-1')
  const request = await sign('PS256', {}, { ...foreign.parameters, iss: 'fapi-1', aud: issuer, nbf: now(), exp: now() + 60 })
  const answer = await post(meta.pushed_authorization_request_endpoint, await foreign.authenticated({ request }))
  assert.deepEqual(told(answer), [400, 'invalid_request_object'])
})

test('state-only-outside-request-object-not-used, ensure-different-nonce-inside-and-outside-request-object', async () => {
  const flow = await start('fapi-ms')
  const beside = { state: 'outside', nonce: 'outside' }
  const pushed = await pushSigned(flow, (payload) => delete payload.state, { beside })
  const answer = await new Browser().authorize(flow.address(pushed))
  assert.equal(answer.searchParams.get('state'), null)
  const tokens = await flow.exchange(answer.searchParams.get('code'))
  assert.equal(claims(tokens.id_token).nonce, flow.nonce)
})
