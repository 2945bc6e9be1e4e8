// openid-client as a relying party: every grant, with every way to authenticate.
import './setting.mjs'
import test from 'node:test'
import assert from 'node:assert/strict'
import * as oidc from 'openid-client'
import { Browser, callback, claims, desk, grants, issuer, privateKey, refusal, statement, strict } from './setting.mjs'

const { ClientSecretBasic, ClientSecretPost, ClientSecretJwt, PrivateKeyJwt, None } = oidc

/** A client, after discovery. */
const connect = (id, authentication, metadata, server = issuer) =>
  oidc.discovery(new URL(server), id, metadata, authentication)

const frontDesk = () => connect(desk.id, ClientSecretBasic(desk.secret))
const poster = () => connect('poster', ClientSecretPost('poster-secret'))

/** An authorization request with all that protects it, and the checks of its answer. */
async function request(config, parameters = {}) {
  const verifier = oidc.randomPKCECodeVerifier()
  const checks = {
    pkceCodeVerifier: verifier,
    expectedState: oidc.randomState(),
    expectedNonce: oidc.randomNonce(),
    idTokenExpected: true,
  }
  const url = oidc.buildAuthorizationUrl(config, {
    redirect_uri: callback,
    scope: 'openid',
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    state: checks.expectedState,
    nonce: checks.expectedNonce,
    ...parameters,
  })
  return { url, checks }
}

/** The whole way from the request to the tokens. */
async function signIn(config, parameters, { browser = new Browser(), dpop, more } = {}) {
  const { url, checks } = await request(config, parameters)
  const answer = await browser.authorize(url)
  return oidc.authorizationCodeGrant(config, answer, checks, more, { DPoP: dpop })
}

const refused = (error) => (thrown) => {
  assert.equal(thrown.error, error, thrown.stack)
  return true
}

test('discovery by OpenID Connect and by RFC 8414 tells the same', async () => {
  for (const server of [issuer, strict]) {
    const one = await connect('poster', undefined, undefined, server)
    const other = await oidc.discovery(new URL(server), 'poster', undefined, undefined, {
      algorithm: 'oauth2',
    })
    assert.equal(one.serverMetadata().issuer, server)
    assert.deepEqual(one.serverMetadata(), other.serverMetadata())
    assert.ok(one.serverMetadata().supportsPKCE())
  }
})

test('client_credentials with every client authentication', async () => {
  const ways = {
    client_secret_basic: [desk.id, ClientSecretBasic(desk.secret)],
    client_secret_post: ['poster', ClientSecretPost('poster-secret')],
    client_secret_jwt: ['shared', ClientSecretJwt('0123456789abcdef0123456789abcdef')],
    ES256: ['key-es', PrivateKeyJwt(await privateKey('ES256'))],
    RS256: ['key-rs', PrivateKeyJwt(await privateKey('RS256'))],
    PS256: ['key-ps', PrivateKeyJwt(await privateKey('PS256'))],
    EdDSA: ['key-ed', PrivateKeyJwt(await privateKey('EdDSA'))],
  }
  for (const [way, [id, authentication]] of Object.entries(ways)) {
    const config = await connect(id, authentication)
    const tokens = await oidc.clientCredentialsGrant(config, { scope: 'read' })
    assert.equal(tokens.scope, 'read', way)
    assert.equal(tokens.token_type, 'bearer', way)
    assert.equal(tokens.refresh_token, undefined, way)
    assert.ok(tokens.expires_in > 3500, way)
  }
})

test('a client that is none of these is refused', async () => {
  const wrong = {
    'wrong secret': [desk.id, ClientSecretBasic('wrong')],
    'unknown client': ['nobody', ClientSecretBasic('wrong')],
    'another way than registered': ['poster', ClientSecretBasic('poster-secret')],
    'another key': ['key-es', PrivateKeyJwt(await privateKey('EdDSA'))],
    'another secret': ['shared', ClientSecretJwt('f'.repeat(32))],
    'no secret': ['poster', None()],
  }
  for (const [what, [id, authentication]] of Object.entries(wrong)) {
    const config = await connect(id, authentication)
    const told = await refusal(oidc.clientCredentialsGrant(config, { scope: 'read' }))
    assert.deepEqual([told.status, told.error], [401, 'invalid_client'], what)
  }
})

