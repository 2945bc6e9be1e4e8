// A browser with an authenticator of its own: second factors, passkeys alone,
// and the account page, as people meet them.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { accessible, shot, start, watch } from './chromium.mjs'

const base = process.env.DOORWARD_LOCAL
const account = `${base}/oauth2/account`
let browser

before(async () => {
  browser = await start()
})
after(() => browser?.close())

/** A person's browser, which notes what no page may do. */
async function person(options = {}) {
  const context = await browser.newContext({ locale: 'en-GB', ...options })
  const violations = []
  await watch(context, (what) => violations.push(what))
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  return {
    context,
    page,
    async leave() {
      await context.close()
      assert.deepEqual(violations, [])
    },
  }
}

/** Gives the page an authenticator; `present`: its user touches it at once. */
async function authenticator(page, present = true) {
  const session = await page.context().newCDPSession(page)
  await session.send('WebAuthn.enable', { enableUI: false })
  const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      ctap2Version: 'ctap2_1',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: present,
    },
  })
  return {
    credentials: async () =>
      (await session.send('WebAuthn.getCredentials', { authenticatorId })).credentials,
    present: (enabled) =>
      session.send('WebAuthn.setAutomaticPresenceSimulation', { authenticatorId, enabled }),
  }
}

async function signIn(page, user) {
  await page.goto(account)
  await page.fill('#username', user)
  await page.fill('#password', `Ch4ng31t-${user}`)
  await page.click('#login')
}

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** The code of an app with this key, some steps of the clock from now. */
function code(key, steps = 0) {
  const bits = [...key.replace(/\s/g, '')].map((c) => alphabet.indexOf(c).toString(2).padStart(5, '0'))
  const secret = Buffer.from(bits.join('').match(/.{8}/g).map((byte) => parseInt(byte, 2)))
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + steps))
  const mac = createHmac('sha1', secret).update(counter).digest()
  const word = mac.readUInt32BE(mac[19] & 15) & 0x7fffffff
  return String(word % 1_000_000).padStart(6, '0')
}

test('an app is enrolled without scripts, and asked for', async () => {
  const { page, leave } = await person({ javaScriptEnabled: false })
  await signIn(page, 'demo')
  await shot(page, 'account-empty')
  await page.click('#add-factor')
  await shot(page, 'factor-add')
  const key = await page.textContent('#totp-key')
  await page.fill('#code', '000000')
  await page.click('#enrol-totp')
  assert.equal(await page.textContent('#doorward-error'), 'invalid_code')
  assert.equal(await page.textContent('#totp-key'), key)
  // Each later than the last, and a step may end while it is on its way.
  await page.fill('#code', code(key))
  await page.click('#enrol-totp')
  await page.waitForSelector('#recovery-codes')
  const codes = await page.locator('#recovery-codes code').allTextContents()
  assert.equal(codes.length, 10)
  await shot(page, 'recovery-codes')
  await page.click('#continue')
  await page.waitForSelector('#add-factor')
  assert.match(await page.textContent('main'), /Authenticator app/)
  await page.context().clearCookies()
  await signIn(page, 'demo')
  await shot(page, 'factor')
  await page.fill('#code', '000000')
  await page.click('#verify')
  assert.equal(await page.textContent('#doorward-error'), 'invalid_code')
  await page.fill('#code', code(key, 1))
  await page.click('#verify')
  await page.waitForSelector('#add-factor')
  await page.context().clearCookies()
  await signIn(page, 'demo')
  await page.click('summary')
  await page.fill('#recovery', codes[0].toLowerCase())
  await page.click('#recover')
  assert.match(await page.textContent('#codes-left'), /9/)
  await leave()
})

test('a passkey is enrolled, and then the only thing that is needed', async () => {
  const { page, leave } = await person()
  const device = await authenticator(page)
  await signIn(page, 'alice')
  await page.click('#add-factor')
  await page.waitForSelector('#passkey:not([hidden])')
  await accessible(page)
  await page.fill('#passkey-name', 'This machine')
  await page.click('#use-passkey')
  await page.waitForSelector('#recovery-codes')
  const [credential] = await device.credentials()
  assert.equal(credential.rpId, 'localhost')
  assert.equal(credential.isResidentCredential, true)
  await accessible(page)
  await page.click('#continue')
  await page.waitForSelector('#add-factor')
  assert.match(await page.textContent('main'), /This machine/)
  await accessible(page)
  await shot(page, 'account')
  // Whoever touches nothing is asked for nothing.
  await device.present(false)
  await page.context().clearCookies()
  await page.goto(account)
  await page.waitForSelector('#passkey:not([hidden])')
  assert.equal(await page.getAttribute('#username', 'autocomplete'), 'username webauthn')
  await accessible(page)
  await shot(page, 'sign-in-passkey')
  await device.present(true)
  await page.click('#use-passkey')
  await page.waitForSelector('#add-factor')
  assert.match(await page.textContent('main'), /alice/)
  await leave()
})

test('a passkey follows the password, and what was called off is said', async () => {
  const { page, leave } = await person()
  const device = await authenticator(page)
  await signIn(page, 'bob')
  await page.click('#add-factor')
  await page.click('#use-passkey')
  await page.waitForSelector('#recovery-codes')
  await device.present(false)
  await page.context().clearCookies()
  await signIn(page, 'bob')
  await page.waitForSelector('#passkey:not([hidden])')
  await accessible(page)
  await shot(page, 'factor-passkey')
  await device.present(true)
  await page.click('#use-passkey')
  await page.waitForSelector('#add-factor')
  // The same authenticator again: the browser knows it.
  await page.click('#add-factor')
  await page.click('#use-passkey')
  await page.waitForFunction(() => document.querySelector('[role=status]').textContent !== '')
  assert.match(await page.textContent('[role=status]'), /already/)
  await leave()
})

test('browsers offer passkeys where the name is typed', async () => {
  const { page, leave } = await person()
  await authenticator(page)
  await signIn(page, 'carol')
  await page.click('#add-factor')
  await page.click('#use-passkey')
  await page.waitForSelector('#recovery-codes')
  await page.context().clearCookies()
  await page.goto(account)
  // The authenticator of this browser answers for its user at once.
  await page.waitForSelector('#add-factor')
  assert.match(await page.textContent('main'), /carol/)
  await leave()
})

test('in German, in the dark and on a telephone', async () => {
  const { page, leave } = await person({
    locale: 'de-DE',
    colorScheme: 'dark',
    viewport: { width: 360, height: 740 },
  })
  await signIn(page, 'dora')
  await page.waitForSelector('#add-factor')
  await accessible(page)
  await shot(page, 'account-de-dark-narrow')
  await page.click('#add-factor')
  await accessible(page)
  await shot(page, 'factor-add-de-dark-narrow')
  const width = () => document.documentElement.scrollWidth - document.documentElement.clientWidth
  assert.equal(await page.evaluate(width), 0)
  await leave()
})
