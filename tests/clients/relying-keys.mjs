// Programs call services with signed access tokens of another maker's provider,
// oidc-provider, and go on while it changes its keys.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { decodeProtectedHeader } from 'jose'
import { administer, call, guarded, passed, refused, until } from './gateway.mjs'
import { API, Foreign, grant, issuer, key, machine, signed } from './foreign.mjs'

const CALLERS = 8
/** How often each token passes before anything else happens. */
const ENOUGH = 60

const [first, second, third, fourth] = await Promise.all(['RS256', 'RS256', 'ES256', 'RS256'].map(key))
const foreign = new Foreign({
  clients: [machine('machine')],
  features: {
    clientCredentials: { enabled: true },
    resourceIndicators: signed(() => foreign.keys[0].alg),
  },
})

/** A token that this key signed. */
async function token({ kid }) {
  const { access_token: token } = await grant('machine', { grant_type: 'client_credentials', resource: API })
  assert.equal(decodeProtectedHeader(token).kid, kid)
  return token
}

const bearer = (token) => call('steady', { authorization: `Bearer ${token}` })

/** Callers that never stop, each with one of these tokens after the other. */
class Traffic {
  #tokens = new Map()
  #calling = new Map()
  #passed = new Map()
  #refused = []
  #callers = Array.from({ length: CALLERS }, () => this.#run())

  async #run() {
    while (!this.over) {
      for (const [key, token] of this.#tokens) {
        this.#calling.set(key, (this.#calling.get(key) ?? 0) + 1)
        const { status, code } = await bearer(token)
        this.#calling.set(key, this.#calling.get(key) - 1)
        if (status === 200) this.#passed.set(key, (this.#passed.get(key) ?? 0) + 1)
        else this.#refused.push([key.kid, status, code])
      }
      await new Promise(setImmediate)
    }
  }

  /** It comes with a token of this key, too. */
  async add(key) {
    this.#tokens.set(key, await token(key))
    await this.flows()
  }

  /** It comes without from now on, and what has come is answered. */
  async drop(key) {
    this.#tokens.delete(key)
    await until(() => !this.#calling.get(key))
  }

  /** Every token passes, again and again. */
  async flows() {
    this.#passed.clear()
    const keys = [...this.#tokens.keys()]
    await until(() => this.#refused.length > 0 || keys.every((key) => this.#passed.get(key) >= ENOUGH))
    assert.deepEqual(this.#refused, [])
  }

  async end() {
    this.over = true
    await Promise.all(this.#callers)
    assert.deepEqual(this.#refused, [])
  }
}

/** What the gateway holds of the provider. */
async function held() {
  const { data } = await administer('GET', '/openid-connect/issuers')
  const { keys, health } = data.find((one) => one.issuer.startsWith(issuer))
  return { keys: keys.map(({ kid }) => kid).sort(), health }
}

const kids = (...keys) => keys.map(({ kid }) => kid).sort()

/** Until keys that are not known may be asked for again. */
const patience = () => until(async () => Date.now() / 1000 - (await held()).health.last_success_at > 2.1)

let traffic

before(async () => {
  await foreign.open([first])
  await guarded('steady', { issuer, auth_methods: ['bearer'], display_errors: true, rediscovery_lifetime: 1 })
  traffic = new Traffic()
})

after(async () => {
  await traffic?.end()
  await foreign.shut()
})

test('no request fails while the provider changes over to another key', async () => {
  await traffic.add(first)
  // It is announced, and nobody needs it yet.
  foreign.sign([first, second])
  await traffic.flows()
  foreign.sign([second, first])
  foreign.asked = []
  await traffic.add(second)
  assert.equal(foreign.count('/jwks'), 1, 'all callers wait for one fetch')
  assert.deepEqual((await held()).keys, kids(first, second), 'what is published counts')
})

test('tokens of a key that is withdrawn are refused as soon as the gateway knows', async () => {
  foreign.sign([first, second])
  const old = await token(first)
  await passed(bearer(old))
  await patience()
  await traffic.drop(first)
  foreign.sign([third, second])
  // A token of the new key tells it, and that of the old one was remembered.
  await traffic.add(third)
  assert.deepEqual((await held()).keys, kids(second, third))
  const { response, ...answer } = await bearer(old)
  assert.deepEqual([answer.status, answer.code], [401, 'unknown_key'])
  assert.match(response.headers.get('www-authenticate'), /error="invalid_token"/)
  await traffic.flows()
})

test('operators withdraw a key at once', async () => {
  await traffic.drop(second)
  foreign.sign([second, third])
  const old = await token(second)
  await passed(bearer(old))
  foreign.sign([third])
  await administer('DELETE', '/openid-connect/issuers', undefined, 204)
  await traffic.flows()
  assert.deepEqual((await held()).keys, kids(third))
  assert.equal(await refused(bearer(old)), 'unknown_key')
})

test('keys that are held count while the provider is down', async () => {
  foreign.sign([fourth, third])
  const next = await token(fourth)
  await foreign.shut()
  await patience()
  assert.equal(await refused(bearer(next)), 'unknown_key')
  await traffic.flows()
  assert.equal((await held()).health.state, 'down')
  await foreign.open([fourth, third])
  await until(async () => (await bearer(next)).status === 200)
  await traffic.flows()
})
