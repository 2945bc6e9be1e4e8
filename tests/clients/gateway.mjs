// The gateway as the client of a provider of another maker, and how it is told
// on the admin listener to be that.
import assert from 'node:assert/strict'
import { Browser as Visitor } from './visitor.mjs'
import { authority } from './foreign.mjs'

export const door = process.env.DOORWARD_BASE
const admin = process.env.DOORWARD_ADMIN.replace(/\/$/, '')
/** Where users are led who have signed out: nobody's. */
export const BYE = 'https://app.test/bye'

/** Goes between gateway and provider. */
export class Browser extends Visitor {
  constructor(user) {
    super([door, `http://${authority}`, `https://${authority}`], user)
  }
}

/** Asks the admin listener. */
export async function administer(method, path, body, wanted = 200) {
  const response = await fetch(`${admin}${path}`, {
    method,
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  const text = await response.text()
  assert.equal(response.status, wanted, text)
  return text ? JSON.parse(text) : undefined
}

/** The plugin before the service of this name, as the client of this name. */
export const plugin = (name, config) => ({
  name: 'openid-connect',
  config: {
    client_id: [name],
    redirect_uri: [`${door}/${name}`],
    session_secret: `of ${name}`,
    session_cookie_name: `session_${name.replaceAll('-', '_')}`,
    ...config,
  },
})

/** A service of this name that says what came to it. */
export async function service(name) {
  await administer('POST', '/services', { name, protocol: 'internal', host: 'echo' }, 201)
  await administer('POST', `/services/${name}/routes`, { paths: [`/${name}`], strip_path: false }, 201)
}

/** A service behind the plugin. */
export async function guarded(name, config) {
  await service(name)
  await administer('POST', `/services/${name}/plugins`, plugin(name, config), 201)
}

/** Changes the plugin before a service. */
export async function reconfigure(name, config) {
  const { data } = await administer('GET', `/services/${name}/plugins`)
  await administer('PATCH', `/plugins/${data[0].id}`, { config })
}

/** Calls the service of this name as a program: status, the code of the refusal
 *  if it is one, the answer and its body. The plugin needs `display_errors`. */
export async function call(name, headers, init) {
  const response = await fetch(`${door}/${name}`, { headers, redirect: 'manual', ...init })
  const body = await response.json()
  const [, code] = /\((\w+): .*\)$/.exec(body.message ?? '') ?? []
  return { status: response.status, code, response, body }
}

/** The code by which the call was refused with this status. */
export async function refused(calling, status = 401) {
  const { code, ...answer } = await calling
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return code
}

/** What the upstream got of a call that passes. */
export async function passed(calling) {
  const { status, body } = await calling
  assert.equal(status, 200, JSON.stringify(body))
  return body
}

/** Waits for what comes by itself. */
export async function until(holds) {
  for (let waited = 0; waited < 60_000; waited += 20) {
    if (await holds()) return
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.fail(`it never came that ${holds}`)
}
