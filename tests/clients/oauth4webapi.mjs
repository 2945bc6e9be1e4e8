// oauth4webapi checks each single answer: shape, headers, signatures, challenges.
import './setting.mjs'
import test from 'node:test'
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import { Browser, callback, claims, desk, grants, issuer, privateKey, refusal, statement, strict } from './setting.mjs'

const discovered = new Map()

/** The metadata of an issuer, by either of the two ways. */
async function discover(server = issuer, algorithm = 'oidc') {
  const key = `${server} ${algorithm}`
  if (!discovered.has(key)) {
    const url = new URL(server)
    const response = await oauth.discoveryRequest(url, { algorithm })
    discovered.set(key, await oauth.processDiscoveryResponse(url, response))
  }
  return discovered.get(key)
}

const { ClientSecretBasic, ClientSecretPost, ClientSecretJwt, PrivateKeyJwt, None } = oauth

/** A code from the authorization endpoint, with what its exchange needs. */
async function code(as, client, parameters = {}, browser = new Browser()) {
  const verifier = oauth.generateRandomCodeVerifier()
  const [state, nonce] = [oauth.generateRandomState(), oauth.generateRandomNonce()]
  const url = new URL(as.authorization_endpoint)
  url.search = new URLSearchParams({
    client_id: client.client_id,
    redirect_uri: callback,
    response_type: 'code',
    scope: 'openid',
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    state,
    nonce,
    ...parameters,
  })
  const answer = await browser.authorize(url)
  return { answer, verifier, state, nonce }
}

/** Exchanges the code, with every check. */
async function tokens(as, client, auth, parameters, options) {
  const { answer, verifier, state, nonce } = await code(as, client, parameters)
  const valid = oauth.validateAuthResponse(as, client, answer, state)
  const ask = () => oauth.authorizationCodeGrantRequest(as, client, auth, valid, callback, verifier, options)
  const process = async (response) => {
    const result = await oauth.processAuthorizationCodeResponse(as, client, response, {
      expectedNonce: nonce,
      requireIdToken: true,
    })
    await oauth.validateApplicationLevelSignature(as, response)
    return result
  }
  return onceMore(ask, process)
}

/** Asks again where the first answer demanded a nonce. */
async function onceMore(ask, process) {
  try {
    return await process(await ask())
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error
    return process(await ask())
  }
}

const refused = (error, status = 400) => (thrown) => {
  assert.equal(thrown.error, error, thrown.stack)
  assert.equal(thrown.status, status)
  return true
}

test('metadata of OpenID Connect and RFC 8414 are one', async () => {
  for (const server of [issuer, strict]) {
    assert.deepEqual(await discover(server), await discover(server, 'oauth2'))
  }
})

test('client_credentials with every client authentication', async () => {
  const as = await discover()
  const ways = [
    [desk.id, ClientSecretBasic(desk.secret)],
    ['poster', ClientSecretPost('poster-secret')],
    ['shared', ClientSecretJwt('0123456789abcdef0123456789abcdef')],
    ['key-es', PrivateKeyJwt(await privateKey('ES256'))],
    ['key-rs', PrivateKeyJwt(await privateKey('RS256'))],
    ['key-ps', PrivateKeyJwt(await privateKey('PS256'))],
    ['key-ed', PrivateKeyJwt(await privateKey('EdDSA'))],
  ]
  for (const [client_id, auth] of ways) {
    const client = { client_id }
    const response = await oauth.clientCredentialsGrantRequest(as, client, auth, { scope: 'read' })
    assert.equal(response.headers.get('cache-control'), 'no-store')
    assert.equal(response.headers.get('pragma'), 'no-cache')
    const result = await oauth.processClientCredentialsResponse(as, client, response)
    assert.equal(result.scope, 'read', client_id)
  }
})

