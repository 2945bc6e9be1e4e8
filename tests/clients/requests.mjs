// Authorization requests that are pushed (RFC 9126) or signed (RFC 9101), by
// both libraries.
import { Browser, base, callback, claims, issuer, privateKey, refusal } from './setting.mjs'
import { Site } from './site.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import * as jose from 'jose'
import * as oauth from 'oauth4webapi'
import * as oidc from 'openid-client'

const { ClientSecretBasic, PrivateKeyJwt } = oidc

let site, es256, ps256

before(async () => {
  site = await Site.open()
  es256 = await privateKey('ES256')
  ps256 = await privateKey('PS256')
})

after(() => site.close())

/** The clients that may send requests, by name. */
const connect = {
  pusher: () => oidc.discovery(new URL(issuer), 'pusher', {}, ClientSecretBasic('pusher-secret')),
  signer: () => oidc.discovery(new URL(issuer), 'signer', {}, PrivateKeyJwt(es256)),
  fapi1: () => oidc.discovery(new URL(issuer), 'fapi-1', { id_token_signed_response_alg: 'ES256' }, PrivateKeyJwt(es256)),
  unsigned: () => oidc.discovery(new URL(issuer), 'unsigned', {}, ClientSecretBasic('unsigned-secret')),
}

async function protectedRequest(more = {}) {
  const checks = {
    pkceCodeVerifier: oidc.randomPKCECodeVerifier(),
    expectedState: oidc.randomState(),
    expectedNonce: oidc.randomNonce(),
    idTokenExpected: true,
  }
  const parameters = {
    redirect_uri: callback,
    scope: 'openid email',
    state: checks.expectedState,
    nonce: checks.expectedNonce,
    code_challenge: await oidc.calculatePKCECodeChallenge(checks.pkceCodeVerifier),
    code_challenge_method: 'S256',
    ...more,
  }
  return { parameters, checks }
}

/** Follows the request to its tokens. */
async function finish(config, url, checks, DPoP) {
  const answer = await new Browser().authorize(url)
  return oidc.authorizationCodeGrant(config, answer, checks, undefined, { DPoP })
}

/** What is told of a request that goes nowhere. */
async function shown(url) {
  const response = await new Browser().fetch(url)
  assert.equal(response.headers.get('location'), null)
  assert.equal(response.status, 400)
  return /id="doorward-error">([^<]*)</.exec(await response.text())[1]
}

test('a pushed request leads to tokens, once', async () => {
  const config = await connect.pusher()
  const { parameters, checks } = await protectedRequest()
  const url = await oidc.buildAuthorizationUrlWithPAR(config, parameters)
  assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request_uri'])
  const tokens = await finish(config, url, checks)
  assert.equal(tokens.claims().sub, 'demo')
  assert.match(await shown(url), /^invalid_request/)
})

test('a request that was not pushed does not count where it must be', async () => {
  const config = await connect.pusher()
  const { parameters, checks } = await protectedRequest()
  const answer = await new Browser().authorize(oidc.buildAuthorizationUrl(config, parameters))
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, checks), { error: 'invalid_request' })
})

test('wrong requests are refused as soon as they are pushed', async () => {
  const wrong = [
    [{ redirect_uri: 'https://evil.test/' }, 'invalid_request'],
    [{ request_uri: 'urn:ietf:params:oauth:request_uri:x' }, 'invalid_request'],
    [{ response_type: 'token' }, 'unsupported_response_type'],
    [{ code_challenge_method: 'plain' }, 'invalid_request'],
    [{ prompt: 'none login' }, 'invalid_request'],
  ]
  const config = await connect.pusher()
  for (const [change, error] of wrong) {
    const { parameters } = await protectedRequest(change)
    const told = await refusal(oidc.buildAuthorizationUrlWithPAR(config, parameters))
    assert.deepEqual([told.status, told.error], [400, error], JSON.stringify(change))
  }
  const stranger = await oidc.discovery(new URL(issuer), 'pusher', {}, ClientSecretBasic('wrong'))
  const { parameters } = await protectedRequest()
  const told = await refusal(oidc.buildAuthorizationUrlWithPAR(stranger, parameters))
  assert.deepEqual([told.status, told.error], [401, 'invalid_client'])
})

