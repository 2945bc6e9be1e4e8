// A person in a real browser before services whose users sign in at another
// maker's provider, oidc-provider, by the openid-connect plugin.
import test, { after, before, beforeEach } from 'node:test'
import assert from 'node:assert/strict'
import { shot as keep, start } from './chromium.mjs'
import { door, guarded, reconfigure, service, until } from './gateway.mjs'
import { Foreign, TTL, issuer, key, secret } from './foreign.mjs'

const BYE = `${door}/bye`
const SERVICES = ['shop', 'brief', 'short']
/** Where the provider leads back to; from there to where the person was. */
const back = (name) => `${door}/${name}/callback`

const foreign = new Foreign({
  clients: SERVICES.map((name) => ({
    client_id: name,
    client_secret: secret,
    redirect_uris: [back(name)],
    post_logout_redirect_uris: [BYE],
    grant_types: ['authorization_code', 'refresh_token'],
  })),
  features: { revocation: { enabled: true } },
  rotateRefreshToken: () => true,
  // Of one client they are over at once.
  ttl: { ...TTL, AccessToken: (_, { clientId }) => (clientId === 'brief' ? 1 : 600) },
})

let browser
let page
let context

before(async () => {
  await foreign.open([await key('RS256')])
  await service('bye')
  for (const name of SERVICES) {
    await guarded(name, {
      issuer,
      client_secret: [secret],
      redirect_uri: [back(name)],
      display_errors: true,
      upstream_headers_claims: ['email'],
      upstream_headers_names: ['x-mail'],
      upstream_refresh_token_header: 'x-refresh',
      logout_query_arg: 'bye',
      logout_methods: ['GET'],
      logout_revoke: true,
      logout_redirect_uri: [BYE],
    })
  }
  await reconfigure('shop', { scripts_unauthorized: true })
  await reconfigure('short', { session_absolute_timeout: 3 })
  // Its pages want letters from elsewhere; nobody is asked.
  browser = await start('--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1')
})

after(async () => {
  await browser?.close()
  await foreign.shut()
})

beforeEach(async () => {
  await context?.close()
  context = await browser.newContext({ locale: 'en-GB' })
  context.setDefaultTimeout(60_000)
  page = await context.newPage()
  foreign.asked = []
})

const shot = (page, name) => keep(page, `foreign-${name}`)

/** What the upstream got, as the page shows it. */
const seen = async (page) => JSON.parse(await page.evaluate(() => document.body.innerText))
const mail = async (page) => (await seen(page)).headers['x-mail']

const atLogin = (page) => page.waitForSelector('input[name=login]')
const atConsent = (page) => page.waitForSelector('input[name=prompt][value=consent]', { state: 'attached' })

async function enter(page, user) {
  await atLogin(page)
  await page.fill('input[name=login]', user)
  await page.fill('input[name=password]', 'any')
  await page.click('button[type=submit]')
}

async function agree(page) {
  await atConsent(page)
  await page.click('button[type=submit]')
}

/** Signs in and agrees, and is where it wanted to be. */
async function signIn(page, path) {
  await page.goto(`${door}${path}`)
  await enter(page, 'zoe')
  await agree(page)
  await page.waitForURL(`${door}${path}`)
}

/** A script of the page calls the service, and the page shows what came of it. */
const script = (page, path) =>
  page.evaluate(async (path) => {
    const init = { method: 'POST', body: '{"order":7}', headers: { accept: 'application/json' } }
    const response = await fetch(path, init)
    const answer = { status: response.status, ...(await response.json()) }
    document.body.innerText = JSON.stringify(answer, undefined, 2)
    return answer
  }, path)

test('a person signs in, agrees, and is where they wanted to be', async () => {
  await page.goto(`${door}/shop?a=1`)
  await atLogin(page)
  assert.equal(new URL(page.url()).origin, issuer)
  await shot(page, 'login')
  await enter(page, 'zoe')
  await atConsent(page)
  await shot(page, 'consent')
  await agree(page)
  await page.waitForURL(`${door}/shop?a=1`)
  const { headers, query } = await seen(page)
  assert.deepEqual([headers['x-mail'], query], ['zoe@foreign.example', 'a=1'])
  assert.ok(!String(headers.cookie ?? '').includes('session_shop'))
  await shot(page, 'service')
})

test('a script of a page calls the service, until there is no session', async () => {
  await signIn(page, '/shop')
  const called = await script(page, '/shop/orders?b=2')
  assert.equal(called.status, 200)
  assert.deepEqual([called.method, called.query, called.body], ['POST', 'b=2', '{"order":7}'])
  assert.equal(called.headers['x-mail'], 'zoe@foreign.example')
  await shot(page, 'call')
  await context.clearCookies({ name: 'session_shop' })
  const refused = await script(page, '/shop/orders')
  assert.equal(refused.status, 401)
  assert.ok(refused.login.startsWith(`${door}/shop`), refused.login)
  await shot(page, 'call-refused')
  await page.goto(refused.login)
  await page.waitForURL(`${door}/shop`)
  assert.equal(await mail(page), 'zoe@foreign.example')
})

