// A client of FAPI 2.0 that can do everything wrong.
import { Browser, callback, issuer, keys as clientKeys } from './setting.mjs'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import * as jose from 'jose'

const known = `${issuer}/.well-known/openid-configuration`
export const meta = await (await fetch(known)).json()
export const published = jose.createRemoteJWKSet(new URL(meta.jwks_uri))
export const random = () => crypto.randomUUID() + crypto.randomUUID()
const hash = (text) => createHash('sha256').update(text).digest('base64url')
export const now = () => Math.floor(Date.now() / 1000)

/** The two clients of the plan, and the one that signs its requests. */
export const CLIENTS = { 'fapi-1': 'ES256', 'fapi-2': 'PS256', 'fapi-ms': 'PS256' }

/** Signs with the key of a client. */
export async function sign(alg, header, payload, as = alg) {
  const key = await jose.importPKCS8(clientKeys[alg].pem, as)
  return new jose.SignJWT(payload).setProtectedHeader({ alg: as, kid: clientKeys[alg].jwk.kid, ...header }).sign(key)
}

/** A client assertion; `change` alters its claims, `as` its algorithm. */
function assertion(client_id, change = () => {}, as) {
  const payload = { iss: client_id, sub: client_id, aud: issuer, jti: random(), iat: now(), exp: now() + 60 }
  change(payload)
  return sign(CLIENTS[client_id], {}, payload, as)
}

/** A key pair for proofs. */
export class Key {
  static async make(alg = 'ES256') {
    const pair = await jose.generateKeyPair(alg)
    return Object.assign(new Key(), { alg, ...pair, jwk: await jose.exportJWK(pair.publicKey) })
  }

  async proof(htm, htu, { header = {}, nonce, token, change = () => {} } = {}) {
    const payload = { htm, htu, iat: now(), jti: random(), nonce, ath: token && hash(token) }
    change(payload)
    return new jose.SignJWT(JSON.parse(JSON.stringify(payload)))
      .setProtectedHeader({ alg: this.alg, typ: 'dpop+jwt', jwk: this.jwk, ...header })
      .sign(this.privateKey)
  }
}

/** Posts a form and reads the answer. */
export async function post(url, fields, headers = {}) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined)
  const response = await fetch(url, { method: 'POST', body: new URLSearchParams(given), headers })
  assert.match(response.headers.get('cache-control'), /no-store/)
  return { status: response.status, ...(await response.json()) }
}

/** A flow of one client, from the pushed request to the tokens. */
export class Flow {
  constructor(client = 'fapi-1', key) {
    Object.assign(this, { client, key, verifier: random(), state: random(), nonce: random() })
  }

  get parameters() {
    return {
      response_type: 'code',
      client_id: this.client,
      redirect_uri: callback,
      scope: 'openid email',
      state: this.state,
      nonce: this.nonce,
      code_challenge: hash(this.verifier),
      code_challenge_method: 'S256',
    }
  }

  async authenticated(fields, change, as) {
    return {
      ...fields,
      client_id: this.client,
      client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
      client_assertion: await assertion(this.client, change, as),
    }
  }

  async push(changes = {}, { headers, assertion: change, as } = {}) {
    const fields = await this.authenticated({ ...this.parameters, ...changes }, change, as)
    return post(meta.pushed_authorization_request_endpoint, fields, headers)
  }

  address({ request_uri }, client_id = this.client) {
    return `${meta.authorization_endpoint}?${new URLSearchParams({ client_id, request_uri })}`
  }

  async authorize(changes, how) {
    const pushed = await this.push(changes, how)
    assert.equal(pushed.status, 201, JSON.stringify(pushed))
    assert.match(pushed.request_uri, /^urn:ietf:params:oauth:request_uri:.{22,}$/)
    assert.ok(pushed.expires_in >= 5 && pushed.expires_in <= 600)
    const answer = await new Browser().authorize(this.address(pushed), how)
    assert.equal(answer.searchParams.get('iss'), issuer)
    return Object.fromEntries(answer.searchParams)
  }

  async token(fields, { assertion: change, as, key = this.key, proof } = {}) {
    const dpop = key && (await key.proof('POST', meta.token_endpoint, proof))
    return post(meta.token_endpoint, await this.authenticated(fields, change, as), dpop ? { dpop } : {})
  }

  async exchange(code, more, how) {
    const fields = { grant_type: 'authorization_code', code, redirect_uri: callback, code_verifier: this.verifier, ...more }
    return this.token(fields, how)
  }

  async whole(changes, how) {
    const { code } = await this.authorize(changes, how)
    const tokens = await this.exchange(code)
    assert.equal(tokens.status, 200, JSON.stringify(tokens))
    return tokens
  }

  async resource(token, { scheme = 'DPoP', key = this.key, proof = {} } = {}) {
    const dpop = key && (await key.proof('GET', meta.userinfo_endpoint, { token, ...proof }))
    return fetch(meta.userinfo_endpoint, { headers: { authorization: `${scheme} ${token}`, ...(dpop && { dpop }) } })
  }
}
