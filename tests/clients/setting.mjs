// What the scripts share: where the provider is, the clients' keys, and a
// browser without scripts that signs people in.
import { readFileSync } from 'node:fs'
import { webcrypto } from 'node:crypto'
import assert from 'node:assert/strict'

// Node 18 has it, but not as a global.
globalThis.crypto ??= webcrypto

export const base = process.env.DOORWARD_BASE
export const issuer = `${base}/oauth2`
export const strict = `${base}/oauth2/realms/root/realms/strict`
export const admin = process.env.DOORWARD_ADMIN
export const keys = JSON.parse(readFileSync(process.env.DOORWARD_KEYS))
export const callback = 'https://app.test/cb'
export const desk = { id: 'front desk+1:100%', secret: 's3cr:et+ %41&=/é' }

/** A verifier of PKCE and its challenge (RFC 7636, appendix B). */
export const verifier = 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk'
export const challenge = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
export const random = () => crypto.randomUUID().replaceAll('-', '')

/** An authorization request; undefined leaves a parameter out. */
export function request(client_id, changes = {}) {
  const all = {
    client_id,
    redirect_uri: callback,
    response_type: 'code',
    scope: 'openid',
    state: random(),
    nonce: random(),
    ...changes,
  }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
}

/** How the Web Crypto API names the algorithm of a JWS. */
const ALGORITHMS = {
  ES256: { name: 'ECDSA', namedCurve: 'P-256' },
  EdDSA: { name: 'Ed25519' },
  RS256: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
  PS256: { name: 'RSA-PSS', hash: 'SHA-256' },
}

/** The private key of a client, to sign with. */
export async function privateKey(alg) {
  const der = Buffer.from(keys[alg].pem.replace(/-----[^-]+-----|\s/g, ''), 'base64')
  const key = await crypto.subtle.importKey('pkcs8', der, ALGORITHMS[alg], false, ['sign'])
  return { key, kid: keys[alg].jwk.kid }
}

const unescaped = (text) =>
  text.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code)).replaceAll('&amp;', '&')

/** The only form of a page: its action and its hidden fields. */
export function form(html) {
  const action = /<form method="post" action="([^"]*)"/.exec(html)
  assert.ok(action, `a page without form: ${html}`)
  const fields = new URLSearchParams()
  for (const [input] of html.matchAll(/<input type="hidden"[^>]*>/g)) {
    const attribute = (name) => unescaped(new RegExp(` ${name}="([^"]*)"`).exec(input)[1])
    fields.append(attribute('name'), attribute('value'))
  }
  return { action: unescaped(action[1]), fields, html }
}

/** A browser that keeps cookies and fills in forms. */
export class Browser {
  cookies = new Map()

  async fetch(url, init = {}) {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const headers = { ...init.headers, ...(cookie && { cookie }) }
    const response = await fetch(url, { ...init, headers, redirect: 'manual' })
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)
      if (/max-age=0/i.test(line)) this.cookies.delete(name)
      else this.cookies.set(name, value)
    }
    return response
  }

  /** Goes on from here until the client is reached: its address, or the form
   *  that is posted to it; or until a page has this text: that page. */
  async follow(response, { user = 'demo', password = `Ch4ng31t-${user}`, decide = 'approve', until } = {}) {
    for (let steps = 0; steps < 10; steps += 1) {
      if ([301, 302, 303].includes(response.status)) {
        const next = new URL(response.headers.get('location'), base)
        if (next.origin !== new URL(base).origin) return next
        response = await this.fetch(next)
        continue
      }
      assert.equal(response.status, 200, await response.clone().text())
      const page = form(await response.text())
      if (until && page.html.includes(until)) return page.html
      if (page.html.includes('id="continue"')) return page
      if (page.html.includes('name="password"')) {
        page.fields.set('username', user)
        page.fields.set('password', password)
        page.fields.set('login', 'true')
      } else {
        page.fields.set(decide, 'true')
      }
      response = await this.fetch(new URL(page.action, base), { method: 'POST', body: page.fields })
    }
    assert.fail('the provider leads in circles')
  }

  /** Lets a device in, or not, at the address that it shows: the last page. */
  async decide(url, { user = 'demo', decide = 'approve' } = {}) {
    let response = await this.fetch(url)
    for (let steps = 0; steps < 10; steps += 1) {
      if (response.status === 303) {
        response = await this.fetch(new URL(response.headers.get('location'), base))
        continue
      }
      assert.equal(response.status, 200, await response.clone().text())
      const html = await response.text()
      if (!html.includes('<form')) return html
      const page = form(html)
      const answer = html.includes('name="password"')
        ? { username: user, password: `Ch4ng31t-${user}`, login: 'true' }
        : { [decide]: 'true' }
      for (const [name, value] of Object.entries(answer)) page.fields.set(name, value)
      response = await this.fetch(new URL(page.action, base), { method: 'POST', body: page.fields })
    }
    assert.fail('the provider leads in circles')
  }

  /** Opens an authorization request and follows it to the client. */
  async authorize(url, how) {
    return this.follow(await this.fetch(url), how)
  }
}

/** The claims of a JWT, not verified. */
export const claims = (jwt) => JSON.parse(Buffer.from(jwt.split('.')[1], 'base64url'))

/** A statement of the trusted issuer that this is its user. */
export async function statement(subject = 'demo') {
  const { SignJWT } = await import('jose')
  const { key, kid } = await privateKey('ES256')
  return new SignJWT()
    .setProtectedHeader({ alg: 'ES256', kid })
    .setIssuer('https://trusted.example')
    .setSubject(subject)
    .setAudience(issuer)
    .setIssuedAt()
    .setExpirationTime('1m')
    .setJti(crypto.randomUUID())
    .sign(key)
}

export const grants = {
  device: 'urn:ietf:params:oauth:grant-type:device_code',
  assertion: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
  exchange: 'urn:ietf:params:oauth:grant-type:token-exchange',
}

/** What a refused request was told: the library's error, or, where a challenge
 *  hides it, that of the body. */
export async function refusal(promise) {
  let thrown
  await promise.then(
    () => assert.fail('it was not refused'),
    (error) => (thrown = error),
  )
  const hidden = thrown.code === 'OAUTH_WWW_AUTHENTICATE_CHALLENGE'
  const error = hidden ? (await thrown.response.json()).error : thrown.error
  assert.ok(error, thrown.stack)
  return { status: thrown.status, error, challenges: hidden ? thrown.cause : [] }
}
