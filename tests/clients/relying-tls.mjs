// The openid-connect plugin as a client of oidc-provider that proves itself by
// a certificate (RFC 8705).
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createServer } from 'node:https'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { X509Certificate } from 'node:crypto'
import { administer, Browser, door, guarded, plugin, reconfigure, service, until } from './gateway.mjs'
import { authority, key as signer, provider } from './foreign.mjs'

const issuer = `https://${authority}`
const file = (name) => readFileSync(join(process.env.DOORWARD_DIR, name), 'utf8')
const SUBJECT = 'CN=gateway.test'

const ids = {
  known: '00000000-0000-4000-8000-000000000001',
  own: '00000000-0000-4000-8000-000000000002',
  gone: '00000000-0000-4000-8000-000000000009',
}

/** What was asked where: at the plain address, at that for certificates, at a forger's. */
let asked = []
const servers = []

const own = new X509Certificate(file('own.pem'))
const client = (name, method, more) => ({
  client_id: name,
  redirect_uris: [`${door}/${name}`],
  grant_types: ['authorization_code', 'refresh_token'],
  token_endpoint_auth_method: method,
  ...more,
})
const clients = [
  client('tls', 'tls_client_auth', { tls_client_auth_subject_dn: SUBJECT }),
  client('own', 'self_signed_tls_client_auth', {
    jwks: { keys: [{ ...own.publicKey.export({ format: 'jwk' }), x5c: [own.raw.toString('base64')] }] },
  }),
]

const certificate = (context) => context.socket.getPeerX509Certificate?.()

async function open() {
  let handle
  const listen = async (where, at, options) => {
    const server = createServer(options, (request, response) => {
      const { pathname } = new URL(request.url, issuer)
      asked.push({ where, path: pathname, shown: request.socket.getPeerX509Certificate?.()?.fingerprint256 })
      handle(request, response)
    })
    servers.push(server)
    await new Promise((listening) => server.listen(at, '127.0.0.1', listening))
    return `https://127.0.0.1:${server.address().port}`
  }
  const [key, cert, ca] = ['key.pem', 'cert.pem', 'ca.pem'].map(file)
  await listen('plain', new URL(issuer).port, { key, cert })
  const asks = { ca, requestCert: true, rejectUnauthorized: false }
  const base = await listen('alias', 0, { key, cert, ...asks })
  const forged = await listen('forged', 0, { key: file('own.key'), cert: file('own.pem'), ...asks })
  const aliases = {
    token_endpoint: `${base}/token`,
    introspection_endpoint: `${base}/token/introspection`,
    revocation_endpoint: `${base}/token/revocation`,
    userinfo_endpoint: `${base}/me`,
  }
  const one = provider(issuer, {
    clients,
    jwks: { keys: [await signer('RS256')] },
    clientAuthMethods: ['tls_client_auth', 'self_signed_tls_client_auth', 'client_secret_basic'],
    discovery: { mtls_endpoint_aliases: aliases },
    features: {
      introspection: { enabled: true },
      revocation: { enabled: true },
      mTLS: {
        enabled: true,
        tlsClientAuth: true,
        selfSignedTlsClientAuth: true,
        getCertificate: (context) => certificate(context)?.toString(),
        certificateAuthorized: (context) => context.socket.authorized,
        certificateSubjectMatches: (context, _, expected) => certificate(context)?.subject === expected,
      },
    },
  })
  handle = one.callback()
  return forged
}

const config = (name, more) => ({
  issuer,
  client_auth: [clients.find((one) => one.client_id === name).token_endpoint_auth_method],
  display_errors: true,
  cache_introspection: false,
  upstream_headers_claims: ['email'],
  upstream_headers_names: ['x-mail'],
  logout_query_arg: 'bye',
  logout_methods: ['GET'],
  logout_revoke: true,
  search_user_info: true,
  ...more,
})

const at = (path) => asked.filter((one) => one.path === path)
const places = (path) => [...new Set(at(path).map(({ where }) => where))]
const shown = (path) => at(path).at(-1)?.shown