test('an access token that ends is refreshed, and the person is not led away', async () => {
  await signIn(page, '/brief?n=1')
  const first = (await seen(page)).headers
  foreign.asked = []
  await until(async () => {
    await page.reload()
    assert.equal(page.url(), `${door}/brief?n=1`)
    return (await seen(page)).headers.authorization !== first.authorization
  })
  const { headers } = await seen(page)
  assert.equal(headers['x-mail'], 'zoe@foreign.example')
  assert.notEqual(headers['x-refresh'], first['x-refresh'])
  assert.equal(foreign.count('/auth'), 0)
  await shot(page, 'refresh')
})

test('two tabs sign in one after the other, and sign out together', async () => {
  const other = await context.newPage()
  await page.goto(`${door}/shop?tab=1`)
  await other.goto(`${door}/shop?tab=2`)
  await enter(other, 'ann')
  await agree(other)
  await other.waitForURL(`${door}/shop?tab=2`)
  await enter(page, 'ann')
  await page.waitForURL(`${door}/shop?tab=1`)
  for (const tab of [page, other]) assert.equal(await mail(tab), 'ann@foreign.example')
  await shot(page, 'two-tabs')
  await other.goto(`${door}/shop?bye=1`)
  await other.click('button[value=yes]')
  await other.waitForURL((url) => url.href.startsWith(BYE))
  await page.reload()
  await atLogin(page)
})

test('a person signs out here and there', async () => {
  await signIn(page, '/shop')
  const { 'x-refresh': token } = (await seen(page)).headers
  await page.goto(`${door}/shop?bye=1`)
  await page.waitForSelector('button[value=yes]')
  await shot(page, 'logout')
  await page.click('button[value=yes]')
  await page.waitForURL((url) => url.href.startsWith(BYE))
  await shot(page, 'signed-out')
  const names = (await context.cookies(door)).map(({ name }) => name)
  assert.ok(!names.includes('session_shop'), names.join())
  // When the browser has had its time at the provider.
  await until(() => foreign.asked.some(({ path, body }) => path === '/token/revocation' && body.token === token))
  await page.goto(`${door}/shop`)
  await atLogin(page)
})

test('a session that has expired leads to the provider and back, or to a new login', async () => {
  await signIn(page, '/short?x=1')
  foreign.asked = []
  // As long as the provider knows who it is, nobody is asked.
  await until(async () => {
    await page.reload()
    await page.waitForURL(`${door}/short?x=1`)
    return foreign.count('/auth') > 0
  })
  assert.equal(await mail(page), 'zoe@foreign.example')
  await context.clearCookies({ name: /^_session/ })
  await until(async () => {
    await page.goto(`${door}/short?x=2`)
    return new URL(page.url()).origin === issuer
  })
  await atLogin(page)
  await shot(page, 'expired-session')
  await enter(page, 'zoe')
  await agree(page)
  await page.waitForURL(`${door}/short?x=2`)
})

test('a session that the provider has ended is an error once, and then a login', async () => {
  await signIn(page, '/brief?y=1')
  const { 'x-refresh': token } = (await seen(page)).headers
  const ended = await fetch(`${issuer}/token/revocation`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`brief:${encodeURIComponent(secret)}`)}` },
    body: new URLSearchParams({ token }),
  })
  assert.equal(ended.status, 200)
  let response
  await until(async () => (response = await page.reload()).status() === 401)
  assert.match(await response.text(), /the session is over/)
  await shot(page, 'session-over')
  // With its token the provider has forgotten what the person agreed to.
  await page.reload()
  await agree(page)
  await page.waitForURL(`${door}/brief?y=1`)
  assert.equal(await mail(page), 'zoe@foreign.example')
})

test('a person who does not agree is not let in, and not asked again and again', async () => {
  await page.goto(`${door}/shop?z=1`)
  await enter(page, 'tom')
  await atConsent(page)
  const [response] = await Promise.all([
    page.waitForResponse((response) => response.url().startsWith(back('shop'))),
    page.click('text=[ Cancel ]'),
  ])
  assert.equal(response.status(), 401)
  await page.waitForFunction(() => document.body.innerText.includes('the provider did not let the user in'))
  await shot(page, 'login-refused')
})

test('a provider that is down is an error, and the session is still there when it is back', async () => {
  await signIn(page, '/brief?w=1')
  await foreign.shut()
  let response
  await until(async () => (response = await page.reload()).status() === 500)
  assert.match(await response.text(), /the provider does not answer/)
  await shot(page, 'provider-error')
  await foreign.open(foreign.keys)
  await until(async () => (await page.reload()).status() === 200)
  assert.equal(await mail(page), 'zoe@foreign.example')
  assert.equal(foreign.count('/auth'), 1, 'the one of the login')
})
