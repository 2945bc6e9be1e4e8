// What the official suite asks of a provider with clients that register
// themselves, and of one that tells clients of sign-outs; each test has the name
// of its module. Plans: dynamic, back-channel and front-channel logout.
import { Browser, base, callback, claims, issuer, random, request } from './setting.mjs'
import { Site } from './site.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import * as jose from 'jose'

const realm = `${base}/oauth2/realms/root/realms/open`
const meta = await (await fetch(`${realm}/.well-known/openid-configuration`)).json()
const published = jose.createRemoteJWKSet(new URL(meta.jwks_uri))

let site
before(async () => {
  site = await Site.open()
})
after(() => site.close())

async function register(metadata = {}) {
  const response = await fetch(meta.registration_endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ redirect_uris: [callback], ...metadata }),
  })
  return { status: response.status, ...(await response.json()) }
}

async function registered(metadata) {
  const client = await register(metadata)
  assert.equal(client.status, 201, JSON.stringify(client))
  for (const [name, value] of Object.entries(metadata ?? {})) assert.deepEqual(client[name], value, name)
  return client
}

const address = ({ client_id }, changes) =>
  `${meta.authorization_endpoint}?${new URLSearchParams(request(client_id, changes))}`

/** Signs in; the tokens of the code. */
async function signIn(client, changes = {}, { browser = new Browser(), authentication } = {}) {
  const answer = await browser.authorize(address(client, changes))
  const code = answer.searchParams.get('code')
  assert.ok(code, answer.href)
  const { client_id, client_secret } = client
  const basic = Buffer.from(`${client_id}:${client_secret}`).toString('base64')
  const response = await fetch(meta.token_endpoint, {
    method: 'POST',
    headers: authentication ? {} : { authorization: `Basic ${basic}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code,
      redirect_uri: changes.redirect_uri ?? callback,
      ...authentication,
    }),
  })
  const tokens = await response.json()
  assert.equal(response.status, 200, JSON.stringify(tokens))
  return { ...tokens, answer }
}

async function shown(url) {
  const response = await new Browser().fetch(url)
  assert.equal(response.headers.get('location'), null)
  assert.equal(response.status, 400)
  return (/id="doorward-error">([^<]*)</.exec(await response.text()) ?? [])[1]
}

const userinfo = async (token) => {
  const response = await fetch(meta.userinfo_endpoint, { headers: { authorization: `Bearer ${token}` } })
  return { type: response.headers.get('content-type'), text: await response.text() }
}

// --- dynamic

test('oidcc-server, with every response type', async () => {
  for (const type of ['code', 'id_token', 'id_token token', 'code id_token', 'code token', 'code id_token token']) {
    const grants = ['authorization_code', 'implicit'].filter(
      (grant) => (grant === 'implicit') === /token/.test(type) || (grant === 'authorization_code' && /code/.test(type)),
    )
    const client = await registered({ response_types: [type], grant_types: grants })
    const answer = await new Browser().authorize(address(client, { response_type: type }))
    const told = new URLSearchParams(type === 'code' ? answer.search : answer.hash.slice(1))
    for (const [word, name] of [['code', 'code'], ['id_token', 'id_token'], ['token', 'access_token']]) {
      assert.equal(told.has(name), type.split(' ').includes(word), `${type}: ${answer}`)
    }
  }
})

test('oidcc-idtoken-rs256, -es256; oidcc-userinfo-rs256', async () => {
  for (const alg of ['RS256', 'ES256', 'PS256', 'EdDSA']) {
    const client = await registered({ id_token_signed_response_alg: alg, userinfo_signed_response_alg: alg })
    const tokens = await signIn(client)
    const { protectedHeader } = await jose.jwtVerify(tokens.id_token, published, { issuer: realm, audience: client.client_id })
    assert.equal(protectedHeader.alg, alg)
    const { type, text } = await userinfo(tokens.access_token)
    assert.match(type, /^application\/jwt/)
    const { payload } = await jose.jwtVerify(text, published, { issuer: realm, audience: client.client_id })
    assert.equal(payload.sub, claims(tokens.id_token).sub)
  }
  const client = await registered({ id_token_signed_response_alg: 'HS256' })
  const { id_token } = await signIn(client)
  await jose.jwtVerify(id_token, new TextEncoder().encode(client.client_secret), { issuer: realm })
  const none = await register({ id_token_signed_response_alg: 'none' })
  assert.deepEqual([none.status, none.error], [400, 'invalid_client_metadata'])
})

test('oidcc-redirect-uri-query-OK, -query-mismatch, -query-added, -regfrag', async () => {
  const redirect_uri = `${callback}?foo=bar`
  const client = await registered({ redirect_uris: [redirect_uri] })
  const { answer } = await signIn(client, { redirect_uri })
  assert.equal(answer.searchParams.get('foo'), 'bar')
  for (const other of [`${callback}?foo=other`, `${redirect_uri}&more=1`, callback]) {
    assert.equal(await shown(address(client, { redirect_uri: other })), 'redirect_uri_mismatch')
  }
  const frag = await register({ redirect_uris: [`${callback}#foo`] })
  assert.deepEqual([frag.status, frag.error], [400, 'invalid_redirect_uri'])
})

test('oidcc-registration-logo-uri, -policy-uri, -tos-uri, -client-uri', async () => {
  const client = await registered({
    client_name: 'Shown',
    logo_uri: `${site.origin}/logo.png`,
    policy_uri: 'https://app.test/policy',
    tos_uri: 'https://app.test/tos',
    client_uri: 'https://app.test/',
  })
  const page = await new Browser().authorize(address(client), { until: 'name="password"' })
  assert.match(page, /Shown/)
  const browser = new Browser()
  const consent = await browser.follow(await browser.fetch(address(client, { prompt: 'consent' })), { until: 'name="approve"' })
  for (const uri of ['https://app.test/policy', 'https://app.test/tos']) assert.ok(consent.includes(uri), uri)
})

test('oidcc-registration-jwks, -jwks-uri; oidcc-refresh-token-rp-key-rotation', async () => {
  const { publicKey, privateKey } = await jose.generateKeyPair('RS256')
  const jwk = { ...(await jose.exportJWK(publicKey)), kid: 'k', use: 'sig', alg: 'RS256' }
  site.pages.set('/client.json', JSON.stringify({ keys: [jwk] }))
  const { kid, use, ...unnamed } = jwk
  for (const [keys, header] of [
    [{ jwks: { keys: [jwk] } }, { kid }],
    [{ jwks: { keys: [unnamed] } }, {}],
    [{ jwks_uri: `${site.origin}/client.json` }, { kid }],
  ]) {
    const client = await registered({ token_endpoint_auth_method: 'private_key_jwt', ...keys })
    const client_assertion = await new jose.SignJWT({ jti: random() })
      .setProtectedHeader({ alg: 'RS256', ...header })
      .setIssuer(client.client_id)
      .setSubject(client.client_id)
      .setAudience(meta.token_endpoint)
      .setIssuedAt()
      .setExpirationTime('1m')
      .sign(privateKey)
    const client_assertion_type = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
    await signIn(client, {}, { authentication: { client_assertion, client_assertion_type } })
  }
})

test('oidcc-registration-sector-uri, -sector-bad', async () => {
  site.pages.set('/sector.json', JSON.stringify([callback]))
  site.pages.set('/bad.json', JSON.stringify(['https://other.test/cb']))
  await registered({ sector_identifier_uri: `${site.origin}/sector.json` })
  const bad = await register({ sector_identifier_uri: `${site.origin}/bad.json` })
  assert.deepEqual([bad.status, bad.error], [400, 'invalid_client_metadata'])
})

test('oidcc-request-uri-signed-rs256, oidcc-request-uri-unsigned', async () => {
  const { publicKey, privateKey } = await jose.generateKeyPair('RS256')
  const jwk = { ...(await jose.exportJWK(publicKey)), kid: 'k', use: 'sig', alg: 'RS256' }
  for (const [alg, named] of [
    ['RS256', { request_object_signing_alg: 'RS256' }],
    ['none', { request_object_signing_alg: 'none' }],
    ['none', {}],
  ]) {
    const request_uri = `${site.origin}/${random()}.jwt`
    const client = await registered({
      request_uris: [request_uri],
      ...named,
      jwks: { keys: [jwk] },
    })
    const inner = { client_id: client.client_id, response_type: 'code', redirect_uri: callback, scope: 'openid', state: random() }
    const object =
      alg === 'none'
        ? new jose.UnsecuredJWT(inner).encode()
        : await new jose.SignJWT({ ...inner, iss: client.client_id, aud: realm }).setProtectedHeader({ alg, kid: 'k' }).sign(privateKey)
    site.pages.set(new URL(request_uri).pathname, object)
    const answer = await new Browser().authorize(address(client, { request_uri, state: undefined, nonce: undefined }))
    assert.equal(answer.searchParams.get('state'), inner.state, alg)
    assert.ok(answer.searchParams.get('code'), answer.href)
  }
})

test('oidcc-registration-read, oidcc-registration-initiate-login-uri', async () => {
  const client = await registered({ initiate_login_uri: 'https://app.test/start' })
  const response = await fetch(client.registration_client_uri, {
    headers: { authorization: `Bearer ${client.registration_access_token}` },
  })
  assert.equal((await response.json()).client_id, client.client_id)
})

test('oidcc-discovery-issuer-not-matching-config: each realm names itself', async () => {
  assert.equal(meta.issuer, realm)
  assert.notEqual(meta.jwks_uri, `${issuer}/connect/jwk_uri`)
  assert.ok(meta.registration_endpoint)
})

// --- back-channel logout

const EVENT = 'http://schemas.openid.net/event/backchannel-logout'

async function session(id = 'told') {
  const browser = new Browser()
  const answer = await browser.authorize(`${issuer}/authorize?${new URLSearchParams(request(id))}`)
  const response = await fetch(`${issuer}/access_token`, {
    method: 'POST',
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code: answer.searchParams.get('code'),
      redirect_uri: callback,
      client_id: id,
      client_secret: `${id}-secret`,
    }),
  })
  return { browser, ...(await response.json()) }
}