test('code with PKCE, consent and every scope leads to tokens and userinfo', async () => {
  const config = await frontDesk()
  const tokens = await signIn(config, { scope: 'openid profile email phone address' })
  const { sub, nonce, auth_time } = tokens.claims()
  assert.equal(sub, 'demo')
  assert.ok(nonce)
  assert.ok(auth_time === undefined || Number.isInteger(auth_time))
  const info = await oidc.fetchUserInfo(config, tokens.access_token, sub)
  assert.equal(info.name, 'Demo User')
  assert.equal(info.given_name, 'Demo')
  assert.equal(info.zoneinfo, 'Europe/Berlin')
  assert.equal(info.email, 'demo@example.com')
  assert.equal(info.email_verified, true)
  assert.equal(info.phone_number, '+49 30 1234')
  assert.equal(info.address.locality, 'Berlin')
  assert.equal(typeof info.updated_at, 'number')
})

test('a public client needs no secret, and its verifier', async () => {
  const config = await connect('native', None())
  const address = 'http://127.0.0.1:49152/cb'
  const tokens = await signIn(config, { redirect_uri: address })
  assert.equal(tokens.claims().aud, 'native')
  const { url, checks } = await request(config, { redirect_uri: address })
  const answer = await new Browser().authorize(url)
  const wrong = { ...checks, pkceCodeVerifier: oidc.randomPKCECodeVerifier() }
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, wrong), refused('invalid_grant'))
})

test('a key authenticates the exchange of a code', async () => {
  const config = await connect('key-es', PrivateKeyJwt(await privateKey('ES256')))
  const tokens = await signIn(config)
  assert.equal(tokens.claims().aud, 'key-es')
})

test('a denied consent reaches the client as access_denied', async () => {
  const config = await frontDesk()
  const { url, checks } = await request(config)
  const answer = await new Browser().authorize(url, { user: 'alice', decide: 'deny' })
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, checks), refused('access_denied'))
})

test('prompt=none is answered by login_required, and by a code once signed in', async () => {
  const config = await poster()
  const browser = new Browser()
  const { url, checks } = await request(config, { prompt: 'none' })
  const first = await browser.authorize(url)
  await assert.rejects(oidc.authorizationCodeGrant(config, first, checks), refused('login_required'))
  await signIn(config, {}, { browser })
  const tokens = await signIn(config, { prompt: 'none' }, { browser })
  assert.equal(tokens.claims().sub, 'demo')
  const hinted = await signIn(config, { prompt: 'none', id_token_hint: tokens.id_token }, { browser })
  assert.equal(hinted.claims().sub, 'demo')
})

test('max_age gives auth_time, and prompt=login a later one', async () => {
  const config = await poster()
  const browser = new Browser()
  const { url, checks } = await request(config, { max_age: '1000' })
  const first = await oidc.authorizationCodeGrant(config, await browser.authorize(url), {
    ...checks,
    maxAge: 1000,
  })
  await new Promise((done) => setTimeout(done, 1100))
  const again = await request(config, { prompt: 'login', max_age: '1000' })
  const second = await oidc.authorizationCodeGrant(config, await browser.authorize(again.url), {
    ...again.checks,
    maxAge: 1000,
  })
  assert.ok(second.claims().auth_time > first.claims().auth_time)
})

test('a refresh token is replaced by each use, and a replay ends the grant', async () => {
  const config = await poster()
  const first = await signIn(config, { scope: 'openid offline_access read', prompt: 'consent' })
  const second = await oidc.refreshTokenGrant(config, first.refresh_token)
  assert.notEqual(second.refresh_token, first.refresh_token)
  assert.equal(second.claims().sub, first.claims().sub)
  const narrow = await oidc.refreshTokenGrant(config, second.refresh_token, { scope: 'openid read' })
  assert.equal(narrow.scope, 'openid read')
  await assert.rejects(
    oidc.refreshTokenGrant(config, narrow.refresh_token, { scope: 'openid write' }),
    refused('invalid_scope'),
  )
  await assert.rejects(oidc.refreshTokenGrant(config, first.refresh_token), refused('invalid_grant'))
  await assert.rejects(oidc.refreshTokenGrant(config, narrow.refresh_token), refused('invalid_grant'))
  assert.equal((await oidc.tokenIntrospection(config, narrow.access_token)).active, false)
})

