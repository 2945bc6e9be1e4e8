// Access tokens of another maker's provider, oidc-provider, that are bound to a
// key (RFC 9449), signed and opaque, before the openid-connect plugin.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { Browser, call, door, guarded, passed, refused } from './gateway.mjs'
import { API, Foreign, grant, issuer, key, machine, secret, signed } from './foreign.mjs'

const ALGORITHMS = ['ES256', 'EdDSA', 'RS256', 'PS256']

const login = (id, more) => ({ client_id: id, client_secret: secret, redirect_uris: [`${door}/${id}`], ...more })

const foreign = new Foreign({
  clients: [
    machine('machine', { dpop_bound_access_tokens: true }),
    machine('careless'),
    login('mixed'),
    login('demanding', { dpop_bound_access_tokens: true }),
  ],
  enabledJWA: { dPoPSigningAlgValues: ALGORITHMS },
  features: {
    introspection: { enabled: true },
    clientCredentials: { enabled: true },
    dPoP: { enabled: true },
    resourceIndicators: signed(),
  },
})

/** Who holds a key. */
class Holder {
  static async of(alg) {
    const holder = new Holder()
    const pair = await generateKeyPair(alg, { extractable: true })
    holder.alg = alg
    holder.private = pair.privateKey
    holder.jwk = await exportJWK(pair.publicKey)
    return holder
  }

  /** A proof for a request; `undefined` leaves a claim out. */
  async proof(htm, htu, token, claims = {}, header = {}) {
    const ath = token && createHash('sha256').update(token).digest('base64url')
    const all = { jti: randomUUID(), iat: now(), htm, htu, ath, ...claims }
    const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
    const protectedHeader = { alg: this.alg, typ: 'dpop+jwt', jwk: this.jwk, ...header }
    return new SignJWT(given).setProtectedHeader(protectedHeader).sign(this.private)
  }

  /** A token that is bound to the key. */
  async token(resource) {
    const dpop = await this.proof('POST', `${issuer}/token`)
    const form = { grant_type: 'client_credentials', ...(resource && { resource }) }
    const { access_token: token, token_type: kind } = await grant('machine', form, { dpop })
    assert.equal(kind, 'DPoP')
    return token
  }
}

const now = () => Math.floor(Date.now() / 1000)
const show = (name, token, dpop, scheme = 'DPoP') =>
  call(name, { authorization: `${scheme} ${token}`, ...(dpop && { dpop }) })

/** The services, and for what resource the tokens are that they take. */
const SERVICES = { signed: API, opaque: undefined }
const STRICT = { issuer, display_errors: true, proof_of_possession_dpop: 'strict' }
let owner

before(async () => {
  await foreign.open([await key('RS256')])
  owner = await Holder.of('ES256')
  await guarded('signed', { ...STRICT, auth_methods: ['bearer'] })
  await guarded('opaque', {
    ...STRICT,
    auth_methods: ['introspection'],
    client_id: ['careless'],
    client_secret: [secret],
  })
})

after(() => foreign.shut())

for (const [name, resource] of Object.entries(SERVICES)) {
  const url = `${door}/${name}`

  test(`a token that is bound passes with its proof alone: ${name}`, async () => {
    const token = await owner.token(resource)
    const good = await owner.proof('GET', url, token)
    const seen = await passed(show(name, token, good))
    assert.equal(seen.headers.authorization, `Bearer ${token}`)
    assert.equal(seen.headers.dpop, undefined)
    const [stranger, another] = [await Holder.of('ES256'), await owner.token(resource)]
    const { privateKey } = owner
    const own = (claims, header) => owner.proof('GET', url, token, claims, header)
    for (const [what, proof, code] of [
      ['no proof', undefined, 'no_proof'],
      ['a proof that was used', good, 'proof_repeated'],
      ["another's key", await stranger.proof('GET', url, token), 'wrong_proof'],
      ["another's key in the place of its own", await stranger.proof('GET', url, token, {}, { jwk: owner.jwk }), 'wrong_proof'],
      ['another token', await owner.proof('GET', url, another), 'wrong_proof'],
      ['no token', await own({ ath: undefined }), 'wrong_proof'],
      ['another method', await own({ htm: 'POST' }), 'wrong_proof'],
      ['a method in other letters', await own({ htm: 'get' }), 'wrong_proof'],
      ['another path', await own({ htu: `${door}/other` }), 'wrong_proof'],
      ['another host', await own({ htu: `http://other.test/${name}` }), 'wrong_proof'],
      ['another scheme', await own({ htu: url.replace('http:', 'https:') }), 'wrong_proof'],
      ['no address', await own({ htu: undefined }), 'wrong_proof'],
      ['no identifier', await own({ jti: undefined }), 'wrong_proof'],
      ['an old one', await own({ iat: now() - 301 }), 'wrong_proof'],
      ['one of tomorrow', await own({ iat: now() + 86_400 }), 'wrong_proof'],
      ['no time', await own({ iat: undefined }), 'wrong_proof'],
      ['another type', await own({}, { typ: 'JWT' }), 'wrong_proof'],
      ['a private key', await own({}, { jwk: await exportJWK(owner.private) }), 'wrong_proof'],
      ['no signature', (await own()).replace(/[^.]+$/, ''), 'wrong_proof'],
      ['two proofs', `${await own()}, ${await own()}`, 'wrong_proof'],
      ['no proof at all', 'x', 'wrong_proof'],
    ]) {
      const { status, code: told, response } = await show(name, token, proof)
      assert.deepEqual([status, told], [401, code], what)
      assert.match(response.headers.get('www-authenticate'), /^DPoP .*error="invalid_dpop_proof"/, what)
    }
    assert.equal(await refused(show(name, token, await own(), 'Bearer')), 'unproven_token')
    // What was refused was not used up.
    const post = await owner.proof('POST', url, token)
    assert.equal(await refused(show(name, token, post)), 'wrong_proof')
    await passed(call(name, { authorization: `DPoP ${token}`, dpop: post }, { method: 'POST' }))
    // The address is without its query (RFC 9449 §4.2).
    await passed(show(`${name}?a=1`, token, await own()))
  })

  test(`a token that is bound to nothing proves nothing: ${name}`, async () => {
    const form = { grant_type: 'client_credentials', ...(resource && { resource }) }
    const { access_token: token } = await grant('careless', form)
    const proof = () => owner.proof('GET', url, token)
    assert.equal(await refused(show(name, token, await proof(), 'Bearer')), 'unproven_token')
    assert.equal(await refused(show(name, token, await proof())), 'unproven_token')
  })

  test(`a proof that is shown twenty times at once is good once: ${name}`, async () => {
    const token = await owner.token(resource)
    const proof = await owner.proof('GET', url, token)
    const answers = await Promise.all(Array.from({ length: 20 }, () => show(name, token, proof)))
    const codes = answers.map(({ status, code }) => code ?? status).sort()
    assert.deepEqual(codes, [200, ...Array(19).fill('proof_repeated')])
  })
}