const end = (parameters) => `${issuer}/connect/endSession?${new URLSearchParams(parameters)}`
const BYE = 'https://app.test/bye'

test('oidcc-backchannel-rp-initiated-logout', async () => {
  const root = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()
  assert.equal(root.backchannel_logout_supported, true)
  assert.equal(root.backchannel_logout_session_supported, true)
  assert.equal(root.frontchannel_logout_supported, true)
  assert.equal(root.frontchannel_logout_session_supported, true)
  const { browser, id_token } = await session()
  const { sid, sub, aud } = claims(id_token)
  assert.ok(sid)
  const answer = await browser.fetch(end({ id_token_hint: id_token, post_logout_redirect_uri: BYE, state: 's' }))
  assert.equal(answer.headers.get('location'), `${BYE}?state=s`)
  const [posted] = await site.arrived('/backchannel')
  assert.equal(posted.method, 'POST')
  assert.match(posted.headers['content-type'], /^application\/x-www-form-urlencoded/)
  const token = new URLSearchParams(posted.body).get('logout_token')
  const keys = jose.createRemoteJWKSet(new URL(root.jwks_uri))
  const { payload, protectedHeader } = await jose.jwtVerify(token, keys, { issuer, audience: aud })
  assert.equal(protectedHeader.typ, 'logout+jwt')
  assert.equal(protectedHeader.alg, 'RS256')
  assert.equal(payload.sid, sid)
  assert.equal(payload.sub, sub)
  assert.deepEqual(payload.events, { [EVENT]: {} })
  assert.ok(payload.jti && Number.isInteger(payload.iat) && payload.exp - payload.iat <= 120)
  assert.equal(payload.nonce, undefined)
})