test('a code is good once; the second use revokes what the first one gave', async () => {
  const config = await poster()
  const { url, checks } = await request(config)
  const answer = await new Browser().authorize(url)
  const tokens = await oidc.authorizationCodeGrant(config, answer, checks)
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, checks), refused('invalid_grant'))
  assert.equal((await oidc.tokenIntrospection(config, tokens.access_token)).active, false)
})

test('a client that has the password grant may use it', async () => {
  const config = await poster()
  const ask = (password) =>
    oidc.genericGrantRequest(config, 'password', { username: 'demo', password, scope: 'openid' })
  const tokens = await ask('Ch4ng31t-demo')
  assert.equal(tokens.claims().sub, 'demo')
  assert.ok(tokens.refresh_token)
  await assert.rejects(ask('wrong'), refused('invalid_grant'))
  const other = await frontDesk()
  await assert.rejects(
    oidc.genericGrantRequest(other, 'password', { username: 'demo', password: 'Ch4ng31t-demo' }),
    refused('unauthorized_client'),
  )
})

test('an assertion of a trusted issuer gives a token of its user', async () => {
  const assertion = await statement()
  const config = await connect('partner', ClientSecretBasic('partner-secret'))
  const tokens = await oidc.genericGrantRequest(config, grants.assertion, { assertion, scope: 'read' })
  assert.equal(claims(tokens.access_token).sub, 'demo')
  await assert.rejects(
    oidc.genericGrantRequest(config, grants.assertion, { assertion: `${assertion}x`, scope: 'read' }),
    refused('invalid_grant'),
  )
})

test('resources become audiences, and a token is exchanged by whom it is meant for', async () => {
  const caller = await connect('caller', ClientSecretBasic('caller-secret'))
  const [a, b] = ['https://api.test/a', 'https://api.test/b']
  const { url, checks } = await request(caller, { scope: 'openid offline_access read', prompt: 'consent' })
  url.searchParams.append('resource', a)
  url.searchParams.append('resource', b)
  const both = await oidc.authorizationCodeGrant(caller, await new Browser().authorize(url), checks)
  assert.deepEqual([claims(both.access_token).aud].flat().sort(), [a, b])
  const one = await oidc.refreshTokenGrant(caller, both.refresh_token, { resource: a })
  assert.deepEqual([claims(one.access_token).aud].flat(), [a])
  await assert.rejects(
    oidc.refreshTokenGrant(caller, one.refresh_token, { resource: 'https://api.test/c' }),
    refused('invalid_target'),
  )
  const api = await connect('api', ClientSecretBasic('api-secret'))
  assert.equal((await oidc.tokenIntrospection(api, one.access_token)).sub, 'demo')
  const type = 'urn:ietf:params:oauth:token-type:access_token'
  const exchanged = await oidc.genericGrantRequest(api, grants.exchange, {
    subject_token: one.access_token,
    subject_token_type: type,
    resource: 'https://deep.test/',
    scope: 'read',
  })
  assert.equal(exchanged.issued_token_type, type)
  assert.equal(claims(exchanged.access_token).sub, 'demo')
})

test('a device is let in, or not, by a code', async () => {
  for (const [id, authentication] of [['tv', None()], ['printer', ClientSecretBasic('printer-secret')]]) {
    const config = await connect(id, authentication)
    const asked = await oidc.initiateDeviceAuthorization(config, { scope: 'openid email' })
    assert.ok(asked.verification_uri_complete.includes(encodeURIComponent(asked.user_code)))
    const { device_code } = asked
    const waiting = oidc.genericGrantRequest(config, grants.device, { device_code })
    await assert.rejects(waiting, refused('authorization_pending'))
    await new Browser().decide(asked.verification_uri_complete)
    const tokens = await oidc.pollDeviceAuthorizationGrant(config, asked)
    assert.equal(tokens.claims().sub, 'demo')
    const info = await oidc.fetchUserInfo(config, tokens.access_token, 'demo')
    assert.equal(info.email, 'demo@example.com')
    assert.equal(tokens.refresh_token !== undefined, id === 'tv')
    const denied = await oidc.initiateDeviceAuthorization(config, { scope: 'openid' })
    await new Browser().decide(denied.verification_uri_complete, { decide: 'deny' })
    await assert.rejects(oidc.pollDeviceAuthorizationGrant(config, denied), refused('access_denied'))
  }
})