for (const alg of ALGORITHMS) {
  test(`keys for ${alg} prove`, async () => {
    const holder = await Holder.of(alg)
    for (const [name, resource] of Object.entries(SERVICES)) {
      const token = await holder.token(resource)
      await passed(show(name, token, await holder.proof('GET', `${door}/${name}`, token)))
    }
  })
}

test('where a proof is optional, a bound token needs it and no other does', async () => {
  await guarded('optional', { ...STRICT, auth_methods: ['bearer'], proof_of_possession_dpop: 'optional' })
  const bound = await owner.token(API)
  const { access_token: free } = await grant('careless', { grant_type: 'client_credentials', resource: API })
  const proof = (token) => owner.proof('GET', `${door}/optional`, token)
  await passed(show('optional', bound, await proof(bound)))
  await passed(show('optional', free, undefined, 'Bearer'))
  assert.equal(await refused(show('optional', bound, undefined)), 'no_proof')
  assert.equal(await refused(show('optional', bound, undefined, 'Bearer')), 'unproven_token')
  assert.equal(await refused(show('optional', free, await proof(free))), 'unproven_token')
})

test('the gateway asks for a nonce of its own', async () => {
  await guarded('nonce', { ...STRICT, auth_methods: ['bearer'], dpop_use_nonce: true })
  const token = await owner.token(API)
  const prove = async (nonce) => show('nonce', token, await owner.proof('GET', `${door}/nonce`, token, { nonce }))
  const { status, code, response } = await prove()
  assert.deepEqual([status, code], [401, 'proof_nonce_wanted'])
  assert.match(response.headers.get('www-authenticate'), /error="use_dpop_nonce"/)
  await passed(prove(response.headers.get('dpop-nonce')))
  assert.equal(await refused(prove('another')), 'proof_nonce_wanted')
})

test('a method that proves nothing is no way around', async () => {
  const config = {
    ...STRICT,
    auth_methods: ['session', 'bearer', 'authorization_code'],
    client_id: ['mixed'],
    client_secret: [secret],
  }
  await assert.rejects(guarded('unproven', config), /authorization_code proves no possession/)
  // Who says that people need none lets them in, and programs not.
  await guarded('mixed', { ...config, proof_of_possession_auth_methods_validation: false })
  const browser = new Browser()
  for (let visit = 0; visit < 2; visit += 1) await browser.json('/mixed')
  const { access_token: free } = await grant('careless', { grant_type: 'client_credentials', resource: API })
  assert.equal(await refused(show('mixed', free, undefined, 'Bearer')), 'unproven_token')
  const token = await owner.token(API)
  await passed(show('mixed', token, await owner.proof('GET', `${door}/mixed`, token)))
})

test('a provider that wants proofs of the gateway itself lets nobody in, and none goes in circles', async () => {
  await guarded('demanding', { issuer, display_errors: true, client_secret: [secret] })
  const { response, body } = await new Browser().go(`${door}/demanding`)
  assert.equal(response.status, 401)
  assert.match(body, /the provider does not take the code/)
})