test('oidcc-backchannel: every session has its own sid, and only its own ends', async () => {
  const [one, two] = [await session(), await session()]
  assert.notEqual(claims(one.id_token).sid, claims(two.id_token).sid)
  site.requests.length = 0
  await one.browser.fetch(end({ id_token_hint: one.id_token, post_logout_redirect_uri: BYE }))
  const [posted] = await site.arrived('/backchannel')
  const told = claims(new URLSearchParams(posted.body).get('logout_token'))
  assert.equal(told.sid, claims(one.id_token).sid)
  const url = `${issuer}/userinfo`
  const still = await fetch(url, { headers: { authorization: `Bearer ${two.access_token}` } })
  assert.equal(still.status, 200)
})

// --- front-channel logout

test('oidcc-frontchannel-rp-initiated-logout', async () => {
  const { browser, id_token } = await session('framed')
  const answer = await browser.fetch(end({ id_token_hint: id_token, post_logout_redirect_uri: BYE, state: 's' }))
  assert.equal(answer.status, 200)
  const page = await answer.text()
  const frame = /<iframe[^>]* src="([^"]*)"/.exec(page)[1].replaceAll('&amp;', '&').replace(/&#(\d+);/g, (_, n) => String.fromCodePoint(n))
  const url = new URL(frame)
  assert.equal(url.origin + url.pathname, 'https://app.test/framed')
  assert.equal(url.searchParams.get('iss'), issuer)
  assert.equal(url.searchParams.get('sid'), claims(id_token).sid)
  assert.match(answer.headers.get('content-security-policy'), /frame-src[^;]*https:\/\/app\.test/)
  assert.ok(page.includes(BYE), 'it goes on to the client')
})