test('a device binds its tokens to its key', async () => {
  const config = await connect('tv', None())
  const dpop = oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256'))
  const asked = await oidc.initiateDeviceAuthorization(config, { scope: 'openid' })
  await new Browser().decide(asked.verification_uri_complete)
  const tokens = await oidc.pollDeviceAuthorizationGrant(config, asked, undefined, { DPoP: dpop })
  assert.equal(tokens.token_type, 'dpop')
  const next = await oidc.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP: dpop })
  assert.equal(next.token_type, 'dpop')
  const theirs = oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256'))
  await assert.rejects(oidc.refreshTokenGrant(config, next.refresh_token, undefined, { DPoP: theirs }))
})

for (const server of [issuer, strict]) {
  const nonces = server === strict ? ' with nonces of the provider' : ''
  test(`DPoP binds every token to the client's key${nonces}`, async () => {
    const config = await connect('bound', ClientSecretBasic('bound-secret'), undefined, server)
    for (const alg of ['ES256', 'Ed25519', 'PS256']) {
      const dpop = oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair(alg))
      const own = await oidc.clientCredentialsGrant(config, { scope: 'read' }, { DPoP: dpop })
      assert.equal(own.token_type, 'dpop', alg)
      const dpop_jkt = await dpop.calculateThumbprint()
      assert.equal(claims(own.access_token).cnf.jkt, dpop_jkt)
      const tokens = await signIn(config, { scope: 'openid offline_access', prompt: 'consent', dpop_jkt }, { dpop })
      const info = await oidc.fetchUserInfo(config, tokens.access_token, 'demo', { DPoP: dpop })
      assert.equal(info.sub, 'demo')
      const next = await oidc.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP: dpop })
      assert.equal(next.token_type, 'dpop')
      await assert.rejects(oidc.fetchUserInfo(config, next.access_token, 'demo'), alg)
    }
    await assert.rejects(oidc.clientCredentialsGrant(config, { scope: 'read' }), { status: 400 })
  })
}

test('a code for one key is not exchanged with another', async () => {
  const config = await connect('bound', ClientSecretBasic('bound-secret'))
  const [mine, theirs] = [
    oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256')),
    oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256')),
  ]
  await assert.rejects(
    signIn(config, { dpop_jkt: await mine.calculateThumbprint() }, { dpop: theirs }),
    (thrown) => ['invalid_grant', 'invalid_dpop_proof'].includes(thrown.error),
  )
})

test('ID tokens and userinfo are signed as the client registered', async () => {
  const metadata = { id_token_signed_response_alg: 'PS256', userinfo_signed_response_alg: 'ES256' }
  const config = await connect('signed', ClientSecretBasic('signed-secret'), metadata)
  oidc.enableNonRepudiationChecks(config)
  const tokens = await signIn(config, { scope: 'openid email' })
  const info = await oidc.fetchUserInfo(config, tokens.access_token, 'demo')
  assert.equal(info.email, 'demo@example.com')
})

test('claims asked for singly are where they were asked for', async () => {
  const config = await frontDesk()
  const wish = { userinfo: { given_name: { essential: true } }, id_token: { email: null } }
  const tokens = await signIn(config, { scope: 'openid profile email', claims: JSON.stringify(wish) })
  assert.equal(tokens.claims().email, 'demo@example.com')
})

test('introspection and revocation, of opaque tokens too', async () => {
  for (const id of ['caller', 'opaque']) {
    const config = await connect(id, ClientSecretBasic(`${id}-secret`))
    const tokens = await signIn(config, { scope: 'openid offline_access read', prompt: 'consent' })
    assert.equal(tokens.access_token.includes('.'), id === 'caller')
    const told = await oidc.tokenIntrospection(config, tokens.access_token)
    assert.equal(told.active, true)
    assert.equal(told.client_id, id)
    assert.equal(told.sub, 'demo')
    assert.equal(told.scope, 'openid offline_access read')
    const hint = { token_type_hint: 'refresh_token' }
    assert.equal((await oidc.tokenIntrospection(config, tokens.refresh_token, hint)).active, true)
    await oidc.tokenRevocation(config, tokens.refresh_token, hint)
    assert.equal((await oidc.tokenIntrospection(config, tokens.refresh_token)).active, false)
    assert.equal((await oidc.tokenIntrospection(config, tokens.access_token)).active, false)
    await assert.rejects(oidc.fetchUserInfo(config, tokens.access_token, 'demo'))
    await oidc.tokenRevocation(config, 'unknown')
  }
})