let forged
before(async () => {
  forged = await open()
  for (const name of ['known', 'own']) {
    const body = { id: ids[name], cert: file(`${name}.pem`), key: file(`${name}.key`) }
    await administer('POST', '/certificates', body, 201)
  }
})

after(() => {
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
})

test('a method that needs a certificate is refused without one', async () => {
  await service('none')
  const refused = async (more) => {
    const record = plugin('tls', config('tls', more))
    return JSON.stringify(await administer('POST', '/services/none/plugins', record, 400))
  }
  assert.match(await refused({}), /tls_client_auth_cert_id/)
  assert.match(await refused({ tls_client_auth_cert_id: 'a name' }), /tls_client_auth_cert_id.*UUID/)
  assert.match(await refused({ tls_client_auth_cert_id: ids.gone }), new RegExp(ids.gone))
  const plain = { mtls_token_endpoint: 'http://127.0.0.1/token', tls_client_auth_cert_id: ids.known }
  assert.match(await refused(plain), /mtls_token_endpoint/)
  const endpoint = { client_auth: ['none'], token_endpoint_auth_method: 'self_signed_tls_client_auth' }
  assert.match(await refused(endpoint), /tls_client_auth_cert_id/)
})

for (const [name, certificate] of [['tls', 'known'], ['own', 'own']]) {
  test(`the gateway is a client by the certificate of ${name}`, async () => {
    asked = []
    await guarded(name, config(name, { tls_client_auth_cert_id: ids[certificate] }))
    const { fingerprint256 } = new X509Certificate(file(`${certificate}.pem`))
    const browser = new Browser()
    const seen = await browser.json(`/${name}?a=1`)
    assert.equal(seen.headers['x-mail'], 'zoe@foreign.example')
    assert.equal(seen.query, 'a=1')
    // Whoever proves itself by a certificate does that where it is asked for.
    assert.deepEqual(places('/token'), ['alias'])
    assert.equal(shown('/token'), fingerprint256)
    assert.deepEqual(places('/me'), ['alias'])
    assert.ok(!places('/.well-known/openid-configuration').includes('alias'))
    const bearer = await fetch(`${door}/${name}`, { headers: { authorization: seen.headers.authorization } })
    assert.equal(bearer.status, 200, await bearer.text())
    assert.deepEqual(places('/token/introspection'), ['alias'])
    assert.equal(shown('/token/introspection'), fingerprint256)
    await browser.fetch(`${door}/${name}?bye`)
    const revoked = await fetch(`${door}/${name}`, { headers: { authorization: seen.headers.authorization } })
    assert.equal(revoked.status, 401)
    // The refresh token follows when the browser has had its time at the provider.
    await until(() => at('/token/revocation').length === 2)
    assert.deepEqual(places('/token/revocation'), ['alias'])
  })
}

test('a certificate that is replaced is in force at once', async () => {
  const replace = (name) =>
    administer('PATCH', `/certificates/${ids.known}`, { cert: file(`${name}.pem`), key: file(`${name}.key`) })
  const login = () => new Browser('again').go(`${door}/tls`)
  await replace('other')
  const refused = await login()
  assert.equal(refused.response.status, 500)
  assert.match(refused.body, /refuses the gateway/)
  assert.equal(shown('/token'), new X509Certificate(file('other.pem')).fingerprint256)
  await replace('known')
  const again = await login()
  assert.equal(again.response.status, 200, again.body)
})

test('a certificate in use stays', async () => {
  const answer = await administer('DELETE', `/certificates/${ids.known}`, undefined, 400)
  assert.match(JSON.stringify(answer), /plugins/)
})

test('the provider must be who it says where certificates are shown', async () => {
  const login = () => new Browser('careful').go(`${door}/tls`)
  asked = []
  // `ssl_verify` says nothing about these.
  await reconfigure('tls', { mtls_token_endpoint: `${forged}/token`, ssl_verify: false })
  const refused = await login()
  assert.equal(refused.response.status, 500)
  assert.match(refused.body, /does not answer/)
  assert.deepEqual(places('/token'), [])
  await reconfigure('tls', { tls_client_auth_ssl_verify: false })
  const trusted = await login()
  assert.equal(trusted.response.status, 200, trusted.body)
  assert.deepEqual(places('/token'), ['forged'])
})