test('a wrong secret is challenged in the scheme that the client used', async () => {
  const as = await discover()
  const client = { client_id: desk.id }
  const response = await oauth.clientCredentialsGrantRequest(as, client, ClientSecretBasic('x'), {})
  assert.equal(response.status, 401)
  assert.match(response.headers.get('www-authenticate'), /^Basic realm="/)
  const told = await refusal(oauth.processClientCredentialsResponse(as, client, response))
  assert.equal(told.error, 'invalid_client')
  assert.equal(told.challenges[0].scheme, 'basic')
})

test('assertions for another audience, or twice the same, are refused', async () => {
  const as = await discover()
  const client = { client_id: 'key-es' }
  const key = await privateKey('ES256')
  const ask = async (change) => {
    const auth = PrivateKeyJwt(key, { [oauth.modifyAssertion]: (_, payload) => change(payload) })
    const response = await oauth.clientCredentialsGrantRequest(as, client, auth, { scope: 'read' })
    return oauth.processClientCredentialsResponse(as, client, response)
  }
  const changes = {
    'another audience': (payload) => (payload.aud = 'https://elsewhere.test'),
    'no subject': (payload) => delete payload.sub,
    'another issuer': (payload) => (payload.iss = 'poster'),
    'no end': (payload) => delete payload.exp,
    'made in an hour': (payload) => (payload.nbf = payload.iat = payload.exp = payload.iat + 3600),
    ended: (payload) => (payload.exp = payload.iat - 60),
  }
  for (const [what, change] of Object.entries(changes)) {
    const told = await refusal(ask(change))
    assert.deepEqual([told.status, told.error], [401, 'invalid_client'], what)
  }
  await ask((payload) => (payload.aud = as.token_endpoint))
  await ask((payload) => (payload.jti = 'the same'))
  assert.equal((await refusal(ask((payload) => (payload.jti = 'the same')))).error, 'invalid_client')
})

test('the code flow, with each client authentication', async () => {
  const as = await discover()
  const ways = [
    [{ client_id: desk.id }, ClientSecretBasic(desk.secret)],
    [{ client_id: 'poster' }, ClientSecretPost('poster-secret')],
    [{ client_id: 'key-es' }, PrivateKeyJwt(await privateKey('ES256'))],
    [{ client_id: 'native' }, None()],
    [{ client_id: 'signed', id_token_signed_response_alg: 'PS256' }, ClientSecretBasic('signed-secret')],
  ]
  for (const [client, auth] of ways) {
    const result = await tokens(as, client, auth)
    assert.equal(oauth.getValidatedIdTokenClaims(result).sub, 'demo', client.client_id)
  }
})

test('a redirect URI keeps its own query', async () => {
  const as = await discover()
  const client = { client_id: desk.id }
  const address = `${callback}?keep=1`
  const { answer, verifier, state, nonce } = await code(as, client, { redirect_uri: address })
  assert.equal(answer.searchParams.get('keep'), '1')
  const valid = oauth.validateAuthResponse(as, client, answer, state)
  const ask = (uri) => oauth.authorizationCodeGrantRequest(as, client, ClientSecretBasic(desk.secret), valid, uri, verifier)
  const result = await oauth.processAuthorizationCodeResponse(as, client, await ask(address), { expectedNonce: nonce })
  assert.equal(oauth.getValidatedIdTokenClaims(result).sub, 'demo')
})

test('userinfo is valid as JSON and as a signed JWT', async () => {
  const as = await discover()
  const json = { client_id: desk.id }
  const one = await tokens(as, json, ClientSecretBasic(desk.secret), { scope: 'openid email' })
  const response = await oauth.userInfoRequest(as, json, one.access_token)
  const info = await oauth.processUserInfoResponse(as, json, 'demo', response)
  assert.equal(info.email, 'demo@example.com')
  const jwt = {
    client_id: 'signed',
    id_token_signed_response_alg: 'PS256',
    userinfo_signed_response_alg: 'ES256',
  }
  const two = await tokens(as, jwt, ClientSecretBasic('signed-secret'), { scope: 'openid email' })
  const signed = await oauth.userInfoRequest(as, jwt, two.access_token)
  assert.match(signed.headers.get('content-type'), /^application\/jwt/)
  const told = await oauth.processUserInfoResponse(as, jwt, 'demo', signed)
  assert.equal(told.email, 'demo@example.com')
  await oauth.validateApplicationLevelSignature(as, signed)
})

test('userinfo challenges a token that is none', async () => {
  const as = await discover()
  const client = { client_id: desk.id }
  const response = await oauth.userInfoRequest(as, client, 'nothing')
  assert.equal(response.status, 401)
  await assert.rejects(oauth.processUserInfoResponse(as, client, 'demo', response), (thrown) => {
    assert.equal(thrown.cause[0].scheme, 'bearer')
    assert.equal(thrown.cause[0].parameters.error, 'invalid_token')
    return true
  })
})

test('a refresh token of a public client is replaced, and dead after a replay', async () => {
  const as = await discover()
  const client = { client_id: 'native' }
  const refresh = async (token) => {
    const response = await oauth.refreshTokenGrantRequest(as, client, None(), token)
    return oauth.processRefreshTokenResponse(as, client, response)
  }
  const first = await tokens(as, client, None(), { scope: 'openid offline_access', prompt: 'consent' })
  const second = await refresh(first.refresh_token)
  await assert.rejects(refresh(first.refresh_token), refused('invalid_grant'))
  await assert.rejects(refresh(second.refresh_token), refused('invalid_grant'))
})

/** Any other grant, with the checks that all have in common. */
async function granted(id, secret, grant, parameters) {
  const [as, client] = [await discover(), { client_id: id }]
  const auth = secret ? ClientSecretBasic(secret) : None()
  const response = await oauth.genericTokenEndpointRequest(as, client, auth, grant, parameters)
  return oauth.processGenericTokenEndpointResponse(as, client, response, {
    recognizedTokenTypes: { n_a: () => {} },
  })
}

test('the password grant', async () => {
  const ask = (password) =>
    granted('caller', 'caller-secret', 'password', { username: 'demo', password, scope: 'openid' })
  const result = await ask('Ch4ng31t-demo')
  assert.equal(oauth.getValidatedIdTokenClaims(result).sub, 'demo')
  await assert.rejects(ask('wrong'), refused('invalid_grant'))
})

test('a statement of a trusted issuer as a grant', async () => {
  const assertion = await statement()
  const ask = () => granted('partner', 'partner-secret', grants.assertion, { assertion, scope: 'openid' })
  const result = await ask()
  assert.equal(claims(result.access_token).sub, 'demo')
  await assert.rejects(ask(), refused('invalid_grant'), 'it is good once')
})

test('token exchange narrows, and gives what was asked for', async () => {
  const resource = 'https://api.test/a'
  const subject = await granted('caller', 'caller-secret', 'password', {
    username: 'demo',
    password: 'Ch4ng31t-demo',
    scope: 'read write',
    resource,
  })
  const type = 'urn:ietf:params:oauth:token-type:access_token'
  const ask = (more) =>
    granted('api', 'api-secret', grants.exchange, {
      subject_token: subject.access_token,
      subject_token_type: type,
      resource: 'https://deep.test/',
      scope: 'read',
      ...more,
    })
  const result = await ask()
  assert.equal(result.issued_token_type, type)
  assert.deepEqual([claims(result.access_token).aud].flat(), ['https://deep.test/'])
  await assert.rejects(ask({ subject_token: 'nothing' }), refused('invalid_request'))
  await assert.rejects(ask({ resource: 'https://api.test/b' }), refused('invalid_target'))
  await assert.rejects(ask({ scope: 'read admin' }), refused('invalid_scope'))
})

test('a device waits for its user', async () => {
  const [as, client] = [await discover(), { client_id: 'tv' }]
  const ask = async () => {
    const response = await oauth.deviceAuthorizationRequest(as, client, None(), { scope: 'openid' })
    return oauth.processDeviceAuthorizationResponse(as, client, response)
  }
  const poll = async ({ device_code }) => {
    const response = await oauth.deviceCodeGrantRequest(as, client, None(), device_code)
    return oauth.processDeviceCodeResponse(as, client, response)
  }
  const asked = await ask()
  await assert.rejects(poll(asked), refused('authorization_pending'))
  await assert.rejects(poll(asked), refused('slow_down'))
  await new Browser().decide(asked.verification_uri_complete)
  const again = await ask()
  await new Browser().decide(again.verification_uri_complete)
  const result = await poll(again)
  assert.equal(oauth.getValidatedIdTokenClaims(result).sub, 'demo')
  await assert.rejects(poll(again), refused('invalid_grant'))
  const denied = await ask()
  await new Browser().decide(denied.verification_uri_complete, { decide: 'deny' })
  await assert.rejects(poll(denied), refused('access_denied'))
})

test('introspection and revocation answer in shape', async () => {
  const as = await discover()
  const client = { client_id: 'caller' }
  const auth = ClientSecretBasic('caller-secret')
  const { access_token } = await tokens(as, client, auth, { scope: 'openid read' })
  const inspect = async (token) => {
    const response = await oauth.introspectionRequest(as, client, auth, token)
    return oauth.processIntrospectionResponse(as, client, response)
  }
  const told = await inspect(access_token)
  assert.equal(told.active, true)
  assert.ok(Number.isInteger(told.exp) && Number.isInteger(told.iat))
  await oauth.processRevocationResponse(await oauth.revocationRequest(as, client, auth, access_token))
  assert.deepEqual(await inspect(access_token), { active: false })
  assert.deepEqual(await inspect('nothing'), { active: false })
})

for (const server of [issuer, strict]) {
  test(`DPoP at ${new URL(server).pathname}`, async () => {
    const as = await discover(server)
    const client = { client_id: 'bound' }
    const auth = ClientSecretBasic('bound-secret')
    for (const alg of ['ES256', 'RS256', 'PS256', 'Ed25519']) {
      const DPoP = oauth.DPoP(client, await oauth.generateKeyPair(alg))
      const result = await onceMore(
        () => oauth.clientCredentialsGrantRequest(as, client, auth, { scope: 'read' }, { DPoP }),
        (response) => oauth.processClientCredentialsResponse(as, client, response),
      )
      assert.equal(result.token_type, 'dpop', alg)
      const mine = await tokens(as, client, auth, {}, { DPoP })
      const info = await onceMore(
        () => oauth.userInfoRequest(as, client, mine.access_token, { DPoP }),
        (response) => oauth.processUserInfoResponse(as, client, 'demo', response),
      )
      assert.equal(info.sub, 'demo')
    }
  })
}

test('implicit and hybrid answers: every response type, every hash', async () => {
  const as = await discover()
  const client = { client_id: 'hybrid' }
  const auth = ClientSecretBasic('hybrid-secret')
  for (const response_type of ['code id_token', 'id_token code']) {
    const one = await code(as, client, { response_type })
    const valid = await oauth.validateCodeIdTokenResponse(as, client, one.answer, one.nonce, one.state)
    const response = await oauth.authorizationCodeGrantRequest(as, client, auth, valid, callback, one.verifier)
    await oauth.processAuthorizationCodeResponse(as, client, response, { expectedNonce: one.nonce, requireIdToken: true })
    const two = await code(as, client, { response_type })
    await oauth.validateDetachedSignatureResponse(as, client, two.answer, two.nonce, two.state)
  }
  const { compactVerify, createRemoteJWKSet } = await import('jose')
  const keys = createRemoteJWKSet(new URL(as.jwks_uri))
  const half = async (text) => {
    const hash = await crypto.subtle.digest('SHA-256', Buffer.from(text))
    return Buffer.from(hash).subarray(0, 16).toString('base64url')
  }
  for (const response_type of ['token', 'id_token', 'id_token token', 'code token', 'code id_token token']) {
    const { answer, state, nonce } = await code(as, client, { response_type })
    const told = new URLSearchParams(answer.hash.slice(1))
    assert.equal(answer.search, '')
    assert.equal(told.get('state'), state, response_type)
    for (const [word, name] of Object.entries({ code: 'code', token: 'access_token', id_token: 'id_token' })) {
      assert.equal(told.has(name), response_type.split(' ').includes(word), `${response_type}: ${name}`)
    }
    if (told.has('access_token')) {
      assert.equal(told.get('token_type').toLowerCase(), 'bearer')
      assert.match(told.get('expires_in'), /^[0-9]+$/)
      assert.equal(told.has('refresh_token'), false)
    }
    if (told.has('id_token')) {
      const { payload } = await compactVerify(told.get('id_token'), keys)
      const given = JSON.parse(Buffer.from(payload))
      assert.equal(given.nonce, nonce)
      assert.equal(given.at_hash, told.has('access_token') ? await half(told.get('access_token')) : undefined)
      assert.equal(given.c_hash, told.has('code') ? await half(told.get('code')) : undefined)
    } else {
      assert.equal(told.get('iss'), issuer)
    }
  }
})

test('errors of the authorization endpoint are valid answers', async () => {
  const as = await discover()
  const wrong = [
    ['poster', { response_type: 'token' }, 'unsupported_response_type'],
    ['poster', { prompt: 'none login' }, 'invalid_request'],
    ['poster', { prompt: 'none' }, 'login_required'],
    ['poster', { max_age: '-1' }, 'invalid_request'],
    ['poster', { scope: 'openid', claims: '{' }, 'invalid_request'],
    ['native', { code_challenge: '', code_challenge_method: '' }, 'invalid_request'],
    ['native', { code_challenge_method: 'plain' }, 'invalid_request'],
  ]
  for (const [client_id, parameters, error] of wrong) {
    const client = { client_id }
    const { answer, state } = await code(as, client, parameters)
    if (parameters.response_type === 'token') {
      answer.search = answer.hash.slice(1)
    }
    assert.throws(
      () => oauth.validateAuthResponse(as, client, answer, state),
      (thrown) => thrown.error === error,
      `${JSON.stringify(parameters)}: ${answer}`,
    )
  }
})