test('introspection and revocation with every client authentication', async () => {
  const ways = [
    ['poster', ClientSecretPost('poster-secret')],
    ['shared', ClientSecretJwt('0123456789abcdef0123456789abcdef')],
    ['key-es', PrivateKeyJwt(await privateKey('ES256'))],
  ]
  for (const [id, authentication] of ways) {
    const config = await connect(id, authentication)
    const { access_token } = await oidc.clientCredentialsGrant(config, { scope: 'read' })
    assert.equal((await oidc.tokenIntrospection(config, access_token)).active, true, id)
    await oidc.tokenRevocation(config, access_token)
    assert.equal((await oidc.tokenIntrospection(config, access_token)).active, false, id)
  }
  const native = await connect('native', None())
  const { access_token } = await signIn(native, { redirect_uri: 'http://127.0.0.1:49152/cb' })
  await oidc.tokenRevocation(native, access_token)
  await assert.rejects(oidc.fetchUserInfo(native, access_token, 'demo'))
  const told = await refusal(oidc.tokenIntrospection(native, access_token))
  assert.deepEqual([told.status, told.error], [401, 'invalid_client'])
})

test('implicit and hybrid answers pass every check of the library', async () => {
  const config = await connect('hybrid', ClientSecretBasic('hybrid-secret'))
  oidc.useIdTokenResponseType(config)
  const { url, checks } = await request(config)
  url.searchParams.delete('code_challenge')
  url.searchParams.delete('code_challenge_method')
  const answer = await new Browser().authorize(url)
  const token = await oidc.implicitAuthentication(config, answer, checks.expectedNonce, {
    expectedState: checks.expectedState,
  })
  assert.equal(token.sub, 'demo')
  const hybrid = await connect('hybrid', ClientSecretBasic('hybrid-secret'))
  oidc.useCodeIdTokenResponseType(hybrid)
  const tokens = await signIn(hybrid)
  assert.equal(tokens.claims().sub, 'demo')
})

test('detached signatures: s_hash and c_hash', async () => {
  const config = await connect('hybrid', ClientSecretBasic('hybrid-secret'))
  oidc.useCodeIdTokenResponseType(config)
  oidc.enableDetachedSignatureResponseChecks(config)
  assert.equal((await signIn(config)).claims().sub, 'demo')
})

test('answers by form_post arrive as a request', async () => {
  for (const hybrid of [false, true]) {
    const config = await connect('hybrid', ClientSecretBasic('hybrid-secret'))
    if (hybrid) oidc.useCodeIdTokenResponseType(config)
    const { url, checks } = await request(config, { response_mode: 'form_post' })
    const page = await new Browser().authorize(url)
    assert.equal(page.action, callback)
    const posted = new Request(callback, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: page.fields.toString(),
    })
    const tokens = await oidc.authorizationCodeGrant(config, posted, checks)
    assert.equal(tokens.claims().sub, 'demo')
  }
})

test('signing out at the address that the library makes', async () => {
  const config = await connect('hybrid', ClientSecretBasic('hybrid-secret'))
  const browser = new Browser()
  const tokens = await signIn(config, {}, { browser })
  const url = oidc.buildEndSessionUrl(config, {
    id_token_hint: tokens.id_token,
    post_logout_redirect_uri: 'https://app.test/bye',
    state: 's 1&',
  })
  const gone = await browser.authorize(url)
  assert.equal(gone.origin + gone.pathname, 'https://app.test/bye')
  assert.equal(gone.searchParams.get('state'), 's 1&')
  const { url: again, checks } = await request(config, { prompt: 'none' })
  const answer = await browser.authorize(again)
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, checks), refused('login_required'))
})