test('a pushed request is of nobody else', async () => {
  const { parameters } = await protectedRequest()
  const url = await oidc.buildAuthorizationUrlWithPAR(await connect.pusher(), parameters)
  url.searchParams.set('client_id', 'poster')
  assert.match(await shown(url), /^invalid_request/)
})

test('a proof beside a pushed request binds its code', async () => {
  const config = await connect.fapi1()
  const [mine, theirs] = await Promise.all(
    [0, 1].map(async () => oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256'))),
  )
  const push = async () => {
    const { parameters, checks } = await protectedRequest()
    return { url: await oidc.buildAuthorizationUrlWithPAR(config, parameters, { DPoP: mine }), checks }
  }
  const { url, checks } = await push()
  const tokens = await finish(config, url, checks, mine)
  assert.equal(tokens.token_type, 'dpop')
  assert.equal(claims(tokens.access_token).cnf.jkt, await mine.calculateThumbprint())
  const other = await push()
  await assert.rejects(finish(config, other.url, other.checks, theirs), (thrown) =>
    ['invalid_grant', 'invalid_dpop_proof'].includes(thrown.error),
  )
})

test('a signed request, in the address and pushed', async () => {
  const config = await connect.signer()
  const one = await protectedRequest()
  const url = await oidc.buildAuthorizationUrlWithJAR(config, one.parameters, es256)
  assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request'])
  assert.equal((await finish(config, url, one.checks)).claims().sub, 'demo')
  const two = await protectedRequest()
  const signed = await oidc.buildAuthorizationUrlWithJAR(config, two.parameters, es256)
  const pushed = await oidc.buildAuthorizationUrlWithPAR(config, signed.searchParams)
  assert.equal((await finish(config, pushed, two.checks)).claims().sub, 'demo')
  const bare = await protectedRequest()
  const answer = await new Browser().authorize(oidc.buildAuthorizationUrl(config, bare.parameters))
  await assert.rejects(oidc.authorizationCodeGrant(config, answer, bare.checks), /./)
})

test('forged and foreign request objects are refused', async () => {
  const config = await connect.signer()
  const changes = {
    'another issuer': (_, payload) => (payload.iss = 'pusher'),
    'another audience': (_, payload) => (payload.aud = 'https://elsewhere.test'),
    ended: (_, payload) => (payload.exp = payload.iat - 120),
    'another client': (_, payload) => (payload.client_id = 'pusher'),
    'another kind of JWT': (header) => (header.typ = 'dpop+jwt'),
    nested: (_, payload) => (payload.request_uri = 'urn:x'),
  }
  for (const [what, change] of Object.entries(changes)) {
    const { parameters } = await protectedRequest()
    const url = await oidc.buildAuthorizationUrlWithJAR(config, parameters, es256, { [oidc.modifyAssertion]: change })
    const push = refusal(oidc.buildAuthorizationUrlWithPAR(config, url.searchParams))
    const told = await push
    assert.equal(told.status, 400, what)
    assert.match(told.error, /^invalid_request(_object)?$/, what)
  }
  const { parameters } = await protectedRequest()
  const foreign = await oidc.buildAuthorizationUrlWithJAR(config, parameters, ps256)
  const told = await refusal(oidc.buildAuthorizationUrlWithPAR(config, foreign.searchParams))
  assert.equal(told.error, 'invalid_request_object')
  const none = new jose.UnsecuredJWT({ ...parameters, client_id: 'signer', response_type: 'code' })
  const bare = none.setIssuer('signer').setAudience(issuer).setExpirationTime('1m').encode()
  const refused = await refusal(oidc.buildAuthorizationUrlWithPAR(config, { request: bare }))
  assert.equal(refused.error, 'invalid_request_object')
})

test('what is signed wins over what stands beside it', async () => {
  const config = await connect.signer()
  const { parameters, checks } = await protectedRequest()
  const url = await oidc.buildAuthorizationUrlWithJAR(config, parameters, es256)
  url.searchParams.set('state', 'another')
  url.searchParams.set('redirect_uri', 'https://evil.test/')
  assert.equal((await finish(config, url, checks)).claims().sub, 'demo')
})

test('a request object at an address, by keys at an address', async () => {
  site.pages.set('/jwks.json', JSON.stringify({ keys: [{ ...(await publicKey('ES256')), kid: 'one' }] }))
  const as = await oauth.processDiscoveryResponse(
    new URL(issuer),
    await oauth.discoveryRequest(new URL(issuer)),
  )
  const client = { client_id: 'referrer' }
  const key = { ...es256, kid: 'one' }
  const { parameters, checks } = await protectedRequest({ response_type: 'code' })
  site.pages.set('/request.jwt', await oauth.issueRequestObject(as, client, parameters, key))
  const url = new URL(as.authorization_endpoint)
  url.search = new URLSearchParams({
    client_id: 'referrer',
    response_type: 'code',
    scope: 'openid email',
    request_uri: `${site.origin}/request.jwt`,
  })
  const answer = await new Browser().authorize(url)
  const valid = oauth.validateAuthResponse(as, client, answer, checks.expectedState)
  const exchanged = await oauth.authorizationCodeGrantRequest(
    as, client, oauth.PrivateKeyJwt(key), valid, callback, checks.pkceCodeVerifier,
  )
  const tokens = await oauth.processAuthorizationCodeResponse(as, client, exchanged, {
    expectedNonce: checks.expectedNonce,
  })
  assert.equal(oauth.getValidatedIdTokenClaims(tokens).sub, 'demo')
  const came = site.requests.length
  url.searchParams.set('request_uri', `${site.origin}/other.jwt`)
  assert.equal(await shown(url), 'invalid_request_uri')
  assert.equal(site.requests.length, came, 'an address that is not registered is not asked')
})

async function publicKey(alg) {
  const { keys } = await import('./setting.mjs')
  return keys[alg].jwk
}

test('keys that a client changed are learnt', async () => {
  const sign = async (kid, key) => {
    const config = await oidc.discovery(new URL(issuer), 'referrer', {}, PrivateKeyJwt({ key, kid }))
    return oidc.clientCredentialsGrant(config, { scope: 'email' })
  }
  site.pages.set('/jwks.json', JSON.stringify({ keys: [{ ...(await publicKey('ES256')), kid: 'one' }] }))
  await sign('one', es256.key)
  const fresh = await jose.generateKeyPair('ES256')
  const jwk = { ...(await jose.exportJWK(fresh.publicKey)), kid: 'two', use: 'sig', alg: 'ES256' }
  assert.equal((await refusal(sign('two', fresh.privateKey))).error, 'invalid_client')
  site.pages.set('/jwks.json', JSON.stringify({ keys: [jwk] }))
  for (let tries = 0; ; tries += 1) {
    try {
      await sign('two', fresh.privateKey)
      break
    } catch (error) {
      // It may have asked a moment ago; the official suite allows a minute.
      assert.ok(tries < 60, error)
      await new Promise((done) => setTimeout(done, 1000))
    }
  }
})

test('an unsigned request object counts where that was registered', async () => {
  const config = await connect.unsigned()
  const { parameters, checks } = await protectedRequest()
  const object = new jose.UnsecuredJWT({ ...parameters, client_id: 'unsigned', response_type: 'code' }).encode()
  const url = new URL(`${issuer}/authorize`)
  url.search = new URLSearchParams({
    client_id: 'unsigned',
    response_type: 'code',
    scope: 'openid email',
    request: object,
  })
  assert.equal((await finish(config, url, checks)).claims().sub, 'demo')
})

test('a long request is kept while its user signs in', async () => {
  const config = await connect.signer()
  const { parameters, checks } = await protectedRequest({ login_hint: 'x'.repeat(3000) })
  const url = await oidc.buildAuthorizationUrlWithJAR(config, parameters, es256)
  assert.ok(url.href.length > 4000 && url.href.startsWith(base))
  assert.equal((await finish(config, url, checks)).claims().sub, 'demo')
})
