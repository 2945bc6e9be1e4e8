// A provider of another maker: oidc-provider, which is certified.
import { createServer } from 'node:http'
import { once } from 'node:events'
import { webcrypto } from 'node:crypto'
import Provider from 'oidc-provider'
import MemoryAdapter from 'oidc-provider/lib/adapters/memory_adapter.js'
import { calculateJwkThumbprint, exportJWK, generateKeyPair } from 'jose'

// Node 18 has it, but not as a global.
globalThis.crypto ??= webcrypto

export const authority = `127.0.0.1:${process.env.DOORWARD_UPSTREAM}`
export const issuer = `http://${authority}`
/** Of every client that has one. */
export const secret = 'a secret of more than thirty-two characters'

/** How long what it gives lives, in seconds. */
export const TTL = { AccessToken: 600, IdToken: 600, ClientCredentials: 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 }

/** A private key of its own to sign with. */
export async function key(alg) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = await exportJWK(privateKey)
  return { ...jwk, alg, use: 'sig', kid: await calculateJwkThumbprint(jwk) }
}

/** What others may know of it. */
export const publicOf = ({ d, p, q, dp, dq, qi, ...jwk }) => jwk

/** Asks the token endpoint of a provider, as a client with a secret. */
export async function grant(client, form, headers, at = issuer) {
  const response = await fetch(`${at}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`${client}:${encodeURIComponent(secret)}`)}`, ...headers },
    body: new URLSearchParams(form),
  })
  return response.json()
}

/** A client that is a program. */
export const machine = (id, more) => ({
  client_id: id,
  client_secret: secret,
  redirect_uris: [],
  response_types: [],
  grant_types: ['client_credentials'],
  ...more,
})

/** The service that asks for signed tokens. */
export const API = 'https://api.test/'

/** The feature that makes them, signed by `alg()`. */
export const signed = (alg = () => 'RS256') => ({
  enabled: true,
  defaultResource: () => undefined,
  getResourceServerInfo: (_, resource) => ({
    scope: 'read write',
    audience: resource,
    accessTokenFormat: 'jwt',
    jwt: { sign: { alg: alg() } },
  }),
})

/** A provider that lets everybody in, by any name. */
export function provider(issuer, { features, ...config }) {
  return new Provider(issuer, {
    // What it knows outlives what opens and shuts.
    adapter: class extends MemoryAdapter {},
    cookies: { keys: ['for a test'] },
    features: { devInteractions: { enabled: true }, ...features },
    claims: { openid: ['sub', 'email'] },
    conformIdTokenClaims: false,
    issueRefreshToken: async (_, { grantTypes }) => grantTypes.includes('refresh_token'),
    ttl: TTL,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@foreign.example` }) }),
    ...config,
  })
}

/** A provider at work. */
export class Foreign {
  /** What it was asked, and how that ended; the oldest first. */
  asked = []
  /** The keys that it publishes. */
  keys
  #config
  #prepare
  #at
  #answer
  #server = createServer((request, response) => this.#answer(request, response))

  /** `prepare` is shown each provider before it works; `at` is where it is. */
  constructor(config, prepare = () => {}, at = issuer) {
    this.#config = config
    this.#prepare = prepare
    this.#at = at
  }

  /** Publishes these keys from now on, and signs with the first that fits. */
  sign(keys) {
    this.keys = keys
    const one = provider(this.#at, { ...this.#config, ...(keys && { jwks: { keys } }) })
    one.use(async (context, next) => {
      await next()
      const { path, status, oidc } = context
      this.asked.push({ path, status, route: oidc?.route, body: oidc?.body })
    })
    this.#prepare(one)
    this.#answer = one.callback()
  }

  async open(keys) {
    this.sign(keys)
    this.#server.listen(new URL(this.#at).port, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async shut() {
    this.#server.closeAllConnections()
    await new Promise((closed) => this.#server.close(closed))
  }

  /** How often it was asked this since `asked` was emptied. */
  count(path) {
    return this.asked.filter((one) => one.path === path).length
  }
}
