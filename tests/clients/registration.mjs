// Clients that register themselves (RFC 7591) and look after their record
// (RFC 7592), by both libraries.
import { Browser, admin, base, callback } from './setting.mjs'
import test from 'node:test'
import assert from 'node:assert/strict'
import * as jose from 'jose'
import * as oauth from 'oauth4webapi'
import * as oidc from 'openid-client'

const open = new URL(`${base}/oauth2/realms/root/realms/open`)
const guarded = new URL(`${base}/oauth2/realms/root/realms/guarded`)

async function signIn(config, parameters = {}) {
  const verifier = oidc.randomPKCECodeVerifier()
  const [state, nonce] = [oidc.randomState(), oidc.randomNonce()]
  const url = oidc.buildAuthorizationUrl(config, {
    redirect_uri: callback,
    scope: 'openid email',
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    state,
    nonce,
    ...parameters,
  })
  const answer = await new Browser().authorize(url)
  return oidc.authorizationCodeGrant(config, answer, {
    pkceCodeVerifier: verifier,
    expectedState: state,
    expectedNonce: nonce,
    idTokenExpected: true,
  })
}

test('a client registers itself and signs its user in, with every authentication', async () => {
  const { publicKey, privateKey } = await jose.generateKeyPair('ES256')
  const jwk = { ...(await jose.exportJWK(publicKey)), kid: 'k', use: 'sig', alg: 'ES256' }
  const ways = {
    client_secret_basic: () => undefined,
    client_secret_post: ({ client_secret }) => oidc.ClientSecretPost(client_secret),
    client_secret_jwt: ({ client_secret }) => oidc.ClientSecretJwt(client_secret),
    private_key_jwt: () => oidc.PrivateKeyJwt({ key: privateKey, kid: 'k' }),
    none: () => oidc.None(),
  }
  for (const [token_endpoint_auth_method, authentication] of Object.entries(ways)) {
    const metadata = {
      redirect_uris: [callback],
      client_name: 'Registered',
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method,
      ...(token_endpoint_auth_method === 'private_key_jwt' && { jwks: { keys: [jwk] } }),
    }
    const registered = await oidc.dynamicClientRegistration(open, metadata)
    const told = registered.clientMetadata()
    assert.equal(told.token_endpoint_auth_method, token_endpoint_auth_method)
    assert.equal(told.client_secret_expires_at, told.client_secret ? 0 : undefined)
    const way = authentication(told) ?? oidc.ClientSecretBasic(told.client_secret)
    const config = await oidc.discovery(open, told.client_id, told, way)
    const tokens = await signIn(config, { scope: 'openid email offline_access', prompt: 'consent' })
    assert.equal(tokens.claims().sub, 'demo', token_endpoint_auth_method)
    const next = await oidc.refreshTokenGrant(config, tokens.refresh_token)
    assert.ok(next.access_token)
  }
})

test('what was registered is echoed, changed and removed', async () => {
  const as = await oauth.processDiscoveryResponse(open, await oauth.discoveryRequest(open))
  const response = await oauth.dynamicClientRegistrationRequest(as, {
    redirect_uris: [callback],
    client_name: 'One',
    'client_name#de': 'Eins',
    contacts: ['a@app.test'],
    post_logout_redirect_uris: ['https://app.test/bye'],
    scope: 'openid email nonsense',
    unknown_member: 1,
  })
  assert.equal(response.status, 201)
  assert.match(response.headers.get('cache-control'), /no-store/)
  const told = await oauth.processDynamicClientRegistrationResponse(response)
  assert.equal(told.client_name, 'One')
  assert.deepEqual(told.redirect_uris, [callback])
  assert.ok(Number.isInteger(told.client_id_issued_at))
  assert.ok(told.grant_types.includes('authorization_code'))
  const manage = (method, body, token = told.registration_access_token) =>
    fetch(told.registration_client_uri, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) },
      body: body && JSON.stringify(body),
    })
  const read = await manage('GET')
  assert.equal(read.status, 200)
  assert.equal((await read.json()).client_id, told.client_id)
  assert.equal((await manage('GET', undefined, 'wrong')).status, 401)
  const changed = await manage('PUT', { client_id: told.client_id, redirect_uris: [callback], client_name: 'Two' })
  assert.equal(changed.status, 200)
  assert.equal((await changed.json()).client_name, 'Two')
  assert.equal((await manage('PUT', { client_id: 'other', redirect_uris: [callback] })).status, 400)
  assert.equal((await manage('DELETE')).status, 204)
  assert.equal((await manage('GET')).status, 401)
})

test('wrong metadata are refused by name', async () => {
  const as = await oauth.processDiscoveryResponse(open, await oauth.discoveryRequest(open))
  const wrong = [
    [{ redirect_uris: [`${callback}#f`] }, 'invalid_redirect_uri'],
    [{ redirect_uris: ['javascript:alert(1)'] }, 'invalid_redirect_uri'],
    [{}, 'invalid_redirect_uri'],
    [{ redirect_uris: [callback], grant_types: ['client_credentials', 'password'] }, 'invalid_client_metadata'],
    [{ redirect_uris: [callback], jwks: { keys: [] }, jwks_uri: 'https://app.test/jwks' }, 'invalid_client_metadata'],
    [{ redirect_uris: [callback], jwks_uri: 'http://10.0.0.1/jwks' }, 'invalid_client_metadata'],
    [{ redirect_uris: [callback], initiate_login_uri: 'http://app.test/' }, 'invalid_client_metadata'],
  ]
  for (const [metadata, error] of wrong) {
    const response = await oauth.dynamicClientRegistrationRequest(as, metadata)
    await assert.rejects(
      oauth.processDynamicClientRegistrationResponse(response),
      (thrown) => thrown.status === 400 && thrown.error === error,
      JSON.stringify(metadata),
    )
  }
})

test('where not anybody may, an initial access token is needed', async () => {
  const metadata = { redirect_uris: [callback] }
  await assert.rejects(oidc.dynamicClientRegistration(guarded, metadata))
  const made = await fetch(`${admin}/identity/initial-tokens?realm=/guarded`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ uses: 1 }),
  })
  assert.equal(made.status, 201, await made.clone().text())
  const { initial_access_token: initialAccessToken } = await made.json()
  const registered = await oidc.dynamicClientRegistration(guarded, metadata, undefined, { initialAccessToken })
  assert.ok(registered.clientMetadata().client_id)
  await assert.rejects(oidc.dynamicClientRegistration(guarded, metadata, undefined, { initialAccessToken }))
})

test('where it is off, there is nothing', async () => {
  const response = await fetch(`${base}/oauth2/connect/register`, { method: 'POST', body: '{}' })
  assert.equal(response.status, 404)
  const meta = await (await fetch(`${base}/oauth2/.well-known/openid-configuration`)).json()
  assert.equal(meta.registration_endpoint, undefined)
})
