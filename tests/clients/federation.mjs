// A person signs in through other providers: a foreign one (oidc-provider, which
// is certified), and another realm of our own.
import { base, Browser, challenge, claims, issuer as root, verifier } from './setting.mjs'
import { accessible, close, launch, person, shot, signIn, told } from './chromium.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { Foreign, issuer as abroad } from './foreign.mjs'

const realm = `${root}/realms/root/realms/federated`

/** Who can sign in at the foreign provider, by the name that is typed there. */
const people = {
  zoe: { email: 'zoe@foreign.example', email_verified: true, name: 'Zoe F', preferred_username: 'zoe' },
  mallory: { email: 'linked@example.com', email_verified: false, preferred_username: 'mallory' },
  linda: { email: 'linked@example.com', email_verified: true, preferred_username: 'linda' },
}

const foreign = new Foreign({
  clients: [
    {
      client_id: 'door',
      client_secret: 'door secret/+:',
      redirect_uris: [`${realm}/federation/foreign/callback`],
    },
    {
      client_id: 'strict',
      client_secret: 'strict-secret',
      token_endpoint_auth_method: 'client_secret_post',
      redirect_uris: [`${realm}/federation/strict/callback`],
    },
  ],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'preferred_username'] },
  conformIdTokenClaims: true,
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
})

before(async () => {
  await launch()
  await foreign.open()
})

after(async () => {
  await close()
  await foreign.shut()
})

/** The address of an authorization request to the realm. */
function request(parameters = {}) {
  const url = new URL(`${realm}/authorize`)
  url.search = new URLSearchParams({
    client_id: 'site',
    redirect_uri: 'https://app.test/cb',
    response_type: 'code',
    scope: 'openid profile email',
    state: 'a state',
    code_challenge: challenge,
    code_challenge_method: 'S256',
    ...parameters,
  })
  return url.href
}

/** What the client learns of its user for a code. */
async function user(code) {
  const response = await fetch(`${realm}/access_token`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa('site:site-secret')}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code,
      redirect_uri: 'https://app.test/cb',
      code_verifier: verifier,
    }),
  })
  const tokens = await response.json()
  assert.equal(response.status, 200, JSON.stringify(tokens))
  return claims(tokens.id_token)
}

/** Runs a command of the program on the realm. */
async function doorward(...words) {
  const { DOORWARD_PROGRAM, DOORWARD_DIR } = process.env
  const [command, action, ...more] = words
  const where = ['-c', `${DOORWARD_DIR}/doorward.yaml`, '--realm', '/federated']
  await promisify(execFile)(DOORWARD_PROGRAM, [command, ...where, action, ...more])
}

/** Signs in and agrees at the foreign provider. */
async function signInThere(page, name) {
  await page.waitForURL((url) => url.origin === abroad)
  await page.fill('input[name=login]', name)
  await page.fill('input[name=password]', 'any')
  await page.click('button[type=submit]')
  await page.waitForSelector('input[name=prompt][value=consent]', { state: 'attached' })
  await page.click('button[type=submit]')
}

/** What its pages fetch from elsewhere. */
const FONTS = 'https://fonts.googleapis.com/'

/** A browser that is allowed to go there. */
async function traveller() {
  const here = await person()
  const { context, leave, seen } = here
  await context.route(`${FONTS}**`, (route) => route.fulfill({ body: '' }))
  return {
    ...here,
    leave: async () => {
      // What its own pages do is its own affair.
      const own = (text) => text.includes(abroad) || text.includes(FONTS)
      for (const name of Object.keys(seen)) seen[name] = seen[name].filter((text) => !own(text))
      await leave()
    },
  }
}

test('a person signs in at a foreign provider, and is known again', async () => {
  for (const time of ['first', 'second']) {
    const { page, leave } = await traveller()
    await page.goto(request())
    await accessible(page)
    await shot(page, 'sign-in-with-providers')
    await page.click('#federation-foreign')
    await signInThere(page, 'zoe')
    const { code, state, iss } = await told(page)
    assert.deepEqual([state, iss], ['a state', realm], time)
    const { sub } = await user(code)
    assert.equal(sub, 'zoe@foreign')
    await leave()
  }
})

test('who says no there is led back to the page, which says so', async () => {
  const { page, leave } = await traveller()
  await page.goto(request())
  await page.click('#federation-foreign')
  await page.waitForURL((url) => url.origin === abroad)
  await page.click('a[href$="/abort"]')
  await page.waitForURL((url) => url.origin === base)
  assert.equal(await page.textContent('#doorward-error'), 'federation_cancelled')
  await accessible(page)
  await shot(page, 'sign-in-cancelled-elsewhere')
  await signIn(page, 'local')
  assert.ok((await told(page)).code)
  await leave()
})

test('an account is linked by an address that both sides have verified, and by no other', async () => {
  const record = JSON.stringify({ emails: [{ value: 'linked@example.com', primary: true, verified: true }] })
  await doorward('users', 'add', 'linda.local', '--no-password', '--record', record)
  const first = await traveller()
  await first.page.goto(request())
  await first.page.click('#federation-strict')
  await signInThere(first.page, 'mallory')
  await first.page.waitForURL((url) => url.origin === base)
  assert.equal(await first.page.textContent('#doorward-error'), 'federation_no_account')
  await first.leave()
  const second = await traveller()
  await second.page.goto(request())
  await second.page.click('#federation-strict')
  await signInThere(second.page, 'linda')
  const { code } = await told(second.page)
  assert.equal((await user(code)).sub, 'linda.local')
  await second.leave()
})

test('another realm is a provider like any other, and knows us by our keys', async () => {
  const { page, leave } = await traveller()
  await page.goto(request())
  await page.click('#federation-own')
  await page.waitForURL((url) => url.pathname.includes('/realms/upstream/'))
  await signIn(page, 'uma')
  const { code } = await told(page)
  assert.equal((await user(code)).sub, 'uma')
  await leave()
})

test('a browser that comes with the answer to another one is sent away', async () => {
  const [one, other] = [new Browser(), new Browser()]
  const answers = []
  for (const browser of [one, other]) {
    const page = await (await browser.fetch(request())).text()
    const [, href] = /id="federation-foreign" href="([^"]*)"/.exec(page)
    const way = new URL(href.replaceAll('&#38;', '&').replaceAll('&amp;', '&'), base)
    const away = new URL((await browser.fetch(way)).headers.get('location'))
    answers.push(`${realm}/federation/foreign/callback?code=x&state=${away.searchParams.get('state')}`)
  }
  const mixed = await one.fetch(answers[1], { headers: { accept: 'text/html' } })
  assert.equal(mixed.status, 400)
  assert.equal(mixed.headers.getSetCookie().length, 0)
  const own = await one.fetch(answers[0])
  assert.equal(own.status, 302)
  assert.match(own.headers.get('location'), /doorward_federation=failed$/)
})
